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

/// Whether the browser that sent a request takes `SameSite=None`, where the cookie depends on it.
pub fn takes_none(affinity: &Affinity, head: &Head<'_>) -> bool {
    if affinity.same_site != SameSite::NoneWhereTaken {
        return true;
    }
    let mut fields = head.fields.iter();
    let agent = fields.find(|field| field.name.eq_ignore_ascii_case("user-agent"));
    let agent = agent.and_then(|field| std::str::from_utf8(field.value).ok());
    agent.is_none_or(|agent| !mistakes_none(agent))
}

/// Whether a browser takes `SameSite=None` for `Strict`, or refuses a cookie with it, by what it
/// says that it is. As the makers of Chromium have told, these do: all on iOS 12, Safari and
/// what is built of it on macOS 10.14, Chromium 51 to 66, and UC Browser before 12.13.2.
fn mistakes_none(agent: &str) -> bool {
    let behind = |mark: &str| agent.split_once(mark).map(|(_, rest)| version(rest));
    if let Some(version) = behind("UCBrowser/") {
        return version < [12, 13, 2];
    }
    let chromium = behind("Chrome/").or_else(|| behind("Chromium/"));
    if let Some([major, ..]) = chromium {
        return (51..=66).contains(&major);
    }
    if agent.contains("(iP") {
        return matches!(behind(" OS "), Some([12, ..]));
    }
    let is_of_mac = agent.contains("(Macintosh;") && agent.contains(" AppleWebKit/");
    let is_safari = agent.contains(" Version/") && agent.contains(" Safari/");
    let is_built_in = agent.ends_with("(KHTML, like Gecko)");
    let is_known = is_of_mac && (is_safari || is_built_in);
    is_known && matches!(behind("Mac OS X "), Some([10, 14, _]))
}

/// The version at the start of a text, its parts separated by dots or underscores.
fn version(text: &str) -> [u32; 3] {
    let is_part = |it: char| it.is_ascii_digit() || matches!(it, '.' | '_');
    let end = text.find(|it: char| !is_part(it)).unwrap_or(text.len());
    let parts = text.get(..end).unwrap_or_default().split(['.', '_']);
    let mut parts = parts.map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

/// The `Set-Cookie` that leads back to an endpoint (RFC 6265, section 4.1). `takes_none` is what
/// [`takes_none`] says of the client.
pub fn set_cookie(affinity: &Affinity, target: &Endpoint, takes_none: bool) -> String {
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
        SameSite::NoneWhereTaken if !takes_none => "",
        SameSite::None | SameSite::NoneWhereTaken => "; SameSite=None",
    });
    text
}

#[cfg(test)]
mod tests {
    use myriad_model::{Affinity, SameSite};

    use super::{mark, set_cookie, takes_none};
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
        let cookie = set_cookie(&affinity, &target, true);
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

    #[test]
    fn browsers_that_mistake_an_attribute_do_not_get_it() {
        let affinity = Affinity {
            same_site: SameSite::NoneWhereTaken,
            ..Affinity::default()
        };
        let target = Endpoint::new(([192, 0, 2, 1], 80).into(), TransportSettings::shared(None));
        let kit = "AppleWebKit/605.1.15 (KHTML, like Gecko)";
        let chromium = |version: &str| {
            format!("Mozilla/5.0 (X11; Linux x86_64) {kit} Chrome/{version}.0.0.0 Safari/537.36")
        };
        let phone = |version: &str| {
            format!(
                "Mozilla/5.0 (iPhone; CPU iPhone OS {version} like Mac OS X) {kit} Version/12.0 \
                 Mobile/15E148 Safari/604.1"
            )
        };
        let mac = |version: &str, end: &str| {
            format!("Mozilla/5.0 (Macintosh; Intel Mac OS X {version}) {kit}{end}")
        };
        let safari = " Version/12.0 Safari/605.1.15";
        for (agent, takes) in [
            (String::new(), true),
            ("curl/8.0".to_owned(), true),
            (chromium("50"), true),
            (chromium("51"), false),
            (chromium("66"), false),
            (chromium("67"), true),
            (chromium("130"), true),
            (phone("12_4_1"), false),
            (phone("13_0"), true),
            (phone("120_0"), true),
            (mac("10_14_6", safari), false),
            (mac("10_14", ""), false),
            (mac("10_14_6", " Chrome/80.0.0.0 Safari/537.36"), true),
            (mac("10_15", safari), true),
            (mac("10_14", " Firefox/70.0"), true),
            ("UCBrowser/12.13.1.1".to_owned(), false),
            ("UCBrowser/12.13.2".to_owned(), true),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\n\r\n");
            let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
            let taken = takes_none(&affinity, &head);
            assert_eq!(taken, takes, "{agent}");
            let cookie = set_cookie(&affinity, &target, taken);
            assert_eq!(cookie.ends_with("; SameSite=None"), takes, "{cookie}");
        }
    }
}
