//! A client that believes the authority alone: an answer to it is one with a certificate that the
//! authority has issued for the name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The start of a good answer.
const GOOD: &[u8; 12] = b"HTTP/1.1 200";

/// Makes fresh connections. Cheap to clone.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Client {
    /// A client of one listener, which believes these roots, in PEM.
    pub(super) fn new(address: SocketAddr, roots_pem: &[u8]) -> anyhow::Result<Client> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(roots_pem) {
            roots.add(root?)?;
        }
        ensure!(!roots.is_empty(), "the authority has a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(Client {
            address,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Asks a host once on a connection of its own; the certificate, in DER, with which it was
    /// answered 200.
    pub(super) async fn ask(&self, host: &str) -> anyhow::Result<Vec<u8>> {
        let asked = tokio::time::timeout(TIMEOUT, self.exchange(host)).await;
        asked.context("no answer in time")?
    }

    async fn exchange(&self, host: &str) -> anyhow::Result<Vec<u8>> {
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned())?;
        let mut stream = self.connector.connect(name, socket).await?;
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = [0; GOOD.len()];
        stream.read_exact(&mut head).await?;
        let text = String::from_utf8_lossy(&head);
        ensure!(head == *GOOD, "the answer begins with {text:?}");
        let (_, session) = stream.get_ref();
        let leaf = session.peer_certificates().and_then(<[_]>::first);
        Ok(leaf.context("there is a certificate")?.to_vec())
    }
}
