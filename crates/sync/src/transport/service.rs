//! The gRPC service `myriad.sync.v1.Sync`, written by hand: it has one method.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::BoxFuture;
use tonic::codegen::{Body, StdError, http};
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

use super::codec::Encoded;
use super::server::Streams;
use crate::wire::{FromProxy, MESSAGE_BYTES_MAX};

/// The path of the method.
pub(super) const FOLLOW: &str = "/myriad.sync.v1.Sync/Follow";

/// The messages that the server sends, encoded already.
pub(super) type Outgoing = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// The service, as the HTTP server calls it.
#[derive(Clone)]
pub(super) struct SyncService(pub(super) Arc<Streams>);

impl<B> Service<http::Request<B>> for SyncService
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let follow = Follow(self.0.clone());
        Box::pin(async move {
            if request.uri().path() != FOLLOW {
                return Ok(Status::unimplemented("no such method").into_http());
            }
            let mut grpc = Grpc::new(Encoded).max_decoding_message_size(MESSAGE_BYTES_MAX);
            Ok(grpc.streaming(follow, request).await)
        })
    }
}

struct Follow(Arc<Streams>);

impl StreamingService<FromProxy> for Follow {
    type Response = Bytes;
    type ResponseStream = Outgoing;
    type Future = BoxFuture<'static, Result<Response<Outgoing>, Status>>;

    fn call(&mut self, request: Request<Streaming<FromProxy>>) -> Self::Future {
        let streams = self.0.clone();
        Box::pin(async move { streams.open(request).await.map(Response::new) })
    }
}
