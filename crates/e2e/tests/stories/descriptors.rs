//! Few file descriptors: who is connected goes on, and who comes waits for a place.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use myriad_e2e::Site;
use myriad_e2e::world::{DEADLINE, eventually};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::commands::myriad;
use super::overload::Asker;

/// The descriptors that the process may have open.
const DESCRIPTORS: usize = 256;

/// Clients that have asked once.
const IDLE: usize = 50;

/// An endpoint that answers `together` only once every idle client has asked for it, so that each
/// of them holds a connection to it.
async fn endpoint() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let all = Arc::new(Barrier::new(IDLE));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let all = all.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(1..) = stream.read_buf(&mut head).await {
                    if head.ends_with(b"\r\n\r\n") {
                        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
                        if text.contains("host: together.test") {
                            all.wait().await;
                        }
                        head.clear();
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

/// Serves with few descriptors, on one worker; returns the process, what it said first, and where
/// it serves HTTP and its pages.
async fn serve_with_few(served: &std::path::Path) -> (Child, String, SocketAddr, SocketAddr) {
    let binary = myriad().as_std().get_program().to_owned();
    let mut child = Command::new("sh")
        .args([
            "-c",
            &format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\""),
        ])
        .arg(binary)
        .args(["serve", "--http=127.0.0.1:0", "--https=127.0.0.1:0"])
        .args(["--admin=127.0.0.1:0", "--workers=1"])
        .arg(served)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let reading = async {
        let mut said = String::new();
        while let Some(line) = lines.next_line().await.expect("text") {
            if said.is_empty() && !line.starts_with("myriad serves") {
                continue;
            }
            said += &line;
            if line.contains("file descriptors") {
                break;
            }
        }
        said
    };
    let said = tokio::time::timeout(DEADLINE, reading).await;
    let said = said.expect("a start line");
    let find = |name: &str| {
        let rest = said.split(name).nth(1).expect("an address");
        let end = rest.find(|it: char| !(it.is_ascii_digit() || ".:".contains(it)));
        let address = rest[..end.unwrap_or(rest.len())].trim_end_matches(['.', ':']);
        address.parse().expect("an address")
    };
    let (http, admin) = (find("http on "), find("admin on "));
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, said, http, admin)
}

async fn page(admin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).await.expect("a connection");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let written = stream.write_all(request.as_bytes()).await;
    written.expect("a request");
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer).await;
    read.expect("an answer");
    answer
}

#[tokio::test]
async fn clients_at_the_limit_of_descriptors_are_answered_and_newcomers_wait() {
    let endpoint = endpoint().await;
    let served = tempfile::tempdir().expect("a directory");
    for host in ["alone.test", "together.test"] {
        let file = served.path().join(format!("{host}.yaml"));
        std::fs::write(file, Site::new(host).to(endpoint).yaml()).expect("a file");
    }
    let (_child, said, http, admin) = serve_with_few(served.path()).await;
    assert!(
        said.contains("256 file descriptors for 68 connections per worker"),
        "{said}"
    );
    assert!(page(admin, "/config").await.contains("LimitNOFILE"));
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        let mut client = Asker::connect(http).await;
        assert!(client.ask("alone.test").await.contains(" 200 "));
        idle.push(client);
    }
    let mut silent = Vec::new();
    for _ in 0..2 * DESCRIPTORS {
        silent.push(TcpStream::connect(http).await.expect("a connection"));
    }
    let is_full = eventually(async || {
        let metrics = page(admin, "/metrics").await;
        let counted = metrics
            .lines()
            .find_map(|line| line.strip_prefix("myriad_connections_accepted_total "));
        let counted: usize = counted?.trim().parse().ok()?;
        (counted >= 68).then_some(())
    });
    assert!(is_full.await.is_some());
    let mut asking = JoinSet::new();
    for mut client in idle {
        asking.spawn(async move { client.ask("together.test").await });
    }
    while let Some(answer) = asking.join_next().await {
        let answer = answer.expect("an answer");
        assert!(answer.contains(" 200 "), "{answer}");
    }
    // Everybody has gone but a newcomer.
    let mut newcomer = Asker::connect(http).await;
    newcomer.send("alone.test").await;
    drop(silent);
    assert!(newcomer.answer().await.contains(" 200 "));
    let failures = page(admin, "/metrics").await;
    assert!(
        failures.contains("myriad_accept_failures_total 0\n"),
        "{failures}"
    );
}
