//! What a match asks for, as paths and conditions.

use myriad_api::istio::virtual_service::HttpMatch;
use myriad_api::istio::{Labels, Map, StringMatch};
use myriad_model::{PathMatch, Source, Test, ValueMatch};
use regex_automata::meta::Regex;

use crate::Settings;

/// The most memory that a compiled regex may take in bytes.
const REGEX_BYTES_MAX: usize = 256 << 10;

/// A part of a match that nothing can fit, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The field below the match.
    pub field: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// Not a regex, or one that needs what a linear-time engine does not have.
const BAD_REGEX: &str = "is not a regex within RE2's syntax and 256 KiB";

/// A path that no request has.
const NOT_ABSOLUTE: &str = "does not start with '/', so it fits no request";

/// Whether the workload that is served here may be the source that a match names.
pub fn is_source(matched: &HttpMatch, settings: &Settings) -> bool {
    let namespace = matched.rare.as_ref().map(|rare| &*rare.source_namespace);
    let labels = matched.source_labels.as_deref();
    is_workload(
        labels.unwrap_or(&Labels::default()),
        namespace.unwrap_or(""),
        settings,
    )
}

/// Whether the workload that is served here has these labels and is of this namespace.
pub fn is_workload(labels: &Labels, namespace: &str, settings: &Settings) -> bool {
    let mut all = labels.iter();
    let has_labels = all.all(|(key, value)| {
        let known = settings.gateway_labels.get(&**key);
        known.is_some_and(|known| **known == **value)
    });
    has_labels && (namespace.is_empty() || *namespace == *settings.gateway_namespace)
}

/// The path of a match.
///
/// # Errors
/// What fits no request.
pub fn path(matched: Option<&HttpMatch>) -> Result<PathMatch, Unfit> {
    let everything = PathMatch::Prefix("/".into());
    let Some((matched, uri)) = matched.and_then(|it| Some((it, it.uri.as_ref()?))) else {
        return Ok(everything);
    };
    let unfit = |problem| {
        let field = "uri".to_owned();
        Err(Unfit { field, problem })
    };
    let any_case = matched.ignore_uri_case;
    match uri {
        StringMatch::Present => Ok(everything),
        StringMatch::Prefix(text) if text.is_empty() || **text == *"/" => Ok(everything),
        StringMatch::Exact(text) | StringMatch::Prefix(text) if !text.starts_with('/') => {
            unfit(NOT_ABSOLUTE)
        }
        StringMatch::Exact(text) if any_case => Ok(regex(&format!("(?i:{})\\z", escape(text)))),
        StringMatch::Prefix(text) if any_case => Ok(regex(&format!("(?i:{})", escape(text)))),
        StringMatch::Exact(text) => Ok(PathMatch::Exact(text.clone())),
        StringMatch::Prefix(text) => Ok(PathMatch::Start(text.clone())),
        StringMatch::Regex(text) => {
            let whole = format!("(?:{text})\\z");
            match compiles(text) && compiles(&whole) {
                true => Ok(regex(&whole)),
                false => unfit(BAD_REGEX),
            }
        }
    }
}

fn regex(text: &str) -> PathMatch {
    PathMatch::Regex(text.into())
}

/// The conditions of a match, beside path, port, gateways and source.
///
/// # Errors
/// What fits no request.
pub fn conditions(matched: Option<&HttpMatch>) -> Result<Vec<ValueMatch>, Unfit> {
    let mut found = Vec::new();
    let Some(matched) = matched else {
        return Ok(found);
    };
    add_map(
        &mut found,
        "headers",
        &matched.headers,
        Source::Header,
        false,
    )?;
    let Some(rare) = &matched.rare else {
        return Ok(found);
    };
    let without = &rare.without_headers;
    add_map(&mut found, "withoutHeaders", without, Source::Header, true)?;
    add_map(
        &mut found,
        "queryParams",
        &rare.query_params,
        Source::Query,
        false,
    )?;
    for (field, source, wanted) in [
        ("method", Source::Method, &rare.method),
        ("authority", Source::Authority, &rare.authority),
        ("scheme", Source::Scheme, &rare.scheme),
    ] {
        if let Some(wanted) = wanted {
            found.push(condition(field.to_owned(), source, "", wanted, false)?);
        }
    }
    Ok(found)
}

fn add_map(
    found: &mut Vec<ValueMatch>,
    field: &str,
    wanted: &Map<StringMatch>,
    source: Source,
    invert: bool,
) -> Result<(), Unfit> {
    for (name, test) in wanted.iter() {
        // Envoy's names for what is no header in HTTP/1.
        let (source, name) = match (&**name, source) {
            (":method", Source::Header) => (Source::Method, ""),
            (":authority", Source::Header) => (Source::Authority, ""),
            (":scheme", Source::Header) => (Source::Scheme, ""),
            (name, source) => (source, name),
        };
        found.push(condition(
            format!("{field}[{name}]"),
            source,
            name,
            test,
            invert,
        )?);
    }
    Ok(())
}

fn condition(
    field: String,
    source: Source,
    name: &str,
    wanted: &StringMatch,
    invert: bool,
) -> Result<ValueMatch, Unfit> {
    let test = match wanted {
        StringMatch::Present => Test::Present,
        StringMatch::Exact(text) => Test::Exact(text.clone()),
        StringMatch::Prefix(text) => Test::Start(text.clone()),
        StringMatch::Regex(text) if compiles(text) => Test::Regex(text.clone()),
        StringMatch::Regex(_) => {
            let problem = BAD_REGEX;
            return Err(Unfit { field, problem });
        }
    };
    let name = match source {
        Source::Header => name.to_ascii_lowercase().into(),
        _ => name.into(),
    };
    Ok(ValueMatch {
        source,
        name,
        test,
        invert,
    })
}

/// Whether the proxy can compile a regex.
pub fn compiles(pattern: &str) -> bool {
    let config = Regex::config().nfa_size_limit(Some(REGEX_BYTES_MAX));
    Regex::builder().configure(config).build(pattern).is_ok()
}

/// A text as a regex for exactly it.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if letter.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{compiles, escape};

    #[test]
    fn an_escaped_text_means_itself() {
        for text in ["/a.b*c(d)[e]{f}^$|\\+?", "/ä-ö_~%20"] {
            let regex = regex_automata::meta::Regex::new(&format!("(?:{})\\z", escape(text)));
            let regex = regex.unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(regex.is_match(text), "{text}");
            assert!(!regex.is_match("/aXbc"), "{text}");
        }
    }

    #[test]
    fn what_needs_backtracking_is_no_regex() {
        assert!(compiles("/v[0-9]+/.*"));
        assert!(!compiles("(?=a)") && !compiles("(a)\\1") && !compiles("("));
    }
}
