//! The words of strangers: of objects whose namespace is neither that of the caller nor the root
//! namespace. The names and addresses that they may speak of are bounded, and they decide for
//! nobody else what is spoken on a port.

use std::net::IpAddr;

use ipnet::IpNet;
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{Host, reach};

use super::blocks::overlap;
use crate::engine::Reader;
use crate::resolve::Spoken;

/// The author of an object, as the callers of a view see its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// It is their own.
    Caller,
    /// It is the root namespace.
    Root,
    /// It is neither.
    Stranger,
}

/// Ports on which HTTP of strangers is found by the host of the request, whatever the address.
const HTTP_PORTS: [u16; 2] = [80, 8080];

/// The port on which TLS of strangers is found by the name in the handshake.
const TLS_PORT: u16 = 443;

/// The shortest blocks of addresses of IPv4 and of IPv6 that a stranger may speak of.
const BLOCK_V4_MIN: u8 = 16;
const BLOCK_V6_MIN: u8 = 32;

/// Names where clouds tell a machine who it is and give it credentials.
const METADATA: [&str; 2] = ["metadata.google.internal", "metadata.goog"];

impl Author {
    /// The author of what a namespace writes.
    pub(super) fn of(reader: &Reader<'_>, namespace: &str) -> Self {
        // Whether it is the caller's is asked last, since the answer parts views.
        if namespace == reader.settings().root_namespace() {
            return Author::Root;
        }
        match reader.view().is_of(namespace) {
            true => Author::Caller,
            false => Author::Stranger,
        }
    }

    /// Whether he is neither the caller nor the operator.
    pub(super) fn is_stranger(self) -> bool {
        self == Author::Stranger
    }
}

/// Whether a stranger may have something spoken on the listener that all addresses share at a port.
/// Bytes change nothing for those who are not meant; HTTP and TLS do, but where everybody expects
/// them.
pub(super) fn may_share(spoken: Spoken, port: u16) -> bool {
    match spoken {
        Spoken::Http => HTTP_PORTS.contains(&port),
        Spoken::Tls => port == TLS_PORT,
        Spoken::Tcp => true,
        Spoken::Unknown => false,
    }
}

/// The protocol of a stranger's port that is known by addresses without listeners of their own:
/// bytes, where it may share nothing else.
pub(super) fn by_addresses(spoken: Spoken, port: u16) -> Spoken {
    match may_share(spoken, port) {
        true => spoken,
        false => Spoken::Tcp,
    }
}

/// Why a host of a stranger's ServiceEntry is for callers of its own namespace alone; none where it
/// is not. Names of Services are judged elsewhere.
pub(super) fn why_not_host(host: &Host, domain: &str) -> Option<&'static str> {
    let text = host.as_str();
    let suffix = match text {
        "*" => return Some("covers all names"),
        _ => text.strip_prefix("**."),
    };
    let covers = |name: &str| match suffix {
        Some(suffix) => {
            let rest = name.strip_suffix(suffix);
            rest.is_some_and(|rest| rest.ends_with('.'))
        }
        None => text == name,
    };
    let domains = [format!("svc.{domain}"), "svc.cluster.local".to_owned()];
    if domains.iter().any(|name| covers(name)) {
        return Some("covers names of Services of all namespaces");
    }
    if METADATA.into_iter().any(covers) {
        return Some("is where a cloud gives credentials to its machines");
    }
    let is_wide = suffix.is_some_and(|suffix| !suffix.contains('.'));
    is_wide.then_some("covers all names of a top-level domain")
}

/// Why a block of addresses of a stranger's ServiceEntry is for callers of its own namespace alone;
/// none where it is not. Addresses of Services are judged elsewhere.
pub(super) fn why_not_block(block: IpNet) -> Option<&'static str> {
    let block = match block.addr().to_canonical() {
        address if block.prefix_len() == block.max_prefix_len() => IpNet::from(address),
        _ => block,
    };
    let local: Vec<IpNet> = reach::local_blocks().collect();
    if !overlap(&[block], &local).is_empty() {
        return Some(
            "has addresses of every machine's own, of its link or of its cloud's metadata",
        );
    }
    let least = match block.addr() {
        IpAddr::V4(_) => BLOCK_V4_MIN,
        IpAddr::V6(_) => BLOCK_V6_MIN,
    };
    let is_wide = block.prefix_len() < least;
    is_wide.then_some("is a block of more than 65,536 addresses (of IPv6: larger than a /32)")
}

/// The finding about a host or block that is for callers of its own namespace alone.
pub(super) fn kept(reader: &Reader<'_>, key: &ObjectKey, field: String, why: &str) -> Finding {
    let (own, root) = (key.namespace(), reader.settings().root_namespace());
    Finding::new(
        Severity::Warning,
        key,
        field,
        format!("{why}, so it has no effect for callers outside of namespace {own}"),
        format!("let the operator write it in namespace {root}, or write exportTo: [\".\"]"),
    )
}

#[cfg(test)]
mod tests {
    use myriad_model::Host;

    use super::{why_not_block, why_not_host};

    #[test]
    fn wide_names_and_those_of_the_cluster_or_of_clouds_are_no_strangers() {
        let is_kept = |text: &str| {
            let host = Host::parse(text).unwrap();
            why_not_host(&host, "corp.example").is_some()
        };
        for text in [
            "*",
            "**.com",
            "**.local",
            "**.cluster.local",
            "**.corp.example",
            "**.internal",
            "**.google.internal",
            "metadata.google.internal",
            "metadata.goog",
        ] {
            assert!(is_kept(text), "{text}");
        }
        for text in [
            "api.example.com",
            "**.example.com",
            "**.other.example",
            "a.metadata.goog",
            "xcluster.local",
        ] {
            assert!(!is_kept(text), "{text}");
        }
    }

    #[test]
    fn wide_blocks_and_those_of_machines_themselves_are_no_strangers() {
        let is_kept = |text: &str| why_not_block(text.parse().unwrap()).is_some();
        for text in [
            "0.0.0.0/0",
            "10.0.0.0/15",
            "127.0.0.1/32",
            "169.254.169.254/32",
            "169.254.169.0/24",
            "168.63.0.0/16",
            "::ffff:169.254.169.254/128",
            "::/0",
            "2001::/16",
            "::1/128",
            "fe80::/64",
            "fd00:ec2::/64",
        ] {
            assert!(is_kept(text), "{text}");
        }
        for text in [
            "10.8.0.0/16",
            "192.0.2.1/32",
            "2001:db8::/32",
            "fd00:1::1/128",
        ] {
            assert!(!is_kept(text), "{text}");
        }
    }
}
