//! The network of one pod: with an address of its own, proxies that obey the same listeners stand
//! side by side, as they do on nodes.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::Stdio;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::{Cluster, Launch};

/// Waits until the link is there, brings up its inner end, and holds the network.
const HOLD: &str = "echo made && read -r address gateway && ip link set lo up && \
    ip addr add $address/30 dev eth0 && ip link set eth0 up && \
    ip route add default via $gateway && echo up && exec sleep infinity";

/// Where every process in a pod has its admin pages.
pub(super) const ADMIN_PORT: u16 = 9901;

/// A network that exists until this is dropped, and is entered from that of the cluster alone.
pub struct Pod {
    holder: Child,
    _stdin: ChildStdin,
    address: IpAddr,
}

impl Pod {
    /// Makes the pod of this number; pods of a story differ by number, from 0 to 62.
    ///
    /// # Panics
    /// Where it cannot be made.
    pub async fn new(cluster: &Cluster, number: u8) -> Pod {
        let story = cluster.last_octet();
        let host = |host: u8| IpAddr::from([10, 245, story, number * 4 + host]);
        Pod::between(&format!("pod-{story}-{number}"), (host(1), host(2))).await
    }

    /// Makes a network that is no Pod's, with a public address; a story has one.
    ///
    /// # Panics
    /// Where it cannot be made.
    pub async fn outside(cluster: &Cluster) -> Pod {
        let story = cluster.last_octet();
        // Of those that are for documents, there are enough for 63 stories.
        let host = |host: u8| IpAddr::from([203, 0, 113, story % 63 * 4 + host]);
        Pod::between(&format!("out-{story}"), (host(1), host(2))).await
    }

    async fn between(name: &str, (gateway, address): (IpAddr, IpAddr)) -> Pod {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.kill_on_drop(true).spawn().expect("unshare starts");
        let mut stdin = holder.stdin.take().expect("a pipe");
        let mut lines = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
        let line = lines.next_line().await.expect("a line");
        assert_eq!(line.as_deref(), Some("made"), "a network can be made");
        let pid = holder.id().expect("it runs").to_string();
        link(name, &pid, gateway).await;
        let addresses = format!("{address} {gateway}\n");
        let written = stdin.write_all(addresses.as_bytes()).await;
        written.expect("the holder reads");
        let line = lines.next_line().await.expect("a line");
        assert_eq!(line.as_deref(), Some("up"), "the link comes up");
        Pod {
            holder,
            _stdin: stdin,
            address,
        }
    }

    /// The address of the pod.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The process by which its network is entered.
    ///
    /// # Panics
    /// Where it has ended.
    pub fn target(&self) -> u32 {
        self.holder.id().expect("it runs")
    }

    /// Where a proxy in it serves HTTPS, if its controllers say port 8443 of every address.
    pub fn https(&self) -> SocketAddr {
        SocketAddr::new(self.address, 8443)
    }

    /// Runs a command inside to its end.
    ///
    /// # Panics
    /// Where it does not start.
    pub async fn run(&self, words: &[&str]) -> std::process::Output {
        let target = self.target();
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={target}")).arg("--net");
        command.args(words).stdin(Stdio::null());
        command.output().await.expect("nsenter starts")
    }

    /// Listens inside, for an endpoint that is part of the story.
    ///
    /// # Panics
    /// Where the port is taken.
    pub fn listen(&self, port: u16) -> tokio::net::TcpListener {
        let path = format!("/proc/{}/ns/net", self.target());
        let network = std::fs::File::open(path).expect("a network");
        // A thread that has entered it must not come back.
        let thread = std::thread::spawn(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("a network to enter");
            std::net::TcpListener::bind(("0.0.0.0", port)).expect("a free port")
        });
        let socket = thread.join().expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
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
            let IpAddr::V4(address) = self.address else {
                unreachable!("pods have addresses of version 4")
            };
            let gateway = std::net::Ipv4Addr::from_bits(address.to_bits() - 1).to_string();
            let line = ["ip", "route", "add", "default", "via", &gateway];
            let tied = self.run(&line).await;
            assert!(tied.status.success(), "{tied:?}");
        }
    }

    /// The same process inside.
    pub fn place(&self, launch: Launch) -> Launch {
        let target = self.target();
        launch
            .through(&["nsenter", &format!("--target={target}"), "--net"])
            .set("--admin", SocketAddr::new(self.address, ADMIN_PORT))
    }
}

/// Ties the two networks together, and this one passes on what pods send each other. The link goes
/// when the inner one does.
async fn link(name: &str, pid: &str, gateway: IpAddr) {
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("pods reach each other");
    let gateway = format!("{gateway}/30");
    let lines: [&[&str]; 3] = [
        &[
            "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid,
        ],
        &["addr", "add", &gateway, "dev", name],
        &["link", "set", name, "up"],
    ];
    for line in lines {
        let mut command = Command::new("ip");
        let status = command.args(line).status().await.expect("ip starts");
        assert!(status.success(), "ip {line:?}");
    }
}
