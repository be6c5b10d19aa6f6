//! Which requests go to a canary, and which go to the same endpoint.

use myriad_model::SameSite;

use super::sheet::Sheet;
use super::{Affinity, Canary, HeaderTest, Options, values};
use crate::regex;
use crate::resolve::hash_by;

/// Reads all of them.
pub(super) fn read(sheet: &mut Sheet<'_>, options: &mut Options) {
    // A switch that cannot be read must not turn a canary into a second main Ingress.
    let switch = "write \"true\" or \"false\"";
    let is_canary = sheet.read_closing("canary", switch, values::boolean);
    let is_written = sheet.text("canary").is_some();
    if is_canary == Some(true) || (is_canary.is_none() && is_written) {
        options.canary = Some(read_canary(sheet));
    }
    options.affinity = read_affinity(sheet);
    let expected = "write up to 8 of $request_uri, $host, $remote_addr, $http_NAME, $cookie_NAME \
                    and $arg_NAME";
    let parts = sheet.read("upstream-hash-by", expected, hash_by::read);
    options.hash_by = parts.map(|parts| hash_by::text(&parts).into());
}

fn read_canary(sheet: &mut Sheet<'_>) -> Canary {
    let expected = "write the name of a header";
    let header = sheet.read("canary-by-header", expected, |value| {
        values::token(value).map(str::to_ascii_lowercase)
    });
    let value = sheet.text("canary-by-header-value").map(Box::from);
    let is_costly = |value: &str| regex::is_costly(value.trim());
    let expected = match sheet
        .text("canary-by-header-pattern")
        .is_some_and(is_costly)
    {
        true => regex::COSTLY_REMEDY,
        false => "write a regex without look-around and back-references",
    };
    let pattern = sheet.read("canary-by-header-pattern", expected, |value| {
        regex::compiles(value).then(|| Box::from(value))
    });
    let pattern_is_bad = pattern.is_none() && sheet.text("canary-by-header-pattern").is_some();
    let test = match (value, pattern) {
        (Some(value), _) => Some(HeaderTest::Exact(value)),
        (None, Some(pattern)) => Some(HeaderTest::Regex(pattern)),
        (None, None) if pattern_is_bad => None,
        (None, None) => Some(HeaderTest::Switch),
    };
    let expected = "write the name of a cookie";
    let cookie = sheet.read("canary-by-cookie", expected, values::token);
    let total = sheet.read("canary-weight-total", "write a number from 1", |value| {
        value.parse::<u32>().ok().filter(|total| *total > 0)
    });
    let weight_total = total.unwrap_or(100);
    let expected = "write a number from 0 to canary-weight-total, which is 100 by default";
    let weight = sheet.read("canary-weight", expected, |value| {
        value.parse::<u32>().ok().filter(|w| *w <= weight_total)
    });
    Canary {
        header: header.map(String::into_boxed_str).zip(test),
        cookie: cookie.map(Box::from),
        weight: weight.unwrap_or(0),
        weight_total,
    }
}

fn read_affinity(sheet: &mut Sheet<'_>) -> Option<Affinity> {
    sheet.read(
        "affinity",
        "write \"cookie\", the only kind there is",
        |value| (value == "cookie").then_some(()),
    )?;
    let expected = "write the name of a cookie";
    let cookie = sheet.read("session-cookie-name", expected, values::token);
    let expected = "write a path that starts with '/'";
    let path = sheet.read("session-cookie-path", expected, |value| {
        values::path(value).filter(|path| values::is_cookie_path(path))
    });
    let age = "write a number of seconds";
    let number = |value: &str| value.parse().ok();
    let age_max = sheet.read("session-cookie-max-age", age, number);
    let expires = sheet.read("session-cookie-expires", age, number);
    let switch = "write \"true\" or \"false\"";
    let secure = sheet.read("session-cookie-secure", switch, values::boolean);
    let expected = "write the host or a domain above it, such as example.com";
    let domain = sheet.read("session-cookie-domain", expected, cookie_domain);
    let changes = sheet.read("session-cookie-change-on-failure", switch, values::boolean);
    Some(Affinity {
        cookie: cookie.unwrap_or("INGRESSCOOKIE").into(),
        path,
        age_max_s: age_max.or(expires).unwrap_or(0),
        secure,
        domain: domain.unwrap_or_default(),
        same_site: read_same_site(sheet),
        stays_on_failure: changes == Some(false),
    })
}

fn read_same_site(sheet: &mut Sheet<'_>) -> SameSite {
    let expected = "write \"None\", \"Lax\" or \"Strict\"";
    let same_site = sheet.read("session-cookie-samesite", expected, |value| match value {
        "" => Some(SameSite::Unsaid),
        _ if value.eq_ignore_ascii_case("Lax") => Some(SameSite::Lax),
        _ if value.eq_ignore_ascii_case("Strict") => Some(SameSite::Strict),
        _ if value.eq_ignore_ascii_case("None") => Some(SameSite::None),
        _ => None,
    });
    match same_site.unwrap_or_default() {
        SameSite::None if sheet.flag("session-cookie-conditional-samesite-none") => {
            SameSite::NoneWhereTaken
        }
        same_site => same_site,
    }
}

/// A domain of a cookie, which browsers take with a dot in front too (RFC 6265, section 5.2.3).
fn cookie_domain(value: &str) -> Option<Box<str>> {
    let bare = value.strip_prefix('.').unwrap_or(value);
    let is_host = myriad_model::Host::parse(&bare.to_ascii_lowercase()).is_ok();
    (is_host && !bare.contains('*')).then(|| bare.into())
}
