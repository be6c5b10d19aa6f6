//! The grammars of annotation values.

use std::net::IpAddr;

use ipnet::IpNet;
use myriad_model::SourceRanges;
use myriad_model::secrecy::without_secrets;

use crate::resolve::Namespaces;

/// The most networks of a list, and its most bytes: each path of each host has it.
pub(crate) const NETWORKS_MAX: usize = 4_096;
pub(crate) const NETWORKS_BYTES_MAX: usize = 64 << 10;

/// The most bytes of a list of namespaces.
const NAMESPACES_BYTES_MAX: usize = 16 << 10;

/// The longest value that is quoted in a finding, in characters.
const QUOTE_CHARS_MAX: usize = 60;

/// A value as a finding shows it: quoted, without secrets of URLs, and cut where it is long.
pub(crate) fn quote(value: &str) -> String {
    let value = without_secrets(value);
    let mut shown: String = value.chars().take(QUOTE_CHARS_MAX).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

/// A switch, in the forms that ingress-nginx reads.
pub(crate) fn boolean(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Seconds from 1 to a day times a hundred.
pub(crate) fn seconds(value: &str) -> Option<u32> {
    let seconds = value.parse().ok()?;
    (1..=8_640_000).contains(&seconds).then_some(seconds)
}

/// A number of bytes with `k`, `m` or `g` behind it; 0 means no limit.
pub(crate) fn size(value: &str) -> Option<u64> {
    let (digits, unit) = match value.char_indices().last()? {
        (at, 'k' | 'K') => (&value[..at], 1 << 10),
        (at, 'm' | 'M') => (&value[..at], 1 << 20),
        (at, 'g' | 'G') => (&value[..at], 1 << 30),
        _ => (value, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    Some(if bytes == 0 { u64::MAX } else { bytes })
}

/// The advice to people who write a list of networks that is too long.
pub(crate) const FEWER_NETWORKS: &str =
    "name fewer and larger networks, or have an AuthorizationPolicy of the gateway name them";

/// The problem of a list of networks that is too long.
pub(crate) fn too_long() -> String {
    format!("has more than {NETWORKS_MAX} networks or {NETWORKS_BYTES_MAX} bytes")
}

/// Whether a list of networks is as short as one may be.
pub(crate) fn is_short(value: &str) -> bool {
    value.len() <= NETWORKS_BYTES_MAX && value.split(',').count() <= NETWORKS_MAX
}

/// Networks or addresses, separated by commas; at least one, and no more than a list may have.
pub(crate) fn networks(value: &str) -> Option<SourceRanges> {
    if !is_short(value) {
        return None;
    }
    let parts = value.split(',').map(|part| {
        let part = part.trim();
        let address = || part.parse::<IpAddr>().ok().map(IpNet::from);
        part.parse::<IpNet>().ok().or_else(address)
    });
    parts.collect()
}

/// Namespaces separated by commas, or `*` for all; no more than each host below a wildcard may be
/// told of.
pub(crate) fn namespaces(value: &str) -> Option<Namespaces> {
    if value.len() > NAMESPACES_BYTES_MAX {
        return None;
    }
    let is_namespace = |name: &str| {
        let mut bytes = name.bytes();
        !name.is_empty() && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let names = value.split(',').map(str::trim);
    names
        .map(|name| (name == "*" || is_namespace(name)).then(|| Box::<str>::from(name)))
        .collect()
}

/// A path with `$1` to `$9` in it.
pub(crate) fn rewrite(value: &str) -> Option<Box<str>> {
    let mut rest = value;
    while let Some((_, behind)) = rest.split_once('$') {
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        if digits != 1 || behind.starts_with('0') {
            return None;
        }
        rest = behind;
    }
    is_path(value).then(|| value.into())
}

/// A host with or without a port, which requests to backends name.
pub(crate) fn authority(value: &str) -> Option<Box<str>> {
    let (host, port) = value.split_once(':').unwrap_or((value, "80"));
    let is_host = myriad_model::Host::parse(&host.to_ascii_lowercase()).is_ok();
    (is_host && !host.contains('*') && port.parse::<u16>().is_ok()).then(|| value.into())
}

/// A path without variables.
pub(crate) fn path(value: &str) -> Option<Box<str>> {
    (is_path(value) && !value.contains('$')).then(|| value.into())
}

/// Whether a path may stand in a cookie: nothing in it ends the attribute, and all of it is ASCII.
/// Browsers send no other byte as it is, so that it would be the path of no request.
pub(crate) fn is_cookie_path(path: &str) -> bool {
    let mut bytes = path.bytes();
    bytes.all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b','))
}

/// A URL with `http` or `https`, or a path; without variables, but for those that keep what was
/// asked for.
pub(crate) fn location(value: &str) -> Option<Box<str>> {
    let lower = value.get(..8).unwrap_or(value).to_ascii_lowercase();
    let host = ["http://", "https://"]
        .iter()
        .find(|scheme| lower.starts_with(**scheme))
        .and_then(|scheme| value.get(scheme.len()..));
    let has_host = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'));
    if kept_location(value).is_some() {
        return Some(value.into());
    }
    let is_clean = value.bytes().all(|byte| byte > b' ' && byte != 0x7f) && !value.contains('$');
    ((has_host || is_path(value)) && is_clean).then(|| value.into())
}

/// The scheme, host and port of a URL that keeps the path and query that were asked for, as in
/// `https://new.example$request_uri`; empty where those of the request are kept.
pub(crate) fn kept_location(value: &str) -> Option<(&str, &str, Option<u16>)> {
    let (scheme, rest) = value.strip_suffix("$request_uri")?.split_once("://")?;
    let scheme = match scheme {
        "$scheme" => "",
        "http" | "https" => scheme,
        _ => return None,
    };
    let (host, port) = match rest.split_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok().filter(|port| *port > 0)?)),
        None => (rest, None),
    };
    if matches!(host, "$host" | "$http_host") {
        return Some((scheme, "", port));
    }
    let is_host = myriad_model::Host::parse(host).is_ok() && !host.contains('*');
    is_host.then_some((scheme, host, port))
}

