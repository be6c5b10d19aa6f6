//! The networks of Pods, tied to the one that this process is in.

use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
pub use myriad_lab::network::Network;

use crate::cluster::process;

/// How many can stand side by side.
const NETWORKS_MAX: u16 = 64 * 256;

/// Makes the network of this number, from 0; those that stand side by side differ in it.
///
/// # Errors
/// This is not root, a program is missing, or the number is taken.
pub fn network(number: u16) -> anyhow::Result<Network> {
    ensure!(number < NETWORKS_MAX, "at most {NETWORKS_MAX} networks");
    let [block, place] = [number / 64, number % 64].map(|it| it as u8);
    let host = |host: u8| Ipv4Addr::new(10, 245, block, place * 4 + host);
    Network::linked(&format!("bench-{number}"), host(1), host(2))
}

/// The words that, before a command, run it in a network as the proxy, whose connections no rule
/// leads anywhere.
pub fn words_of_proxy(network: &Network) -> Vec<String> {
    let own = ["setpriv", "--regid=1337", "--clear-groups"];
    let own = own.map(str::to_owned);
    network.words().into_iter().chain(own).collect()
}

/// Leads connections of a network to the proxy, both ways, as `myriad redirect` does with these
/// arguments.
///
/// # Errors
/// It fails; it says why.
pub fn redirect(network: &Network, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = network.command(process::program()?);
    command.arg("redirect").args(arguments);
    let output = command.output().context("`nsenter` (util-linux) starts")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "no rules: {text}");
    Ok(())
}
