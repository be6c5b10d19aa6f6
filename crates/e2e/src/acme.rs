//! A certificate authority that speaks ACME, with its server of names, for one story.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use myriad_lab::pebble::{self, Pebble, PebbleNames, PebbleSettings};
use myriad_lab::port::free_port;

use crate::authority::Authority;
use crate::client::Curl;

/// The percentage of good nonces that authorities refuse.
const NONCE_REJECT: u8 = 15;

/// The names that the authority refuses.
pub const REFUSED: &str = "refused.test";

/// An authority that may be running, and the ports where it asks.
pub struct CertificateAuthority {
    pebble: Option<Pebble>,
    names: PebbleNames,
    /// The server of names that it asks.
    resolver: SocketAddr,
    /// The authority of the certificate of its directory.
    own: Authority,
    port: u16,
    /// Where it asks by HTTP-01.
    pub http: u16,
    /// Where it asks by TLS-ALPN-01.
    pub https: u16,
    binding: Option<(String, String)>,
    folder: tempfile::TempDir,
}

impl Default for CertificateAuthority {
    fn default() -> Self {
        CertificateAuthority::start()
    }
}

impl CertificateAuthority {
    /// Starts one with a server of names that leads every name to this machine.
    ///
    /// # Panics
    /// Where the programs are not there, or do not start.
    pub fn start() -> CertificateAuthority {
        let mut authority = CertificateAuthority::down();
        authority.rise();
        authority
    }

    /// One that is not running yet.
    ///
    /// # Panics
    /// Where the server of names does not start.
    pub fn down() -> CertificateAuthority {
        let names = PebbleNames::start(&program("MYRIAD_PEBBLE_NAMES"));
        let names = names.expect("the server of names starts");
        let own = Authority::new();
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("directory.pem"), own.root()).expect("a file");
        CertificateAuthority {
            pebble: None,
            resolver: names.address,
            names,
            own,
            port: free_port(),
            http: free_port(),
            https: free_port(),
            binding: None,
            folder,
        }
    }

    /// One like another, with the same names and ports that it asks at, as a second authority.
    ///
    /// # Panics
    /// Where the programs do not start.
    pub fn beside(&self) -> Pebble {
        self.pebble_at(free_port())
    }

    /// The same, which makes accounts only for those that have a key.
    #[must_use]
    pub fn with_binding(mut self, id: &str, key: &str) -> Self {
        self.binding = Some((id.to_owned(), key.to_owned()));
        self
    }

    /// The same, which asks another server of names, as does whoever is served by it.
    #[must_use]
    pub fn with_names_at(mut self, address: SocketAddr) -> Self {
        self.resolver = address;
        self
    }

    /// Starts it. It knows nothing of what was before.
    pub fn rise(&mut self) {
        self.pebble = None;
        self.pebble = Some(self.pebble_at(self.port));
    }

    /// Ends it.
    pub fn fall(&mut self) {
        self.pebble = None;
    }

    fn pebble_at(&self, port: u16) -> Pebble {
        let identity = self.own.issue(&["localhost"]);
        let binding = self.binding.as_ref();
        let pebble = Pebble::start(&PebbleSettings {
            program: &program("MYRIAD_PEBBLE"),
            identity: (&identity.certificate, &identity.key),
            port,
            http_port: self.http,
            tls_port: self.https,
            names: self.resolver,
            nonce_reject: NONCE_REJECT,
            refused: &[REFUSED],
            binding: binding.map(|(id, key)| (&**id, &**key)),
        });
        pebble.expect("pebble starts")
    }

    /// The URL of its directory.
    pub fn directory(&self) -> String {
        pebble::directory(self.port)
    }

    /// The server of names.
    pub fn names(&self) -> &PebbleNames {
        &self.names
    }

    /// The root of its directory's certificate, as a file.
    pub fn directory_root(&self) -> PathBuf {
        self.folder.path().join("directory.pem")
    }

    /// The arguments by which `serve` orders here and is reached by it; what is kept is kept there.
    pub fn arguments(&self, state: &Path) -> Vec<String> {
        vec![
            format!("--http=127.0.0.1:{}", self.http),
            format!("--https=127.0.0.1:{}", self.https),
            format!("--acme-directory={}", self.directory()),
            format!("--acme-ca={}", self.directory_root().display()),
            format!("--acme-proof={}", self.http),
            format!("--acme-state-dir={}", state.display()),
            format!("--resolver={}", self.resolver),
        ]
    }

    /// A folder of the story's, where state may be kept.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The root of the certificates that it issues, as a file.
    ///
    /// # Panics
    /// Where it does not say.
    pub async fn root(&self) -> PathBuf {
        self.root_of(self.pebble.as_ref().expect("the authority runs"))
            .await
    }

    /// The same of one that was started beside it.
    ///
    /// # Panics
    /// Where it does not say.
    pub async fn root_of(&self, pebble: &Pebble) -> PathBuf {
        let answer = self.ask(pebble, "/roots/0", &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let name = format!("issuing-{}.pem", pebble.management().port());
        let path = self.folder.path().join(name);
        // Others may read it meanwhile.
        let file = tempfile::NamedTempFile::new_in(self.folder.path()).expect("a file");
        std::fs::write(file.path(), answer.body).expect("a file");
        file.persist(&path).expect("a file");
        path
    }

    /// Asks its management for something.
    ///
    /// # Panics
    /// Where it is not running.
    pub async fn manage(&self, path: &str, arguments: &[&str]) -> crate::Answer {
        let pebble = self.pebble.as_ref().expect("the authority runs");
        self.ask(pebble, path, arguments).await
    }

    async fn ask(&self, pebble: &Pebble, path: &str, arguments: &[&str]) -> crate::Answer {
        let port = pebble.management().port();
        let url = format!("https://localhost:{port}{path}");
        let curl = Curl::new(&url, &[], &self.directory_root());
        curl.args(arguments).ask().await
    }

    /// All that it has written so far.
    pub fn log(&self) -> String {
        self.pebble.as_ref().map_or_else(String::new, Pebble::log)
    }

    /// How many certificates it has issued.
    pub fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }
}

/// The path of a program that a variable names.
fn program(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is a program; `cargo xtask test` sets it"))
        .into()
}
