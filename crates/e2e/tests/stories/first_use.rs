//! The first use of the binary: what it says, and what signals do.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use myriad_e2e::Site;
use myriad_e2e::world::repository;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use super::commands::myriad;
use super::restart::{Lines, PATIENCE};

/// A process that serves, and what it says.
struct Serving {
    child: Child,
    lines: Lines,
    http: String,
}

impl Serving {
    /// Starts one with what it is told, and gives what it says until it serves.
    async fn start(arguments: &[&str], served: &Path) -> (Serving, String) {
        let mut child = myriad()
            .args(["serve", "--http=localhost:0", "--https=localhost:0"])
            .arg("--admin=127.0.0.1:0")
            .args(arguments)
            .arg(served)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let http = String::new();
        let mut serving = Serving { child, lines, http };
        let greeting = serving.line("myriad serves").await;
        let (_, rest) = greeting.split_once("http on ").expect("it says where");
        serving.http = rest.split(',').next().expect("an address").to_owned();
        (serving, greeting)
    }

    /// Waits for a line that contains a text.
    async fn line(&mut self, text: &str) -> String {
        let mut said = String::new();
        let found = async {
            while let Some(line) = self.lines.next_line().await.expect("text") {
                if line.contains(text) {
                    return Some(line);
                }
                said += &line;
                said.push('\n');
            }
            None
        };
        let found = tokio::time::timeout(PATIENCE, found).await.ok().flatten();
        found.unwrap_or_else(|| panic!("{text:?} is not said: {said}"))
    }

    async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args([name, &pid]).status().await;
        assert!(sent.expect("kill").success());
    }

    /// Its exit code, once it has ended.
    async fn ended(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        ended.expect("it ends in time").expect("a status").code()
    }

    /// The answer to a request.
    async fn ask(&self, host: &str, fields: &str) -> String {
        let mut client = TcpStream::connect(&self.http).await.expect("a connection");
        let request =
            format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
        client.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an answer");
        answer
    }
}

/// A directory with a file.
fn directory(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.yaml"), text).expect("a file");
    directory
}

#[tokio::test]
async fn signals_look_again_reopen_and_drain_and_the_second_ends_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let site = Site::new("a.test").to(silent.local_addr().expect("an address"));
    let served = directory(&site.yaml());
    let log = served.path().join("access.log");
    let flag = format!("--access-log-file={}", log.display());
    let (mut serving, _) = Serving::start(&[&flag], served.path()).await;
    serving.signal("-HUP").await;
    serving.line("SIGHUP: every file is looked at again").await;
    let moved = served.path().join("access.log.1");
    std::fs::rename(&log, &moved).expect("it is there");
    serving.signal("-USR1").await;
    serving.line("SIGUSR1: the access log is opened anew").await;
    assert!(log.exists() && serving.ask("b.test", "").await.contains("404"));
    let mut client = TcpStream::connect(&serving.http).await.expect("connected");
    let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    client.write_all(request).await.expect("sent");
    let (_endpoint, _) = silent.accept().await.expect("it is asked");
    serving.signal("-QUIT").await;
    let line = serving.line("draining").await;
    assert!(
        line.contains(" connections, at most 30 s; the same signal again ends at once"),
        "{line}"
    );
    serving.signal("-INT").await;
    assert_eq!(serving.ended().await, Some(130));
}

