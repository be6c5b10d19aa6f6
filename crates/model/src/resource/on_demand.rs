//! The names of certificates that are obtained on demand: by them a handshake finds the one of a
//! host that no domain names.

use crate::Name;

/// The beginning of the names of such certificates. Others are named by a namespace and a name
/// with a slash between them, so that nobody's Secret is taken for one.
const PREFIX: &str = "on-demand:";

/// The longest host that a certificate is obtained for on demand, as authorities have it.
const HOST_BYTES_MAX: usize = 253;

/// The longest label (RFC 1035, section 2.3.4).
const LABEL_BYTES_MAX: usize = 63;

/// The name of the certificate that is obtained on demand for a host in lower case.
pub fn on_demand_name(host: &str) -> Name {
    Name::new(format!("{PREFIX}{host}"))
}

/// The host of a certificate that is obtained on demand, by its name; none of any other.
pub fn on_demand_host(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX).filter(|host| is_demandable(host))
}

/// Whether a certificate may be obtained on demand for a name: it is a host in lower case of at
/// least two labels, no address, no wildcard and none of the zones of addresses.
pub fn is_demandable(name: &str) -> bool {
    let is_letter = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.as_bytes().iter().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let top = name.rsplit('.').next().unwrap_or_default();
    name.len() <= HOST_BYTES_MAX
        && name.contains('.')
        && name.split('.').all(is_label)
        // An address of IPv4 in any of its forms ends in a number.
        && top.bytes().any(|byte| byte.is_ascii_lowercase())
        && !top.starts_with("0x")
        && top != "arpa"
}

#[cfg(test)]
mod tests {
    use super::{is_demandable, on_demand_host, on_demand_name};

    #[test]
    fn a_host_is_found_by_the_name_of_its_certificate_and_no_secret_is() {
        let name = on_demand_name("a.example");
        assert_eq!(on_demand_host(&name), Some("a.example"));
        for other in ["shop/web", "on-demand/a.example", "a.example", "on-demand:"] {
            assert_eq!(on_demand_host(other), None, "{other}");
        }
        assert_eq!(on_demand_host("on-demand:../../etc"), None);
    }

    #[test]
    fn names_of_hosts_alone_may_be_demanded() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", &label[..61]);
        for name in ["a.example", "x-1.2.a.co", "xn--bcher-kva.example", &longest] {
            assert!(is_demandable(name), "{name}");
        }
        let longer = format!("{longest}a");
        let label = format!("{label}a.example");
        for name in [
            "",
            "localhost",
            "a.example.",
            ".example",
            "a..example",
            "A.example",
            "*.example",
            "a_b.example",
            "-a.example",
            "a-.example",
            "a b.example",
            "a/b.example",
            "b\u{fc}cher.example",
            "192.0.2.7",
            "a.0x7f",
            "7.2.0.192.in-addr.arpa",
            "::1",
            &label,
            &longer,
        ] {
            assert!(!is_demandable(name), "{name}");
        }
    }
}
