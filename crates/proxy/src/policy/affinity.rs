//! Cookies and header fields that keep a client on its endpoint.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Affinity, SameSite};

use crate::balance::{Endpoint, Pool};
use crate::codec::head::Head;
use crate::pattern::Budget;
use crate::route::condition::cookie;

/// The digits of a number in a token.
const DIGITS: usize = 16;

/// The steps of a look into one place of a pool for the endpoint of a mark.
const STEPS_A_PLACE: usize = 4;

/// How far the clocks of replicas may differ.
const SKEW: Duration = Duration::from_secs(60);

/// The mark of the endpoint in what the client has been given; see [`Endpoint::mark`]. `now` is the
/// time since the epoch: from a certain age on, there is none.
pub fn mark(affinity: &Affinity, head: &Head<'_>, now: Duration) -> Option<u64> {
    let token = match affinity.in_header {
        true => {
            let mut fields = head.fields.iter();
            let field = fields.find(|it| it.name.eq_ignore_ascii_case(&affinity.cookie))?;
            field.value
        }
        false => cookie(head, &affinity.cookie)?,
    };
    if affinity.absolute_timeout.is_zero() {
        return number(token);
    }
    let (mark, given) = token.split_at_checked(DIGITS)?;
    let given = Duration::from_secs(number(given.strip_prefix(b"-")?)?);
    // Who says that it was given later than now would have it for longer.
    let is_past = given <= now.saturating_add(SKEW);
    let is_young = now < given.saturating_add(affinity.absolute_timeout);
    number(mark).filter(|_| is_past && is_young)
}

/// The endpoint of a pool that a mark speaks of. Whoever forges marks has all parts of the pool
/// looked into, so that it takes steps; none is found where they are spent.
pub fn target<'p>(pool: &'p Pool, mark: u64, budget: &Budget) -> Option<&'p Arc<Endpoint>> {
    let steps = pool.places() * STEPS_A_PLACE;
    budget.take(steps).then(|| pool.marked(mark)).flatten()
}

fn number(digits: &[u8]) -> Option<u64> {
    // A sign is no digit, and would make two tokens of one mark.
    if digits.len() != DIGITS || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The token that leads back to an endpoint, given now.
pub fn token(affinity: &Affinity, target: &Endpoint, now: Duration) -> String {
    let mark = target.mark();
    match affinity.absolute_timeout.is_zero() {
        true => format!("{mark:016x}"),
        false => format!("{mark:016x}-{:016x}", now.as_secs()),
    }
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

/// The `Set-Cookie` with a token (RFC 6265, section 4.1). `takes_none` is what [`takes_none`] says
/// of the client.
pub fn set_cookie(affinity: &Affinity, token: &str, takes_none: bool) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{}={token}", affinity.cookie);
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
    use myriad_model::{Affinity, SameSite, UpstreamOptions};

    use std::sync::Arc;
    use std::time::Duration;

    use super::{SKEW, STEPS_A_PLACE, mark, set_cookie, takes_none, target, token};
    use crate::balance::{Endpoint, Member, Pool, PoolPart, TransportSettings};
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::pattern::{Budget, STEPS_MAX};

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
            ..Affinity::default()
        };
        let target = Endpoint::new(([192, 0, 2, 1], 80).into(), TransportSettings::shared(None));
        let now = Duration::from_secs(1_000_000);
        let cookie = set_cookie(&affinity, &token(&affinity, &target, now), true);
        assert!(
            cookie.ends_with(
                "; Path=/; Domain=a.example; Max-Age=60; Secure; HttpOnly; SameSite=Lax"
            ),
            "{cookie}"
        );
        let pair = cookie.split(';').next().unwrap();
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\nCookie: a=b; {pair}\r\n\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(mark(&affinity, &head, now), Some(target.mark()));
        let text = text.replace(&pair["route=".len()..], "+123456789abcdef");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(mark(&affinity, &head, now), None);
    }

    #[test]
    fn a_forged_mark_takes_steps_for_each_part_that_is_looked_into() {
        const PARTS: u16 = 1_000;
        let options = UpstreamOptions::default();
        let part = |port: u16| {
            let member = Member {
                target: Arc::new(Endpoint::new(
                    ([192, 0, 2, 1], port).into(),
                    TransportSettings::shared(None),
                )),
                weight: 1,
                priority: 0,
            };
            PoolPart::divide(std::iter::once((0, member)), &options.balancer).into_vec()
        };
        let parts: Vec<Arc<PoolPart>> = (1..=PARTS).flat_map(part).collect();
        let pool = Pool::of_parts(None, parts.iter(), &options, (None, 0));
        let (known, budget) = (pool.members().last().unwrap(), Budget::default());
        let found = |mark: u64| target(&pool, mark, &budget).map(|found| found.id);
        let mark = known.target.mark();
        assert_eq!(found(mark), Some(known.target.id));
        let steps = (usize::from(PARTS) + 1) * STEPS_A_PLACE;
        assert_eq!(budget.taken() as usize, steps);
        let mut looks = 0..STEPS_MAX as usize / steps;
        assert!(looks.all(|_| found(mark ^ 1).is_none()));
        assert!(budget.is_spent() && found(mark).is_none());
        // A pool that is not divided costs next to nothing.
        assert_eq!(Pool::default().places(), 1);
    }

    #[test]
    fn a_field_leads_back_to_its_endpoint_until_it_is_too_old() {
        let affinity = Affinity {
            cookie: "x-session".into(),
            in_header: true,
            absolute_timeout: Duration::from_secs(3_600),
            ..Affinity::default()
        };
        let target = Endpoint::new(([192, 0, 2, 1], 80).into(), TransportSettings::shared(None));
        let second = Duration::from_secs(1);
        let given = Duration::from_secs(1_000_000);
        let own = token(&affinity, &target, given);
        let found = |value: &str, now| {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nX-Session: {value}\r\n\r\n");
            let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
            mark(&affinity, &head, now)
        };
        let end = given + affinity.absolute_timeout;
        for (now, is_found) in [
            (given, true),
            (end - second, true),
            (end, false),
            (given - SKEW, true),
            (given - SKEW - second, false),
            (Duration::ZERO, false),
        ] {
            assert_eq!(
                found(&own, now),
                is_found.then_some(target.mark()),
                "{now:?}"
            );
        }
        let (mark, time) = own.split_once('-').unwrap();
        for forged in [
            mark.to_owned(),
            format!("{mark}-"),
            format!("{mark}{time}"),
            format!("{mark}-{}", "f".repeat(16)),
            format!("{mark}-+{}", &time[1..]),
            format!("{own}0"),
            String::new(),
        ] {
            assert_eq!(found(&forged, given), None, "{forged:?}");
        }
    }

    #[test]
    fn browsers_that_mistake_an_attribute_do_not_get_it() {
        let affinity = Affinity {
            same_site: SameSite::NoneWhereTaken,
            ..Affinity::default()
        };
        let target = Endpoint::new(([192, 0, 2, 1], 80).into(), TransportSettings::shared(None));
        let now = Duration::from_secs(1_000_000);
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
            let cookie = set_cookie(&affinity, &token(&affinity, &target, now), taken);
            assert_eq!(cookie.ends_with("; SameSite=None"), takes, "{cookie}");
        }
    }
}
