//! The server that requests go to, out of a URL, and the request.

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use http::Uri;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::probe::client_config;

/// The longest file of roots.
const ROOTS_BYTES_MAX: u64 = 1 << 20;

/// The authorities that vouch for a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trust<'a> {
    /// Nobody has to.
    Anybody,
    /// The authorities of this file in PEM.
    Roots(&'a Path),
    /// Nobody was named.
    Unsaid,
}

/// A server.
pub(crate) struct Destination {
    pub(crate) address: SocketAddr,
    /// The settings of TLS and the name that a certificate must have; none for plain HTTP.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The host with its port, where that is not the usual one.
    authority: String,
    path: String,
}

/// The parts of a request that are not in the URL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extra<'a> {
    /// Header fields, each as `Name: value`. `Host` takes the place of that of the URL.
    pub headers: &'a [String],
    /// The body; with one it is a POST.
    pub payload: Option<&'a str>,
}

impl Destination {
    /// The server of a URL, at the address that is given or at the one that its name has.
    pub(crate) fn new(
        url: &str,
        resolved: Option<IpAddr>,
        trust: Trust<'_>,
    ) -> anyhow::Result<Destination> {
        let uri: Uri = url.parse().with_context(|| format!("{url:?} is no URL"))?;
        let authority = uri.authority();
        let authority = authority.with_context(|| format!("{url:?} names no server"))?;
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("{url:?} is neither http:// nor https://"),
        };
        let port = authority.port_u16();
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        let address = match resolved {
            Some(ip) => SocketAddr::new(ip, port),
            None => {
                let mut found = (bare, port).to_socket_addrs()?;
                let first = found.next();
                first.with_context(|| format!("{host} has no address"))?
            }
        };
        let tls = match is_tls {
            true => Some((settings(trust)?, ServerName::try_from(bare.to_owned())?)),
            false => None,
        };
        let path = uri.path_and_query();
        Ok(Destination {
            address,
            tls,
            authority: authority.as_str().to_owned(),
            path: path.map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// The bytes of a request.
    pub(crate) fn request(&self, extra: Extra<'_>) -> anyhow::Result<Vec<u8>> {
        let (mut host, mut fields) = (self.authority.as_str(), String::new());
        for header in extra.headers {
            let (name, value) = header
                .split_once(':')
                .with_context(|| format!("{header:?} is no `Name: value`"))?;
            let (name, value) = (name.trim(), value.trim());
            let is_line = !header.contains(['\r', '\n']);
            ensure!(is_line && !name.is_empty(), "{header:?} is no header field");
            if name.eq_ignore_ascii_case("host") {
                host = value;
            } else {
                fields += &format!("{name}: {value}\r\n");
            }
        }
        let method = match extra.payload {
            Some(payload) => {
                fields += &format!("Content-Length: {}\r\n", payload.len());
                "POST"
            }
            None => "GET",
        };
        let path = &self.path;
        let payload = extra.payload.unwrap_or_default();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
        let request = format!("{head}User-Agent: myriad-bench\r\n{fields}\r\n{payload}");
        Ok(request.into_bytes())
    }
}

fn settings(trust: Trust<'_>) -> anyhow::Result<Arc<ClientConfig>> {
    let path = match trust {
        Trust::Anybody => return client_config(true),
        Trust::Roots(path) => path,
        Trust::Unsaid => bail!("say who vouches for the server: --cacert FILE or --insecure"),
    };
    let mut pem = Vec::new();
    let file = File::open(path).with_context(|| path.display().to_string())?;
    file.take(ROOTS_BYTES_MAX).read_to_end(&mut pem)?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(&pem) {
        roots.add(root?)?;
    }
    ensure!(!roots.is_empty(), "{} has no certificate", path.display());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(url: &str, headers: &[&str], payload: Option<&str>) -> anyhow::Result<String> {
        let local = Some(IpAddr::from([127, 0, 0, 1]));
        let destination = Destination::new(url, local, Trust::Anybody)?;
        let headers: Vec<String> = headers.iter().map(|&it| it.to_owned()).collect();
        let extra = Extra {
            headers: &headers,
            payload,
        };
        Ok(String::from_utf8(destination.request(extra)?)?)
    }

    #[test]
    fn a_url_becomes_a_request() {
        assert_eq!(
            request("http://a.test:8080/b?c=d", &[], None).unwrap(),
            "GET /b?c=d HTTP/1.1\r\nHost: a.test:8080\r\nUser-Agent: myriad-bench\r\n\r\n"
        );
        let text = request(
            "https://a.test",
            &["Host: b.test", "X-A:  1 "],
            Some("hello"),
        );
        assert_eq!(
            text.unwrap(),
            "POST / HTTP/1.1\r\nHost: b.test\r\nUser-Agent: myriad-bench\r\nX-A: 1\r\n\
             Content-Length: 5\r\n\r\nhello"
        );
        for header in ["none", ": value", "A: b\r\nC: d"] {
            assert!(
                request("http://a.test", &[header], None).is_err(),
                "{header}"
            );
        }
    }

    #[test]
    fn a_server_is_found_by_its_url() {
        let local = Some(IpAddr::from([127, 0, 0, 1]));
        let address =
            |url| Destination::new(url, local, Trust::Anybody).map(|it| it.address.port());
        assert_eq!(address("http://a.test/").unwrap(), 80);
        assert_eq!(address("https://a.test/").unwrap(), 443);
        assert_eq!(address("https://a.test:8443/").unwrap(), 8_443);
        let own = Destination::new("http://127.0.0.1:81/", None, Trust::Unsaid).unwrap();
        assert_eq!(own.address, "127.0.0.1:81".parse().unwrap());
        for url in ["/path", "ftp://a.test/", "a.test", "http://"] {
            assert!(address(url).is_err(), "{url}");
        }
        let unsaid = Destination::new("https://a.test/", local, Trust::Unsaid);
        assert!(unsaid.is_err(), "somebody vouches for a server");
    }
}
