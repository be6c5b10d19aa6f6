//! The paths and conditions that a match asks for.

use myriad_api::istio::virtual_service::HttpMatch;
use myriad_api::istio::{Labels, Map, StringMatch};
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{PathMatch, Source, Test, ValueMatch};

use crate::dialect::selectors::is_of_each_pod;
use crate::engine::Reader;
use crate::regex::{COSTLY, COSTLY_REMEDY, compiles, is_costly, is_read};

/// A part of a match that nothing can fit, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    /// The field below the match.
    pub field: String,
    /// The problem.
    pub problem: &'static str,
    /// The way to mend it.
    pub remedy: &'static str,
}

/// Not a regex, or one that needs what a linear-time engine does not have.
const BAD_REGEX: &str = "is not a regex within RE2's syntax and 256 KiB";

/// The remedy of most that fits nothing.
const CORRECT: &str = "correct it";

/// A path that no request has.
const NOT_ABSOLUTE: &str = "does not start with '/', so it fits no request";

/// The problem of a claim that is named in another way.
const BAD_CLAIM: &str = "names no claim as @request.auth.claims.a.b or @request.auth.claims[a][b]";

/// The prefix that stands for claims of the verified token among the names of headers.
const CLAIMS: &str = "@request.auth.claims";

/// Whether the workload that is served here is the source that a match names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SourceFit {
    /// It is.
    Fits,
    /// It is another.
    Other,
    /// Nobody can tell: workloads of other namespaces are asked for a label in which each of their
    /// Pods differs, and no view is for one Pod.
    Unknown,
}

/// The source that a match names.
pub(super) struct SourceAsked<'a> {
    /// The labels of its workload.
    pub labels: &'a Labels,
    /// The namespace of its workload; empty for any.
    pub namespace: &'a str,
    /// The namespaces of the objects that ask: of the VirtualService, and of its delegate.
    pub by: [&'a str; 2],
}

/// Whether the workload that is served here may be the source that a match names, which is of an
/// object or of a delegate of it.
pub(super) fn source(matched: &HttpMatch, by: [&str; 2], reader: &Reader<'_>) -> SourceFit {
    let namespace = matched.rare.as_ref().map(|rare| &*rare.source_namespace);
    let (labels, none) = (matched.source_labels.as_deref(), Labels::default());
    let asked = SourceAsked {
        labels: labels.unwrap_or(&none),
        namespace: namespace.unwrap_or(""),
        by,
    };
    asked.fit(reader)
}

impl SourceAsked<'_> {
    /// Whether the workload that is served here is the source.
    pub(super) fn fit(&self, reader: &Reader<'_>) -> SourceFit {
        let view = reader.view();
        let labels = || self.labels.iter();
        let mut usual = labels().filter(|(key, _)| !is_of_each_pod(key));
        let has_usual = usual.all(|(key, value)| view.has_label(key, value));
        if !has_usual || !(self.namespace.is_empty() || view.is_of(self.namespace)) {
            return SourceFit::Other;
        }
        let mut apart = labels().filter(|(key, _)| is_of_each_pod(key)).peekable();
        if apart.peek().is_none() {
            return SourceFit::Fits;
        }
        let root = reader.settings().root_namespace();
        let is_told = |by: &&str| **by == *root || view.is_of(by);
        if view.is_sidecar() && !self.by.iter().all(is_told) {
            return SourceFit::Unknown;
        }
        match apart.all(|(key, value)| view.has_label(key, value)) {
            true => SourceFit::Fits,
            false => SourceFit::Other,
        }
    }
}

/// The finding about a match of which nobody can tell whom it is for.
pub(super) fn unknown_source(reader: &Reader<'_>, key: &ObjectKey, field: String) -> Finding {
    let root = reader.settings().root_namespace();
    Finding::new(
        Severity::Error,
        key,
        field,
        "asks workloads of other namespaces for a label in which each of their Pods differs, which \
         no proxy there is told by, so what it takes there gets 503 or is closed",
        format!(
            "name a label that they have alike, such as app or version, or let the operator write \
             it in namespace {root}"
        ),
    )
}

