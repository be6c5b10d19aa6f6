//! Servers of others, each telling what it saw.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use myriad_e2e::istio::free_port;
use myriad_e2e::world::{eventually, repository};
use tokio::net::TcpStream;

/// A server; it ends when dropped.
pub struct Origin {
    /// Its host, as long as [`super::grammar::HOST`].
    pub host: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    told: PathBuf,
}

/// A request that a server saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The method and the target.
    pub head: String,
    /// The bytes of the body, where all of it was seen and the server tells.
    pub body: Option<u64>,
}

impl Drop for Origin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Origin {
    /// All requests that it saw, and those whose body it saw whole.
    pub fn seen(&self) -> (Vec<Seen>, Vec<Seen>) {
        let text = std::fs::read(&self.told).expect("a file");
        let text = String::from_utf8_lossy(&text);
        let (mut heads, mut wholes) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                // HAProxy tells so of what it refuses.
                ["whole", "<BADREQ>", ..] => {}
                ["head", method, target] => heads.push(Seen {
                    head: format!("{method} {target}"),
                    body: None,
                }),
                ["whole", method, target, length] => wholes.push(Seen {
                    head: format!("{method} {target}"),
                    body: length.parse().ok(),
                }),
                _ => {}
            }
        }
        (heads, wholes)
    }
}

/// Starts all of them.
pub async fn start(folder: &Path) -> Vec<Origin> {
    let tools = repository("tools/origins");
    let go = folder.join("origin-go");
    let built = Command::new("go")
        .args(["build", "-o"])
        .args([&go, &tools.join("origin.go")])
        .env("GOFLAGS", "")
        .env("GOTOOLCHAIN", "local")
        .status();
    assert!(built.expect("go runs").success(), "the server in Go builds");
    let script = |program: &str, name: &str| {
        let mut command = Command::new(program);
        command.arg(tools.join(name));
        command
    };
    vec![
        told("gol.test", Command::new(go), None, folder).await,
        told("nod.test", script("node", "origin.js"), None, folder).await,
        told("pyt.test", script("python3", "origin.py"), None, folder).await,
        nginx(folder).await,
        haproxy(folder).await,
    ]
}

async fn nginx(folder: &Path) -> Origin {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let place = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {place}/{name};\n"))
        .collect();
    // What it refuses itself has no method.
    let text = format!(
        "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;\n\
         events {{}}\nhttp {{ {temporary}keepalive_requests 100000; merge_slashes off;\n\
         map $status $is_seen {{ 400 0; default 1; }}\n\
         log_format seen 'whole $request_method $request_uri -';\n\
         access_log {place}/ngx.test seen if=$is_seen;\n\
         server {{ listen {address}; location / {{ return 200 seen; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(file);
    told("ngx.test", command, Some(address), folder).await
}

async fn haproxy(folder: &Path) -> Origin {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let text = format!(
        "global\n  log stdout format raw local0\ndefaults\n  mode http\n  timeout client 30s\n  \
         timeout server 30s\n  timeout connect 5s\n  option http-buffer-request\n\
         frontend seen\n  bind {address}\n  log global\n  log-format \"whole %HM %HU -\"\n  \
         http-request return status 200 content-type text/plain string seen\n"
    );
    let file = folder.join("haproxy.cfg");
    std::fs::write(&file, text).expect("a file");
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(file);
    told("hap.test", command, Some(address), folder).await
}

/// Starts a server, and waits until it listens: where it was told to, or where it tells.
async fn told(
    host: &'static str,
    mut command: Command,
    address: Option<SocketAddr>,
    folder: &Path,
) -> Origin {
    let told = folder.join(host);
    let file = File::options().create(true).append(true).open(&told);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.stdout(file.expect("a file"));
    let child = command.spawn().expect("`cargo xtask test` installs it");
    let address = eventually(async || {
        let text = std::fs::read_to_string(&told).expect("a file");
        let line = text.lines().find_map(|line| line.strip_prefix("listens "));
        let address = address.or_else(|| line?.parse().ok())?;
        TcpStream::connect(address).await.ok()?;
        Some(address)
    });
    let address = address.await.expect("the server listens");
    Origin {
        host,
        address,
        child,
        told,
    }
}
