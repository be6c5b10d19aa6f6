//! Cross-origin resource sharing (the Fetch standard, section 3.2).

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
    let any = cors.origins.iter().any(|allowed| **allowed == *"*");
    if !any {
        // Caches must not give one origin's answer to another, allowed or not.
        fields.push(("vary", (*b"Origin").into()));
    }
    let Some(origin) = head.first(KnownField::Origin) else {
        return fields;
    };
    let allowed = if any {
        &b"*"[..]
    } else if (cors.origins.iter()).any(|known| budget.take(1) && matches(known, origin))
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
        push_text(&mut fields, "access-control-allow-methods", &cors.methods);
        push_text(
            &mut fields,
            "access-control-allow-headers",
            &cors.headers_allowed,
        );
        push_text(
            &mut fields,
            "access-control-max-age",
            &cors.age_max_s.to_string(),
        );
    } else {
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

fn push_text(fields: &mut Additions, name: &'static str, text: &str) {
    if !text.is_empty() {
        fields.push((name, text.as_bytes().into()));
    }
}

/// Whether an origin is the one allowed, or below it where its host starts with `*.`.
fn matches(allowed: &str, origin: &[u8]) -> bool {
    let Ok(origin) = std::str::from_utf8(origin) else {
        return false;
    };
    let Some((scheme, suffix)) = allowed.split_once("*.") else {
        return allowed.eq_ignore_ascii_case(origin);
    };
    let Some((start, host)) = origin.split_at_checked(scheme.len()) else {
        return false;
    };
    let Some(at) = host.len().checked_sub(suffix.len() + 1) else {
        return false;
    };
    let Some((labels, end)) = host.split_at_checked(at) else {
        return false;
    };
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    start.eq_ignore_ascii_case(scheme)
        && !labels.is_empty()
        && labels.bytes().all(is_label)
        && end
            .strip_prefix('.')
            .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
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

    #[test]
    fn a_wildcard_has_its_port() {
        assert!(matches(
            "https://*.a.example:8443",
            b"https://x.a.example:8443"
        ));
        assert!(!matches("https://*.a.example:8443", b"https://x.a.example"));
    }
}
