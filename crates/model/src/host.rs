//! Host patterns: an exact name, a wildcard, or every host.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// The longest host name in bytes (RFC 1035, section 2.3.4).
pub const HOST_BYTES_MAX: usize = 253;

/// A checked host pattern in lower case. Its text is its wire form: `a.example.com`,
/// `*.example.com` (exactly one label), `**.example.com` (one label or more), `*` (every host), and
/// `[2001:db8::1]`, an address of IPv6 in the brackets that it has in requests, as short as it can
/// be (RFC 5952).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(Arc<str>);

/// The names that a [`Host`] matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern<'a> {
    /// Every host.
    Any,
    /// One name.
    Exact(&'a str),
    /// One label in front of the suffix, which starts with a dot.
    OneLabel(&'a str),
    /// One label or more in front of the suffix, which starts with a dot.
    AnyLabels(&'a str),
}

/// Why a text is not a host pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Longer than [`HOST_BYTES_MAX`].
    #[error("is longer than 253 characters")]
    TooLong,
    /// A label is empty, longer than 63 characters, or starts or ends with a hyphen.
    #[error("has a label that is empty, longer than 63 characters, or starts or ends with '-'")]
    BadLabel,
    /// A byte that no lower-case host name has.
    #[error("has a character other than a-z, 0-9, '-', '_' and '.'")]
    BadByte,
    /// A `*` elsewhere than as the whole first label.
    #[error("has a '*' elsewhere than as its whole first label")]
    BadWildcard,
    /// An address of IPv6 that is not one by itself.
    #[error("is an address of IPv6 with a zone, or one that holds an address of IPv4")]
    BadAddress,
}

impl Host {
    /// The pattern for every host.
    pub fn any() -> Self {
        Host("*".into())
    }

    /// Checks a text, which is no address of IPv6.
    ///
    /// # Errors
    /// See [`HostError`]. Upper case is an error: who accepts it lowers it first and says so.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let name = match text {
            "" => return Err(HostError::Empty),
            "*" => return Ok(Host::any()),
            _ => text
                .strip_prefix("**.")
                .or_else(|| text.strip_prefix("*."))
                .unwrap_or(text),
        };
        check_name(name)?;
        Ok(Host(text.into()))
    }

    /// Checks a text as [`Host::parse`] does, or takes an address of IPv6, with its brackets or
    /// without, in whatever form.
    ///
    /// # Errors
    /// See [`HostError`].
    pub fn of_name(text: &str) -> Result<Self, HostError> {
        if !text.contains(':') {
            return Host::parse(text);
        }
        let bare = bare(text);
        let (address, zone) = match bare.split_once('%') {
            Some((address, zone)) => (address, Some(zone)),
            None => (bare, None),
        };
        match address.parse::<Ipv6Addr>() {
            Ok(address) if zone.is_none() && address.to_ipv4_mapped().is_none() => {
                Ok(Host(format!("[{address}]").into()))
            }
            Ok(_) => Err(HostError::BadAddress),
            Err(_) => Host::parse(text),
        }
    }

    /// The text as certificates and people have it: an address of IPv6 without its brackets.
    pub fn name(&self) -> &str {
        bare(&self.0)
    }

    /// The text, which is also the wire form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, shared: a resource named by its host needs no second allocation.
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }

    /// The names that it matches.
    pub fn pattern(&self) -> Pattern<'_> {
        let text = &*self.0;
        if text == "*" {
            Pattern::Any
        } else if text.starts_with("**.") {
            Pattern::AnyLabels(text.get(2..).unwrap_or(""))
        } else if text.starts_with("*.") {
            Pattern::OneLabel(text.get(1..).unwrap_or(""))
        } else {
            Pattern::Exact(text)
        }
    }

    /// Whether a lower-case name falls under the pattern.
    pub fn covers(&self, name: &str) -> bool {
        match self.pattern() {
            Pattern::Any => true,
            Pattern::Exact(own) => own == name,
            Pattern::OneLabel(suffix) => name
                .strip_suffix(suffix)
                .is_some_and(|label| !label.is_empty() && !label.contains('.')),
            Pattern::AnyLabels(suffix) => name
                .strip_suffix(suffix)
                .is_some_and(|labels| !labels.is_empty()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

fn bare(text: &str) -> &str {
    let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.unwrap_or(text)
}

fn check_name(name: &str) -> Result<(), HostError> {
    if name.len() > HOST_BYTES_MAX {
        return Err(HostError::TooLong);
    }
    for label in name.split('.') {
        if label.contains('*') {
            return Err(HostError::BadWildcard);
        }
        let is_allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        if !label.bytes().all(is_allowed) {
            return Err(HostError::BadByte);
        }
        if label.is_empty() || label.len() > 63 || label.starts_with('-') || label.ends_with('-') {
            return Err(HostError::BadLabel);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Host, HostError};

    #[test]
    fn a_wildcard_covers_exactly_one_label() {
        let host = Host::parse("*.example.com").unwrap();
        assert!(host.covers("a.example.com"));
        assert!(!host.covers("a.b.example.com"));
        assert!(!host.covers("example.com"));
        assert!(!host.covers(".example.com"));
    }

    #[test]
    fn a_double_wildcard_covers_any_number_of_labels() {
        let host = Host::parse("**.example.com").unwrap();
        assert!(host.covers("a.b.example.com"));
        assert!(!host.covers("example.com"));
    }

    #[test]
    fn bad_names_are_refused_with_their_reason() {
        for (text, error) in [
            ("", HostError::Empty),
            ("a..b", HostError::BadLabel),
            ("a.example.com.", HostError::BadLabel),
            ("-a.example.com", HostError::BadLabel),
            ("A.example.com", HostError::BadByte),
            ("bücher.example", HostError::BadByte),
            ("a.*.example.com", HostError::BadWildcard),
            ("a*.example.com", HostError::BadWildcard),
            ("*.*.example.com", HostError::BadWildcard),
        ] {
            assert_eq!(Host::parse(text), Err(error), "{text}");
        }
        // Who reads names reads no address of IPv6 by mistake.
        assert_eq!(Host::parse("[2001:db8::1]"), Err(HostError::BadByte));
        assert_eq!(Host::parse(&"a".repeat(64)), Err(HostError::BadLabel));
        assert_eq!(Host::parse(&"a.".repeat(127)), Err(HostError::TooLong));
    }

    #[test]
    fn an_address_of_ipv6_has_one_form_whoever_writes_it() {
        for text in [
            "2001:db8::1",
            "[2001:db8::1]",
            "2001:DB8:0:0:0:0:0:1",
            "2001:0db8::0:1",
        ] {
            let host = Host::of_name(text).unwrap();
            assert_eq!(host.as_str(), "[2001:db8::1]", "{text}");
            assert_eq!(host.name(), "2001:db8::1");
            assert_eq!(Host::of_name(host.as_str()), Ok(host.clone()));
            assert!(host.covers("[2001:db8::1]") && !host.covers("2001:db8::1"));
        }
        for text in ["192.0.2.7", "*.example.com", "*"] {
            let host = Host::of_name(text).unwrap();
            assert_eq!((host.as_str(), host.name()), (text, text));
        }
        for (text, error) in [
            ("fe80::1%eth0", HostError::BadAddress),
            ("[fe80::1%25eth0]", HostError::BadAddress),
            ("fe80::1%", HostError::BadAddress),
            ("::ffff:192.0.2.7", HostError::BadAddress),
            ("[2001:db8::1", HostError::BadByte),
            ("2001:db8::1::2", HostError::BadByte),
            ("a.example.com:80", HostError::BadByte),
            ("[a.example.com]", HostError::BadByte),
        ] {
            assert_eq!(Host::of_name(text), Err(error), "{text}");
        }
    }
}
