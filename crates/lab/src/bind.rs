//! BIND, a server of zones that takes updates which are signed with a key. It comes from Debian.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::port::free_port;

/// The name of the key.
pub const KEY_NAME: &str = "gateway";

/// The key, in base64.
pub const KEY_SECRET: &str = "bXlyaWFkLW15cmlhZC1teXJpYWQtbXlyaWFkLW15cmlhZC0=";

/// How long it may take to start, or to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 4_096;

/// The file of the root, and its records. No name is in it: what no zone has is nowhere, and
/// nobody else is asked for it.
const ROOT: &str = "root";
const ROOT_RECORDS: &str = "$TTL 60\n@ IN SOA ns. hostmaster. 1 60 60 3600 60\n@ IN NS ns.\n\
                            ns. IN A 127.0.0.1\n";

/// A zone, whose server is this machine.
pub struct BindZone<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its records, as lines of a zone file.
    pub records: &'a str,
    /// Whether the key may change texts in it.
    pub takes_updates: bool,
}

/// A running server; it ends when dropped. An authority asks it as the resolver that it trusts, so
/// it follows an alias from one of its zones into another one, as it would not do for somebody who
/// does not want that.
pub struct BindServer {
    child: Child,
    /// The address that it is asked at.
    pub address: SocketAddr,
    folder: tempfile::TempDir,
}

impl BindServer {
    /// Starts one at a port of its own, and waits until it has loaded its zones.
    ///
    /// # Errors
    /// It is not there, or does not start.
    pub fn start(zones: &[BindZone<'_>]) -> Result<BindServer> {
        BindServer::start_at(free_port(), zones)
    }

    /// The same at a port that nobody listens on.
    ///
    /// # Errors
    /// It is not there, or does not start.
    pub fn start_at(port: u16, zones: &[BindZone<'_>]) -> Result<BindServer> {
        let folder = tempfile::tempdir()?;
        for zone in zones {
            fs::write(folder.path().join(zone.name), zone_file(zone))?;
        }
        fs::write(folder.path().join(ROOT), ROOT_RECORDS)?;
        let file = folder.path().join("named.conf");
        fs::write(&file, configuration(folder.path(), port, zones))?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(program());
        // In the foreground, and its log to us.
        command.args(["-g", "-n", "1", "-c"]).arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(log).spawn();
        let mut server = BindServer {
            child: child.context("named does not start; it is in Debian's package bind9")?,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            folder,
        };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.log().contains("all zones loaded") {
            let ended = self.child.try_wait()?;
            ensure!(ended.is_none(), "named has ended: {}", self.log());
            ensure!(Instant::now() < deadline, "no zones: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// All that it has written so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// How many texts a name has.
    ///
    /// # Errors
    /// It does not answer.
    pub fn texts(&self, name: &str) -> Result<usize> {
        let mut question = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(u8::try_from(label.len())?);
            question.extend(label.as_bytes());
        }
        question.extend([0, 0, 16, 0, 1]);
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.connect(self.address)?;
        socket.send(&question)?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let count = socket.recv(&mut answer)?;
        ensure!(count >= 12, "an answer without a head");
        Ok(usize::from(u16::from_be_bytes([answer[6], answer[7]])))
    }
}

impl Drop for BindServer {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program, which an ordinary user's path may lack.
fn program() -> PathBuf {
    let usual = PathBuf::from("/usr/sbin/named");
    match usual.is_file() {
        true => usual,
        false => "named".into(),
    }
}

fn zone_file(zone: &BindZone<'_>) -> String {
    format!(
        "$TTL 60\n@ IN SOA ns hostmaster 1 60 60 3600 60\n@ IN NS ns\nns IN A 127.0.0.1\n{}\n",
        zone.records
    )
}

fn configuration(folder: &Path, port: u16, zones: &[BindZone<'_>]) -> String {
    let folder = folder.display();
    let mut text = format!(
        "options {{\n  directory \"{folder}\";\n  listen-on port {port} {{ 127.0.0.1; }};\n  \
         listen-on-v6 {{ none; }};\n  pid-file none;\n  session-keyfile none;\n  \
         recursion yes;\n  allow-recursion {{ 127.0.0.1; }};\n  empty-zones-enable no;\n  \
         dnssec-validation no;\n  notify no;\n}};\ncontrols {{ }};\n\
         zone \".\" {{ type primary; file \"{folder}/{ROOT}\"; }};\n\
         key \"{KEY_NAME}\" {{ algorithm hmac-sha256; secret \"{KEY_SECRET}\"; }};\n"
    );
    for zone in zones {
        let name = zone.name;
        let updates = match zone.takes_updates {
            true => format!("update-policy {{ grant {KEY_NAME} zonesub TXT; }};"),
            false => String::new(),
        };
        text.push_str(&format!(
            "zone \"{name}\" {{ type primary; file \"{folder}/{name}\"; {updates} }};\n"
        ));
    }
    text
}
