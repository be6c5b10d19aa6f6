//! Routes: their matches and actions.

use std::sync::Arc;

use super::super::{WireError, generated as wire};
use super::policy::{header_edits, policy};
use super::{header_text, host, names, port, redirect_status, required, shared};
use crate::{
    Action, Name, PathMatch, Redirect, RedirectParts, RedirectPath, RedirectTarget, Respond, Route,
    Source, Test, ValueMatch, WeightedUpstream,
};

/// Reads a route.
pub fn route(message: wire::Route) -> Result<Route, WireError> {
    let hosts = message
        .hosts
        .iter()
        .map(|text| host(text))
        .collect::<Result<Arc<[_]>, _>>()?;
    if hosts.is_empty() {
        return Err(WireError::Missing("host"));
    }
    Ok(Route {
        listeners: shared::names(names(message.listeners)?),
        hosts,
        path: path_match(message.path)?,
        conditions: message
            .conditions
            .into_iter()
            .map(value_match)
            .collect::<Result<_, _>>()?,
        rank: message.rank,
        action: action(message.action.ok_or(WireError::Missing("action"))?)?,
        policy: shared::policy(policy(message.policy.ok_or(WireError::Missing("policy"))?)?),
    })
}

fn path_match(message: Option<wire::PathMatch>) -> Result<PathMatch, WireError> {
    use wire::path_match::Form;
    let form = message.and_then(|path| path.form);
    Ok(match form.ok_or(WireError::Missing("path"))? {
        Form::Exact(path) if path.starts_with('/') => PathMatch::Exact(path.into()),
        Form::Prefix(path) if path == "/" || is_prefix(&path) => PathMatch::Prefix(path.into()),
        Form::Regex(regex) if !regex.is_empty() => PathMatch::Regex(regex.into()),
        Form::Start(start) if start.starts_with('/') => PathMatch::Start(start.into()),
        _ => return Err(WireError::Invalid("path")),
    })
}

fn is_prefix(path: &str) -> bool {
    path.starts_with('/') && !path.ends_with('/')
}

fn value_match(message: wire::ValueMatch) -> Result<ValueMatch, WireError> {
    use wire::value_match::Form;
    let source = match message.source {
        1 => Source::Header,
        2 => Source::Query,
        3 => Source::Cookie,
        4 => Source::Method,
        5 => Source::Authority,
        6 => Source::Scheme,
        7 if is_claim_path(&message.name) => Source::Claim,
        _ => return Err(WireError::Invalid("source of a condition")),
    };
    if message.name.is_empty() == source.is_named() {
        return Err(WireError::Invalid("name in a condition"));
    }
    let form = message.form;
    let test = match form.ok_or(WireError::Missing("test of a condition"))? {
        Form::Exact(text) => Test::Exact(text.into()),
        Form::Regex(regex) => Test::Regex(regex.into()),
        Form::Present(_) => Test::Present,
        Form::Start(start) => Test::Start(start.into()),
    };
    Ok(ValueMatch {
        source,
        name: message.name.into(),
        test,
        invert: message.invert,
    })
}

/// Whether a text is `[a][b]`, with a name in each pair.
fn is_claim_path(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.is_some_and(|inner| {
        let mut names = inner.split("][");
        names.all(|name| !name.is_empty() && !name.contains(['[', ']']))
    })
}

fn action(message: wire::route::Action) -> Result<Action, WireError> {
    Ok(match message {
        wire::route::Action::Forward(message) => {
            let upstreams = message.upstreams.into_iter().map(weighted);
            Action::Forward(upstreams.collect::<Result<_, WireError>>()?)
        }
        wire::route::Action::Redirect(message) => Action::Redirect(Box::new(redirect(message)?)),
        wire::route::Action::Respond(message) => {
            let status = u16::try_from(message.status).unwrap_or(0);
            if !(200..=599).contains(&status) {
                return Err(WireError::Invalid("status"));
            }
            Action::Respond(Box::new(Respond {
                status,
                body: message.body.to_vec().into(),
            }))
        }
    })
}

/// Reads an upstream and its share.
pub fn weighted(message: wire::WeightedUpstream) -> Result<WeightedUpstream, WireError> {
    let upstream = required(message.upstream, "upstream")?;
    let upstream = Name::new(shared::text(upstream.text().clone()));
    let headers = message.headers.map(header_edits).transpose()?;
    Ok(WeightedUpstream {
        upstream,
        weight: message.weight,
        headers: headers.map(Box::new),
    })
}

fn redirect(message: wire::Redirect) -> Result<Redirect, WireError> {
    use wire::redirect::Location;
    let target = match message.location.ok_or(WireError::Missing("location"))? {
        Location::Url(url) => RedirectTarget::Url(header_text(url, "location")?),
        Location::Path(path) => RedirectTarget::Path(header_text(path, "location")?),
        Location::Parts(parts) => RedirectTarget::Parts(Box::new(redirect_parts(parts)?)),
    };
    let status = redirect_status(message.status)?;
    Ok(Redirect { status, target })
}

fn redirect_parts(message: wire::RedirectParts) -> Result<RedirectParts, WireError> {
    use wire::redirect_parts::Path;
    if !matches!(message.scheme.as_str(), "" | "http" | "https") {
        return Err(WireError::Invalid("scheme"));
    }
    let path = match message.path {
        Some(Path::Whole(text)) => Some(RedirectPath::Whole(header_text(text, "path")?)),
        Some(Path::Matched(text)) => Some(RedirectPath::Matched(header_text(text, "path")?)),
        None => None,
    };
    Ok(RedirectParts {
        scheme: message.scheme.into(),
        host: header_text(message.host, "host")?,
        port: match message.port {
            0 => None,
            number => Some(port(number)?),
        },
        path,
    })
}