#[tokio::test]
async fn findings_that_come_and_go_are_lines_with_file_object_and_remedy() {
    let served = directory(&Site::new("a.test").to(([127, 0, 0, 1], 1).into()).yaml());
    let (mut serving, greeting) = Serving::start(&[], served.path()).await;
    let version = format!("version {}", env!("CARGO_PKG_VERSION"));
    assert!(
        greeting.contains(&version) && greeting.contains("127.0.0.1:"),
        "{greeting}"
    );
    let bad = served.path().join("bad.yaml");
    std::fs::write(&bad, "kind: [\n").expect("a file");
    let line = serving.line("bad.yaml:").await;
    // A time comes first, and no colours are written where nobody sees them.
    assert!(line.starts_with("20") && line.contains("ERROR"), "{line}");
    assert!(!line.contains('\u{1b}'), "{line:?}");
    std::fs::remove_file(&bad).expect("it was there");
    serving.line("resolved: ").await;
    let answer = serving.ask("a.test", "X-Request-ID: mine-1\r\n").await;
    assert!(
        answer.starts_with("HTTP/1.1 502") && answer.contains("mine-1"),
        "{answer}"
    );
    let line = serving.line("answered 502 itself").await;
    assert!(
        line.contains("connect_failed") && line.contains("a.test"),
        "{line}"
    );
}

#[tokio::test]
async fn a_directory_of_another_class_says_so_with_what_to_do() {
    let site = Site::new("a.test").to(([127, 0, 0, 1], 1).into());
    let class = site.annotation("kubernetes.io/ingress.class", "nginx");
    let served = directory(&class.yaml());
    let (mut serving, _) = Serving::start(&[], served.path()).await;
    let line = serving.line("NOTHING IS SERVED").await;
    assert!(line.contains("--ingress-class=nginx"), "{line}");
    let (_serving, greeting) = Serving::start(&["--ingress-class=nginx"], served.path()).await;
    assert!(
        !greeting.contains("serves 0 domains and 0 routes"),
        "{greeting}"
    );
}

#[tokio::test]
async fn files_are_served_beside_directories_and_watched() {
    let nobody = || ([127, 0, 0, 1], 1).into();
    let served = directory(&Site::new("a.test").to(nobody()).yaml());
    let aside = directory(&Site::new("b.test").to(nobody()).yaml());
    std::fs::write(aside.path().join("c.yaml"), "kind: [\n").expect("a file");
    let file = aside.path().join("a.yaml");
    let flag = file.to_str().expect("UTF-8").to_owned();
    let (mut serving, greeting) = Serving::start(&[&flag], served.path()).await;
    assert!(greeting.contains(&flag), "{greeting}");
    for host in ["a.test", "b.test"] {
        let answer = serving.ask(host, "").await;
        assert!(answer.starts_with("HTTP/1.1 502"), "{host}: {answer}");
    }
    let site = Site::new("b.test").annotation("kubernetes.io/ingress.class", "nginx");
    std::fs::write(&file, site.yaml()).expect("a file");
    // What lies beside the file is not read.
    let line = serving.line("a.yaml:").await;
    assert!(line.contains("names class nginx"), "{line}");
}

#[tokio::test]
async fn no_line_is_printed_that_cannot_work() {
    let path = repository("examples/kubernetes");
    let (mut serving, _) = Serving::start(&[], &path).await;
    serving.signal("-TERM").await;
    let mut rest = String::new();
    while let Some(line) = serving.lines.next_line().await.expect("text") {
        rest += &line;
    }
    assert!(
        !rest.contains("try: curl"),
        "its Service has no endpoints here: {rest}"
    );
    assert_eq!(serving.ended().await, Some(0));
}

#[tokio::test]
async fn a_word_that_is_no_level_is_an_error_and_help_is_in_groups() {
    let run = async |arguments: &[&str]| {
        let output = myriad().args(arguments).output();
        let output = tokio::time::timeout(Duration::from_secs(20), output).await;
        let output = output.expect("in time").expect("the binary runs");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let (code, text) = run(&["serve", "--log=verbose", "/nowhere"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("--log: \"verbose\" is not one of off, error, warn"),
        "{text}"
    );
    let (_, help) = run(&["serve", "--help"]).await;
    for heading in [
        "Listeners:",
        "Process:",
        "Logs and metrics:",
        "Requests:",
        "Objects:",
        "Mesh:",
    ] {
        assert!(help.contains(heading), "{heading} is not in: {help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let (code, script) = run(&["completions", shell]).await;
        assert!(code == Some(0) && script.contains("access-log"), "{shell}");
    }
}
