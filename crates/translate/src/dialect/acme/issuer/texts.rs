//! The texts of issuers: names of directories, URLs, addresses of mail and names of hosts.

/// The directories that have names.
const NAMED: [(&str, &str); 2] = [
    (
        "letsencrypt",
        "https://acme-v02.api.letsencrypt.org/directory",
    ),
    (
        "letsencrypt-staging",
        "https://acme-staging-v02.api.letsencrypt.org/directory",
    ),
];

/// The longest URL.
const URL_BYTES_MAX: usize = 1 << 10;

/// The longest address of mail (RFC 5321, section 4.5.3.1.3).
const MAIL_BYTES_MAX: usize = 254;

/// The longest name of a host, or of an object.
const NAME_BYTES_MAX: usize = 253;

/// The URL of a directory that has a name.
pub fn directory_named(name: &str) -> Option<&'static str> {
    let named = NAMED.iter().find(|(known, _)| *known == name);
    named.map(|(_, url)| *url)
}

/// Whether a text is one address of mail.
pub fn is_mail_address(text: &str) -> bool {
    let is_plain = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_graphic());
    let parts = text.split_once('@');
    let is_address =
        parts.is_some_and(|(user, host)| is_plain(user) && is_plain(host) && !host.contains('@'));
    is_address && text.len() <= MAIL_BYTES_MAX && !text.contains([',', '?'])
}

/// Whether a text is a URL by which something is asked over TLS: without a user, and without a
/// fragment, which nobody is sent.
pub(super) fn is_url(text: &str) -> bool {
    text.starts_with("https://") && is_question(text)
}

/// Whether a text is a URL by which something is asked over TLS or in plain text: without a user,
/// and without a fragment, which nobody is sent.
pub(super) fn is_question(text: &str) -> bool {
    let rest = text.strip_prefix("https://");
    let Some(rest) = rest.or_else(|| text.strip_prefix("http://")) else {
        return false;
    };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let is_plain = rest.bytes().all(|it| it.is_ascii_graphic()) && !rest.contains('#');
    is_plain && is_server(host) && text.len() <= URL_BYTES_MAX
}

/// Whether a text is a host or an address, with a port or without.
pub(super) fn is_server(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let address = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_host_name(host),
    };
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Whether a text is a name of DNS, which may begin with an underscore or end in a dot.
pub(super) fn is_host_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_letter);
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.split('.').all(is_label)
}

/// Whether a text is the name of an object.
pub(super) fn is_object_name(text: &str) -> bool {
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_nothing_that_nobody_is_sent() {
        for url in [
            "https://ca.example/dir",
            "https://ca.example:14000/dir?x=y",
            "https://[::1]:14000/dir",
            "https://10.0.0.1",
        ] {
            assert!(is_url(url), "{url}");
        }
        let long = format!("https://ca.example/{}", "a".repeat(URL_BYTES_MAX));
        for url in [
            "http://ca.example/dir",
            "https:///dir",
            "https://ca.example/dir#shop",
            "https://user@ca.example/dir",
            "https://ca.example:0/dir",
            "https://ca.example:x/dir",
            "https://ca example/dir",
            "https://[::1/dir",
            &long,
        ] {
            assert!(!is_url(url), "{url}");
        }
        assert!(is_question("http://ask.example:8080/check?a=b"));
        assert!(is_question("https://ask.example") && !is_question("ftp://ask.example"));
        assert!(!is_question("http://") && !is_question("http://a@ask.example/"));
        assert!(directory_named("letsencrypt").is_some_and(is_url));
        assert_eq!(directory_named("letsencrypt.org"), None);
    }

    #[test]
    fn addresses_of_mail_are_one() {
        assert!(is_mail_address("ops@shop.example"));
        let long = format!("{}@shop.example", "a".repeat(MAIL_BYTES_MAX));
        for text in [
            "",
            "shop",
            "@b",
            "a@",
            "a@b@c",
            "a@b,c@d",
            "a@b?cc=c@d",
            "a b@c",
            &long,
        ] {
            assert!(!is_mail_address(text), "{text}");
        }
    }

    #[test]
    fn names_are_those_of_dns_and_of_objects() {
        for text in ["ns.example", "ns.example.", "10.0.0.1:53", "_a.example"] {
            assert!(is_server(text), "{text}");
        }
        for text in ["", ".", "a..b", "ns.example:", "a/b", "ns.example:99999"] {
            assert!(!is_server(text), "{text}");
        }
        assert!(is_object_name("a-1.b"));
        for text in ["", "A", "a/b", "../a"] {
            assert!(!is_object_name(text), "{text}");
        }
    }
}
