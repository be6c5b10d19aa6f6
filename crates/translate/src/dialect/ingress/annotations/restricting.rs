//! Which annotations close something, so that ignoring them would open it.

use super::Blocked;
use super::snippet::{self, Restricting};

/// Names that restrict access to the paths of the Ingress. A `*` at the end stands for any rest.
const PATHS: [&str; 12] = [
    "auth-*",
    "basic-auth*",
    "blacklist-source-range",
    "domain-blacklist-source-range",
    "domain-whitelist-source-range",
    "enable-modsecurity",
    "enable-owasp-core-rules",
    "enable-owasp-modsecurity-crs",
    "match-*",
    "modsecurity-snippet",
    "proxy-ssl-verify",
    "valid-referers*",
];

/// Names that restrict access to all paths of the hosts of the Ingress, whoever wrote them:
/// ingress-nginx puts them into the server block.
const HOST: [&str; 1] = ["auth-tls-*"];

/// Names that look like the others and only tune how somebody is asked.
const TUNING: [&str; 1] = ["auth-keepalive*"];

/// The part that has to stay closed while an annotation is without effect, and what in a snippet
/// says so.
pub(super) fn judge(name: &str, value: &str) -> (Blocked, Option<Restricting>) {
    if name.ends_with("-snippet") {
        let blocked = match name {
            "server-snippet" => Blocked::Host,
            _ => Blocked::Paths,
        };
        return match snippet::restricting(value) {
            Some(what) => (blocked, Some(what)),
            // These two are there to restrict.
            None if matches!(name, "auth-snippet" | "modsecurity-snippet") => (blocked, None),
            None => (Blocked::No, None),
        };
    }
    let is_one_of = |known: &[&str]| known.iter().any(|pattern| fits(pattern, name));
    let blocked = if is_one_of(&TUNING) {
        Blocked::No
    } else if is_one_of(&HOST) {
        Blocked::Host
    } else if is_one_of(&PATHS) && !is_switched_off(name, value) {
        Blocked::Paths
    } else {
        Blocked::No
    };
    (blocked, None)
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Switches that close nothing when they are off.
fn is_switched_off(name: &str, value: &str) -> bool {
    let is_switch = name.starts_with("enable-") || name == "proxy-ssl-verify";
    is_switch && matches!(value, "false" | "False" | "FALSE" | "f" | "F" | "0" | "off")
}

#[cfg(test)]
mod tests {
    use super::{Blocked, judge};

    #[test]
    fn what_closes_something_is_recognised() {
        for (name, value, blocked) in [
            ("auth-unheard-of", "x", Blocked::Paths),
            ("auth-keepalive", "10", Blocked::No),
            ("auth-keepalive-share-vars", "true", Blocked::No),
            ("auth-tls-secret", "a/b", Blocked::Host),
            ("blacklist-source-range", "10.0.0.0/8", Blocked::Paths),
            ("enable-modsecurity", "true", Blocked::Paths),
            ("enable-modsecurity", "false", Blocked::No),
            ("match-method", "GET", Blocked::Paths),
            ("proxy-ssl-verify", "on", Blocked::Paths),
            ("proxy-ssl-verify", "off", Blocked::No),
            ("configuration-snippet", "deny all;", Blocked::Paths),
            (
                "configuration-snippet",
                "if ($x) { return 403; }",
                Blocked::Paths,
            ),
            (
                "configuration-snippet",
                "more_set_headers \"a: b\";",
                Blocked::No,
            ),
            ("server-snippet", "allow 10.0.0.1;", Blocked::Host),
            ("auth-snippet", "gzip on;", Blocked::Paths),
            ("proxy-buffering", "on", Blocked::No),
            ("limit-rps", "5", Blocked::No),
        ] {
            assert_eq!(judge(name, value).0, blocked, "{name}: {value}");
        }
    }
}
