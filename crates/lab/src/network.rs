//! Networks of their own, in which processes and threads of tests play machines.
//!
//! Making one takes root, `unshare` and `nsenter`; tying it to this one takes `ip` too.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The program that enters a network.
pub(crate) const ENTER: &str = "nsenter";

/// Holds the network until its input ends, so that nothing is left of a run that was cut off.
const HOLD_BARE: &str = "echo made && read -r _";

/// The script once the link is there and its inner end is up.
const HOLD_LINKED: &str = "echo made && read -r address gateway && ip link set lo up && \
    ip addr add $address/30 dev eth0 && ip link set eth0 up && \
    ip route add default via $gateway && echo up && read -r _";

/// A network that exists until this is dropped.
pub struct Network {
    holder: Child,
    _stdin: ChildStdin,
    address: Ipv4Addr,
    /// The outer end of what ties it to this network, where it is tied.
    link: Option<String>,
}

/// The way into a network, for one thread.
pub struct Door(File);

/// A process that holds a network, under construction.
struct Holder {
    child: Child,
    stdin: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Network {
    /// Makes one that nothing leads to, and in which nothing is up.
    ///
    /// # Errors
    /// This is not root, or a program is missing.
    pub fn bare() -> Result<Network> {
        let Holder { child, stdin, .. } = Holder::start(HOLD_BARE)?;
        Ok(Network {
            holder: child,
            _stdin: stdin,
            address: Ipv4Addr::UNSPECIFIED,
            link: None,
        })
    }

    /// Makes one with an address that this network reaches by a link of this name, and whose
    /// packets go out by the gateway; both are of the same /30. This network passes on what such
    /// networks send each other.
    ///
    /// # Errors
    /// This is not root, a program is missing, or the name is taken.
    pub fn linked(link: &str, gateway: Ipv4Addr, address: Ipv4Addr) -> Result<Network> {
        let mut holder = Holder::start(HOLD_LINKED)?;
        tie(link, holder.child.id(), gateway)?;
        writeln!(holder.stdin, "{address} {gateway}")?;
        let is_up = holder.says("up");
        is_up.context("`ip` (iproute2) brings up a link")?;
        Ok(Network {
            holder: holder.child,
            _stdin: holder.stdin,
            address,
            link: Some(link.to_owned()),
        })
    }

    /// Its address; `0.0.0.0` for one that nothing leads to.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// A port of it, as others see it.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.address, port))
    }

    /// The number of the process by which it is entered.
    pub fn target(&self) -> u32 {
        self.holder.id()
    }

    /// The words that, before a command, run it inside; the process stays the same.
    pub fn words(&self) -> [String; 3] {
        entering(self.target())
    }

    /// A command that runs inside.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let [enter, rest @ ..] = self.words();
        let mut command = Command::new(enter);
        command.args(rest).arg(program.as_ref());
        command
    }

    /// The way in for threads.
    ///
    /// # Errors
    /// It has ended.
    pub fn door(&self) -> Result<Door> {
        let path = format!("/proc/{}/ns/net", self.target());
        Ok(Door(File::open(&path).context(path)?))
    }

    /// Does something on a thread of its own whose sockets and processes are inside.
    ///
    /// # Errors
    /// The network cannot be entered.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let door = self.door()?;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                door.enter()?;
                Ok(work())
            });
            thread.join().ok().context("the work inside panicked")?
        })
    }

    /// Listens inside, without blocking whoever accepts.
    ///
    /// # Errors
    /// The port is taken.
    pub fn listen(&self, at: impl ToSocketAddrs + Send) -> Result<TcpListener> {
        let listener = self.inside(|| TcpListener::bind(at))??;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}

impl Door {
    /// Moves this thread in: what it opens and starts from now on is inside.
    ///
    /// # Errors
    /// This is not root.
    pub fn enter(self) -> Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(move_into_link_name_space(self.0.as_fd(), kind)?)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            // The kernel takes its time to end a network, and the next run may want the name at
            // once.
            let mut command = Command::new("ip");
            command.args(["link", "delete", link]);
            let _ = command.stderr(Stdio::null()).status();
        }
        // Both fail where it has ended by itself.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Holder {
    fn start(script: &str) -> Result<Holder> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("`unshare` (util-linux) starts")?;
        let stdin = child.stdin.take().context("it was piped")?;
        let stdout = child.stdout.take().context("it was piped")?;
        let says = BufReader::new(stdout).lines();
        let mut holder = Holder { child, stdin, says };
        holder.says("made")?;
        Ok(holder)
    }

    fn says(&mut self, word: &str) -> Result<()> {
        let line = self.says.next().transpose()?;
        let is_said = line.as_deref() == Some(word);
        ensure!(is_said, "a network is not {word}, which takes root");
        Ok(())
    }
}

/// The words that, before a command, run it in the network of a process.
pub(crate) fn entering(process: u32) -> [String; 3] {
    let target = format!("--target={process}");
    [ENTER.to_owned(), target, "--net".to_owned()]
}

/// Ties both networks together; this one passes on what the others send each other. The link goes
/// when the inner one does.
fn tie(name: &str, holder: u32, gateway: Ipv4Addr) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::entering;

    #[test]
    fn a_network_is_entered_by_the_process_that_holds_it() {
        assert_eq!(entering(7), ["nsenter", "--target=7", "--net"]);
    }
}
