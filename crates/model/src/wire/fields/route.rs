//! Routes and stream routes: their matches and actions.

use std::sync::Arc;

use super::*;
use crate::{
    Action, Cors, HeaderEdits, Mirror, Name, PathMatch, PathRewrite, PathView, Policy, Redirect,
    RedirectParts, RedirectPath, RedirectTarget, Respond, Rewrite, ShareAnswer, ShareFilters,
    Source, Test, ValueMatch, WeightedUpstream,
};

message! {
    /// A condition on requests to a host, and the action on those that match.
    Route, route {
        1 listeners: list(resource_name("name"));
        2 hosts: list(host_pattern());
        3 path: part::<PathMatch>("path");
        4 conditions: list(each::<ValueMatch>());
        /// Lower goes first among the routes of a host.
        5 rank: uint64();
        10 action: one_of::<Action>("action");
        20 policy: part::<Policy>("policy");
    } => {
        if hosts.is_empty() {
            return Err(WireError::Missing("host"));
        }
        Route {
            listeners: shared::names(listeners.into()),
            hosts: hosts.into(),
            path,
            conditions: conditions.into(),
            rank,
            action,
            policy: shared::policy(policy),
        }
    }
}

message! {
    /// A condition on the path of a request.
    PathMatch, path {
        1 form: one_of::<PathMatch>("path"), of *path;
    } => {
        if !is_path(form.view()) {
            return Err(WireError::Invalid("path"));
        }
        form
    }
}

/// Whether a text is one that the form of its path may have.
pub(super) fn is_path(path: PathView<'_>) -> bool {
    match path {
        PathView::Exact(path) | PathView::Start(path) => path.starts_with('/'),
        PathView::Prefix(path) => path == "/" || path.starts_with('/') && !path.ends_with('/'),
        PathView::Regex(regex) => !regex.is_empty(),
    }
}

forms! {
    PathMatch {
        1 exact: string() => Exact;
        2 prefix: string() => Prefix;
        3 regex: string() => Regex;
        /// Whatever follows it, also within an element.
        4 start: string() => Start, since 2;
    }
}

message! {
    /// A condition on a value of the request.
    ValueMatch, condition {
        /// 1 header, 2 query parameter, 3 cookie, 4 method, 5 authority, 6 scheme,
        /// 7 claim of a verified token, by its path such as [a][b].
        1 source: choice::<Source>("source of a condition");
        2 name: string();
        3 test as form: one_of::<Test>("test of a condition");
        6 invert: boolean();
    } => {
        if source == Source::Claim && !is_claim_path(&name) {
            return Err(WireError::Invalid("source of a condition"));
        }
        if name.is_empty() == source.is_named() {
            return Err(WireError::Invalid("name in a condition"));
        }
        ValueMatch { source, name, test, invert }
    }
}

/// Whether a text is `[a][b]`, with a name in each pair.
fn is_claim_path(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.is_some_and(|inner| {
        let mut names = inner.split("][");
        names.all(|name| !name.is_empty() && !name.contains(['[', ']']))
    })
}

choices! {
    Source { Header, Query, Cookie, Method, Authority since 2, Scheme since 2, Claim since 3 }
}

forms! {
    Test {
        3 exact: string() => Exact;
        4 regex: string() => Regex;
        5 present => Present;
        7 start: string() => Start, since 2;
    }
}

forms! {
    Action {
        10 forward: each::<Forward>() => Forward;
        11 redirect: each::<Redirect>() => Redirect;
        12 respond: each::<Respond>() => Respond;
    }
}

message! {
    /// Requests go to one of these, by weight.
    Forward for Arc<[WeightedUpstream]>, forward {
        1 upstreams: list(each::<WeightedUpstream>()), of *forward;
    } => upstreams.into()
}

message! {
    /// An upstream and its share.
    WeightedUpstream {
        1 upstream: shared_name("upstream");
        2 weight: uint32();
        3 headers: boxed::<HeaderEdits>(), since 2;
        4 filters: boxed::<ShareFilters>(), since 5;
    }
}

message! {
    /// The rules for the requests of one share.
    ShareFilters, filters {
        /// In place of the upstream's.
        1 answer: some_of::<ShareAnswer>();
        /// In place of that of the policy.
        3 rewrite: boxed::<Rewrite>();
        /// Beside those of the policy.
        4 mirrors: list_of(
            ShareFilters::MIRRORS_MAX, "number of mirrors", each::<Mirror>()
        );
        /// In place of that of the policy, and without patterns.
        5 cors: boxed::<Cors>();
    } => {
        let patterns = cors.as_deref().map_or(0, |cors: &Cors| cors.origin_patterns.len());
        if patterns > 0 {
            return Err(WireError::Invalid("pattern of origins"));
        }
        let path = rewrite.as_deref().and_then(|rewrite: &Rewrite| rewrite.path.as_ref());
        if matches!(path, Some(PathRewrite::Substitution { .. })) {
            return Err(WireError::Invalid("rewrite of a share"));
        }
        ShareFilters { answer, rewrite, mirrors: mirrors.into(), cors }
    }
}

