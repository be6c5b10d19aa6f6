//! `redirect`: leads the connections of a workload to its proxy, once, before either starts.
//!
//! The rules are in the kernel of one network namespace, that of a Pod; who installs them needs
//! the capability NET_ADMIN there, and the proxy does not.

mod rules;
mod settings;

use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail, ensure};

pub use self::settings::RawRedirect;

use self::rules::{Cidr, Cidrs, Dns, ENTRIES_MAX, Ports, Rules};

/// The longest name of an interface, with the zero behind it: IFNAMSIZ of Linux.
const INTERFACE_BYTES_MAX: usize = 16;

/// Servers of DNS that are read from `resolv.conf`; the system's resolver asks three.
const SERVERS_MAX: usize = 16;

/// The longest `resolv.conf` that is read.
const RESOLV_CONF_BYTES_MAX: u64 = 64 << 10;

/// Runs the command.
///
/// # Errors
/// Settings that do not hold, or rules that cannot be installed.
pub fn run(raw: &RawRedirect) -> anyhow::Result<ExitCode> {
    if raw.remove {
        install(&raw.nft, &rules::removal())?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = check(raw)?.text();
    if raw.print {
        std::io::stdout().lock().write_all(text.as_bytes())?;
    } else {
        install(&raw.nft, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// From settings as written to rules; all problems are reported, not the first.
pub(crate) fn check(raw: &RawRedirect) -> anyhow::Result<Rules> {
    let mut problems = Problems::default();
    let mut inbound_ports_excluded = problems.ports("proxy-ports", &raw.proxy_ports);
    let name = "inbound-ports-excluded";
    inbound_ports_excluded.extend(problems.ports(name, &raw.inbound_ports_excluded));
    let rules = Rules {
        outbound_port: raw.outbound_port,
        inbound_port: raw.inbound_port,
        dns: match raw.dns_port {
            Some(port) => Some(Dns {
                port,
                servers: servers(&raw.resolv_conf)?,
            }),
            None => None,
        },
        proxy_user: raw.proxy_user,
        proxy_group: raw.proxy_group,
        inbound_ports: problems.some_ports("inbound-ports", &raw.inbound_ports),
        inbound_ports_excluded,
        outbound_cidrs: match &*raw.outbound_cidrs {
            [all] if all == "*" => Cidrs::All,
            some => Cidrs::These(problems.cidrs("outbound-cidrs", some)),
        },
        outbound_cidrs_excluded: problems
            .cidrs("outbound-cidrs-excluded", &raw.outbound_cidrs_excluded),
        outbound_ports: problems.some_ports("outbound-ports", &raw.outbound_ports),
        outbound_ports_excluded: problems
            .ports("outbound-ports-excluded", &raw.outbound_ports_excluded),
        interfaces_excluded: problems.interfaces(&raw.interfaces_excluded),
    };
    if raw.inbound_port == raw.outbound_port {
        problems.add("--inbound-port and --outbound-port are the same");
    }
    if raw.proxy_user == 0 {
        problems.add("--proxy-user is root's: a proxy of its own user can be told apart");
    }
    problems.end()?;
    Ok(rules)
}

/// The problems of the settings.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    fn some_ports(&mut self, name: &str, written: &[String]) -> Ports {
        match written {
            [all] if all == "*" => Ports::All,
            some => Ports::These(self.ports(name, some)),
        }
    }

    fn ports(&mut self, name: &str, written: &[String]) -> Vec<u16> {
        self.entries(name, "a port from 1 to 65535", written, |text| {
            text.parse().ok().filter(|port| *port != 0)
        })
    }

    fn cidrs(&mut self, name: &str, written: &[String]) -> Vec<Cidr> {
        self.entries(
            name,
            "ADDRESS/BITS, such as 10.0.0.0/8",
            written,
            Cidr::read,
        )
    }

    fn interfaces(&mut self, written: &[String]) -> Vec<String> {
        let name = "interfaces-excluded";
        self.entries(name, "the name of an interface", written, |text| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
            let fits = text.len() < INTERFACE_BYTES_MAX && text.bytes().all(fits);
            fits.then(|| text.to_owned())
        })
    }

    /// Empty entries are passed over, so that `a,` and an empty variable mean what they seem to.
    fn entries<T>(
        &mut self,
        name: &str,
        form: &str,
        written: &[String],
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        if written.len() > ENTRIES_MAX {
            self.add(format!("--{name} has more than {ENTRIES_MAX} entries"));
            return Vec::new();
        }
        let mut all = Vec::new();
        for text in written
            .iter()
            .map(|it| it.trim())
            .filter(|it| !it.is_empty())
        {
            match read(text) {
                Some(entry) => all.push(entry),
                None => self.add(format!("--{name}: {text:?} is not {form}")),
            }
        }
        all
    }

    fn end(self) -> anyhow::Result<()> {
        ensure!(self.0.is_empty(), "{}", self.0.join("; "));
        Ok(())
    }
}

/// The servers that the workload asks.
#[expect(clippy::disallowed_methods, reason = "bounded by `take`")]
fn servers(resolv_conf: &Path) -> anyhow::Result<Vec<IpAddr>> {
    use std::io::Read as _;
    let unreadable = || format!("{} cannot be read", resolv_conf.display());
    let file = std::fs::File::open(resolv_conf).with_context(unreadable)?;
    let mut text = String::new();
    file.take(RESOLV_CONF_BYTES_MAX)
        .read_to_string(&mut text)
        .with_context(unreadable)?;
    let servers = text.lines().filter_map(|line| {
        let server = line.trim().strip_prefix("nameserver")?;
        // A scope, as in fe80::1%eth0, says the interface and not the server.
        let server = server.split('%').next()?;
        server.trim().parse().ok()
    });
    let servers: Vec<IpAddr> = servers.take(SERVERS_MAX).collect();
    ensure!(
        !servers.is_empty(),
        "{} names no server, and --dns-port needs one",
        resolv_conf.display()
    );
    Ok(servers)
}

/// Hands the rules to the kernel, all of them or none.
fn install(nft: &Path, text: &str) -> anyhow::Result<()> {
    let mut child = Command::new(nft)
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| {
            let nft = nft.display();
            format!("{nft} cannot be run: install the package nftables, or name it by --nft")
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it has ended already, what it said tells more than the broken pipe.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child
        .wait_with_output()
        .context("nft cannot be waited for")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().next().unwrap_or("it did not say why");
        bail!(
            "the rules cannot be installed: {said}; the capability NET_ADMIN in the network \
             namespace of the workload is needed, and nf_tables with nat in the kernel"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