/// The name of a header, a cookie or a method (RFC 9110, section 5.6.2).
pub(crate) fn token(value: &str) -> Option<&str> {
    myriad_model::is_token(value).then_some(value)
}

/// Tokens separated by commas.
pub(crate) fn tokens(value: &str) -> Option<Box<str>> {
    let all = value.split(',').all(|part| token(part.trim()).is_some());
    all.then(|| value.into())
}

/// Origins of the Fetch standard, separated by commas: `*`, or a scheme and a host that may
/// start with `*.`.
pub(crate) fn origins(value: &str) -> Option<Box<[Box<str>]>> {
    let parts = value.split(',').map(str::trim);
    parts
        .map(|part| is_origin(part).then(|| part.to_ascii_lowercase().into_boxed_str()))
        .collect()
}

fn is_origin(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some((scheme, authority)) = text.split_once("://") else {
        return false;
    };
    let host = authority.strip_prefix("*.").unwrap_or(authority);
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !host.is_empty()
        && host.bytes().all(is_host_byte)
}

fn is_path(value: &str) -> bool {
    value.starts_with('/')
        && !value.starts_with("//")
        && value.bytes().all(|byte| byte > b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::{
        NAMESPACES_BYTES_MAX, NETWORKS_BYTES_MAX, NETWORKS_MAX, is_cookie_path, kept_location,
        location, namespaces, networks, origins, path, quote, rewrite, size, tokens,
    };

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("8m"), Some(8 << 20));
        assert_eq!(size("1K"), Some(1024));
        assert_eq!(size("17"), Some(17));
        assert_eq!(size("0"), Some(u64::MAX));
        for text in ["", "m", "-1", "1x", "1.5m", "99999999999g", "é"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn networks_are_a_whole_list_or_none() {
        let list = networks("10.1.2.3/8, ::1").unwrap();
        let texts: Vec<&str> = list.texts().collect();
        assert_eq!(texts, ["10.0.0.0/8", "::1/128"]);
        assert_eq!(networks("10.0.0.0/8,nonsense"), None);
        assert_eq!(networks(""), None);
    }

    #[test]
    fn lists_of_networks_are_bounded() {
        let all = |count: usize| vec!["::1"; count].join(",");
        assert!(networks(&all(NETWORKS_MAX)).is_some());
        assert!(networks(&all(NETWORKS_MAX + 1)).is_none());
        let wide = |length: usize| format!("::1{}", " ".repeat(length - 3));
        assert!(networks(&wide(NETWORKS_BYTES_MAX)).is_some());
        assert!(networks(&wide(NETWORKS_BYTES_MAX + 1)).is_none());
    }

    #[test]
    fn namespaces_are_a_whole_list_of_bounded_length_or_none() {
        let list = namespaces("shop, blog").unwrap();
        assert!(list.has("shop") && list.has("blog") && !list.has("other"));
        assert!(namespaces("*").unwrap().has("other"));
        assert_eq!(namespaces("shop,"), None);
        let wide = |bytes: usize| namespaces(&format!("shop{}", " ".repeat(bytes - 4)));
        assert!(wide(NAMESPACES_BYTES_MAX).is_some() && wide(NAMESPACES_BYTES_MAX + 1).is_none());
    }

    #[test]
    fn rewrites_refer_to_groups_only() {
        for text in ["/$1", "/a/$2/b", "/"] {
            assert_eq!(rewrite(text).as_deref(), Some(text));
        }
        for text in ["$1", "/$uri", "/$10", "/$0", "/a b", "https://a", "/$"] {
            assert_eq!(rewrite(text), None, "{text}");
        }
    }

    #[test]
    fn locations_are_urls_or_paths_without_variables() {
        for text in ["https://a.example/x?y", "HTTP://a", "/a"] {
            assert!(location(text).is_some(), "{text}");
        }
        for text in [
            "https://",
            "a.example",
            "//a.example",
            "https://a$uri",
            "https://a\n",
        ] {
            assert!(location(text).is_none(), "{text}");
        }
        for (text, parts) in [
            (
                "https://b.example$request_uri",
                Some(("https", "b.example", None)),
            ),
            (
                "$scheme://b.example:81$request_uri",
                Some(("", "b.example", Some(81))),
            ),
            ("https://$host$request_uri", Some(("https", "", None))),
            ("https://b.example$uri$request_uri", None),
            ("https://$arg_x$request_uri", None),
        ] {
            assert_eq!(kept_location(text), parts, "{text}");
            assert_eq!(location(text).is_some(), parts.is_some(), "{text}");
        }
        assert!(path("/a").is_some() && path("a").is_none() && path("/$1").is_none());
    }

    #[test]
    fn paths_of_cookies_are_of_graphic_ascii() {
        for text in ["/", "/a/b", "/%C3%A9?x"] {
            assert!(is_cookie_path(text), "{text}");
        }
        for text in ["/a;b", "/a,b", "/a b", "/\u{e9}", "/\u{85}", "/a\r\nb: c"] {
            assert!(!is_cookie_path(text), "{text:?}");
        }
    }

    #[test]
    fn origins_and_tokens_are_lists() {
        assert_eq!(origins("https://*.A.example:8443, *").unwrap().len(), 2);
        assert!(origins("a.example").is_none() && origins("https://a/b").is_none());
        assert!(tokens("GET, PUT").is_some() && tokens("GET,\nPUT: x").is_none());
    }

    #[test]
    fn long_values_are_cut_in_findings() {
        assert!(quote(&"é".repeat(10_000)).len() < 200);
        let shown = quote("https://eve:c4n4ry@auth.test/?token=c4n4ry&page=2");
        let expected = "\"https://[redacted]@auth.test/?token=[redacted]&page=2\"";
        assert_eq!(shown, expected);
    }
}
