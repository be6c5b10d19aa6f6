//! A real provider of OpenID Connect that stories sign in at.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::world::repository;

/// A running provider; it ends when dropped.
pub struct OpenIdProvider {
    /// The address that it listens on.
    pub address: SocketAddr,
    _child: Child,
    /// Kept open, since the provider goes on to write there.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl OpenIdProvider {
    /// Starts one for a client of this id and secret, which is called back there.
    ///
    /// # Panics
    /// Where the program is not there, or does not listen.
    pub async fn start(id: &str, secret: &str, callback: &str) -> OpenIdProvider {
        let program = std::env::var_os("MYRIAD_OIDC_PROVIDER")
            .expect("MYRIAD_OIDC_PROVIDER is a program; `cargo xtask test` sets it");
        let mut command = Command::new(program);
        command
            .arg(repository("tools/oidc/provider.mjs"))
            .args([id, secret, callback])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().expect("the provider runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let listens = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = line.strip_prefix("listening at http://") {
                    let address: SocketAddr = address.parse().expect("an address");
                    return address;
                }
            }
            panic!("the provider ended before it listened");
        };
        let listens = tokio::time::timeout(Duration::from_secs(60), listens).await;
        OpenIdProvider {
            address: listens.expect("the provider listens in time"),
            _child: child,
            _lines: lines,
        }
    }

    /// The name that it goes by.
    pub fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }
}
