//! Hosts as people write them.

use std::net::IpAddr;

use myriad_model::{Host, HostError};

/// Why a text is no host of an Ingress.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HostProblem {
    /// Not a host pattern.
    #[error("{0}")]
    Pattern(HostError),
    /// An international name without an ASCII form.
    #[error("is not a valid international domain name")]
    Idna,
    /// An address where only names are allowed.
    #[error("is an IP address, which an Ingress may not name")]
    Address,
    /// More than one label, or every host, by wildcard.
    #[error("has a '*' elsewhere than as its whole first label")]
    Wildcard,
}

/// A host that was read, and whether it was written in another form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrittenHost {
    /// The host.
    pub host: Host,
    /// Whether upper case, a trailing dot or an international name was changed.
    pub changed: bool,
}

/// Reads a host: lower-cased, without trailing dot, international names as A-labels.
pub(super) fn read(text: &str) -> Result<WrittenHost, HostProblem> {
    let bare = text.strip_suffix('.').unwrap_or(text);
    if bare == "*" || bare.starts_with("**") {
        return Err(HostProblem::Wildcard);
    }
    if bare.parse::<IpAddr>().is_ok() {
        return Err(HostProblem::Address);
    }
    let name = if bare.is_ascii() {
        bare.to_ascii_lowercase()
    } else {
        let (wildcard, rest) = match bare.strip_prefix("*.") {
            Some(rest) => ("*.", rest),
            None => ("", bare),
        };
        let ascii = idna::domain_to_ascii(rest).map_err(|_| HostProblem::Idna)?;
        format!("{wildcard}{ascii}")
    };
    let host = Host::parse(&name).map_err(HostProblem::Pattern)?;
    let changed = name != text;
    Ok(WrittenHost { host, changed })
}

/// Whether a written host is this one. As cheap as a comparison for ASCII, since an Ingress of
/// thousands of hosts is asked once for each of them.
pub(super) fn is_host(text: &str, host: &Host) -> bool {
    if text.is_ascii() {
        let bare = text.strip_suffix('.').unwrap_or(text);
        return bare.eq_ignore_ascii_case(host.as_str());
    }
    read(text).is_ok_and(|written| written.host == *host)
}

#[cfg(test)]
mod tests {
    use super::{HostProblem, is_host, read};

    #[test]
    fn hosts_are_normalised() {
        for (text, host, changed) in [
            ("a.example.com", "a.example.com", false),
            ("A.Example.com.", "a.example.com", true),
            ("*.Example.com", "*.example.com", true),
            ("bücher.example", "xn--bcher-kva.example", true),
            ("*.bücher.example", "*.xn--bcher-kva.example", true),
        ] {
            let written = read(text).unwrap();
            assert_eq!(written.host.as_str(), host);
            assert_eq!(written.changed, changed, "{text}");
            assert!(is_host(text, &written.host));
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        assert_eq!(read("10.0.0.1"), Err(HostProblem::Address));
        assert_eq!(read("::1"), Err(HostProblem::Address));
        assert_eq!(read("*"), Err(HostProblem::Wildcard));
        assert_eq!(read("**.example.com"), Err(HostProblem::Wildcard));
        for text in [
            "a b.example",
            "a..b",
            "a.example.com:80",
            "",
            ".",
            "a.*.b",
            "\u{fffd}",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
