//! The network of one pod: with an address of its own, proxies that obey the same listeners stand
//! side by side, as they do on nodes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Stdio;

use myriad_lab::network::Network;
use tokio::process::Command;

use super::{Cluster, Launch};

/// The port of the admin pages of every process in a pod.
pub(super) const ADMIN_PORT: u16 = 9901;

/// A network that exists until this is dropped, and is entered from that of the cluster alone.
pub struct Pod(Network);

impl Pod {
    /// Makes the pod of this number; pods of a story differ by number, from 0 to 62.
    ///
    /// # Panics
    /// Where it cannot be made.
    pub async fn new(cluster: &Cluster, number: u8) -> Pod {
        let story = cluster.last_octet();
        let host = |host: u8| Ipv4Addr::new(10, 245, story, number * 4 + host);
        Pod::between(format!("pod-{story}-{number}"), (host(1), host(2))).await
    }

    /// Makes a network that is no Pod's, with a public address; a story has one.
    ///
    /// # Panics
    /// Where it cannot be made.
    pub async fn outside(cluster: &Cluster) -> Pod {
        let story = cluster.last_octet();
        // Of those that are for documents, there are enough for 63 stories.
        let host = |host: u8| Ipv4Addr::new(203, 0, 113, story % 63 * 4 + host);
        Pod::between(format!("out-{story}"), (host(1), host(2))).await
    }

    async fn between(name: String, (gateway, address): (Ipv4Addr, Ipv4Addr)) -> Pod {
        // It waits for programs, and others of the story have things to do.
        let made = move || Network::linked(&name, gateway, address);
        let made = tokio::task::spawn_blocking(made).await;
        Pod(made.expect("no panic").expect("a network can be made"))
    }

    /// The address of the pod.
    pub fn address(&self) -> IpAddr {
        self.0.address().into()
    }

    /// Its network.
    pub fn network(&self) -> &Network {
        &self.0
    }

    /// The process by which its network is entered.
    pub fn target(&self) -> u32 {
        self.0.target()
    }

    /// The address where a proxy in it serves HTTPS, if its controllers say port 8443 of every
    /// address.
    pub fn https(&self) -> SocketAddr {
        self.0.at(8443)
    }

    /// Runs a command inside to its end.
    ///
    /// # Panics
    /// Where it does not start.
    pub async fn run(&self, words: &[&str]) -> std::process::Output {
        let [enter, rest @ ..] = self.0.words();
        let mut command = Command::new(enter);
        command.args(rest).args(words).stdin(Stdio::null());
        command.output().await.expect("nsenter starts")
    }

    /// Listens inside, for an endpoint that is part of the story.
    ///
    /// # Panics
    /// Where the port is taken.
    pub fn listen(&self, port: u16) -> tokio::net::TcpListener {
        let socket = self
            .0
            .listen((Ipv4Addr::UNSPECIFIED, port))
            .expect("a free port");
        tokio::net::TcpListener::from_std(socket).expect("a socket")
    }

    /// Cuts the pod off, or ties it to the others again; connections stay open.
    ///
    /// # Panics
    /// Where it cannot be done.
    pub async fn connect(&self, is_connected: bool) {
        let state = if is_connected { "up" } else { "down" };
        let cut = self.run(&["ip", "link", "set", "eth0", state]).await;
        assert!(cut.status.success(), "{cut:?}");
        if is_connected {
            // The route went with the link.
            let gateway = Ipv4Addr::from_bits(self.0.address().to_bits() - 1).to_string();
            let line = ["ip", "route", "add", "default", "via", &gateway];
            let tied = self.run(&line).await;
            assert!(tied.status.success(), "{tied:?}");
        }
    }

    /// The process of a launch, run inside the pod.
    pub fn place(&self, launch: Launch) -> Launch {
        let words = self.0.words();
        launch
            .through(&words.each_ref().map(String::as_str))
            .set("--admin", self.0.at(ADMIN_PORT))
    }
}
