//! Conditions of routes beside the path.
//!
//! A host may have very many of them, of whoever may write a route for it, and clients choose what
//! they look at. So each is paid for from the budget of the request, and what has to be taken
//! apart first is taken apart once.

mod pairs;

use std::cell::OnceCell;
use std::sync::Arc;

use myriad_model::{Source, Test, ValueMatch, unescape};
use smallvec::SmallVec;

use super::claims::VerifiedClaims;
use crate::codec::field::KnownField;
use crate::codec::head::Head;
use crate::pattern::{Budget, Pattern};
use pairs::Lent;

/// The bytes that are taken apart or compared in one step.
const BYTES_A_STEP: usize = 16;

/// The names that are looked at in one step, and the texts of a claim.
const NAMES_A_STEP: usize = 4;

/// The parts of a request that conditions look at.
pub struct Given<'a, 'h> {
    head: &'a Head<'h>,
    token: Option<VerifiedClaims<'a>>,
    budget: &'a Budget,
    /// The parameters of the query, once a condition has asked for one.
    query: OnceCell<Lent>,
    cookies: OnceCell<Lent>,
}

impl<'a, 'h> Given<'a, 'h> {
    /// A request. `token` is what a verified token of it says, and `budget` pays for the steps.
    pub fn new(head: &'a Head<'h>, token: Option<VerifiedClaims<'a>>, budget: &'a Budget) -> Self {
        Given {
            head,
            token,
            budget,
            query: OnceCell::new(),
            cookies: OnceCell::new(),
        }
    }

    fn query(&self) -> &Lent {
        let query = self.head.query.unwrap_or_default();
        self.query
            .get_or_init(|| Lent::of_query(query, self.budget))
    }

    fn cookies(&self) -> &Lent {
        let fields = self.head.fields.iter();
        let fields = fields.filter(|field| field.known == KnownField::Cookie);
        let values = fields.map(|field| field.value);
        self.cookies
            .get_or_init(|| Lent::of_cookies(values, self.budget))
    }
}

/// Whether all conditions hold. `regexes` are those of the conditions that have one, in their
/// order. Once the budget is spent, the answer means nothing.
pub fn hold(conditions: &[ValueMatch], regexes: &[Arc<Pattern>], given: &Given<'_, '_>) -> bool {
    let mut regexes = regexes.iter();
    conditions.iter().all(|condition| {
        let regex = match condition.test {
            Test::Regex(_) => regexes.next(),
            Test::Exact(_) | Test::Present | Test::Start(_) => None,
        };
        given.budget.take(1) && holds(condition, regex, given) != condition.invert
    })
}

fn holds(condition: &ValueMatch, regex: Option<&Arc<Pattern>>, given: &Given<'_, '_>) -> bool {
    let Given { head, budget, .. } = given;
    let pays = |value: &[u8], text: &str| budget.take(value.len().min(text.len()) / BYTES_A_STEP);
    let passes = |value: &[u8]| match &condition.test {
        Test::Exact(wanted) => {
            value.len() == wanted.len() && pays(value, wanted) && value == wanted.as_bytes()
        }
        Test::Regex(_) => regex.is_some_and(|regex| regex.is_match(value, budget)),
        Test::Present => true,
        Test::Start(start) => pays(value, start) && value.starts_with(start.as_bytes()),
    };
    let name = &*condition.name;
    match condition.source {
        Source::Method => passes(head.method.as_bytes()),
        Source::Authority => passes(head.authority.as_bytes()),
        Source::Scheme => passes(head.scheme.as_bytes()),
        Source::Header => {
            budget.take(head.fields.len() / NAMES_A_STEP)
                && head
                    .fields
                    .iter()
                    .filter(|field| field.name.eq_ignore_ascii_case(name))
                    .any(|field| passes(field.value))
        }
        Source::Query => {
            let value = given.query().get(name.as_bytes(), budget);
            value.is_some_and(passes)
        }
        Source::Cookie => {
            let value = given.cookies().get(name.as_bytes(), budget);
            value.is_some_and(passes)
        }
        Source::Claim => {
            let (mut passes_any, mut texts) = (false, 0);
            if let (Some(token), Some(path)) = (given.token, claim_path(name)) {
                token.each(&path, &mut |text| {
                    texts += 1;
                    passes_any |= passes(text.as_bytes());
                });
            }
            budget.take(texts / NAMES_A_STEP) && passes_any
        }
    }
}

/// The parts of `[a][b]`; none where it is anything else.
fn claim_path(name: &str) -> Option<SmallVec<[&str; 4]>> {
    let inner = name.strip_prefix('[')?.strip_suffix(']')?;
    Some(inner.split("][").collect())
}

/// The value of the first cookie of a name (RFC 6265, section 5.4). Blanks before its equals sign
/// are none of the name's, as servers have it.
pub fn cookie<'a>(head: &Head<'a>, name: &str) -> Option<&'a [u8]> {
    let fields = head.fields.iter();
    fields
        .filter(|field| field.known == KnownField::Cookie)
        .flat_map(|field| field.value.split(|byte| *byte == b';'))
        .map(<[u8]>::trim_ascii)
        .find_map(|pair| {
            let behind = pair.strip_prefix(name.as_bytes())?;
            behind.trim_ascii_start().strip_prefix(b"=")
        })
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
    if !is_encoded(bytes) {
        return bytes.into();
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    decode_into(bytes, &mut decoded);
    decoded.into()
}

fn is_encoded(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, b'%' | b'+'))
}

/// Writes a text without its encoding behind others.
fn decode_into(bytes: &[u8], decoded: &mut Vec<u8>) {
    if !is_encoded(bytes) {
        decoded.extend_from_slice(bytes);
        return;
    }
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
}

#[cfg(test)]
mod tests {
    use myriad_model::{Source, Test, ValueMatch};

    use super::{Given, hold};
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
        let budget = Budget::default();
        hold(&[condition], &regexes, &Given::new(&head, None, &budget))
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
