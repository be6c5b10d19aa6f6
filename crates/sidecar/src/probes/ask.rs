//! One check of a workload, as a kubelet does it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderName, HeaderValue, Request};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use myriad_base::tls::{Anybody, ServerVerifier};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use super::check::{Form, HttpGet};

/// The source address of checks: rules let it pass, so that they reach the workload and not the
/// proxy.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);

/// Asks, and returns a status of HTTP.
pub(super) async fn ask(form: &Form, pod: IpAddr, asker: &HeaderValue) -> anyhow::Result<u16> {
    match form {
        Form::TcpSocket(socket) => {
            dial(pod, socket.port).await?;
            Ok(200)
        }
        Form::HttpGet(get) => {
            let stream = dial(pod, get.port).await?;
            let request = request(get, pod, asker)?;
            match &*get.scheme {
                "" | "HTTP" | "http" => exchange(stream, request).await,
                _ => {
                    let connector = TlsConnector::from(tls()?);
                    let stream = connector.connect(ServerName::IpAddress(pod.into()), stream);
                    exchange(stream.await?, request).await
                }
            }
        }
        Form::Grpc(grpc) => check_health(dial(pod, grpc.port).await?, &grpc.service).await,
    }
}

async fn dial(pod: IpAddr, port: u16) -> anyhow::Result<TcpStream> {
    let to = SocketAddr::new(pod, port);
    let dialled = async {
        let socket = match to {
            SocketAddr::V4(_) => {
                let socket = TcpSocket::new_v4()?;
                socket.bind((SOURCE, 0).into())?;
                socket
            }
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.connect(to).await
    };
    dialled
        .await
        .with_context(|| format!("no connection to port {port}"))
}

fn request(
    get: &HttpGet,
    pod: IpAddr,
    asker: &HeaderValue,
) -> anyhow::Result<Request<Empty<Bytes>>> {
    let slash = if get.path.starts_with('/') { "" } else { "/" };
    let mut request = Request::get(format!("{slash}{}", get.path)).body(Empty::new())?;
    let headers = request.headers_mut();
    let host = SocketAddr::new(pod, get.port).to_string();
    headers.insert(http::header::HOST, HeaderValue::from_str(&host)?);
    headers.insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    headers.insert(http::header::ACCEPT, HeaderValue::from_static("*/*"));
    headers.insert(http::header::USER_AGENT, asker.clone());
    for header in &get.http_headers {
        let name = HeaderName::from_bytes(header.name.as_bytes())?;
        headers.insert(name, HeaderValue::from_str(&header.value)?);
    }
    Ok(request)
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Empty<Bytes>>,
) -> anyhow::Result<u16> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut answer = std::pin::pin!(sender.send_request(request));
    // The head is all that is looked at; the body goes with the connection.
    let answer = tokio::select! {
        answer = &mut answer => answer?,
        ended = connection => {
            ended?;
            answer.await?
        }
    };
    Ok(answer.status().as_u16())
}

/// The health check of gRPC (`grpc.health.v1.Health/Check`).
async fn check_health(stream: TcpStream, service: &str) -> anyhow::Result<u16> {
    let (sender, connection) = h2::client::handshake(stream).await?;
    let asked = async {
        let mut sender = sender.ready().await?;
        let request = Request::post("http://workload/grpc.health.v1.Health/Check")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(())?;
        let (answer, mut body) = sender.send_request(request, false)?;
        body.send_data(health_request(service)?, true)?;
        let mut answer = answer.await?;
        let said = answer.headers().get("grpc-status").cloned();
        let mut message = BytesMut::new();
        while let Some(data) = answer.body_mut().data().await {
            let data = data?;
            answer
                .body_mut()
                .flow_control()
                .release_capacity(data.len())?;
            if message.len() + data.len() > 1_024 {
                bail!("the answer to a health check is no such answer");
            }
            message.put(data);
        }
        let trailers = answer.body_mut().trailers().await?.unwrap_or_default();
        let status = said.as_ref().or_else(|| trailers.get("grpc-status"));
        if status.is_none_or(|status| status != "0") {
            bail!("gRPC status {status:?}");
        }
        // Field 1 is the status of the service, and 1 says that it serves.
        Ok(if message.get(5..) == Some(&[0x08, 0x01]) {
            200
        } else {
            503
        })
    };
    tokio::select! {
        asked = asked => asked,
        ended = connection => {
            ended?;
            bail!("the connection ended before the answer")
        }
    }
}

/// The message `HealthCheckRequest`, framed.
fn health_request(service: &str) -> anyhow::Result<Bytes> {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        let length = u8::try_from(service.len()).ok().filter(|it| *it < 128);
        message.put_u8(0x0a);
        message.put_u8(length.context("the name of the service is over 127 bytes")?);
        message.put(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len())?);
    framed.put(message);
    Ok(framed.freeze())
}

/// Settings that believe any server on the Pod's own address, as kubelets do.
fn tls() -> anyhow::Result<Arc<ClientConfig>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let anybody = Arc::new(ServerVerifier::new(Anybody, provider.clone()));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(anybody)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
