//! Sessions whose requests go to one endpoint.

use std::time::Duration;

use myriad_api::gateway::{CookieLifetime, SessionKind, SessionPersistence};
use myriad_model::{Affinity, PathMatch, is_token};

use super::fault::{CORRECT, RuleFaults};
use crate::resolve::sendable::is_attribute;

/// The longest age of a session that is told apart: 49 days.
const AGE_MAX: Duration = Duration::from_millis(0xffff_ffff);

/// The session of a rule, which `seed` tells from all others, whose requests have these paths.
pub(super) fn read(
    written: &SessionPersistence,
    seed: &str,
    paths: &mut dyn Iterator<Item = &PathMatch>,
    faults: &mut RuleFaults,
) -> Option<Affinity> {
    let field = |end: &str| format!("sessionPersistence.{end}");
    let Some(kind) = written.kind.known() else {
        let word = written.kind.as_str();
        let message = format!("is {word}, and a session has a cookie or a header field");
        faults.drop(field("type"), message, "write Cookie or Header");
        return None;
    };
    let name = match written.session_name.as_deref() {
        None | Some("") => own_name(kind, seed),
        Some(name) => name.into(),
    };
    if !is_token(&name) {
        let message = "is no name that a cookie or a header field has";
        faults.drop(field("sessionName"), message, CORRECT);
        return None;
    }
    let config = written.cookie_config.as_ref();
    let lifetime = config.map_or(Some(CookieLifetime::Session), |config| {
        config.lifetime_type.known()
    });
    let Some(lifetime) = lifetime else {
        faults.drop(
            field("cookieConfig.lifetimeType"),
            "is no lifetime of a cookie that is known",
            "write Session or Permanent",
        );
        return None;
    };
    if config.is_some() && kind == SessionKind::Header {
        faults.omit(
            field("cookieConfig"),
            "is about cookies, and the session has a header field, so it has no effect",
            "remove it, or write the type Cookie",
        );
    }
    let timeout = written.absolute_timeout.unwrap_or_default().min(AGE_MAX);
    let is_permanent = lifetime == CookieLifetime::Permanent && kind == SessionKind::Cookie;
    if is_permanent && timeout.is_zero() {
        faults.drop(
            field("absoluteTimeout"),
            "is missing, by which a cookie with the lifetime Permanent ends",
            "write how long the session lasts",
        );
        return None;
    }
    let age_max_s = match is_permanent {
        true => u32::try_from(timeout.as_secs().max(1)).unwrap_or(u32::MAX),
        false => 0,
    };
    Some(Affinity {
        cookie: match kind {
            SessionKind::Cookie => name,
            SessionKind::Header => name.to_ascii_lowercase().into(),
        },
        path: path_of(paths),
        age_max_s,
        in_header: kind == SessionKind::Header,
        absolute_timeout: timeout,
        ..Affinity::default()
    })
}

/// The name of a session that has none: another one for each rule, so that the sessions of two on
/// one host do not end each other.
fn own_name(kind: SessionKind, seed: &str) -> Box<str> {
    // FNV-1a.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in seed.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    match kind {
        SessionKind::Cookie => format!("session-{hash:016x}").into(),
        SessionKind::Header => format!("x-session-{hash:016x}").into(),
    }
}

/// The path that a cookie is for: that of the rule, if it is about one prefix.
fn path_of(paths: &mut dyn Iterator<Item = &PathMatch>) -> Box<str> {
    match (paths.next(), paths.next()) {
        (Some(PathMatch::Prefix(path)), None) if is_attribute(path) => path.clone(),
        _ => "/".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::{Affinity, PathMatch};

    use super::super::tests::http_rule;
    use super::{AGE_MAX, RuleFaults, read};

    fn session(text: &str, paths: &[PathMatch]) -> (Option<Affinity>, RuleFaults) {
        let rule = http_rule(&format!("sessionPersistence: {text}"));
        let written = rule.session_persistence.expect("a session");
        let mut faults = RuleFaults::default();
        let found = read(&written, "seed", &mut paths.iter(), &mut faults);
        (found, faults)
    }

    fn affinity(text: &str, paths: &[PathMatch]) -> Affinity {
        let (found, faults) = session(text, paths);
        assert!(faults.told().is_empty(), "{text}: {faults:?}");
        found.expect("a session")
    }

    #[test]
    fn a_session_has_a_cookie_or_a_header_field() {
        let hour = Duration::from_secs(3_600);
        let cookie = |age_max_s: u32, absolute_timeout: Duration| Affinity {
            cookie: "sid".into(),
            path: "/".into(),
            age_max_s,
            absolute_timeout,
            ..Affinity::default()
        };
        for (text, expected) in [
            ("{sessionName: sid}", cookie(0, Duration::ZERO)),
            (
                "{sessionName: sid, type: Cookie, absoluteTimeout: 1h}",
                cookie(0, hour),
            ),
            (
                "{sessionName: sid, absoluteTimeout: 1h, cookieConfig: {lifetimeType: Permanent}}",
                cookie(3_600, hour),
            ),
            (
                "{sessionName: sid, absoluteTimeout: 99999h}",
                cookie(0, AGE_MAX),
            ),
            (
                "{sessionName: X-Sid, type: Header, absoluteTimeout: 1h}",
                Affinity {
                    cookie: "x-sid".into(),
                    in_header: true,
                    ..cookie(0, hour)
                },
            ),
        ] {
            assert_eq!(affinity(text, &[]), expected, "{text}");
        }
    }

    #[test]
    fn a_session_without_a_name_has_one_of_its_own() {
        let names = ["{}", "{type: Header}"].map(|text| affinity(text, &[]).cookie);
        assert!(names[0].starts_with("session-") && names[1].starts_with("x-session-"));
        assert_eq!(affinity("{}", &[]).cookie, names[0]);
    }

    #[test]
    fn a_cookie_is_for_the_only_prefix_of_a_rule() {
        let prefix = |text: &str| PathMatch::Prefix(text.into());
        for (paths, path) in [
            (vec![prefix("/a")], "/a"),
            (vec![prefix("/a"), prefix("/b")], "/"),
            (vec![prefix("/a;b")], "/"),
            (vec![PathMatch::Exact("/a".into())], "/"),
            (Vec::new(), "/"),
        ] {
            assert_eq!(&*affinity("{}", &paths).path, path, "{paths:?}");
        }
    }

    #[test]
    fn what_is_no_session_drops_the_rule_and_is_named() {
        for (text, field) in [
            ("{type: Token}", "type"),
            ("{sessionName: 'a b'}", "sessionName"),
            ("{sessionName: 'a=b; Domain=c'}", "sessionName"),
            (
                "{cookieConfig: {lifetimeType: Long}}",
                "cookieConfig.lifetimeType",
            ),
            (
                "{cookieConfig: {lifetimeType: Permanent}}",
                "absoluteTimeout",
            ),
        ] {
            let (found, faults) = session(text, &[]);
            assert!(found.is_none(), "{text}");
            let fault = faults.dropping().expect("a fault");
            assert_eq!(fault.field, format!("sessionPersistence.{field}"));
        }
        let (found, faults) = session("{type: Header, cookieConfig: {}}", &[]);
        assert!(found.is_some() && faults.dropping().is_none());
        assert_eq!(faults.told()[0].field, "sessionPersistence.cookieConfig");
    }
}
