//! Cross-origin resource sharing (the Fetch standard, section 3.2).

use std::net::Ipv6Addr;
use std::sync::Arc;

use myriad_model::Cors;
use smallvec::SmallVec;

use crate::codec::field::KnownField;
use crate::codec::head::Head;
use crate::pattern::{Budget, Pattern};

/// Fields that are put on a response in place of the endpoint's own.
pub type Additions = SmallVec<[(&'static str, Box<[u8]>); 2]>;

/// Whether a request is a preflight, which the proxy answers itself.
pub fn is_preflight(head: &Head<'_>) -> bool {
    head.method == "OPTIONS"
        && head.first(KnownField::Origin).is_some()
        && head.first(KnownField::CorsRequestMethod).is_some()
}

/// The fields to add to the response to a request of this origin. `patterns` are those of the
/// policy, compiled so that they match an origin as a whole. Nothing, where the origin is not
/// allowed: the browser then withholds the response from the page that asked. Once the budget is
/// spent, the answer means nothing.
pub fn additions(
    cors: &Cors,
    patterns: &[Arc<Pattern>],
    head: &Head<'_>,
    is_preflight: bool,
    budget: &Budget,
) -> Additions {
    let mut fields = Additions::new();
    let any = cors.origins.iter().any(|allowed| **allowed == *ANY);
    if !any || cors.echoes_wildcards {
        // Caches must not give one origin's answer to another, allowed or not.
        fields.push(("vary", (*b"Origin").into()));
    }
    let Some(origin) = head.first(KnownField::Origin) else {
        return fields;
    };
    let allowed = if any && !cors.echoes_wildcards {
        ANY.as_bytes()
    } else if any
        || (cors.origins.iter()).any(|known| budget.take(1) && matches(known, origin))
        || patterns
            .iter()
            .any(|pattern| pattern.is_match(origin, budget))
    {
        origin
    } else {
        return fields;
    };
    fields.push(("access-control-allow-origin", allowed.into()));
    if cors.credentials {
        fields.push(("access-control-allow-credentials", (*b"true").into()));
    }
    if is_preflight {
        for (name, list, asked) in [
            (METHODS, &cors.methods, "access-control-request-method"),
            (
                HEADERS,
                &cors.headers_allowed,
                "access-control-request-headers",
            ),
        ] {
            match cors.echoes_wildcards && list.split(',').any(|word| word.trim() == ANY) {
                true => push_asked(&mut fields, name, head, asked),
                false => push_text(&mut fields, name, list),
            }
        }
        push_text(
            &mut fields,
            "access-control-max-age",
            &cors.age_max_s.to_string(),
        );
    }
    if !is_preflight || cors.exposes_in_preflights {
        push_text(
            &mut fields,
            "access-control-expose-headers",
            &cors.headers_exposed,
        );
    }
    fields
}

/// Whether what is put on a response gives its origin leave.
pub fn is_leave(additions: &Additions) -> bool {
    let mut names = additions.iter().map(|(name, _)| *name);
    names.any(|name| name == "access-control-allow-origin")
}

/// Whether what is put on a response says anything of origins.
pub fn tells_of_origins(additions: &Additions) -> bool {
    additions.iter().any(|(name, _)| is_told_by(name))
}

/// Whether a field is one by which responses speak of origins.
pub fn is_told_by(name: &str) -> bool {
    name == "vary" || name.starts_with("access-control-")
}

/// The word that stands for all origins, methods or headers.
const ANY: &str = "*";

const METHODS: &str = "access-control-allow-methods";

const HEADERS: &str = "access-control-allow-headers";

/// Puts what a request asks for by a field; nothing where it asks for nothing.
fn push_asked(fields: &mut Additions, name: &'static str, head: &Head<'_>, asked: &str) {
    let mut sent = head.fields.iter();
    if let Some(field) = sent.find(|field| field.name.eq_ignore_ascii_case(asked)) {
        fields.push((name, field.value.into()));
    }
}

fn push_text(fields: &mut Additions, name: &'static str, text: &str) {
    if !text.is_empty() {
        fields.push((name, text.as_bytes().into()));
    }
}

/// Whether an origin is the one allowed, or below it where its host starts with `*.`, or any of its
/// scheme and port where that is `*`.
fn matches(allowed: &str, origin: &[u8]) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else {
        return false;
    };
    let Some((scheme, suffix)) = allowed.split_once("://*") else {
        return allowed.eq_ignore_ascii_case(origin);
    };
    let Some((start, host)) = origin.split_once("://") else {
        return false;
    };
    let Some(at) = host.len().checked_sub(suffix.len()) else {
        return false;
    };
    let Some((labels, end)) = host.split_at_checked(at) else {
        return false;
    };
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // An address of IPv6 is a host as well, in its brackets.
    let inner = labels.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_address = inner.is_some_and(|it| it.parse::<Ipv6Addr>().is_ok());
    let is_whole = suffix.is_empty() || suffix.starts_with(['.', ':']);
    is_whole
        && start.eq_ignore_ascii_case(scheme)
        && !labels.is_empty()
        && (labels.bytes().all(is_label) || is_address)
        && end.eq_ignore_ascii_case(suffix)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{additions, matches};
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::pattern::{Budget, Pattern};
    use myriad_model::Cors;

    fn allowed_origin(origins: &[&str], patterns: &[&str], origin: &str) -> Option<String> {
        let cors = Cors {
            origins: origins.iter().map(|origin| (*origin).into()).collect(),
            methods: "GET".into(),
            headers_allowed: "".into(),
            headers_exposed: "".into(),
            credentials: true,
            age_max_s: 60,
            origin_patterns: Box::default(),
            forwards_unmatched: false,
            echoes_wildcards: false,
            exposes_in_preflights: false,
        };
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\nOrigin: {origin}\r\n\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let patterns: Vec<Arc<Pattern>> = patterns
            .iter()
            .map(|pattern| Pattern::whole(pattern).unwrap())
            .collect();
        let fields = additions(&cors, &patterns, &head, false, &Budget::default());
        let found = fields
            .iter()
            .find(|(name, _)| name.ends_with("allow-origin"))?;
        Some(String::from_utf8(found.1.to_vec()).unwrap())
    }

    #[test]
    fn an_allowed_origin_is_named_and_no_other() {
        let origins = ["https://a.example", "https://*.b.example"];
        for (origin, allowed) in [
            ("https://a.example", true),
            ("http://a.example", false),
            ("https://a.example.evil", false),
            ("https://x.b.example", true),
            ("https://x.y.b.example", true),
            ("https://b.example", false),
            ("https://evilb.example", false),
            ("https://evil/.b.example", false),
            ("null", false),
        ] {
            let found = allowed_origin(&origins, &[], origin);
            assert_eq!(found.is_some(), allowed, "{origin}");
            assert!(found.is_none_or(|found| found == origin));
        }
        let found = allowed_origin(&["*"], &[], "https://x");
        assert_eq!(found.as_deref(), Some("*"));
    }

    #[test]
    fn a_pattern_matches_an_origin_as_a_whole() {
        let patterns = ["https://[a-z]+\\.a\\.example", "http://b|http://c"];
        for (origin, allowed) in [
            ("https://x.a.example", true),
            ("https://x.a.example.evil", false),
            ("xhttps://x.a.example", false),
            ("http://c", true),
            ("http://bc", false),
        ] {
            let found = allowed_origin(&[], &patterns, origin);
            assert_eq!(found.as_deref(), allowed.then_some(origin), "{origin}");
        }
    }

    /// The fields that a request of an origin gets, as text.
    fn told(cors: &Cors, fields: &str, is_preflight: bool) -> Vec<String> {
        let text = format!("OPTIONS / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let fields = additions(cors, &[], &head, is_preflight, &Budget::default());
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        let fields = fields.iter();
        fields
            .map(|(name, value)| format!("{name}: {}", text(value)))
            .collect()
    }

    #[test]
    fn wildcards_are_answered_by_what_the_request_names() {
        let cors = |credentials| Cors {
            origins: ["*".into()].into(),
            methods: "*".into(),
            headers_allowed: "*".into(),
            headers_exposed: "x-c".into(),
            credentials,
            age_max_s: 5,
            origin_patterns: Box::default(),
            forwards_unmatched: false,
            echoes_wildcards: true,
            exposes_in_preflights: true,
        };
        let origin = "Origin: https://a.example:8443\r\n";
        let asked = "Access-Control-Request-Method: PUT\r\n\
                     Access-Control-Request-Headers: x-a, X-B\r\n";
        let mut expected = vec![
            "vary: Origin",
            "access-control-allow-origin: https://a.example:8443",
            "access-control-allow-credentials: true",
            "access-control-allow-methods: PUT",
            "access-control-allow-headers: x-a, X-B",
            "access-control-max-age: 5",
            "access-control-expose-headers: x-c",
        ];
        let both = format!("{origin}{asked}");
        assert_eq!(told(&cors(true), &both, true), expected);
        expected.remove(2);
        assert_eq!(told(&cors(false), &both, true), expected);
        // Who asks for nothing is told nothing: never a word that would stand for all.
        expected
            .retain(|field| !field.contains("-allow-methods") && !field.contains("-headers: x-a"));
        assert_eq!(told(&cors(false), origin, true), expected);
        assert_eq!(told(&cors(true), asked, true), ["vary: Origin"]);
    }

    #[test]
    fn a_list_with_a_wildcard_is_one_and_a_list_without_is_told_as_it_is() {
        let cors = |methods: &str, echoes_wildcards| Cors {
            origins: ["https://a.example".into()].into(),
            methods: methods.into(),
            headers_allowed: "x-a".into(),
            headers_exposed: "".into(),
            credentials: false,
            age_max_s: 5,
            origin_patterns: Box::default(),
            forwards_unmatched: false,
            echoes_wildcards,
            exposes_in_preflights: false,
        };
        let asked = "Origin: https://a.example\r\nAccess-Control-Request-Method: PATCH\r\n\
                     Access-Control-Request-Headers: x-b\r\n";
        for (methods, echoes, told_methods) in [
            ("GET, *", true, "PATCH"),
            ("GET, PUT", true, "GET, PUT"),
            ("*", false, "*"),
        ] {
            let fields = told(&cors(methods, echoes), asked, true);
            let of = |name: &str| {
                let mut fields = fields.iter();
                fields.find_map(|field| field.strip_prefix(name))
            };
            assert_eq!(of("access-control-allow-methods: "), Some(told_methods));
            assert_eq!(of("access-control-allow-headers: "), Some("x-a"));
        }
    }

    #[test]
    fn a_wildcard_of_a_scheme_is_every_host_at_its_port() {
        for (allowed, origin, is_allowed) in [
            ("https://*", "https://a.example", true),
            ("https://*", "https://[2001:db8::1]", true),
            ("https://*", "https://[evil/]", false),
            ("https://*", "http://a.example", false),
            ("https://*", "https://a.example:8443", false),
            ("https://*", "https://", false),
            ("https://*", "null", false),
            ("https://*:8443", "https://a.b.example:8443", true),
            ("https://*:8443", "https://a.example:443", false),
            ("https://*a.example", "https://evila.example", false),
            ("http*://a.example", "https://a.example", false),
            ("https://*.a.example", "https://b.a.example.evil", false),
        ] {
            let found = matches(allowed, origin.as_bytes());
            assert_eq!(found, is_allowed, "{origin} by {allowed}");
        }
    }

    #[test]
    fn a_wildcard_has_its_port() {
        assert!(matches(
            "https://*.a.example:8443",
            b"https://x.a.example:8443"
        ));
        assert!(!matches("https://*.a.example:8443", b"https://x.a.example"));
    }
}
