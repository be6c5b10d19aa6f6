//! The real client of a proxy without its proxy: it follows a controller and counts.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use myriad_base::hold::{HoldLimits, Holds};
use myriad_sync::transport::Connection;
use myriad_sync::{ClientSettings, Connect};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How a controller is reached and known, and who followers are to it. Cheap to clone.
#[derive(Clone)]
pub struct Way {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
    token: Arc<str>,
}

/// Bytes that arrived on the connections of one follower, those of TCP's payload: TLS and HTTP/2
/// are in them.
#[derive(Clone, Debug, Default)]
pub struct Received(Arc<AtomicU64>);

/// Makes connections whose bytes are counted.
struct Counted {
    way: Way,
    received: Received,
}

/// A connection whose bytes are counted.
struct Counting {
    stream: TcpStream,
    received: Received,
}

impl Way {
    /// A way to this address, whose certificate is of these roots.
    ///
    /// # Errors
    /// The roots are no PEM.
    pub fn new(address: SocketAddr, roots_pem: &str, token: &str) -> anyhow::Result<Way> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(roots_pem.as_bytes()) {
            roots.add(root?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A proxy keeps no session from one connection to the next.
        config.resumption = Resumption::disabled();
        Ok(Way {
            address,
            tls: Arc::new(config),
            token: token.into(),
        })
    }

    /// The same way for another follower.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Way {
        Way {
            token: token.into(),
            ..self.clone()
        }
    }

    /// The same way to another controller.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Way {
        Way {
            address,
            ..self.clone()
        }
    }

    /// The settings of a follower.
    pub fn settings(&self, instance: String, received: Received) -> ClientSettings {
        let token = self.token.clone();
        ClientSettings {
            schema_max: myriad_model::wire::SCHEMA,
            instance,
            connect: Arc::new(Counted {
                way: self.clone(),
                received,
            }),
            token: Arc::new(move || Ok(token.to_string())),
            holds: Holds::new(HoldLimits::NONE),
        }
    }
}

impl Received {
    /// How many so far.
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connect for Counted {
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async {
            let stream = TcpStream::connect(self.way.address).await?;
            stream.set_nodelay(true)?;
            let counting = Counting {
                stream,
                received: self.received.clone(),
            };
            let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
            let connector = TlsConnector::from(self.way.tls.clone());
            Ok(Connection::new(connector.connect(name, counting).await?))
        })
    }
}

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let more = buffer.filled().len() - before;
        self.received.0.fetch_add(more as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