forms! {
    ShareAnswer {
        /// A status, 400 to 599.
        1 refuse: http_status(400..=599, "status of a refusal") => Refuse;
        2 redirect: each::<Redirect>() => Redirect;
    }
}

/// The name of a resource that many others name.
fn shared_name(what: &'static str) -> impl Item<Value = Name, Out = Name> {
    text_as(Name::as_str, move |it| match it.is_empty() {
        true => Err(WireError::Missing(what)),
        false => Ok(Name::new(shared::text(it.into()))),
    })
}

message! {
    /// An answer that leads elsewhere.
    Redirect {
        1 status: redirect_status();
        2 target as location: one_of::<RedirectTarget>("location");
    }
}

/// A status that redirects.
pub(super) fn redirect_status() -> impl Item<Value = u16, Out = u16> {
    number_as(
        "uint32",
        |it: &u16| u64::from(*it),
        |it| match it as u32 {
            301 | 302 | 303 | 307 | 308 => Ok(it as u16),
            _ => Err(WireError::Invalid("redirect status")),
        },
    )
}

forms! {
    RedirectTarget {
        /// A whole URL.
        2 url: header_text("location") => Url;
        /// A path on the same scheme and host.
        3 path: header_text("location") => Path;
        /// The URL of the request with parts of it changed.
        4 parts: each::<RedirectParts>() => Parts, since 2;
    }
}

message! {
    /// The changes to the URL of a request.
    RedirectParts, parts {
        /// Empty keeps the scheme of the request.
        1 scheme: string();
        /// Empty keeps the host of the request.
        2 host: header_text("host");
        /// 0 keeps the port of the request, unless scheme or host change.
        3 port: at_most(u16::MAX, "port"), of parts.port.unwrap_or(0);
        4 path: some_of::<RedirectPath>();
        /// Whether the port of the request is kept for another host of the same scheme.
        6 keeps_port: boolean();
    } => {
        if !matches!(&*scheme, "" | "http" | "https") {
            return Err(WireError::Invalid("scheme"));
        }
        RedirectParts { scheme, host, port: (port != 0).then_some(port), path, keeps_port }
    }
}

forms! {
    RedirectPath {
        /// The replacement of the whole path.
        4 whole: header_text("path") => Whole;
        /// The replacement of the part that the path match covers.
        5 matched: header_text("path") => Matched;
    }
}

message! {
    /// A fixed answer.
    Respond {
        1 status: http_status(200..=599, "status");
        2 body: content();
    }
}

/// A body, which many routes may have.
fn content() -> impl Item<Value = [u8], Out = Arc<[u8]>> {
    bytes_as(|raw| raw.bytes().map(shared::body))
}

/// The most of any list in one stream route.
const LIST_MAX: usize = 4_096;

const LENGTH: &str = "length of a list";

message! {
    /// A condition on streams, and the upstreams that they are sent to.
    StreamRoute, stream_route {
        1 listeners: list(resource_name("name"));
        /// Names in handshakes; empty for every connection.
        2 hosts: list_of(LIST_MAX, LENGTH, host_pattern());
        /// CIDR notation; empty for all.
        3 sources: list_of(LIST_MAX, LENGTH, network("address range"));
        4 destinations: list_of(LIST_MAX, LENGTH, network("address range"));
        /// Lower goes first among the stream routes of a host.
        5 rank: uint64();
        6 terminate: boolean();
        /// Without headers.
        7 upstreams: list_of(LIST_MAX, LENGTH, each::<WeightedUpstream>());
        /// 0 for none.
        8 idle_timeout as idle_timeout_ms: milliseconds();
        9 connect_timeout as connect_timeout_ms: positive("connect timeout");
        /// Stream routes of the listener without names, with destinations and of a lower rank go
        /// before it; 0 for none.
        10 behind: uint64();
    } => {
        if upstreams.iter().any(|share: &WeightedUpstream| share.headers.is_some()) {
            return Err(WireError::Invalid("change of headers"));
        }
        if upstreams.iter().any(|share: &WeightedUpstream| share.filters.is_some()) {
            return Err(WireError::Invalid("filter of streams"));
        }
        StreamRoute {
            listeners: listeners.into(),
            hosts: hosts.into(),
            sources: sources.into(),
            destinations: destinations.into(),
            rank,
            behind,
            terminate,
            upstreams: upstreams.into(),
            idle_timeout,
            connect_timeout,
        }
    }
}
