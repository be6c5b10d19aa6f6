//! One kept connection of HTTP/2 without TLS that takes one request after the other, plain ones or
//! unary calls of gRPC.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Method, Request, StatusCode};

use super::client::{connect_tcp, within};
use super::{Failure, Trouble};

/// The bytes before each message of gRPC: whether it is compressed, and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// A message of gRPC without a field.
const EMPTY: &[u8] = &[0; PREFIX_BYTES];

/// The windows of a stream and of a connection: no answer waits for either.
const STREAM_WINDOW_BYTES: u32 = 2 << 20;
const WINDOW_BYTES: u32 = 16 << 20;

/// A request by HTTP/2, and the address that it goes to.
#[derive(Clone, Debug)]
pub struct StreamRequest {
    /// The address.
    pub address: SocketAddr,
    /// The host, with its port where it has one.
    pub host: String,
    /// The path; of a call, its service and method.
    pub path: String,
    /// The length of the answer's body, or of a call's message.
    pub body_bytes: usize,
    /// Whether it is a call of gRPC, whose own message is empty.
    pub is_grpc: bool,
}

/// A connection for such requests.
pub(crate) struct StreamClient {
    sender: SendRequest<Bytes>,
    request: StreamRequest,
}

impl StreamClient {
    /// Connects by TCP, and greets.
    pub(crate) async fn connect(request: &StreamRequest) -> Result<StreamClient, Failure> {
        let connect = connect_tcp(request.address);
        let socket = within(connect, Trouble::Connect).await?;
        let mut builder = Builder::new();
        builder.initial_window_size(STREAM_WINDOW_BYTES);
        builder.initial_connection_window_size(WINDOW_BYTES);
        builder.enable_push(false);
        let handshake = async {
            let greeted = builder.handshake::<_, Bytes>(socket).await;
            greeted.map_err(|error| (Trouble::Handshake, error.to_string()))
        };
        let (sender, connection) = within(handshake, Trouble::Handshake).await?;
        // Requests on it say why it ended.
        tokio::spawn(async move { drop(connection.await) });
        Ok(StreamClient {
            sender,
            request: request.clone(),
        })
    }

    /// Sends the request and reads its answer, which must be as long as the request says.
    pub(crate) async fn ask(&mut self) -> Result<(), Failure> {
        within(self.exchange(), Trouble::Connection).await
    }

    async fn exchange(&mut self) -> Result<(), Failure> {
        let is_grpc = self.request.is_grpc;
        let head = self.request.head().map_err(breaking)?;
        let mut sender = self.sender.clone().ready().await.map_err(breaking)?;
        let (response, mut message) = sender.send_request(head, !is_grpc).map_err(breaking)?;
        if is_grpc {
            let sent = message.send_data(Bytes::from_static(EMPTY), true);
            sent.map_err(breaking)?;
        }
        let response = response.await.map_err(breaking)?;
        if response.status() != StatusCode::OK {
            return wrong(response.status().to_string());
        }
        let mut body = response.into_body();
        let mut body_bytes = 0;
        while let Some(part) = body.data().await {
            let part = part.map_err(breaking)?.len();
            body_bytes += part;
            let released = body.flow_control().release_capacity(part);
            released.map_err(breaking)?;
        }
        if body_bytes != self.request.answer_bytes() {
            return wrong(format!("the body has {body_bytes} bytes"));
        }
        if !is_grpc {
            return Ok(());
        }
        let trailers = body.trailers().await.map_err(breaking)?;
        let status = trailers.as_ref().and_then(|all| all.get("grpc-status"));
        match status {
            Some(status) if status == "0" => Ok(()),
            status => wrong(format!("the status of the call is {status:?}")),
        }
    }
}

impl StreamRequest {
    fn head(&self) -> http::Result<Request<()>> {
        let uri = format!("http://{}{}", self.host, self.path);
        let request = Request::builder().uri(uri);
        let request = match self.is_grpc {
            true => request
                .method(Method::POST)
                .header("content-type", "application/grpc")
                .header("te", "trailers"),
            false => request,
        };
        request.body(())
    }

    /// The length of the body that answers it.
    fn answer_bytes(&self) -> usize {
        match self.is_grpc {
            true => PREFIX_BYTES + self.body_bytes,
            false => self.body_bytes,
        }
    }
}

fn breaking(error: impl std::fmt::Display) -> Failure {
    (Trouble::Connection, error.to_string())
}

fn wrong(text: String) -> Result<(), Failure> {
    Err((Trouble::Answer, text))
}
