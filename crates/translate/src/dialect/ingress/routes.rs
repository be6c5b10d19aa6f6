//! The routes of a host, from its table of paths.

use std::sync::Arc;

use myriad_api::{BackendPort, Finding, IngressBackend, Severity};
use myriad_model::{
    Action, Draft, HeaderEdits, Host, Label, Name, PathMatch, Policy, Redirect, RedirectParts,
    RedirectTarget, Respond, Route, ValueMatch, WeightedUpstream,
};

use super::annotations::{Blocked, Options, values};
use super::canary::{self, Share};
use super::claimant::Claimant;
use super::error_pages::error_pages;
use super::inquiry::Inquired;
use super::mirror::mirror;
use super::paths::{self, APP_ROOT_RANK, DEFAULT_RANK};
use super::policy::{self, HostFacts};
use super::table::{PathEntry, Spot, Table};
use crate::engine::{Output, Reader, Unit};
use crate::resolve::upstream::{self, PortFound};

/// The body of the answer of paths that have to stay closed.
const CLOSED: &str = "closed: what restricts this path cannot be honoured\n";

/// The rank of the redirect from a name with `www.` or without it, after every path.
const LED_RANK: u64 = DEFAULT_RANK + (1 << 56);

/// The settings that all routes of a host have in common.
pub(super) struct RouteScene<'a> {
    /// The host.
    pub host: &'a Host,
    /// The Ingresses on it.
    pub claimants: &'a [Claimant],
    /// The changes of each to headers.
    pub headers: &'a [Option<Box<HeaderEdits>>],
    /// The service that each has asked about its requests.
    pub inquiries: &'a [Inquired],
    /// The part of policies that the host adds.
    pub facts: HostFacts<'a>,
    /// Whether all of its paths have to stay closed.
    pub is_blocked: bool,
    /// The listeners of every route.
    pub listeners: &'a Arc<[Name]>,
}

/// The properties that the routes of one path share.
struct PathScene<'a> {
    scene: &'a RouteScene<'a>,
    claimant: &'a Claimant,
    path: PathMatch,
    /// The start of the names of its routes, and the end.
    word: &'a str,
    rank: &'a dyn Fn(u8) -> u64,
    policy: Arc<Policy>,
}

/// Writes the routes of a host.
pub(super) fn build(
    reader: &mut Reader<'_>,
    scene: &RouteScene<'_>,
    table: &Table<'_>,
    output: &mut Output,
) {
    if let Some(claimant) = table.app_root.and_then(|at| scene.claimants.get(at)) {
        add_app_root(scene, claimant, output);
    }
    for (path, entry) in &table.paths {
        let rank = |order| paths::rank(path, order);
        add_path(
            reader,
            scene,
            entry,
            path,
            paths::kind_word(path),
            &rank,
            output,
        );
    }
    if let Some(entry) = &table.default {
        let path = PathMatch::Prefix("/".into());
        let rank = |order| DEFAULT_RANK + u64::from(order);
        add_path(reader, scene, entry, &path, "default", &rank, output);
    }
    let mut mains = scene.claimants.iter().filter(|known| !known.is_canary());
    let led = mains.find_map(|known| Some((known, known.ingress.led_to(scene.host)?)));
    if let Some((claimant, to)) = led {
        add_led(scene, claimant, &to, output);
    }
}

/// Adds the redirect of what no path of the host takes to its name with `www.`, or without it. The
/// scheme stays, so that the host there says whether it has to be HTTPS.
fn add_led(scene: &RouteScene<'_>, claimant: &Claimant, to: &Host, output: &mut Output) {
    let options = Options {
        ssl_redirect: false,
        ..Options::default()
    };
    let action = Action::Redirect(Arc::new(Redirect {
        status: 308,
        target: RedirectTarget::Parts(Box::new(RedirectParts {
            host: to.as_str().into(),
            keeps_port: true,
            ..RedirectParts::default()
        })),
    }));
    // It tells nothing but the other name, for which clients are asked there.
    let facts = HostFacts {
        demand: None,
        ..scene.facts
    };
    let path_scene = PathScene {
        scene,
        claimant,
        policy: Arc::new(policy::build(&options, facts, "/")),
        path: PathMatch::Prefix("/".into()),
        word: "www",
        rank: &|_| LED_RANK,
    };
    path_scene.push_open(action, output);
}

