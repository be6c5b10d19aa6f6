//! Routes: a line for each, with its name, in the order in which they are tried.

use std::fmt::Write as _;

use myriad_model::{
    Action, Name, OriginKind, PathReading, PathView, RedirectParts, RedirectPath, RedirectTarget,
    ResourcePlace, RouteView, Routes, Sealed, Snapshot, Source, Test, Value, ValueMatch,
    WeightedUpstream, in_order,
};

use super::{edits_text, joined, policy_text, share};

/// The routes of a snapshot, each with its rank and its first host. Those of one rank and host
/// stand in the order in which they are tried.
pub(super) fn lines(snapshot: &Snapshot) -> Vec<(u64, String, String)> {
    let sealed: Vec<&Sealed> = snapshot.iter().map(|sealed| &**sealed).collect();
    let named: Vec<(&Name, Option<&Routes>)> = sealed
        .iter()
        .map(|sealed| (sealed.name(), block(sealed)))
        .collect();
    let mut lines = Vec::new();
    for ResourcePlace { at, mut rule } in in_order(&named) {
        let (sealed, block) = (sealed[at], named[at].1);
        for (number, route) in sealed.routes().enumerate() {
            let name = match block {
                None => sealed.name().to_string(),
                Some(block) => {
                    rule += u32::from(block.rows()[number].step);
                    let label = block.label(number, rule);
                    format!("{}{label}", Routes::prefix(sealed.name()))
                }
            };
            let resource = sealed.resource().expect("the value is kept");
            let text = route_text(resource.origin_of(number).kind, route);
            let host = route.hosts[0].to_string();
            lines.push((route.rank, host, format!("route {name}\n  {text}")));
        }
    }
    lines
}

fn block(sealed: &Sealed) -> Option<&Routes> {
    match &sealed.resource()?.value {
        Value::Routes(block) => Some(block),
        _ => None,
    }
}

/// Nothing where paths are read as the dialect documents.
fn reading_text(origin: OriginKind, route: RouteView<'_>) -> String {
    let documented = match origin {
        OriginKind::Ingress => PathReading::Decoded,
        OriginKind::VirtualService | OriginKind::HttpRoute | OriginKind::GrpcRoute => {
            PathReading::Base
        }
        _ => PathReading::AsSent,
    };
    match route.policy.path_reading {
        reading if reading == documented => String::new(),
        reading => format!(" reads={reading:?}"),
    }
}

fn route_text(origin: OriginKind, route: RouteView<'_>) -> String {
    let path = match route.path {
        PathView::Exact(text) => format!("exactly {text}"),
        PathView::Prefix(text) => format!("below {text}"),
        PathView::Regex(text) => format!("like {text}"),
        PathView::Start(text) => format!("from {text}"),
    };
    let conditions: String = route.conditions.iter().map(condition_text).collect();
    let action = match route.action {
        Action::Forward(targets) if targets.is_empty() => "503".to_owned(),
        Action::Forward(targets) => {
            let texts: Vec<_> = targets.iter().map(target_text).collect();
            texts
                .join(" ")
                .replace("*1 ", " ")
                .trim_end_matches("*1")
                .to_owned()
        }
        Action::Redirect(redirect) => match &redirect.target {
            RedirectTarget::Url(to) | RedirectTarget::Path(to) => {
                format!("{} {to}", redirect.status)
            }
            RedirectTarget::Parts(parts) => format!("{}{}", redirect.status, parts_text(parts)),
        },
        Action::Respond(respond) => {
            let body = String::from_utf8_lossy(&respond.body);
            format!("{} {body:?}", respond.status)
        }
    };
    let listeners = match joined(route.listeners).as_str() {
        "http https" => String::new(),
        other => format!(" on [{other}]"),
    };
    format!(
        "{path}{conditions} -> {action}{}{}{listeners}",
        policy_text(route.policy),
        reading_text(origin, route)
    )
}

fn condition_text(condition: &ValueMatch) -> String {
    let source = match condition.source {
        Source::Header => "header",
        Source::Query => "query",
        Source::Cookie => "cookie",
        Source::Method => "method",
        Source::Authority => "authority",
        Source::Scheme => "scheme",
        Source::Claim => "claim",
    };
    let test = match &condition.test {
        Test::Exact(text) => format!("= {text}"),
        Test::Regex(text) => format!("~ {text}"),
        Test::Present => "present".to_owned(),
        Test::Start(text) => format!("from {text}"),
    };
    let not = if condition.invert { "not " } else { "" };
    format!(" if {not}{source} {} {test}", condition.name)
}

fn target_text(target: &WeightedUpstream) -> String {
    let edits = target.headers.as_ref().map(|edits| edits_text(edits));
    let edits = edits.unwrap_or_default();
    let filters = target.filters.as_deref().map(share::text);
    let filters = filters.unwrap_or_default();
    format!("{}{edits}{filters}*{}", target.upstream, target.weight)
}

pub(super) fn parts_text(parts: &RedirectParts) -> String {
    let mut text = String::new();
    for (name, value) in [("scheme", &parts.scheme), ("host", &parts.host)] {
        if !value.is_empty() {
            let _ = write!(text, " {name}={value}");
        }
    }
    if let Some(port) = parts.port {
        let _ = write!(text, " port={port}");
    }
    if parts.keeps_port {
        text.push_str(" keeps-port");
    }
    match &parts.path {
        None => {}
        Some(RedirectPath::Whole(path)) => text = format!("{text} path={path}"),
        Some(RedirectPath::Matched(path)) => text = format!("{text} matched={path}"),
    }
    text
}
