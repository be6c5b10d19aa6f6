//! Pebble, a certificate authority for tests that speaks ACME, and the server of names that belongs
//! to it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
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

/// The things that an authority has done since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PebbleCounts {
    /// Orders that it has taken in.
    pub orders: usize,
    /// Orders that say of which certificate they take the place.
    pub replacements: usize,
    /// Certificates that it has issued.
    pub issued: usize,
    /// Orders whose names it could not verify.
    pub invalid: usize,
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
        // Two new orders at once can wait for each other for ever in 2.10.1: one holds its
        // authorization and wants the store, the other the reverse. On one processor they hardly
        // ever meet there.
        command.env("GOMAXPROCS", "1");
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

    /// The things that it has done so far, by its log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn counts(&self) -> Result<PebbleCounts> {
        let log = BufReader::new(File::open(self.folder.path().join("log"))?);
        let mut counts = PebbleCounts::default();
        for line in log.split(b'\n') {
            counts.add(&String::from_utf8_lossy(&line?));
        }
        Ok(counts)
    }
}

impl PebbleCounts {
    fn add(&mut self, line: &str) {
        self.orders += usize::from(line.contains("Added order "));
        self.replacements += usize::from(line.contains(" is a replacement of "));
        self.issued += usize::from(line.contains("Issued certificate serial "));
        self.invalid += usize::from(line.contains(" set INVALID by invalid authz "));
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

    /// Answers all names with this address, but those that it was told of.
    ///
    /// # Errors
    /// It does not answer.
    pub fn lead_all(&self, address: IpAddr) -> Result<()> {
        let body = json!({ "ip": address });
        self.post("/set-default-ipv4", &body.to_string())
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
    use super::{PEBBLE, PebbleCounts};

    #[test]
    fn what_an_authority_does_is_counted_by_its_log() {
        let mut counts = PebbleCounts::default();
        for line in [
            "Pebble 2026/01/02 03:04:05 Added order \"a1\" to the db",
            "Pebble 2026/01/02 03:04:05 There are now 1 orders in the db",
            "Pebble 2026/01/02 03:04:05 ARI: order \"a2\" is a replacement of \"a1\"",
            "Pebble 2026/01/02 03:04:05 Added order \"a2\" to the db",
            "Pebble 2026/01/02 03:04:05 Issued certificate serial 7f for order a1",
            "Pebble 2026/01/02 03:04:05 authz z set INVALID by completed challenge c",
            "Pebble 2026/01/02 03:04:05 order a2 set INVALID by invalid authz z",
        ] {
            counts.add(line);
        }
        let expected = PebbleCounts {
            orders: 2,
            replacements: 1,
            issued: 1,
            invalid: 1,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn the_version_is_the_one_that_is_pinned() {
        let named = format!(
            "require github.com/letsencrypt/pebble/v2 v{}",
            PEBBLE.version
        );
        assert!(include_str!("../../../tools/pebble/go.mod").contains(&named));
    }
}
