//! Texts that can stand in the head of a request or a response: one that ends its field, or its
//! line, would let whoever wrote it say the rest of the message.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// The longest authority: a host, a colon and a port, with some room.
const AUTHORITY_BYTES_MAX: usize = 272;

/// Whether some character of a text would end its field or its line, or is none that is sent.
pub(crate) fn has_control(text: &str) -> bool {
    text.bytes().any(|byte| byte < b' ' || byte == 0x7f)
}

/// Whether a text can be the value of an attribute of a cookie (RFC 6265, section 4.1.1).
pub(crate) fn is_attribute(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b' '..=b'~') && byte != b';')
}

/// A part of a URL with spaces and what is not ASCII escaped; none with a control character.
pub(crate) fn escaped(text: &str) -> Option<Box<str>> {
    if has_control(text) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii_graphic() {
            out.push(letter);
            continue;
        }
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            // Writing into a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    Some(out.into())
}

/// The host and the port of an authority, either of which may be missing; none for what no client
/// would ask for.
pub(crate) fn authority(text: &str) -> Option<(&str, Option<u16>)> {
    if text.is_empty() {
        return Some(("", None));
    }
    if text.len() > AUTHORITY_BYTES_MAX {
        return None;
    }
    let host = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, _) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            text.get(..address.len() + 2)?
        }
        None => text.split(':').next()?,
    };
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !host.is_empty() && !host.starts_with('.') && !host.contains("..");
    let is_host = host.starts_with('[') || (is_name && host.bytes().all(is_host_byte));
    if !is_host {
        return None;
    }
    let port = match text.get(host.len()..)?.strip_prefix(':') {
        None if host.len() < text.len() => return None,
        None | Some("") => None,
        Some(digits) => {
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            let port: u16 = digits.parse().ok()?;
            Some(Some(port).filter(|port| is_number && *port > 0)?)
        }
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::{authority, escaped, has_control, is_attribute};

    #[test]
    fn what_ends_a_field_is_found_wherever_it_stands() {
        for text in ["\r", "a\n", "\0a", "a\tb", "a\u{7f}"] {
            assert!(has_control(text) && !is_attribute(text), "{text:?}");
            assert_eq!(escaped(text), None, "{text:?}");
        }
        assert!(!has_control("a b; c, ä"));
        assert!(is_attribute("") && is_attribute("Wed, 21 Oct 2026"));
        assert!(!is_attribute("/; Domain=a.example") && !is_attribute("ä"));
    }

    #[test]
    fn what_is_not_ascii_is_escaped() {
        assert_eq!(
            escaped("/ä b?c=%20#d").as_deref(),
            Some("/%C3%A4%20b?c=%20#d")
        );
        assert_eq!(escaped("").as_deref(), Some(""));
    }

    #[test]
    fn an_authority_is_a_host_and_a_port() {
        for (text, parts) in [
            ("", ("", None)),
            ("a.Example", ("a.Example", None)),
            ("a_b:8443", ("a_b", Some(8443))),
            ("a:", ("a", None)),
            ("192.0.2.1:80", ("192.0.2.1", Some(80))),
            ("[::1]", ("[::1]", None)),
            ("[::1]:80", ("[::1]", Some(80))),
        ] {
            assert_eq!(authority(text), Some(parts), "{text}");
        }
        for text in [
            ":80",
            "a:x",
            "a:+1",
            "a:0",
            "a:65536",
            "a:1:2",
            "::1",
            "[::1",
            "[::1]80",
            "[a]",
            "a b",
            "a/b",
            "a@b",
            "a..b",
            ".a",
            "ä",
            "a\r\nx: y",
            "a:80\r\n",
        ] {
            assert_eq!(authority(text), None, "{text:?}");
        }
        assert_eq!(authority(&"a".repeat(300)), None);
    }
}
