//! The way to a controller: TLS against roots that are read anew for every attempt, so that they
//! can be exchanged under a running proxy.

use std::future::Future;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::Context as _;
use myriad_sync::transport::Connection;
use myriad_sync::{Connect, TcpConnect};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::settings;

/// The largest token or file of roots that is read.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Makes connections to controllers.
pub(super) struct Link {
    address: String,
    name: ServerName<'static>,
    ca_file: PathBuf,
}

impl Link {
    /// Connects to the controllers of the settings.
    ///
    /// # Errors
    /// The host is no name.
    pub(super) fn new(settings: &settings::Proxy) -> anyhow::Result<Link> {
        let (host, port) = &settings.controller;
        let name = ServerName::try_from(host.clone());
        Ok(Link {
            address: format!("{host}:{port}"),
            name: name.with_context(|| format!("--controller: {host:?} is no host"))?,
            ca_file: settings.ca_file.clone(),
        })
    }

    fn tls(&self) -> io::Result<Arc<ClientConfig>> {
        let text = read_small(&self.ca_file)?;
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let added = root.map(|root| roots.add(root).is_ok());
            if !added.unwrap_or(false) {
                let path = self.ca_file.display();
                return Err(io::Error::other(format!("{path}: not a root in PEM")));
            }
        }
        let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

impl Connect for Link {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Connection>> + Send + '_>> {
        Box::pin(async {
            let connect = TcpConnect {
                address: self.address.clone(),
                tls: Some((self.tls()?, self.name.clone())),
            };
            connect.connect().await
        })
    }
}

/// Reads a small text file.
pub(super) fn read_small(path: &Path) -> io::Result<String> {
    let place =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(place)?;
    let mut text = String::new();
    #[expect(
        clippy::disallowed_methods,
        reason = "the reader ends behind FILE_BYTES_MAX"
    )]
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(place)?;
    Ok(text)
}
