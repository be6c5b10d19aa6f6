//! Servers of others, each telling what it saw.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use myriad_e2e::istio::free_port;
use myriad_e2e::world::{eventually, repository};
use myriad_lab::peer;
use tokio::net::TcpStream;

use super::forwarded::{End, Forwarded};

/// A server; it ends when dropped.
pub(super) struct Origin {
    /// Its host, as long as [`super::grammar::HOST`].
    pub host: &'static str,
    /// The address that it listens on.
    pub address: SocketAddr,
    child: Child,
    told: PathBuf,
}

/// A request that a server saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The method and the target.
    pub head: String,
    /// The bytes of the body, where all of it was seen.
    pub body: Option<u64>,
}

/// The account of a server of all requests.
pub(super) struct Told {
    /// Requests whose head it saw.
    pub heads: Vec<Seen>,
    /// Requests of which it saw all. HAProxy also lists requests that broke off in their bodies.
    pub wholes: Vec<Seen>,
    /// How many heads it refused without saying what they were.
    pub refused: usize,
}

impl Drop for Origin {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Origin {
    /// The account so far.
    pub(super) fn told(&self) -> Told {
        let text = std::fs::read(&self.told).expect("a file");
        let text = String::from_utf8_lossy(&text);
        let mut told = Told {
            heads: Vec::new(),
            wholes: Vec::new(),
            refused: 0,
        };
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let seen = |method: &str, target: &str, length: Option<&str>| Seen {
                head: format!("{method} {target}"),
                body: length.and_then(|length| length.parse().ok()),
            };
            match words[..] {
                ["head", method, target] => told.heads.push(seen(method, target, None)),
                ["whole", method, target, length] => {
                    told.wholes.push(seen(method, target, Some(length)));
                }
                // nginx and HAProxy tell of a request once, at its end.
                ["ended", _, "" | "-", ..] => told.refused += 1,
                ["ended", method, target, length, status] => {
                    told.heads.push(seen(method, target, None));
                    if status == "200" {
                        told.wholes.push(seen(method, target, Some(length)));
                    }
                }
                _ => {}
            }
        }
        told
    }

    /// The requests of which it saw all for sure. HAProxy tells of what broke off as of what did
    /// not, so that its word counts where it has answered.
    pub(super) fn sure(&self, wholes: Vec<Seen>, sent: &[Forwarded]) -> Vec<Seen> {
        if self.host != "hap.test" {
            return wholes;
        }
        let answered = sent.iter().filter(|it| it.end == End::Answered);
        let answered: BTreeSet<&str> = answered.map(|it| &*it.head).collect();
        let wholes = wholes.into_iter();
        let wholes = wholes.filter(|seen| answered.contains(&*seen.head));
        wholes.collect()
    }

    /// Whether it is known to refuse a method and a target that others take. RFC 9112 has no target
    /// with bytes beyond ASCII, but there are clients that send them, and the gateway passes them
    /// on as they came, as nginx does. `PRI` is kept for the preface of HTTP/2 (RFC 9113, section
    /// 11.6).
    pub(super) fn refuses(&self, head: &str) -> bool {
        const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE"];
        let (method, target) = head.split_once(' ').unwrap_or((head, ""));
        let is_usual = METHODS.contains(&method);
        match self.host {
            "nod.test" => !is_usual || !target.is_ascii(),
            "pyt.test" => !is_usual,
            "ngx.test" => !is_usual || target == "*",
            "hap.test" => method == "PRI" || !target.is_ascii(),
            _ => false,
        }
    }
}

/// Starts all of them.
pub(super) async fn start(folder: &Path) -> Vec<Origin> {
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
    let inner = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let place = folder.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {place}/{name};\n"))
        .collect();
    // It reads all of a body only for somebody, so that it is its own proxy: the inner one is told
    // the length. The 0 in front is for requests without a body. What it refuses has no target.
    let text = format!(
        "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;\n\
         events {{}}\nhttp {{ {temporary}keepalive_requests 100000; merge_slashes off;\n\
         log_format seen escape=none \
         'ended $request_method $request_uri $sent_http_x_length $status';\n\
         server {{ listen {address}; access_log {place}/ngx.test seen;\n\
         location / {{ proxy_pass http://{inner}; }} }}\n\
         server {{ listen {inner}; access_log off;\n\
         location / {{ add_header X-Length 0$http_content_length; return 200 seen; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).expect("a file");
    told(
        "ngx.test",
        peer::nginx("nginx", &file),
        Some(address),
        folder,
    )
    .await
}

async fn haproxy(folder: &Path) -> Origin {
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    // Connections that end before they say anything, as of who only looks whether somebody
    // listens, are no requests. Every other `<BADREQ>` is a line, without a target.
    let text = format!(
        "global\n  log stdout format raw local0\ndefaults\n  mode http\n  timeout client 30s\n  \
         timeout server 30s\n  timeout connect 5s\n  option http-buffer-request\n  \
         option dontlognull\nfrontend seen\n  bind {address}\n  log global\n  \
         http-request set-var(txn.target) url\n  \
         http-request set-var(txn.length) req.body_size\n  \
         log-format \"ended %HM %[var(txn.target)] %[var(txn.length)] %ST\"\n  \
         http-request return status 200 content-type text/plain string seen\n"
    );
    let file = folder.join("haproxy.cfg");
    std::fs::write(&file, text).expect("a file");
    told(
        "hap.test",
        peer::haproxy("haproxy", &file),
        Some(address),
        folder,
    )
    .await
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
