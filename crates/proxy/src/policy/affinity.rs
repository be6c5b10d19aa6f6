//! Cookies that keep a client on its endpoint.

use myriad_model::{Affinity, SameSite};

use crate::balance::Endpoint;
use crate::codec::head::Head;
use crate::route::condition::cookie;

/// The mark of the endpoint in the client's cookie; see [`Endpoint::mark`].
pub fn mark(affinity: &Affinity, head: &Head<'_>) -> Option<u64> {
    let value = cookie(head, &affinity.cookie)?;
    // A sign is no digit, and would make two cookies of one mark.
    if value.len() != 16 || !value.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(value).ok()?, 16).ok()
}

/// The `Set-Cookie` that leads back to an endpoint (RFC 6265, section 4.1).
pub fn set_cookie(affinity: &Affinity, target: &Endpoint) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{}={:016x}", affinity.cookie, target.mark());
    // Writing into a String cannot fail.
    let _ = write!(text, "; Path={}", affinity.path);
    if !affinity.domain.is_empty() {
        let _ = write!(text, "; Domain={}", affinity.domain);
    }
    if affinity.age_max_s > 0 {
        let _ = write!(text, "; Max-Age={}", affinity.age_max_s);
    }
    if affinity.secure {
        text.push_str("; Secure");
    }
    text.push_str("; HttpOnly");
    text.push_str(match affinity.same_site {
        SameSite::Unsaid => "",
        SameSite::Lax => "; SameSite=Lax",
        SameSite::Strict => "; SameSite=Strict",
        SameSite::None => "; SameSite=None",
    });
    text
}

#[cfg(test)]
mod tests {
    use myriad_model::{Affinity, SameSite};

    use super::{mark, set_cookie};
    use crate::balance::{Endpoint, TransportSettings};
    use crate::codec::head;
    use crate::limits::Limits;

    #[test]
    fn a_cookie_leads_back_to_its_endpoint() {
        let affinity = Affinity {
            cookie: "route".into(),
            path: "/".into(),
            age_max_s: 60,
            secure: true,
            domain: "a.example".into(),
            same_site: SameSite::Lax,
            stays_on_failure: false,
        };
        let target = Endpoint::new(([192, 0, 2, 1], 80).into(), TransportSettings::shared(None));
        let cookie = set_cookie(&affinity, &target);
        assert!(
            cookie.ends_with(
                "; Path=/; Domain=a.example; Max-Age=60; Secure; HttpOnly; SameSite=Lax"
            ),
            "{cookie}"
        );
        let pair = cookie.split(';').next().unwrap();
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\nCookie: a=b; {pair}\r\n\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(mark(&affinity, &head), Some(target.mark()));
        let text = text.replace(&pair["route=".len()..], "+123456789abcdef");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(mark(&affinity, &head), None);
    }
}
