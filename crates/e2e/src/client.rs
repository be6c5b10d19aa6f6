//! curl, and what it got.

use std::path::PathBuf;

use tokio::process::Command;

/// A curl command under construction.
pub struct Curl {
    command: Command,
    url: String,
}

/// The answer that a client got.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status; 0 where no response came.
    pub status: u16,
    /// The statuses of the interim responses before it.
    pub interims: Vec<u16>,
    /// The headers of the last response, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
    /// The output of curl on standard error, and its exit code.
    pub error: String,
}

impl Curl {
    /// A request for a URL whose host and port lead to this address, trusting this root.
    pub fn new(url: &str, resolve: &[String], root: &PathBuf) -> Self {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "-i", "--max-time", "20", "--cacert"])
            .arg(root);
        for rule in resolve {
            command.args(["--resolve", rule]);
        }
        // A proxy in the environment must not come between.
        command
            .env_remove("http_proxy")
            .env_remove("https_proxy")
            .env("NO_PROXY", "*");
        Curl {
            command,
            url: url.to_owned(),
        }
    }

    /// Runs in the network that a script enters.
    #[must_use]
    pub fn inside(mut self, enter: &std::path::Path) -> Self {
        self.command = crate::cluster::enter(enter, &self.command);
        self
    }

    /// Further arguments, as curl's manual has them.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    /// Asks.
    ///
    /// # Panics
    /// Where curl is not installed: a story that cannot run is a failure.
    pub async fn ask(mut self) -> Answer {
        let output = self.command.arg(&self.url).output().await;
        let output = output.expect("curl is installed; `cargo xtask test` sees to it");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut error = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            error += &format!("(exit code {:?})", output.status.code());
        }
        Answer::read(&text, error)
    }
}

impl Answer {
    fn read(text: &str, error: String) -> Answer {
        let mut rest = text;
        let mut answer = Answer {
            status: 0,
            interims: Vec::new(),
            headers: Vec::new(),
            body: String::new(),
            error,
        };
        // Interim responses come first, each with a head of its own.
        while rest.starts_with("HTTP/") {
            let (head, after) = rest.split_once("\r\n\r\n").unwrap_or((rest, ""));
            let mut lines = head.lines();
            let status = lines.next().and_then(|line| line.split(' ').nth(1));
            answer.status = status.and_then(|status| status.parse().ok()).unwrap_or(0);
            answer.headers = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            rest = after;
            if answer.status >= 200 {
                break;
            }
            answer.interims.push(answer.status);
        }
        answer.body = rest.to_owned();
        answer
    }

    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON, as [`crate::Backend`] writes it.
    ///
    /// # Panics
    /// Where it is something else.
    pub fn told(&self) -> serde_json::Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|_| panic!("not a backend's answer: {self:?}"))
    }
}
