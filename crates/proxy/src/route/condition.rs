//! Conditions of routes beside the path.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use myriad_model::{Source, Test, ValueMatch};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use smallvec::SmallVec;

use super::claims::Said;
use crate::net::head::Head;

/// The largest compiled regex in bytes. Translation refuses what is larger, so this only
/// protects against a translation with other limits.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Below this many shared regexes, those that nobody has any more are not looked for.
const SWEEP_MIN: usize = 64;

/// Regexes that routes share, for as long as one has them. At most twice as many as are in use,
/// or [`SWEEP_MIN`].
#[derive(Default)]
struct Shared {
    regexes: HashMap<Box<str>, Weak<Regex>>,
    sweep_at: usize,
}

/// A regex is not valid, or too large.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the regex {0:?} is not valid or too large")]
pub struct BadRegex(pub Box<str>);

/// Compiles a regex.
///
/// # Errors
/// When it is not valid, or too large.
pub fn compile(pattern: &str) -> Result<Regex, BadRegex> {
    build(&[pattern], MatchKind::LeftmostFirst)
}

/// Compiles regexes into one that finds all that match.
///
/// # Errors
/// When one is not valid, or all together are too large.
pub fn compile_set(patterns: &[&str]) -> Result<Regex, BadRegex> {
    build(patterns, MatchKind::All)
}

fn build(patterns: &[&str], kind: MatchKind) -> Result<Regex, BadRegex> {
    let bytes_max = REGEX_BYTES_MAX * patterns.len().clamp(1, 64);
    let config = Regex::config()
        .match_kind(kind)
        .nfa_size_limit(Some(bytes_max))
        .onepass_size_limit(Some(64 << 10))
        .hybrid_cache_capacity(256 << 10)
        .dfa(false);
    Regex::builder()
        .configure(config)
        .syntax(syntax::Config::new().utf8(false))
        .build_many(patterns)
        .map_err(|_| BadRegex(patterns.join("|").into()))
}

/// Compiles a regex that has to match a whole value.
///
/// # Errors
/// When it is not valid, or too large.
pub fn compile_whole(pattern: &str) -> Result<Regex, BadRegex> {
    compile(&whole(pattern)).map_err(|_| BadRegex(pattern.into()))
}

/// The pattern that matches what another one matches up to the end.
pub fn whole(pattern: &str) -> String {
    format!("(?:{pattern})\\z")
}

/// Compiles a regex that many routes have because they share a policy, once for all of them.
///
/// # Errors
/// When it is not valid, or too large.
pub fn compile_shared(pattern: &str) -> Result<Arc<Regex>, BadRegex> {
    static KNOWN: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = known.regexes.get(pattern).and_then(Weak::upgrade) {
        return Ok(regex);
    }
    let regex = Arc::new(compile(pattern)?);
    if known.regexes.len() >= known.sweep_at {
        known.regexes.retain(|_, regex| regex.strong_count() > 0);
        known.sweep_at = (known.regexes.len() * 2).max(SWEEP_MIN);
    }
    let weak = Arc::downgrade(&regex);
    known.regexes.insert(pattern.into(), weak);
    Ok(regex)
}

/// Whether a regex matches from the start.
pub fn matches_start(regex: &Regex, text: &[u8]) -> bool {
    regex.is_match(Input::new(text).anchored(Anchored::Yes))
}

/// Whether all conditions hold. `regexes` are those of the conditions that have one, in their
/// order.
pub fn hold(
    conditions: &[ValueMatch],
    regexes: &[Regex],
    head: &Head<'_>,
    token: Option<Said<'_>>,
) -> bool {
    let mut regexes = regexes.iter();
    conditions.iter().all(|condition| {
        let regex = match condition.test {
            Test::Regex(_) => regexes.next(),
            Test::Exact(_) | Test::Present | Test::Start(_) => None,
        };
        holds(condition, regex, head, token) != condition.invert
    })
}

fn holds(
    condition: &ValueMatch,
    regex: Option<&Regex>,
    head: &Head<'_>,
    token: Option<Said<'_>>,
) -> bool {
    let passes = |value: &[u8]| match &condition.test {
        Test::Exact(wanted) => value == wanted.as_bytes(),
        Test::Regex(_) => regex.is_some_and(|regex| matches_start(regex, value)),
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
        .filter(|field| field.known == crate::net::field::Known::Cookie)
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
        rest = after;
        match (byte, after) {
            (b'+', _) => decoded.push(b' '),
            (b'%', [high, low, behind @ ..]) => {
                let digits = [*high, *low].map(|digit| char::from(digit).to_digit(16));
                if let [Some(high), Some(low)] = digits {
                    decoded.push((high * 16 + low) as u8);
                    rest = behind;
                } else {
                    decoded.push(b'%');
                }
            }
            (byte, _) => decoded.push(*byte),
        }
    }
    decoded.into()
}

#[cfg(test)]
mod tests {
    use myriad_model::{Source, Test, ValueMatch};

    use super::{compile_whole, hold};
    use crate::net::{head, limits::Limits};

    fn check(source: Source, name: &str, test: Test, invert: bool) -> bool {
        let text = "GET /?a=1&b&c=x%20y+z&a=2 HTTP/1.1\r\nHost: h:80\r\nX-A: one\r\nx-a: two\r\n\
                    Cookie: k=v; l=\"w\"\r\nCookie: m=\r\n\r\n";
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let regexes = match &test {
            Test::Regex(pattern) => vec![compile_whole(pattern).unwrap()],
            _ => Vec::new(),
        };
        let condition = ValueMatch {
            source,
            name: name.into(),
            test,
            invert,
        };
        hold(&[condition], &regexes, &head, None)
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
