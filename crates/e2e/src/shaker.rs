//! openssl, and whether its session was resumed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// A handshake under construction, with a request behind it.
pub struct Shaker {
    command: Command,
    request: String,
}

impl Shaker {
    /// A handshake with the server at this address by this name, trusting this root.
    pub fn new(address: SocketAddr, name: &str, root: &Path) -> Self {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-ign_eof", "-servername", name]);
        command.arg("-connect").arg(address.to_string());
        command.arg("-verify_return_error").arg("-CAfile").arg(root);
        Shaker {
            command,
            request: format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"),
        }
    }

    /// Runs in the network that a script enters.
    #[must_use]
    pub fn inside(mut self, enter: &Path) -> Self {
        self.command = crate::cluster::enter(enter, &self.command);
        self
    }

    /// Speaks one version of TLS, such as `-tls1_2`.
    #[must_use]
    pub fn version(mut self, version: &str) -> Self {
        self.command.arg(version);
        self
    }

    /// Resumes the session of a file.
    #[must_use]
    pub fn resuming(mut self, session: &Path) -> Self {
        self.command.arg("-sess_in").arg(session);
        self
    }

    /// Keeps the session that comes of it in a file.
    #[must_use]
    pub fn keeping(mut self, session: &Path) -> Self {
        self.command.arg("-sess_out").arg(session);
        self
    }

    /// Shakes hands and asks; says whether a session was resumed.
    ///
    /// # Errors
    /// The output of openssl, where the answer is not 200.
    ///
    /// # Panics
    /// Where openssl is not installed: a story that cannot run is a failure.
    pub async fn resumes(mut self) -> Result<bool, String> {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.command.stderr(Stdio::piped()).kill_on_drop(true);
        let mut client = self.command.spawn().expect("openssl is installed");
        let mut stdin = client.stdin.take().expect("a pipe");
        // One that is refused reads nothing, and then its own words say more than the pipe's.
        drop(stdin.write_all(self.request.as_bytes()).await);
        let output = client.wait_with_output().await.expect("it ends");
        drop(stdin);
        let said = String::from_utf8_lossy(&output.stdout);
        let (is_full, is_resumed) = (said.contains("\nNew, TLS"), said.contains("\nReused, TLS"));
        match said.contains("HTTP/1.1 200") && is_full != is_resumed {
            true => Ok(is_resumed),
            false => Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}
