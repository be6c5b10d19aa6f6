//! The messages of `envoy.service.auth.v3.Authorization`, as far as they are said and heard here.
//!
//! Names and numbers of fields are those of Envoy's API (envoyproxy/envoy, Apache License 2.0):
//! `service/auth/v3/{external_auth,attribute_context}.proto` and what they refer to. Fields that
//! are left out are neither sent nor read.

use std::collections::BTreeMap;

use bytes::Bytes;

/// A request to the provider.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckRequest {
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<AttributeContext>,
}

/// The properties of a request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AttributeContext {
    #[prost(message, optional, tag = "1")]
    pub source: Option<Party>,
    #[prost(message, optional, tag = "2")]
    pub destination: Option<Party>,
    #[prost(message, optional, tag = "4")]
    pub request: Option<ContextRequest>,
    #[prost(message, optional, tag = "12")]
    pub tls_session: Option<TlsSession>,
}

/// One end of a connection.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Party {
    #[prost(message, optional, tag = "1")]
    pub address: Option<Address>,
    #[prost(string, tag = "4")]
    pub principal: String,
}

/// An address of one kind.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Address {
    #[prost(message, optional, tag = "1")]
    pub socket_address: Option<SocketAddress>,
}

/// An IP address and a port.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SocketAddress {
    #[prost(string, tag = "2")]
    pub address: String,
    #[prost(uint32, tag = "3")]
    pub port_value: u32,
}

/// A request and when it came.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ContextRequest {
    #[prost(message, optional, tag = "1")]
    pub time: Option<Timestamp>,
    #[prost(message, optional, tag = "2")]
    pub http: Option<HttpRequest>,
}

/// A moment.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A request of HTTP.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpRequest {
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub headers: BTreeMap<String, String>,
    #[prost(string, tag = "4")]
    pub path: String,
    #[prost(string, tag = "5")]
    pub host: String,
    #[prost(string, tag = "6")]
    pub scheme: String,
    #[prost(int64, tag = "9")]
    pub size: i64,
    #[prost(string, tag = "10")]
    pub protocol: String,
    #[prost(string, tag = "11")]
    pub body: String,
    #[prost(bytes = "bytes", tag = "12")]
    pub raw_body: Bytes,
}

/// The session of the TLS handshake.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TlsSession {
    #[prost(string, tag = "1")]
    pub sni: String,
}

/// The provider's answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<RpcStatus>,
    #[prost(oneof = "HttpResponse", tags = "2, 3")]
    pub http_response: Option<HttpResponse>,
}

/// A status of gRPC.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// The meaning of the answer for the request and its response.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum HttpResponse {
    /// The request does not pass.
    #[prost(message, tag = "2")]
    Denied(DeniedHttpResponse),
    /// It passes.
    #[prost(message, tag = "3")]
    Ok(OkHttpResponse),
}

/// The answer to the client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeniedHttpResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<CheckHeaderOption>,
    #[prost(string, tag = "3")]
    pub body: String,
}

/// A status of HTTP.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// The changes to a request that passes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OkHttpResponse {
    #[prost(message, repeated, tag = "2")]
    pub headers: Vec<CheckHeaderOption>,
    #[prost(string, repeated, tag = "5")]
    pub headers_to_remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub response_headers_to_add: Vec<CheckHeaderOption>,
}

/// A header and how it is put in.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CheckHeaderOption {
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    #[prost(message, optional, tag = "2")]
    pub append: Option<BoolValue>,
}

/// A header.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

/// Yes, no, or nothing said.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BoolValue {
    #[prost(bool, tag = "1")]
    pub value: bool,
}