fn add_app_root(scene: &RouteScene<'_>, claimant: &Claimant, output: &mut Output) {
    let Some(target) = &claimant.options.app_root else {
        return;
    };
    let path = PathMatch::Exact("/".into());
    let action = Action::Redirect(Arc::new(Redirect {
        status: 302,
        target: RedirectTarget::Path(target.clone()),
    }));
    let path_scene = PathScene {
        scene,
        claimant,
        policy: Arc::new(policy::build(&claimant.options, scene.facts, "/")),
        path,
        word: "app-root",
        rank: &|_| APP_ROOT_RANK,
    };
    path_scene.push_open(action, output);
}

fn add_path(
    reader: &mut Reader<'_>,
    scene: &RouteScene<'_>,
    entry: &PathEntry<'_>,
    path: &PathMatch,
    word: &str,
    rank: &dyn Fn(u8) -> u64,
    output: &mut Output,
) {
    let Some(claimant) = scene.claimants.get(entry.main.claimant) else {
        return;
    };
    let (policy, fixed) = govern(reader, scene, claimant, (entry, path), output);
    let path_scene = PathScene {
        scene,
        claimant,
        policy: Arc::new(policy),
        path: path.clone(),
        word,
        rank,
    };
    if let Some(action) = fixed {
        path_scene.push("", Box::default(), 0, action, output);
        return;
    }
    let main = resolve(reader, claimant, &entry.main, output);
    let canary = entry.canary.as_ref().and_then(|spot| {
        let claimant = scene.claimants.get(spot.claimant)?;
        let canary = claimant.options.canary.as_ref()?;
        // A canary that has to stay closed leaves its share to the main Ingress.
        let is_open = claimant.options.blocked == Blocked::No;
        let upstream = is_open.then(|| resolve(reader, claimant, spot, output));
        Some((canary, upstream.flatten()?))
    });
    let Some((canary, other)) = canary else {
        let action = Action::Forward(main.into_iter().collect());
        path_scene.push("", Box::default(), 0, action, output);
        return;
    };
    for (order, share) in canary::divide(canary).into_iter().enumerate() {
        let Share {
            word,
            conditions,
            target,
        } = share;
        let upstreams = canary::weigh(target, canary, main.as_ref(), Some(&other));
        let order = u8::try_from(order).unwrap_or(u8::MAX);
        let action = Action::Forward(upstreams);
        path_scene.push(word, conditions.into(), order, action, output);
    }
}

/// The policy of a path, and the action that it has whatever its backend is, if there is one:
/// nothing is forwarded where a policy cannot be obeyed.
fn govern(
    reader: &mut Reader<'_>,
    scene: &RouteScene<'_>,
    claimant: &Claimant,
    (entry, path): (&PathEntry<'_>, &PathMatch),
    output: &mut Output,
) -> (Policy, Option<Action>) {
    let options = &claimant.options;
    let cookie_path = match path {
        PathMatch::Exact(text) | PathMatch::Prefix(text) | PathMatch::Start(text) => text,
        PathMatch::Regex(_) => "/",
    };
    let headers = scene.headers.get(entry.main.claimant);
    let mut policy = policy::build(options, scene.facts, cookie_path);
    policy.headers = headers.cloned().flatten();
    // A redirect goes before passwords, as in nginx: it says nothing of what is behind.
    let basic = match options.redirect {
        Some(_) => None,
        None => options.basic.as_ref(),
    };
    let meta = &claimant.ingress.meta;
    let inquired = scene.inquiries.get(entry.main.claimant);
    let is_obeyed = basic.is_none_or(|it| it.apply(reader, meta, &mut policy, output))
        && inquired.is_none_or(|it| it.apply(options, path, &mut policy));
    let asked = policy.inquiry.iter();
    let asked = asked.map(|inquiry| inquiry.upstream.text().clone());
    output.needs.extend(asked.map(Unit::upstream));
    let fixed = match is_obeyed {
        true => fixed_action(scene, entry, options),
        false => Some(closed()),
    };
    if let Some(copies) = options.copies.as_deref().filter(|_| fixed.is_none()) {
        let mirrors = mirror(reader, claimant, copies, output);
        policy.mirrors = mirrors.into_iter().collect();
    }
    if let Some(errors) = options.errors.as_deref().filter(|_| fixed.is_none()) {
        let whose = (errors, entry.main.backend);
        policy.error_pages = error_pages(reader, claimant, whose, output);
    }
    (policy, fixed)
}

/// The action that holds whatever the backend is: nothing that has to stay closed is forwarded, and
/// redirects and own answers need no backend.
fn fixed_action(
    scene: &RouteScene<'_>,
    entry: &PathEntry<'_>,
    options: &Options,
) -> Option<Action> {
    if scene.is_blocked || entry.is_closed || options.blocked != Blocked::No {
        return Some(closed());
    }
    if let Some((status, location)) = &options.redirect {
        let target = match values::kept_location(location) {
            Some((scheme, host, port)) => RedirectTarget::Parts(Box::new(RedirectParts {
                scheme: scheme.into(),
                host: host.into(),
                port,
                ..RedirectParts::default()
            })),
            None if location.starts_with('/') => RedirectTarget::Path(location.clone()),
            None => RedirectTarget::Url(location.clone()),
        };
        let status = *status;
        return Some(Action::Redirect(Arc::new(Redirect { status, target })));
    }
    let (status, body) = options.respond.as_ref()?;
    Some(Action::Respond(Box::new(Respond {
        status: *status,
        body: body.as_bytes().into(),
    })))
}

impl PathScene<'_> {
    /// Adds a route without conditions, closed where the paths of its Ingress have to be.
    fn push_open(&self, action: Action, output: &mut Output) {
        let is_closed = self.scene.is_blocked || self.claimant.options.blocked != Blocked::No;
        let action = if is_closed { closed() } else { action };
        self.push("", Box::default(), 0, action, output);
    }

    fn push(
        &self,
        word: &str,
        conditions: Box<[ValueMatch]>,
        order: u8,
        action: Action,
        output: &mut Output,
    ) {
        let id = self.claimant.ingress.meta.key.id();
        let host = self.scene.host;
        if let Action::Forward(targets) = &action {
            let upstreams = targets.iter().map(|target| target.upstream.text().clone());
            output.needs.extend(upstreams.map(Unit::upstream));
        }
        let route = Route {
            listeners: self.scene.listeners.clone(),
            hosts: [host.clone()].into(),
            path: self.path.clone(),
            conditions,
            rank: (self.rank)(order),
            action,
            policy: self.policy.clone(),
        };
        let draft = Draft {
            origin: self.claimant.origin(),
            label: Label::Path(format!("{}{word}", self.word).into()),
            rule: 0,
            matched: 0,
            route,
        };
        let prefix = format!("{id}/{host}/");
        output.routes.add(prefix, self.claimant.origin(), draft);
    }
}

