//! Pebble, a certificate authority for tests that speaks ACME, and the server of names that belongs
//! to it.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::port::free_port;
use crate::tool::{self, Tool};

/// The authority. Its version is pinned in `tools/pebble`.
pub const PEBBLE: Tool = Tool {
    name: "pebble",
    version: "2.10.1",
};

/// Its server of names, which answers any name with an address.
pub const PEBBLE_NAMES: Tool = Tool {
    name: "pebble-challtestsrv",
    version: PEBBLE.version,
};

/// How long a program may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Builds both programs where they are not there yet.
///
/// # Errors
/// They cannot be built.
pub fn provide(root: &Path, cache: &Path) -> Result<[PathBuf; 2]> {
    let build = |tool: &Tool| {
        tool.provide(cache, |to| {
            let package = format!("github.com/letsencrypt/pebble/v2/cmd/{}", tool.name);
            let program = to.join("bin").join(tool.name);
            tool::build_go(&root.join("tools/pebble"), &package, &[], &program)
        })
    };
    Ok([build(&PEBBLE)?, build(&PEBBLE_NAMES)?])
}

/// The settings of an authority.
pub struct PebbleSettings<'a> {
    /// The program.
    pub program: &'a Path,
    /// The certificate of its directory and the key, both in PEM, for the name `localhost`.
    pub identity: (&'a str, &'a str),
    /// The port of this machine where its directory is.
    pub port: u16,
    /// Where HTTP-01 is asked.
    pub http_port: u16,
    /// Where TLS-ALPN-01 is asked.
    pub tls_port: u16,
    /// The server of names that it asks.
    pub names: SocketAddr,
    /// The percentage of requests whose nonce it refuses, although it is good.
    pub nonce_reject: u8,
    /// Names that it refuses, each with all below it.
    pub refused: &'a [&'a str],
    /// A key of RFC 8555, section 7.3.4, without which it makes no account: its name and its bytes
    /// in base64url.
    pub binding: Option<(&'a str, &'a str)>,
}

/// A running authority. It forgets all when it ends, and it ends when dropped.
pub struct Pebble {
    child: Child,
    port: u16,
    management: u16,
    folder: tempfile::TempDir,
}

/// A running server of names; it ends when dropped.
pub struct PebbleNames {
    child: Child,
    /// The address that it is asked at.
    pub address: SocketAddr,
    management: SocketAddr,
}

impl Pebble {
    /// Starts one, and waits until it listens.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(settings: &PebbleSettings<'_>) -> Result<Pebble> {
        let folder = tempfile::tempdir()?;
        let keep = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).map(|()| path)
        };
        let management = free_port();
        let (certificate, key) = settings.identity;
        let keys = settings.binding.map(|(name, key)| json!({ name: key }));
        let lives = |seconds: u64| json!({ "description": "", "validityPeriod": seconds });
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{}", settings.port),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": keep("cert.pem", certificate)?,
            "privateKey": keep("key.pem", key)?,
            "httpPort": settings.http_port,
            "tlsPort": settings.tls_port,
            "domainBlocklist": settings.refused,
            "retryAfter": { "authz": 0, "order": 0 },
            "keyAlgorithm": "ecdsa",
            "externalAccountBindingRequired": keys.is_some(),
            "externalAccountMACKeys": keys.unwrap_or_else(|| json!({})),
            "profiles": { "default": lives(7_776_000), "shortlived": lives(518_400) },
        }});
        let config = keep("pebble.json", &config.to_string())?;
        let mut command = Command::new(settings.program);
        command.arg("-config").arg(config).arg("-strict");
        command.args(["-dnsserver", &settings.names.to_string()]);
        command.env("PEBBLE_VA_NOSLEEP", "1");
        command.env("PEBBLE_WFE_NONCEREJECT", settings.nonce_reject.to_string());
        // An authorization is asked for again each time, as authorities will soon have it.
        command.env("PEBBLE_AUTHZREUSE", "0");
        let log = File::create(folder.path().join("log"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let child = command.spawn().context("pebble does not start")?;
        let mut pebble = Pebble {
            child,
            port: settings.port,
            management,
            folder,
        };
        for port in [settings.port, management] {
            wait_for(&mut pebble.child, SocketAddr::from(([127, 0, 0, 1], port)))?;
        }
        Ok(pebble)
    }

    /// The URL of its directory.
    pub fn directory(&self) -> String {
        directory(self.port)
    }

    /// The address of its management, which is behind TLS like its directory.
    pub fn management(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.management))
    }

    /// All that it has written so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// The URL of the directory of an authority at a port of this machine.
pub fn directory(port: u16) -> String {
    format!("https://localhost:{port}/dir")
}

impl Drop for Pebble {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl PebbleNames {
    /// Starts one that answers every name with 127.0.0.1, and waits until it listens.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(program: &Path) -> Result<PebbleNames> {
        let [address, management] =
            [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut command = Command::new(program);
        command.args(["-dnsserver", &address.to_string()]);
        command.args(["-management", &management.to_string()]);
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        command.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn();
        let mut names = PebbleNames {
            child: child.context("pebble-challtestsrv does not start")?,
            address,
            management,
        };
        // It listens there last.
        wait_for(&mut names.child, management)?;
        Ok(names)
    }

    /// Answers a name with these addresses from now on.
    ///
    /// # Errors
    /// It does not answer.
    pub fn say(&self, name: &str, addresses: &[&str]) -> Result<()> {
        let body = json!({ "host": format!("{name}."), "addresses": addresses });
        self.post("/add-a", &body.to_string())
    }

    /// Answers a name with the default again.
    ///
    /// # Errors
    /// It does not answer.
    pub fn forget(&self, name: &str) -> Result<()> {
        let body = json!({ "host": format!("{name}.") });
        self.post("/clear-a", &body.to_string())
    }

    fn post(&self, path: &str, body: &str) -> Result<()> {
        let mut stream = TcpStream::connect(self.management)?;
        stream.set_read_timeout(Some(START_TIMEOUT))?;
        let length = body.len();
        let head = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
        let line = answer.lines().next().unwrap_or_default();
        ensure!(line.contains(" 200 "), "{path}: {line}");
        Ok(())
    }
}

impl Drop for PebbleNames {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(child: &mut Child, address: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + START_TIMEOUT;
    while TcpStream::connect(address).is_err() {
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("it ended with {status} before it listened on {address}");
        }
        ensure!(Instant::now() < deadline, "nobody listens on {address}");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::PEBBLE;

    #[test]
    fn the_version_is_the_one_that_is_pinned() {
        let named = format!(
            "require github.com/letsencrypt/pebble/v2 v{}",
            PEBBLE.version
        );
        assert!(include_str!("../../../tools/pebble/go.mod").contains(&named));
    }
}
