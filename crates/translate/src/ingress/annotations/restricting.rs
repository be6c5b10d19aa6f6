//! Which annotations close something, so that ignoring them would open it.

use super::Blocked;

/// Names that restrict access to the paths of the Ingress. A `*` at the end stands for any rest.
const PATHS: [&str; 13] = [
    "auth-*",
    "basic-auth*",
    "blacklist-source-range",
    "denylist-source-range",
    "domain-blacklist-source-range",
    "domain-whitelist-source-range",
    "enable-global-auth",
    "enable-modsecurity",
    "enable-owasp-core-rules",
    "enable-owasp-modsecurity-crs",
    "match-*",
    "modsecurity-snippet",
    "valid-referers*",
];

/// Names that restrict access to all paths of the hosts of the Ingress, whoever wrote them:
/// ingress-nginx puts them into the server block.
const HOST: [&str; 1] = ["auth-tls-*"];

/// Words by which a snippet of nginx configuration closes something.
const SNIPPET_WORDS: [&str; 14] = [
    "deny",
    "allow",
    "auth",
    "satisfy",
    "return 4",
    "return 5",
    "internal",
    "limit_except",
    "access_by_lua",
    "rewrite_by_lua",
    "secure_link",
    "ssl_verify",
    "ssl_client",
    "modsecurity",
];

/// What has to stay closed while an annotation is without effect.
pub fn judge(name: &str, value: &str) -> Blocked {
    if name.ends_with("-snippet") {
        let text = value.to_ascii_lowercase();
        let closes =
            SNIPPET_WORDS.iter().any(|word| text.contains(word)) || text.contains("valid_referers");
        return match (closes, name) {
            (false, "auth-snippet" | "modsecurity-snippet") => Blocked::Paths,
            (false, _) => Blocked::No,
            (true, "server-snippet") => Blocked::Host,
            (true, _) => Blocked::Paths,
        };
    }
    let is_one_of = |known: &[&str]| known.iter().any(|pattern| fits(pattern, name));
    if is_one_of(&HOST) {
        Blocked::Host
    } else if is_one_of(&PATHS) && !is_switched_off(name, value) {
        Blocked::Paths
    } else {
        Blocked::No
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

/// Switches that close nothing when they are off.
fn is_switched_off(name: &str, value: &str) -> bool {
    name.starts_with("enable-") && matches!(value, "false" | "False" | "FALSE" | "f" | "F" | "0")
}

#[cfg(test)]
mod tests {
    use super::{Blocked, judge};

    #[test]
    fn what_closes_something_is_recognised() {
        for (name, value, blocked) in [
            ("auth-url", "https://x", Blocked::Paths),
            ("auth-tls-secret", "a/b", Blocked::Host),
            ("denylist-source-range", "10.0.0.0/8", Blocked::Paths),
            ("enable-modsecurity", "true", Blocked::Paths),
            ("enable-modsecurity", "false", Blocked::No),
            ("match-method", "GET", Blocked::Paths),
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
            ("server-snippet", "Allow 10.0.0.1;", Blocked::Host),
            ("proxy-buffering", "on", Blocked::No),
            ("limit-rps", "5", Blocked::No),
        ] {
            assert_eq!(judge(name, value), blocked, "{name}: {value}");
        }
    }
}
