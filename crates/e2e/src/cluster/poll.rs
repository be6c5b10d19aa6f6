//! A client that asks the same thing again and again on new connections, and remembers every
//! answer: what a user sees while objects change.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::{Cluster, Process};
use crate::client::Answer;
use crate::world::DEADLINE;

/// Requests that one client starts.
const REQUESTS_MAX: u32 = 100_000;
/// The wait without an outcome after which all former ones have been read.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(5);

/// A client that asks until it is dropped.
pub struct Poll {
    lines: Lines<BufReader<ChildStderr>>,
    _child: Child,
}

/// The outcome of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status; 0 where no response came.
    pub status: u16,
    /// Why no response came; empty where one did.
    pub error: String,
}

impl Cluster {
    /// Asks the proxies of this story for a URL of port 8080 or 8443, with further arguments of
    /// curl. `[0-9]` in the URL stands for as many URLs.
    ///
    /// # Panics
    /// Where curl does not start.
    pub fn poll(&self, url: &str, arguments: &[&str]) -> Poll {
        let form = "%{stderr}%{http_code} %{exitcode} %{errormsg}\n";
        let connect = format!("::{}:", self.address());
        let mut command = Command::new(&self.enter);
        command.args(["curl", "--silent", "--http1.1"]);
        command.args(["--output", "/dev/null", "--write-out", form]);
        command.args(["--connect-to", &connect, "--max-time", "10"]);
        command.arg("--cacert").arg(self.root());
        command.args(arguments).arg(url);
        command.env_remove("http_proxy").env_remove("https_proxy");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("curl starts");
        let stderr = child.stderr.take().expect("a pipe");
        Poll {
            lines: BufReader::new(stderr).lines(),
            _child: child,
        }
    }

    /// Asks for a URL on a new connection each time, 40 times a second.
    pub fn watch(&self, url: &str) -> Poll {
        let url = format!("{url}?[1-{REQUESTS_MAX}]");
        self.poll(&url, &["--rate", "40/s", "--header", "Connection: close"])
    }

    /// Asks for a URL of port 8080 or 8443 once.
    pub async fn ask(&self, url: &str) -> Answer {
        let connect = format!("::{}:", self.address());
        let curl = self.curl(url, &[]);
        curl.args(&["--connect-to", &connect]).ask().await
    }

    /// Starts one more endpoint that answers everything with its text.
    ///
    /// # Panics
    /// Where its files cannot be written.
    pub fn endpoint_at(&self, address: SocketAddr, text: &str) -> Process {
        let name = format!("endpoint-{}", address.port());
        let served = self.path(&name);
        std::fs::create_dir_all(&served).expect("a directory");
        let objects = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: all\n  \
             namespace: default\n  annotations: {{myriad.dev/respond: {text}}}\nspec:\n  \
             rules:\n  - http: {{paths: [{{path: /, pathType: Prefix, \
             backend: {{service: {{name: x, port: {{number: 80}}}}}}}}]}}\n"
        );
        std::fs::write(served.join("all.yaml"), objects).expect("a file");
        self.launch("serve", &name, 20_018 + self.number * 20)
            .argument(served.display())
            .set("--http", address)
            .set("--https", "127.0.0.1:0")
            .set("--workers", 1)
            .start()
    }
}

impl Poll {
    /// The next outcome; none after the last.
    ///
    /// # Panics
    /// Where none comes in time.
    pub async fn next(&mut self) -> Option<Outcome> {
        let line = tokio::time::timeout(DEADLINE, self.lines.next_line()).await;
        let line = line.expect("curl goes on").expect("curl writes text")?;
        let mut words = line.splitn(3, ' ');
        let status = words.next().and_then(|word| word.parse().ok());
        let code = words.next().unwrap_or_default();
        let message = words.next().unwrap_or_default();
        Some(Outcome {
            status: status.unwrap_or(0),
            error: match code {
                "0" => String::new(),
                code => format!("{message} (exit code {code})"),
            },
        })
    }

    /// All outcomes up to the first that is as wanted, and so many more.
    ///
    /// # Panics
    /// Where there is none in time.
    pub async fn until(&mut self, wanted: impl Fn(&Outcome) -> bool, more: usize) -> Vec<Outcome> {
        let end = tokio::time::Instant::now() + DEADLINE;
        let mut seen = Vec::new();
        loop {
            let outcome = self.next().await.expect("curl goes on");
            let fits = wanted(&outcome);
            seen.push(outcome);
            if fits {
                break;
            }
            let is_late = tokio::time::Instant::now() > end;
            assert!(!is_late, "never as wanted; last: {:?}", seen.last());
        }
        for _ in 0..more {
            seen.push(self.next().await.expect("curl goes on"));
        }
        seen
    }

    /// All outcomes up to now and so many more, of which each is to be a 200.
    ///
    /// # Panics
    /// Where one is not.
    pub async fn all_well(&mut self, more: usize) {
        while let Ok(outcome) = tokio::time::timeout(CATCH_UP_PAUSE, self.next()).await {
            assert_well(outcome);
        }
        for _ in 0..more {
            assert_well(self.next().await);
        }
    }
}

fn assert_well(outcome: Option<Outcome>) {
    let is_well = outcome.as_ref().is_some_and(Outcome::is_well);
    assert!(is_well, "{outcome:?}");
}

impl Outcome {
    /// Whether it is a 200.
    pub fn is_well(&self) -> bool {
        self.status == 200 && self.error.is_empty()
    }

    /// Whether the name was refused by an alert.
    pub fn is_refused(&self) -> bool {
        self.status == 0 && self.error.contains("unrecognized name")
    }
}
