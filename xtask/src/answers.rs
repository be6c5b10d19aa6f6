//! How nginx and Envoy read paths, recorded for the tests of ours.
//!
//! The paths are those of the file already: to ask about another one, add it with
//! any answers, and records them anew.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::peer::{self, Peer};

/// The file of answers.
const FILE: &str = "crates/proxy/src/codec/path/answers.txt";

/// The start of the names of Envoy's filters.
const TYPES: &str = "type.googleapis.com/envoy.extensions.filters";

/// How long a program may take until it answers.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program that tells how it reads paths; it ends when dropped.
struct Reader {
    child: Child,
    address: SocketAddr,
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Records the answers.
pub(crate) fn run(root: &Path, cache: &Path) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("myriad-answers-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let recorded = record(root, cache, &folder);
    fs::remove_dir_all(&folder)?;
    recorded
}

fn record(root: &Path, cache: &Path, folder: &Path) -> Result<()> {
    let nginx = nginx(&peer::provide(root, Peer::Nginx, cache)?, folder)?;
    let envoy = envoy(&peer::provide(root, Peer::Envoy, cache)?, folder)?;
    let file = root.join(FILE);
    let mut recorded = String::new();
    for line in fs::read_to_string(&file)?.lines() {
        let path = line.split(' ').next().unwrap_or_default();
        if line.starts_with('#') {
            recorded.push_str(line);
        } else {
            let [nginx, envoy] = [ask(&nginx, path)?, ask(&envoy, path)?];
            let nginx = nginx.map_or("-".to_owned(), |read| shown(&read, true));
            let envoy = envoy.map_or("-".to_owned(), |read| shown(&read, false));
            write!(recorded, "{path} {nginx} {envoy}")?;
        }
        recorded.push('\n');
    }
    Ok(fs::write(file, recorded)?)
}

fn nginx(program: &Path, folder: &Path) -> Result<Reader> {
    let address = free_address()?;
    let place = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {place}/{name};\n"))
        .collect();
    let text = format!(
        "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;\nevents {{}}\n\
         http {{ access_log off;\n{temporary}server {{ listen {address}; location / {{\n\
         default_type text/plain; return 200 \"$uri\"; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    start(command.arg("-c").arg(file), address)
}

fn envoy(program: &Path, folder: &Path) -> Result<Reader> {
    let address = free_address()?;
    let (host, port) = (address.ip(), address.port());
    let text = format!(
        r#"
static_resources:
  listeners:
  - address: {{socket_address: {{address: {host}, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": {TYPES}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: paths
          normalize_path: true
          path_with_escaped_slashes_action: KEEP_UNCHANGED
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                direct_response: {{status: 200}}
                response_headers_to_add:
                - header: {{key: x-path, value: "%REQ(:PATH)%"}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": {TYPES}.http.router.v3.Router}}
"#
    );
    let file = folder.join("envoy.yaml");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.args(["--use-dynamic-base-id", "--log-level", "error", "-c"]);
    start(command.arg(file), address)
}

/// Starts a program, and waits until it accepts connections.
fn start(command: &mut Command, address: SocketAddr) -> Result<Reader> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().with_context(|| format!("{command:?}"))?;
    let reader = Reader { child, address };
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(start.elapsed() < PATIENCE, "{command:?} does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(reader)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The path as the program reads it; `None` where it refuses the request.
fn ask(reader: &Reader, path: &str) -> Result<Option<Vec<u8>>> {
    let mut stream = TcpStream::connect(reader.address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    // A refusal may end in a reset.
    let _ = stream.read_to_end(&mut answer);
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Ok(None);
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = answer.split_at(end.context("an answer without an end")? + 4);
    let mut lines = head.split(|byte| *byte == b'\n');
    let told = lines.find_map(|line| line.strip_prefix(b"x-path: "));
    Ok(Some(told.map_or(body, <[u8]>::trim_ascii_end).to_owned()))
}

/// Bytes as text of printable ASCII, with the rest escaped.
fn shown(bytes: &[u8], escapes_percent: bool) -> String {
    let mut text = String::new();
    for byte in bytes {
        match byte {
            b'%' if escapes_percent => text.push_str("%25"),
            0x21..=0x7e => text.push(char::from(*byte)),
            byte => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}
