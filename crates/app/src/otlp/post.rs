//! The connection to a collector: plain HTTP/1.1, kept for the next message.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use myriad_base::task;
use tokio::net::TcpStream;

/// How long one message may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The port of OTLP over HTTP.
const PORT: u16 = 4_318;

type Problem = Box<dyn std::error::Error + Send + Sync>;
type Sender = SendRequest<Full<Bytes>>;

/// The place of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    host: String,
    port: u16,
    /// Before `/v1/metrics`, without a slash at its end.
    path: String,
}

impl Collector {
    /// Reads `http://HOST[:PORT][/PATH]`.
    ///
    /// # Errors
    /// It is no such URL.
    pub fn parse(url: &str) -> Result<Collector, String> {
        let wrong = || format!("{url:?} is not http://HOST[:PORT][/PATH]");
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty());
        let is_plain = uri.scheme_str() == Some("http") && uri.query().is_none();
        let host = host.filter(|_| is_plain).ok_or_else(wrong)?;
        Ok(Collector {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(PORT),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    fn authority(&self) -> String {
        let Collector { host, port, .. } = self;
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

/// A connection that is opened when it is needed.
pub(super) struct Connection {
    collector: Collector,
    sender: Option<Sender>,
}

impl Connection {
    pub(super) fn new(collector: Collector) -> Self {
        Connection {
            collector,
            sender: None,
        }
    }

    /// Posts a message to a path of the collector.
    ///
    /// # Errors
    /// It was not taken, or nobody answered in time.
    pub(super) async fn post(&mut self, path: &str, message: Bytes) -> Result<(), Problem> {
        let posted = tokio::time::timeout(TIMEOUT, self.exchange(path, message)).await;
        posted.unwrap_or_else(|_| Err(format!("no answer in {TIMEOUT:?}").into()))
    }

    async fn exchange(&mut self, path: &str, message: Bytes) -> Result<(), Problem> {
        // One that was kept may have been closed meanwhile: a message that comes twice says the
        // same again, but one that never comes is lost.
        if let Some(mut sender) = self.sender.take()
            && sender.ready().await.is_ok()
            && let Ok(status) = self.send(sender, path, message.clone()).await
        {
            return taken(status);
        }
        let sender = self.connect().await?;
        taken(self.send(sender, path, message).await?)
    }

    async fn send(
        &mut self,
        mut sender: Sender,
        path: &str,
        message: Bytes,
    ) -> Result<u16, Problem> {
        let request = Request::post(format!("{}{path}", self.collector.path))
            .header(HOST, self.collector.authority())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(message))?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        // Read to its end, so that the connection can be used again.
        Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await?;
        self.sender = Some(sender);
        Ok(status)
    }

    async fn connect(&self) -> Result<Sender, Problem> {
        let place = (&*self.collector.host, self.collector.port);
        let tcp = TcpStream::connect(place).await?;
        let (sender, connection) = handshake(TokioIo::new(tcp)).await?;
        drop(task::spawn("otlp connection", async move {
            // Whoever sends learns of an error as well.
            let _ = connection.await;
        }));
        Ok(sender)
    }
}

fn taken(status: u16) -> Result<(), Problem> {
    match status {
        200..300 => Ok(()),
        status => Err(format!("status {status}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::Collector;

    #[test]
    fn a_collector_is_a_url_of_plain_http() {
        let read = |url: &str| {
            let collector = Collector::parse(url).expect("a collector");
            (collector.authority(), collector.path)
        };
        let expected = |authority: &str, path: &str| (authority.to_owned(), path.to_owned());
        assert_eq!(read("http://otel.obs"), expected("otel.obs:4318", ""));
        assert_eq!(read("http://127.0.0.1:9/"), expected("127.0.0.1:9", ""));
        assert_eq!(read("http://[::1]:9/a/b/"), expected("[::1]:9", "/a/b"));
        for wrong in [
            "",
            "otel:4318",
            "https://otel",
            "http://",
            "http://a/?b",
            "grpc://a:1",
        ] {
            assert!(Collector::parse(wrong).is_err(), "{wrong}");
        }
    }
}
