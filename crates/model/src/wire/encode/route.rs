//! Routes: their matches and actions.

use super::super::generated as wire;
use super::names;
use super::policy::{header_edits, policy};
use crate::{
    Action, PathMatch, PathRewrite, Policy, Redirect, RedirectParts, RedirectPath, RedirectTarget,
    Route, Source, Test, ValueMatch, WeightedUpstream,
};

/// The lowest schema that understands a route. The second has what follows raw prefixes, tests of
/// the authority and scheme, parts of URLs, and what is in `model::resource::traffic`. How paths
/// and underscores are read needs none: an older proxy reads them in all routes as it always did,
/// and would serve no new route of an Ingress if it had to know better.
pub fn schema(value: &Route) -> u32 {
    let is_second = matches!(value.path, PathMatch::Start(_))
        || value.conditions.iter().any(is_second_test)
        || is_second_action(&value.action)
        || is_second_policy(&value.policy);
    let has_claim = |it: &ValueMatch| it.source == Source::Claim;
    let has_claims = value.conditions.iter().any(has_claim);
    let is_third = is_third_policy(&value.policy) || has_claims;
    match (is_third, is_second) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 1,
    }
}

fn is_second_test(value: &ValueMatch) -> bool {
    matches!(value.source, Source::Authority | Source::Scheme)
        || matches!(value.test, Test::Start(_))
}

fn is_second_action(value: &Action) -> bool {
    match value {
        Action::Forward(upstreams) => upstreams.iter().any(|to| to.headers.is_some()),
        Action::Redirect(redirect) => matches!(redirect.target, RedirectTarget::Parts(_)),
        Action::Respond(_) => false,
    }
}

fn is_second_policy(value: &Policy) -> bool {
    let rewrites = value.rewrite.as_ref().is_some_and(|rewrite| {
        let is_template = matches!(rewrite.path, None | Some(PathRewrite::Template(_)));
        !is_template || !rewrite.authority.is_empty()
    });
    let has_patterns = value
        .cors
        .as_ref()
        .is_some_and(|cors| !cors.origin_patterns.is_empty());
    rewrites
        || has_patterns
        || !value.request_timeout.is_zero()
        || value.retry.is_some()
        || value.fault.is_some()
        || !value.mirrors.is_empty()
        || value.headers.is_some()
}

fn is_third_policy(value: &Policy) -> bool {
    let cors = value.cors.as_deref();
    !value.rate_limits.is_empty()
        || value.processor.is_some()
        || cors.is_some_and(|cors| cors.forwards_unmatched)
}

/// The message of a route.
pub fn route(value: &Route) -> wire::Route {
    use wire::path_match::Form;
    let form = match &value.path {
        PathMatch::Exact(path) => Form::Exact(path.to_string()),
        PathMatch::Prefix(path) => Form::Prefix(path.to_string()),
        PathMatch::Regex(regex) => Form::Regex(regex.to_string()),
        PathMatch::Start(start) => Form::Start(start.to_string()),
    };
    wire::Route {
        listeners: names(&value.listeners),
        hosts: value
            .hosts
            .iter()
            .map(|host| host.as_str().to_owned())
            .collect(),
        path: Some(wire::PathMatch { form: Some(form) }),
        conditions: value.conditions.iter().map(value_match).collect(),
        rank: value.rank,
        action: Some(action(&value.action)),
        policy: Some(policy(&value.policy)),
    }
}

fn value_match(value: &ValueMatch) -> wire::ValueMatch {
    use wire::value_match::Form;
    let form = match &value.test {
        Test::Exact(text) => Form::Exact(text.to_string()),
        Test::Regex(regex) => Form::Regex(regex.to_string()),
        Test::Present => Form::Present(true),
        Test::Start(start) => Form::Start(start.to_string()),
    };
    wire::ValueMatch {
        source: value.source as u32,
        name: value.name.to_string(),
        form: Some(form),
        invert: value.invert,
    }
}

fn action(value: &Action) -> wire::route::Action {
    match value {
        Action::Forward(upstreams) => {
            let upstreams = upstreams.iter().map(weighted).collect();
            wire::route::Action::Forward(wire::Forward { upstreams })
        }
        Action::Redirect(value) => wire::route::Action::Redirect(redirect(value)),
        Action::Respond(value) => wire::route::Action::Respond(wire::Respond {
            status: value.status.into(),
            body: bytes::Bytes::copy_from_slice(&value.body),
        }),
    }
}

/// An upstream and its share.
pub fn weighted(value: &WeightedUpstream) -> wire::WeightedUpstream {
    wire::WeightedUpstream {
        upstream: value.upstream.to_string(),
        weight: value.weight,
        headers: value.headers.as_deref().map(header_edits),
    }
}

fn redirect(value: &Redirect) -> wire::Redirect {
    use wire::redirect::Location;
    let location = match &value.target {
        RedirectTarget::Url(url) => Location::Url(url.to_string()),
        RedirectTarget::Path(path) => Location::Path(path.to_string()),
        RedirectTarget::Parts(parts) => Location::Parts(redirect_parts(parts)),
    };
    wire::Redirect {
        status: value.status.into(),
        location: Some(location),
    }
}

fn redirect_parts(value: &RedirectParts) -> wire::RedirectParts {
    use wire::redirect_parts::Path;
    let path = value.path.as_ref().map(|path| match path {
        RedirectPath::Whole(text) => Path::Whole(text.to_string()),
        RedirectPath::Matched(text) => Path::Matched(text.to_string()),
    });
    wire::RedirectParts {
        scheme: value.scheme.to_string(),
        host: value.host.to_string(),
        port: value.port.map_or(0, u32::from),
        path,
    }
}