/// The path of a match.
///
/// # Errors
/// The part that fits no request.
pub(super) fn path(matched: Option<&HttpMatch>) -> Result<PathMatch, Unfit> {
    let everything = PathMatch::Prefix("/".into());
    let Some((matched, uri)) = matched.and_then(|it| Some((it, it.uri.as_ref()?))) else {
        return Ok(everything);
    };
    let unfit = |problem| {
        let field = "uri".to_owned();
        let remedy = CORRECT;
        Err(Unfit {
            field,
            problem,
            remedy,
        })
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
            // What is no regex by itself may become one by what is put around it.
            match is_read(text) && compiles(&whole) {
                true => Ok(regex(&whole)),
                false => Err(bad_regex("uri".to_owned(), &whole)),
            }
        }
    }
}

/// A regex that is refused, and why.
fn bad_regex(field: String, text: &str) -> Unfit {
    let (problem, remedy) = match is_costly(text) {
        true => (COSTLY, COSTLY_REMEDY),
        false => (BAD_REGEX, CORRECT),
    };
    Unfit {
        field,
        problem,
        remedy,
    }
}

fn regex(text: &str) -> PathMatch {
    PathMatch::Regex(text.into())
}

/// The conditions of a match, beside path, port, gateways and source.
///
/// # Errors
/// The part that fits no request.
pub(super) fn conditions(matched: Option<&HttpMatch>) -> Result<Vec<ValueMatch>, Unfit> {
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
        if let Some(path) = claim(name).filter(|_| source == Source::Header) {
            let field = format!("{field}[{name}]");
            let Some(path) = path else {
                return Err(Unfit {
                    field,
                    problem: BAD_CLAIM,
                    remedy: CORRECT,
                });
            };
            found.push(condition(field, Source::Claim, &path, test, invert)?);
            continue;
        }
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

/// The path of a claim as `[a][b]`, where a header's name stands for one: it is written so, or as
/// `.a.b`. None inside where it stands for one and names none.
fn claim(name: &str) -> Option<Option<String>> {
    let start = name.get(..CLAIMS.len())?;
    let rest = name.get(CLAIMS.len()..)?;
    if !start.eq_ignore_ascii_case(CLAIMS) {
        return None;
    }
    let inner = match rest.strip_prefix('.') {
        Some(dotted) => dotted.replace('.', "]["),
        None => {
            let inner = rest.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
            inner.unwrap_or_default().to_owned()
        }
    };
    let is_name = |part: &str| !part.is_empty() && !part.contains(['[', ']']);
    let is_path = inner.split("][").all(is_name);
    Some(is_path.then(|| format!("[{inner}]")))
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
        StringMatch::Regex(text) => return Err(bad_regex(field, text)),
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

/// A text as a regex for exactly it.
pub(super) fn escape(text: &str) -> String {
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
    use super::{claim, escape};

    #[test]
    fn a_claim_is_named_in_two_ways() {
        let some = |path: &str| Some(Some(path.to_owned()));
        for (name, path) in [
            ("x-claims", None),
            ("@request.auth.claims.group", some("[group]")),
            ("@Request.Auth.Claims.A.b", some("[A][b]")),
            ("@request.auth.claims[a.b][c]", some("[a.b][c]")),
            ("@request.auth.claims", Some(None)),
            ("@request.auth.claims.", Some(None)),
            ("@request.auth.claims[a", Some(None)),
            ("@request.auth.claims[a]b", Some(None)),
            ("@request.auth.claims[a][]", Some(None)),
            ("@request.auth.claims[a[b]]", Some(None)),
        ] {
            assert_eq!(claim(name), path, "{name}");
        }
    }

    #[test]
    fn an_escaped_text_means_itself() {
        for text in ["/a.b*c(d)[e]{f}^$|\\+?", "/ä-ö_~%20"] {
            let regex = regex_automata::meta::Regex::new(&format!("(?:{})\\z", escape(text)));
            let regex = regex.unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(regex.is_match(text), "{text}");
            assert!(!regex.is_match("/aXbc"), "{text}");
        }
    }
}
