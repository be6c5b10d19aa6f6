//! Hosts in the one form in which tables have them.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;

/// A host as tables have it: in lower case, without a final dot, and an address of IPv6 as short as
/// it can be.
pub(super) fn common_form(host: &str) -> Cow<'_, str> {
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    if let Some(address) = inner.and_then(|it| it.parse::<Ipv6Addr>().ok()) {
        let mut rest = Unwritten(host);
        return match write!(rest, "[{address}]") {
            Ok(()) if rest.0.is_empty() => Cow::Borrowed(host),
            _ => Cow::Owned(format!("[{address}]")),
        };
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    }
}

/// A text, as far as it has not been written yet. It fails at what does not come next.
struct Unwritten<'a>(&'a str);

impl fmt::Write for Unwritten<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::common_form;

    #[test]
    fn a_host_has_one_form_and_one_that_has_it_is_not_copied() {
        for (host, form) in [
            ("A.Example.", "a.example"),
            ("[2001:DB8:0:0::7]", "[2001:db8::7]"),
            ("[2001:db8::0007]", "[2001:db8::7]"),
            ("[::FFFF:192.0.2.7]", "[::ffff:192.0.2.7]"),
        ] {
            assert_eq!(common_form(host), form, "{host}");
        }
        for host in ["", "a.example", "192.0.2.7", "[2001:db8::7]", "[::]"] {
            assert!(matches!(common_form(host), Cow::Borrowed(same) if same == host));
        }
    }
}
