//! The EndpointSlice of the proxies, kept as a kubelet and its cluster do, and a client's view
//! of it.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

use super::pod::ADMIN_PORT;
use super::{Addresses, Cluster, Pod};
use crate::client::Curl;
use crate::world::eventually;

/// How often pods are asked whether they are ready.
const PROBE_INTERVAL: Duration = Duration::from_millis(100);

/// Keeps the slice until it is dropped.
pub struct Slice {
    addresses: Addresses,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Slice {
    /// Begins to ask the pods, to write the slice, and to follow it.
    pub fn publish(cluster: &Arc<Cluster>, pods: &[Pod]) -> Slice {
        let pods: Vec<IpAddr> = pods.iter().map(Pod::address).collect();
        let (sender, addresses) = watch::channel(Vec::new());
        Slice {
            addresses,
            tasks: [
                tokio::spawn(keep(cluster.clone(), pods)),
                tokio::spawn(follow(cluster.clone(), sender)),
            ],
        }
    }

    /// The addresses, for a client that follows the slice.
    pub fn addresses(&self) -> Addresses {
        self.addresses.clone()
    }

    /// Waits until the client knows of so many.
    ///
    /// # Panics
    /// At the deadline.
    pub async fn ready(&self, count: usize) {
        let ready = eventually(async || (self.addresses.borrow().len() == count).then_some(()));
        let known = || self.addresses.borrow().clone();
        assert!(
            ready.await.is_some(),
            "{count} are ready, not {:?}",
            known()
        );
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Plays the kubelet, which asks, and the controller that writes what it says.
async fn keep(cluster: Arc<Cluster>, pods: Vec<IpAddr>) {
    let mut told = None;
    loop {
        let mut states = Vec::new();
        for pod in &pods {
            let url = format!("http://{}/readyz", SocketAddr::new(*pod, ADMIN_PORT));
            let answer = Curl::new(&url, &[], &PathBuf::from("/dev/null"));
            let answer = answer.args(&["--max-time", "1"]).ask().await;
            states.push((*pod, answer.status == 200));
        }
        if told.as_ref() != Some(&states) {
            cluster.apply(&text(&cluster.home(), &states)).await;
            told = Some(states);
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

fn text(home: &str, states: &[(IpAddr, bool)]) -> String {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: proxies\n  \
         namespace: {home}\naddressType: IPv4\nports:\n- port: 8443\nendpoints:\n"
    );
    for (address, is_ready) in states {
        let _ = writeln!(
            text,
            "- addresses: ['{address}']\n  conditions: {{ready: {is_ready}}}"
        );
    }
    text
}

/// Follows the slice as a client does.
async fn follow(cluster: Arc<Cluster>, sender: watch::Sender<Vec<SocketAddr>>) {
    let home = cluster.home();
    let path = format!("/apis/discovery.k8s.io/v1/namespaces/{home}/endpointslices?watch=1");
    let mut command = Command::new("kubectl");
    command.args(["get", "--raw", &path]);
    command.stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().expect("kubectl starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        sender.send_replace(ready(&line));
    }
}

/// Which of the endpoints are ready, by an event of the watch.
fn ready(line: &str) -> Vec<SocketAddr> {
    let event: serde_json::Value = serde_json::from_str(line).expect("an event");
    let endpoints = event["object"]["endpoints"].as_array().cloned();
    let endpoints = endpoints.unwrap_or_default().into_iter();
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    let addresses = ready.filter_map(|endpoint| endpoint["addresses"][0].as_str()?.parse().ok());
    let addresses = addresses.map(|address: IpAddr| SocketAddr::new(address, 8443));
    addresses.collect()
}
