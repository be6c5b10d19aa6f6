//! The certificate authority of a run, its server of names, and what operators of such an authority
//! can do.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use myriad_lab::pebble::{self, Pebble, PebbleCounts, PebbleNames, PebbleSettings};
use myriad_lab::port::free_port;
use myriad_lab::tool;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::json;

use super::plan::{self, Plan};
use crate::domains::pem;
use crate::probe::client_config;

/// The variables that name the programs; without them they are built.
const VARIABLES: [&str; 2] = ["MYRIAD_PEBBLE", "MYRIAD_PEBBLE_NAMES"];

/// The name by which everything of the authority is reached.
const NAME: &str = "localhost";

/// The most bytes of an answer of its management.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A window of renewal that has passed, as renewal information has it.
const WINDOW_OF_NOW: &str = "{\"suggestedWindow\":{\"start\":\"2020-01-01T00:00:00Z\",\
                             \"end\":\"2020-01-02T00:00:00Z\"}}";

/// A running authority.
pub(super) struct Authority {
    pebble: Pebble,
    names: PebbleNames,
    folder: tempfile::TempDir,
}

/// A connection to its management.
pub(super) struct Management(BufReader<StreamOwned<ClientConnection, TcpStream>>);

/// The addresses that names lead to.
pub(super) struct Leads {
    /// That of the gateway.
    pub gateway: IpAddr,
    /// One where nobody answers, for names that fail.
    pub nowhere: IpAddr,
}

/// The paths of its programs, which are built where they are not there yet.
///
/// # Errors
/// They cannot be built.
pub(super) fn programs() -> anyhow::Result<[PathBuf; 2]> {
    let named = VARIABLES.map(|variable| std::env::var_os(variable).map(PathBuf::from));
    if let [Some(authority), Some(names)] = named {
        return Ok([authority, names]);
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    pebble::provide(root, &tool::cache_folder()?)
}

impl Authority {
    /// Starts one that asks names at these ports, takes no time to look at them, and refuses
    /// nothing.
    pub(super) fn start(http: u16, https: u16) -> anyhow::Result<Authority> {
        let [program, names] = programs()?;
        let names = PebbleNames::start(&names)?;
        let folder = tempfile::tempdir()?;
        let (root, certificate, key) = identity()?;
        std::fs::write(folder.path().join("directory.pem"), root)?;
        let pebble = Pebble::start(&PebbleSettings {
            program: &program,
            identity: (&certificate, &key),
            port: free_port(),
            http_port: http,
            tls_port: https,
            names: names.address,
            nonce_reject: 0,
            refused: &[],
            binding: None,
        })?;
        Ok(Authority {
            pebble,
            names,
            folder,
        })
    }

    /// Leads the names of a plan to the gateway, and those that fail to nowhere.
    pub(super) fn lead(&self, plan: &Plan, leads: &Leads) -> anyhow::Result<()> {
        self.names.lead_all(leads.gateway)?;
        let nowhere = leads.nowhere.to_string();
        for index in plan.bad() {
            self.names.say(&plan::host(index), &[&nowhere])?;
        }
        Ok(())
    }

    /// The arguments by which certificates are ordered here: so many orders at most, names asked
    /// at this port, and windows of renewal looked at as often as this.
    pub(super) fn arguments(&self, orders: u64, proof: u16, look_seconds: u64) -> Vec<String> {
        vec![
            format!("--acme-directory={}", self.pebble.directory()),
            format!("--acme-ca={}", self.root().display()),
            format!("--acme-proof={proof}"),
            format!("--acme-orders={orders}"),
            "--acme-orders-per-domain=10000000".to_owned(),
            format!("--acme-look={look_seconds}"),
            format!("--resolver={}", self.names.address),
        ]
    }

    /// The orders and certificates so far.
    pub(super) fn counts(&self) -> anyhow::Result<PebbleCounts> {
        self.pebble.counts()
    }

    /// A connection to its management.
    pub(super) fn manage(&self) -> anyhow::Result<Management> {
        let socket = TcpStream::connect(self.pebble.management())?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(NAME)?;
        let session = ClientConnection::new(client_config(false)?, name)?;
        Ok(Management(BufReader::new(StreamOwned::new(
            session, socket,
        ))))
    }

    /// The root of its directory's certificate, as a file.
    fn root(&self) -> PathBuf {
        self.folder.path().join("directory.pem")
    }
}

impl Management {
    /// The root of the certificates that it issues, in PEM.
    pub(super) fn root(&mut self) -> anyhow::Result<Vec<u8>> {
        self.ask("GET", "/roots/0", "")
    }

    /// Says from now on that a certificate is to be renewed at once.
    pub(super) fn renew_now(&mut self, leaf: &[u8]) -> anyhow::Result<()> {
        let certificate = pem("CERTIFICATE", leaf);
        let body = json!({"certificate": certificate, "ariResponse": WINDOW_OF_NOW});
        self.ask("POST", "/set-renewal-info/", &body.to_string())?;
        Ok(())
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<Vec<u8>> {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {NAME}\r\nUser-Agent: myriad-bench\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        let stream = self.0.get_mut();
        stream.write_all(format!("{head}{body}").as_bytes())?;
        stream.flush()?;
        let status = self.line()?;
        let mut length = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        ensure!(length <= ANSWER_BYTES_MAX, "{path}: {length} bytes");
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        let text = String::from_utf8_lossy(&answer);
        ensure!(status.contains(" 200 "), "{path}: {status}: {text}");
        Ok(answer)
    }

    /// The next line of a head.
    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.0.read_line(&mut line).context("its management")?;
        ensure!(read > 0, "its management has gone");
        Ok(line.trim_end().to_owned())
    }
}

/// A root, and a certificate of it for the directory with its key, all in PEM.
fn identity() -> anyhow::Result<(String, String, String)> {
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "Myriad Bench Directory Root");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate()?;
    let root = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new([NAME.to_owned()])?.signed_by(&key, &issuer)?;
    Ok((root, leaf.pem(), pem("PRIVATE KEY", &key.serialize_der())))
}

#[cfg(test)]
mod tests {
    use super::{WINDOW_OF_NOW, identity};

    #[test]
    fn a_directory_has_a_certificate_of_its_root_and_a_window_is_json() {
        let (root, certificate, key) = identity().unwrap();
        assert!(root.contains("BEGIN CERTIFICATE") && certificate != root);
        assert!(key.contains("BEGIN PRIVATE KEY"));
        let window: serde_json::Value = serde_json::from_str(WINDOW_OF_NOW).unwrap();
        assert_eq!(window["suggestedWindow"]["start"], "2020-01-01T00:00:00Z");
    }
}
