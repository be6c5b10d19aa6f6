//! A network of its own, tied to the one that this process is in.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cluster::process;

/// Waits until the link is there, brings up its inner end, and holds the network until its input
/// ends, so that nothing is left of a run that was cut off.
const HOLD: &str = "echo made && read -r address gateway && ip link set lo up && \
    ip addr add $address/30 dev eth0 && ip link set eth0 up && \
    ip route add default via $gateway && echo up && read -r _";

/// How many can stand side by side.
const NETWORKS_MAX: u16 = 64 * 256;

/// A network that exists until this is dropped, with one address that all others reach.
pub struct Network {
    holder: Child,
    _stdin: ChildStdin,
    address: Ipv4Addr,
    /// The outer end of what ties it to this network.
    link: String,
}

/// The way into a network, for one thread.
pub struct Door(File);

impl Network {
    /// Makes the one of this number, from 0; those that stand side by side differ in it.
    ///
    /// # Errors
    /// This is not root, a program is missing, or the number is taken.
    pub fn new(number: u16) -> anyhow::Result<Network> {
        ensure!(number < NETWORKS_MAX, "at most {NETWORKS_MAX} networks");
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", HOLD]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().context("`unshare` (util-linux) starts")?;
        let mut stdin = holder.stdin.take().context("it was piped")?;
        let stdout = holder.stdout.take().context("it was piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut says = |word: &str| {
            let line = lines.next().transpose()?;
            ensure!(line.as_deref() == Some(word), "a network takes root");
            Ok(())
        };
        says("made")?;
        let [block, place] = [number / 64, number % 64].map(|it| it as u8);
        let host = |host: u8| Ipv4Addr::new(10, 245, block, place * 4 + host);
        let (gateway, address) = (host(1), host(2));
        let link = format!("bench-{number}");
        tie(&link, holder.id(), gateway)?;
        writeln!(stdin, "{address} {gateway}")?;
        says("up").context("`ip` (iproute2) brings up a link")?;
        Ok(Network {
            holder,
            _stdin: stdin,
            address,
            link,
        })
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The words that, before a command, run it inside; the process stays the same.
    pub fn words(&self) -> [String; 3] {
        let target = format!("--target={}", self.holder.id());
        ["nsenter".to_owned(), target, "--net".to_owned()]
    }

    /// The words that, before a command, run it inside as the proxy, whose connections no rule
    /// leads anywhere.
    pub fn words_of_proxy(&self) -> Vec<String> {
        let own = ["setpriv", "--regid=1337", "--clear-groups"];
        let own = own.map(str::to_owned);
        self.words().into_iter().chain(own).collect()
    }

    /// A command that runs inside.
    pub fn command(&self, program: &Path) -> Command {
        let [enter, rest @ ..] = self.words();
        let mut command = Command::new(enter);
        command.args(rest).arg(program);
        command
    }

    /// Leads connections to the proxy, both ways, as `myriad redirect` does with these arguments.
    ///
    /// # Errors
    /// It fails; it says why.
    pub fn redirect(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = self.command(&process::program()?);
        command.arg("redirect").args(arguments);
        let output = command.output().context("`nsenter` (util-linux) starts")?;
        let text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "no rules: {text}");
        Ok(())
    }

    /// The way in for threads.
    ///
    /// # Errors
    /// It has ended.
    pub fn door(&self) -> anyhow::Result<Door> {
        let path = format!("/proc/{}/ns/net", self.holder.id());
        Ok(Door(File::open(&path).context(path)?))
    }

    /// Does something on a thread of its own whose sockets and processes are inside.
    ///
    /// # Errors
    /// The network cannot be entered.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let door = self.door()?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                door.enter()?;
                Ok(work())
            });
            thread.join().ok().context("the work inside panicked")?
        })
    }

    /// Listens inside, on a port of every address.
    ///
    /// # Errors
    /// The port is taken.
    pub fn listen(&self, port: u16) -> anyhow::Result<TcpListener> {
        let listener = self.inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))??;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// A port of it, as others see it.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.address, port))
    }
}

impl Door {
    /// Moves this thread in: what it opens and starts from now on is inside.
    ///
    /// # Errors
    /// This is not root.
    pub fn enter(self) -> anyhow::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(move_into_link_name_space(self.0.as_fd(), kind)?)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The kernel takes its time to end a network, and the next run may want the name at once.
        let mut command = Command::new("ip");
        command.args(["link", "delete", &self.link]);
        let _ = command.stderr(Stdio::null()).status();
        // Both fail where it has ended by itself.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Ties both networks together; this one passes on what the others send each other. The link goes
/// when the inner one does.
fn tie(name: &str, holder: u32, gateway: Ipv4Addr) -> anyhow::Result<()> {
    let forward = "/proc/sys/net/ipv4/ip_forward";
    std::fs::write(forward, "1").context(forward)?;
    let holder = holder.to_string();
    let gateway = format!("{gateway}/30");
    let lines: [&[&str]; 3] = [
        &[
            "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", &holder,
        ],
        &["addr", "add", &gateway, "dev", name],
        &["link", "set", name, "up"],
    ];
    for line in lines {
        let status = Command::new("ip").args(line).status();
        let status = status.context("`ip` (iproute2) starts")?;
        ensure!(status.success(), "ip {}: {status}", line.join(" "));
    }
    Ok(())
}
