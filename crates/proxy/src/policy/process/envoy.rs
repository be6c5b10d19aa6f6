//! The messages of `envoy.service.ext_proc.v3.ExternalProcessor`, as far as they are said and
//! heard here.
//!
//! Names and numbers of fields are those of Envoy's API (envoyproxy/envoy, Apache License 2.0):
//! `service/ext_proc/v3/external_processor.proto` and what it refers to. Fields that are left out
//! are neither sent nor read.

use bytes::Bytes;

use crate::policy::check::envoy::{BoolValue, HeaderValue, HttpStatus};

/// A message to the processor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    #[prost(oneof = "ProcessingPart", tags = "2, 3, 4")]
    pub request: Option<ProcessingPart>,
}

/// One part of a request or its response.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ProcessingPart {
    /// The head of the request.
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    /// The head of the response.
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    /// The body of the request.
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
}

/// A head.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

/// Headers in their order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// A body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpBody {
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

/// An answer of the processor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    #[prost(oneof = "ProcessingReply", tags = "1, 2, 3, 7")]
    pub response: Option<ProcessingReply>,
}

/// The answer to a part, or what the client gets at once.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ProcessingReply {
    /// The answer to the head of the request.
    #[prost(message, tag = "1")]
    RequestHeaders(PartResponse),
    /// The answer to the head of the response.
    #[prost(message, tag = "2")]
    ResponseHeaders(PartResponse),
    /// The answer to the body of the request.
    #[prost(message, tag = "3")]
    RequestBody(PartResponse),
    /// The answer to the client instead of everything else.
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// The answer to a head or a body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartResponse {
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// The changes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonResponse {
    /// 0 goes on, 1 goes on with another message.
    #[prost(int32, tag = "1")]
    pub status: i32,
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub body_mutation: Option<BodyMutation>,
}

/// The changes to headers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<ProcessHeaderOption>,
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

/// A header and how it is put in.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessHeaderOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    #[prost(message, optional, tag = "2")]
    pub append: Option<BoolValue>,
    /// 0 is not said, 1 adds where there is none, 2 replaces, 3 replaces where there is one.
    #[prost(int32, tag = "3")]
    pub append_action: i32,
}

/// The change to a body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BodyMutation {
    #[prost(oneof = "NewBody", tags = "1, 2")]
    pub mutation: Option<NewBody>,
}

/// The new body.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum NewBody {
    /// This.
    #[prost(bytes = "bytes", tag = "1")]
    Body(Bytes),
    /// Nothing, where it is true.
    #[prost(bool, tag = "2")]
    Clear(bool),
}

/// The answer to the client at once.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    #[prost(message, optional, tag = "4")]
    pub grpc_status: Option<GrpcStatus>,
}

/// A status of gRPC.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GrpcStatus {
    #[prost(uint32, tag = "1")]
    pub status: u32,
}
