//! Rules that stand in the place of a rule which delegates.

use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use myriad_api::istio::virtual_service::{HttpMatch, HttpMatchRare, HttpRoute, HttpRouteRare};
use myriad_api::istio::{Labels, Map, StringMatch, VirtualService};

use super::texts;
use super::weight::DelegatedLeft;
use crate::engine::Reader;
use crate::resolve::names;
use crate::settings::first_names;

/// The most matches that the rules of a delegate have together under one rule of a root: each of
/// theirs is combined with each of the root's.
const MATCHES_MAX: usize = 1_024;

/// The bytes that may be looked at for each that delegates may have.
const LOOKS: usize = 4;

/// The rules that stand in the place of a rule which delegates.
#[derive(Default)]
pub(super) struct Followed {
    /// The rules, in their order.
    pub rules: Vec<Rule>,
    /// The problem, where some are beyond the bound: then the last rule closes what is left.
    pub problem: Option<Undelegated>,
}

/// Why a delegate has no effect: what is wrong, and what to do.
pub(super) type Undelegated = (String, &'static str);

/// A rule as it is obeyed: with the object that its text stands in, and its place there.
pub(super) struct Rule {
    /// The object, for names and findings.
    pub service: Arc<VirtualService>,
    /// Its place in `spec.http`.
    pub at: usize,
    /// The text of the rule.
    pub route: Text,
    /// Whether a root of another namespace leads to it without being named by the object: who
    /// wrote the object then does not answer for what becomes of its requests.
    pub is_foreign: bool,
}

/// The text of a rule. Most stand as they are in their object, and are not copied out of it.
pub(super) enum Text {
    /// The rule of an object at a place.
    Own(Arc<VirtualService>, usize),
    /// One that is merged with the rule that delegates to it.
    Merged(Box<HttpRoute>),
}

impl Deref for Text {
    type Target = HttpRoute;

    fn deref(&self) -> &HttpRoute {
        static NOTHING: LazyLock<HttpRoute> = LazyLock::new(HttpRoute::default);
        match self {
            Text::Own(service, at) => service.spec.http.get(*at).unwrap_or(&NOTHING),
            Text::Merged(route) => route,
        }
    }
}

/// The rules that a rule delegates to. One level is followed, as Istio does, so there are no
/// cycles. `left` is what the delegates of the object may have beside what they have.
///
/// # Errors
/// Why there are none.
pub(super) fn follow(
    reader: &mut Reader<'_>,
    (of_root, root_at): (&Arc<VirtualService>, usize),
    root: &HttpRoute,
    left: &mut DelegatedLeft,
) -> Result<Followed, Undelegated> {
    let namespace = of_root.meta.key.namespace();
    let delegate = root.rare.as_deref().and_then(|rare| rare.delegate.as_ref());
    let Some(delegate) = delegate else {
        return Ok(Followed::default());
    };
    let of = match &*delegate.namespace {
        "" => namespace,
        named => named,
    };
    let id = format!("{of}/{}", delegate.name);
    let Some(service) = reader.virtual_service(&id) else {
        let problem = format!("names VirtualService {id}, which is not there");
        return Err((problem, "create it, or correct name and namespace"));
    };
    if !service.spec.hosts.is_empty() {
        let problem = format!("names VirtualService {id}, which has hosts of its own");
        return Err((problem, "remove spec.hosts of the delegate"));
    }
    if !names::is_exported(&service.spec.export_to, of, namespace) {
        let problem = format!("names VirtualService {id}, which is not exported to here");
        return Err((problem, "add the namespace to its spec.exportTo"));
    }
    check_depth(&service, &id)?;
    let is_foreign = of != namespace && !names_namespace(&service, namespace);
    let mut followed = Followed::default();
    let mut of_rule = MATCHES_MAX;
    for (at, route) in service.spec.http.iter().enumerate() {
        let combined = root.matches.len().max(1) * route.matches.len().max(1);
        let is_worth = is_worth(root, route, left);
        let is_within = is_worth && combined <= of_rule.min(left.rows);
        let merged = is_within.then(|| merge(root, route)).flatten();
        let bytes = match is_worth {
            true => merged.as_ref().map_or(0, texts::of_rows),
            false => usize::MAX,
        };
        if let Some((much, remedy)) = beyond(combined, of_rule, bytes, left) {
            let problem = format!(
                "names VirtualService {id}, {much}, so what its rules before spec.http[{at}] do \
                 not take gets 503"
            );
            followed.problem = Some((problem, remedy));
            followed.rules.push(Rule {
                service: of_root.clone(),
                at: root_at,
                route: Text::Merged(Box::new(closing(root))),
                is_foreign: false,
            });
            break;
        }
        of_rule -= combined;
        left.rows -= combined;
        left.bytes -= bytes;
        if let Some(route) = merged {
            followed.rules.push(Rule {
                service: service.clone(),
                at,
                route: Text::Merged(Box::new(route)),
                is_foreign,
            });
        }
    }
    Ok(followed)
}

/// Whether two rules may be merged for what delegates may have: each match is compared with each,
/// whether a request can fit both or not.
fn is_worth(root: &HttpRoute, own: &HttpRoute, left: &DelegatedLeft) -> bool {
    let bytes = |route: &HttpRoute| {
        let matches = route.matches.iter().map(texts::of_match);
        matches.fold(0, usize::saturating_add)
    };
    let of_root = bytes(root).saturating_mul(own.matches.len().max(1));
    let of_own = bytes(own).saturating_mul(root.matches.len().max(1));
    let looked = of_root.saturating_add(of_own);
    looked.saturating_add(texts::of_rule(own)) <= left.bytes_max.saturating_mul(LOOKS)
}

/// Whether a delegate names the namespace of its root among those that it is exported to.
fn names_namespace(service: &VirtualService, namespace: &str) -> bool {
    let mut exported = first_names(&service.spec.export_to).iter();
    exported.any(|to| **to == *namespace)
}

/// The bound that a rule of a delegate exceeds, and what to do; none where it is within all.
fn beyond(
    combined: usize,
    of_rule: usize,
    bytes: usize,
    left: &DelegatedLeft,
) -> Option<Undelegated> {
    let matches = "whose matches, each with each of the rule's, are more than";
    let fewer = "leave the conditions to one of the two, or divide the delegate";
    let together = "the rules of this object may have from delegates together";
    if combined > of_rule {
        let much = format!("{matches} {MATCHES_MAX} for one rule");
        return Some((much, fewer));
    }
    if combined > left.rows {
        return Some((format!("{matches} {together}"), fewer));
    }
    let max = left.bytes_max;
    (bytes > left.bytes).then(|| {
        let much = format!("whose texts, once for each match, are more than {max} bytes, which");
        let shorter = "shorten what its rules say, or write them in a VirtualService with hosts";
        (format!("{much} {together}"), shorter)
    })
}

/// A delegate may not delegate again, by any of the rules that are followed at most.
fn check_depth(service: &VirtualService, id: &str) -> Result<(), Undelegated> {
    let mut rules = service.spec.http.iter().take(MATCHES_MAX);
    let again = rules.position(|route| route.rare().delegate.is_some());
    again.map_or(Ok(()), |at| {
        let problem = format!("leads to spec.http[{at}] of {id}, which delegates again");
        Err((problem, "delegate one level deep only"))
    })
}

/// The matches of a rule, leading nowhere: later rules might let through what its delegate did not.
fn closing(root: &HttpRoute) -> HttpRoute {
    HttpRoute {
        matches: root.matches.clone(),
        ..HttpRoute::default()
    }
}

/// A rule of a delegate under its root; `None` where no request can fit both.
fn merge(root: &HttpRoute, own: &HttpRoute) -> Option<HttpRoute> {
    let mut route = own.clone();
    route.matches = merge_matches(&root.matches, &own.matches)?;
    route.rewrite = own.rewrite.clone().or_else(|| root.rewrite.clone());
    route.timeout = own.timeout.or(root.timeout);
    let Some(above) = root.rare.as_deref() else {
        return Some(route);
    };
    let mut rare: HttpRouteRare = own.rare.as_deref().cloned().unwrap_or_default();
    rare.retries = rare.retries.or_else(|| above.retries.clone());
    rare.fault = rare.fault.or_else(|| above.fault.clone());
    rare.mirror = rare.mirror.or_else(|| above.mirror.clone());
    if rare.mirrors.is_empty() {
        rare.mirrors = above.mirrors.clone();
    }
    rare.mirror_percentage = rare.mirror_percentage.or(above.mirror_percentage);
    rare.cors_policy = rare.cors_policy.or_else(|| above.cors_policy.clone());
    rare.headers = rare.headers.or_else(|| above.headers.clone());
    route.rare = Some(Box::new(rare));
    Some(route)
}

/// Every match of the one with every match of the other.
fn merge_matches(root: &[HttpMatch], own: &[HttpMatch]) -> Option<Box<[HttpMatch]>> {
    if root.is_empty() {
        return Some(own.into());
    }
    if own.is_empty() {
        return Some(root.into());
    }
    let pairs = root
        .iter()
        .flat_map(|above| own.iter().map(move |below| (above, below)));
    let merged: Box<[HttpMatch]> = pairs
        .filter_map(|(above, below)| merge_match(above, below))
        .collect();
    (!merged.is_empty()).then_some(merged)
}

fn merge_match(root: &HttpMatch, own: &HttpMatch) -> Option<HttpMatch> {
    let mut merged = own.clone();
    merged.uri = merge_text(root.uri.as_ref(), own.uri.as_ref())?;
    merged.ignore_uri_case = match own.uri {
        Some(_) => own.ignore_uri_case,
        None => root.ignore_uri_case,
    };
    merged.headers = merge_map(&root.headers, &own.headers)?;
    merged.source_labels = merge_labels(root.source_labels.as_ref(), own.source_labels.as_ref())?;
    merged.port = match (root.port, own.port) {
        (0, port) | (port, 0) => port,
        (one, other) if one == other => one,
        _ => return None,
    };
    let (above, below) = (root.rare.as_deref(), own.rare.as_deref());
    let Some(above) = above else {
        return Some(merged);
    };
    let mut rare: HttpMatchRare = below.cloned().unwrap_or_default();
    rare.scheme = merge_text(above.scheme.as_ref(), rare.scheme.as_ref())?;
    rare.method = merge_text(above.method.as_ref(), rare.method.as_ref())?;
    rare.authority = merge_text(above.authority.as_ref(), rare.authority.as_ref())?;
    rare.query_params = merge_map(&above.query_params, &rare.query_params)?;
    rare.without_headers = merge_map(&above.without_headers, &rare.without_headers)?;
    if rare.gateways.is_empty() {
        rare.gateways = above.gateways.clone();
    }
    if rare.source_namespace.is_empty() {
        rare.source_namespace = above.source_namespace.clone();
    }
    merged.rare = Some(Box::new(rare));
    Some(merged)
}

/// The narrower of two tests; `None` where a text that fits one may not fit the other.
fn merge_text(
    root: Option<&StringMatch>,
    own: Option<&StringMatch>,
) -> Option<Option<StringMatch>> {
    let (root, own) = match (root, own) {
        (None, only) | (only, None) => return Some(only.cloned()),
        (Some(root), Some(own)) => (root, own),
    };
    let is_within = match (root, own) {
        (StringMatch::Present, _) => true,
        (StringMatch::Prefix(start), StringMatch::Exact(text) | StringMatch::Prefix(text)) => {
            text.starts_with(&**start)
        }
        (root, own) => root == own,
    };
    is_within.then(|| Some(own.clone()))
}

fn merge_map(root: &Map<StringMatch>, own: &Map<StringMatch>) -> Option<Map<StringMatch>> {
    let mut merged: Vec<(Box<str>, StringMatch)> = own.to_vec();
    for (name, above) in root.iter() {
        match merged.iter_mut().find(|(known, _)| known == name) {
            Some((_, below)) => *below = merge_text(Some(above), Some(below))??,
            None => merged.push((name.clone(), above.clone())),
        }
    }
    Some(merged.into_iter().collect())
}

/// All labels of both; `None` where they differ in one.
fn merge_labels(
    root: Option<&Arc<Labels>>,
    own: Option<&Arc<Labels>>,
) -> Option<Option<Arc<Labels>>> {
    let (root, own) = match (root, own) {
        (None, only) | (only, None) => return Some(only.cloned()),
        (Some(root), Some(own)) => (root, own),
    };
    let mut merged: Vec<(Box<str>, Box<str>)> = own.to_vec();
    for (name, above) in root.iter() {
        match merged.iter().find(|(known, _)| known == name) {
            Some((_, below)) if below != above => return None,
            Some(_) => {}
            None => merged.push((name.clone(), above.clone())),
        }
    }
    Some(Some(Arc::new(merged.into_iter().collect())))
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::StringMatch;

    use super::merge_text;

    #[test]
    fn the_narrower_test_holds() {
        let prefix = |text: &str| StringMatch::Prefix(text.into());
        let exact = |text: &str| StringMatch::Exact(text.into());
        let merged = |root: StringMatch, own: StringMatch| merge_text(Some(&root), Some(&own));
        assert_eq!(
            merged(prefix("/a"), exact("/a/b")),
            Some(Some(exact("/a/b")))
        );
        assert_eq!(
            merged(prefix("/a"), prefix("/a/b")),
            Some(Some(prefix("/a/b")))
        );
        assert_eq!(merged(prefix("/a"), prefix("/b")), None);
        assert_eq!(merged(exact("/a"), prefix("/a")), None);
        assert_eq!(
            merge_text(None, Some(&exact("/a"))),
            Some(Some(exact("/a")))
        );
    }
}