/// The answer of paths that have to stay closed.
fn closed() -> Action {
    Action::Respond(Box::new(Respond {
        status: 503,
        body: CLOSED.as_bytes().into(),
    }))
}

/// The upstream of a backend; none, with a finding, where there is none.
fn resolve(
    reader: &mut Reader<'_>,
    claimant: &Claimant,
    spot: &Spot<'_>,
    output: &mut Output,
) -> Option<WeightedUpstream> {
    let (name, port) = match spot.backend {
        IngressBackend::Service { name, port } => (name, port),
        IngressBackend::Resource { kind, name } => {
            let message = format!("names {kind} {name}, and only Services can be backends");
            let finding = problem(claimant, spot, "resource", message, "name a Service");
            output.findings.push(finding);
            return None;
        }
    };
    let id = format!("{}/{name}", claimant.namespace());
    let finding = match reader.service_port(&id, port) {
        PortFound::Listed(number) | PortFound::Implied(number) => {
            let options = &claimant.options;
            let name = upstream::name(&id, number, options.protocol);
            let name = match &options.hash_by {
                Some(by) => upstream::hashed_name(&name, by),
                None => name,
            };
            return Some(WeightedUpstream {
                upstream: Name::new(name),
                weight: 1,
                headers: None,
                filters: None,
            });
        }
        PortFound::NoService => {
            let message = format!("names Service {id}, which is not there");
            let remedy = "create the Service, or correct the name";
            problem(claimant, spot, "service.name", message, remedy)
        }
        PortFound::NoPort => {
            let port = match port {
                BackendPort::Number(number) => number.to_string(),
                BackendPort::Name(name) => name.to_string(),
            };
            let message = format!("names port {port}, which Service {id} does not have for TCP");
            let remedy = "name a port of the Service's spec.ports by its number or name";
            problem(claimant, spot, "service.port", message, remedy)
        }
    };
    output.findings.push(finding);
    None
}

fn problem(
    claimant: &Claimant,
    spot: &Spot<'_>,
    field: &str,
    message: String,
    remedy: &str,
) -> Finding {
    Finding::new(
        Severity::Error,
        &claimant.ingress.meta.key,
        format!("{}.{field}", spot.field),
        format!("{message}, so its requests get 503"),
        remedy,
    )
}
