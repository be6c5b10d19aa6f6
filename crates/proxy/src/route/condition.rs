//! Conditions of routes beside the path.

use std::sync::Arc;

use myriad_model::{Source, Test, ValueMatch, unescape};
use smallvec::SmallVec;

use super::claims::VerifiedClaims;
use crate::codec::head::Head;
use crate::pattern::{Budget, Pattern};

/// Whether all conditions hold. `regexes` are those of the conditions that have one, in their
/// order. Once the budget is spent, the answer means nothing.
pub fn hold(
    conditions: &[ValueMatch],
    regexes: &[Arc<Pattern>],
    head: &Head<'_>,
    token: Option<VerifiedClaims<'_>>,
    budget: &Budget,
) -> bool {
    let mut regexes = regexes.iter();
    conditions.iter().all(|condition| {
        let regex = match condition.test {
            Test::Regex(_) => regexes.next(),
            Test::Exact(_) | Test::Present | Test::Start(_) => None,
        };
        holds(condition, regex, head, token, budget) != condition.invert
    })
}

fn holds(
    condition: &ValueMatch,
    regex: Option<&Arc<Pattern>>,
    head: &Head<'_>,
    token: Option<VerifiedClaims<'_>>,
    budget: &Budget,
) -> bool {
    let passes = |value: &[u8]| match &condition.test {
        Test::Exact(wanted) => value == wanted.as_bytes(),
        Test::Regex(_) => regex.is_some_and(|regex| regex.is_match(value, budget)),
        Test::Present => true,
        Test::Start(start) => value.starts_with(start.as_bytes()),
    };
    let name = &*condition.name;
    match condition.source {
        Source::Method => passes(head.method.as_bytes()),
        Source::Authority => passes(head.authority.as_bytes()),
        Source::Scheme => passes(head.scheme.as_bytes()),
        Source::Header => head
            .fields
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name))
            .any(|field| passes(field.value)),
        Source::Query => query_value(head.query.unwrap_or_default(), name)
            .is_some_and(|value| passes(&decode(value))),
        Source::Cookie => cookie(head, name).is_some_and(passes),
        Source::Claim => {
            let mut passes_any = false;
            if let (Some(token), Some(path)) = (token, claim_path(name)) {
                token.each(&path, &mut |text| passes_any |= passes(text.as_bytes()));
            }
            passes_any
        }
    }
}

/// The parts of `[a][b]`; none where it is anything else.
fn claim_path(name: &str) -> Option<SmallVec<[&str; 4]>> {
    let inner = name.strip_prefix('[')?.strip_suffix(']')?;
    Some(inner.split("][").collect())
}

/// The value of the first cookie of a name (RFC 6265, section 5.4).
pub fn cookie<'a>(head: &Head<'a>, name: &str) -> Option<&'a [u8]> {
    let fields = head.fields.iter();
    fields
        .filter(|field| field.known == crate::codec::field::KnownField::Cookie)
        .flat_map(|field| field.value.split(|byte| *byte == b';'))
        .map(<[u8]>::trim_ascii)
        .find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The value of the first parameter of a name, as it came; an absent value is empty.
pub fn query_value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| {
        let (found, value) = pair.split_once('=').unwrap_or((pair, ""));
        (*decode(found) == *name.as_bytes()).then_some(value)
    })
}

/// Undoes the encoding of forms (`+` and `%XX`), where there is any.
fn decode(text: &str) -> std::borrow::Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return bytes.into();
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [byte, after @ ..] = rest {
        let (byte, after) = match byte {
            b'+' => (b' ', after),
            b'%' => unescape(after).unwrap_or((b'%', after)),
            byte => (*byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    decoded.into()
}

#[cfg(test)]
mod tests {
    use myriad_model::{Source, Test, ValueMatch};

    use super::hold;
    use crate::codec::head;
    use crate::limits::Limits;
    use crate::pattern::{Budget, Pattern};

    fn check(source: Source, name: &str, test: Test, invert: bool) -> bool {
        let text = "GET /?a=1&b&c=x%20y+z&a=2 HTTP/1.1\r\nHost: h:80\r\nX-A: one\r\nx-a: two\r\n\
                    Cookie: k=v; l=\"w\"\r\nCookie: m=\r\n\r\n";
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let regexes = match &test {
            Test::Regex(pattern) => vec![Pattern::whole(pattern).unwrap()],
            _ => Vec::new(),
        };
        let condition = ValueMatch {
            source,
            name: name.into(),
            test,
            invert,
        };
        hold(&[condition], &regexes, &head, None, &Budget::default())
    }

    fn exact(text: &str) -> Test {
        Test::Exact(text.into())
    }

    #[test]
    fn values_are_found_where_they_are() {
        for (source, name, test, holds) in [
            (Source::Header, "x-a", exact("two"), true),
            (Source::Header, "x-a", exact("three"), false),
            (Source::Header, "x-b", Test::Present, false),
            (Source::Header, "x-a", Test::Regex("o.e".into()), true),
            (Source::Header, "x-a", Test::Regex("o".into()), false),
            (Source::Header, "x-a", Test::Regex("o|one".into()), true),
            (Source::Query, "a", exact("1"), true),
            (Source::Query, "a", exact("2"), false),
            (Source::Query, "b", exact(""), true),
            (Source::Query, "c", exact("x y z"), true),
            (Source::Query, "d", Test::Present, false),
            (Source::Cookie, "k", exact("v"), true),
            (Source::Cookie, "m", exact(""), true),
            (Source::Cookie, "v", Test::Present, false),
            (Source::Method, "", exact("GET"), true),
            (Source::Method, "", exact("get"), false),
            (Source::Method, "", Test::Start("GE".into()), true),
            (Source::Header, "x-a", Test::Start("tw".into()), true),
            (Source::Header, "x-a", Test::Start("wo".into()), false),
            (Source::Header, "x-b", Test::Start("".into()), false),
            (Source::Authority, "", exact("h:80"), true),
            (Source::Authority, "", exact("h"), false),
            (Source::Authority, "", Test::Start("h".into()), true),
            (Source::Authority, "", Test::Regex("h".into()), false),
            (Source::Scheme, "", exact("http"), true),
            (Source::Scheme, "", exact("https"), false),
        ] {
            let found = check(source, name, test.clone(), false);
            assert_eq!(found, holds, "{source:?} {name} {test:?}");
            assert_eq!(check(source, name, test, true), !holds);
        }
    }
}
