//! The routes of a host, from the rules of the VirtualServices on it.

use std::sync::Arc;

use myriad_api::istio::VirtualService;
use myriad_api::istio::virtual_service::{HttpMatch, HttpRoute};
use myriad_api::{Finding, Severity};
use myriad_model::{
    Action, Draft, Host, Label, Name, Origin, OriginKind, PathMatch, PathReading, Policy, Route,
    Underscores, ValueMatch,
};

use super::beyond::Rest;
use super::delegate::{self, Rule, Text};
use super::entrance::Door;
use super::matching::SourceFit;
use super::narrower::{Narrower, ROUTE_BYTES};
use super::rule_problem::RuleProblem;
use super::scene::{Named, Tenant};
use super::sending::Sending;
use super::weight::DelegatedLeft;
use super::{
    answer, binding, headers, limits, matching, misspelt, narrower, policy, processor, redirect,
    texts,
};
use crate::engine::{Output, Reader};
use crate::regex::{Regexes, TooMany};

/// The rank of a redirect to HTTPS, before every rule.
pub(crate) const REDIRECT_RANK: u64 = 4 << 56;

/// The rank of the first rule: those of Ingresses go before.
const RULE_RANK: u64 = 5 << 56;

/// Rules that take everything go behind those of younger VirtualServices that do not.
const CATCH_ALL_RANK: u64 = 6 << 56;

/// The place of a rule among all of its host.
#[derive(Clone, Copy)]
struct RulePosition {
    tenant: usize,
    rule: usize,
    matched: usize,
}

/// The host that rules are written for.
pub(crate) struct Ground<'a> {
    /// The host, by which limits are told apart.
    pub host: &'a Host,
    /// The hosts of requests that are meant for it.
    pub hosts: Arc<[Host]>,
    /// The name of the host in the names of routes.
    pub label: &'a str,
}

impl<'a> Ground<'a> {
    /// One host of Gateways.
    pub(crate) fn of(host: &'a Host) -> Self {
        Ground {
            host,
            hosts: [host.clone()].into(),
            label: host.as_str(),
        }
    }
}

/// The properties that the routes of one rule share.
struct RuleScene<'a> {
    ground: &'a Ground<'a>,
    tenant: &'a Tenant,
    rule: &'a Rule,
    action: Action,
    policy: Arc<Policy>,
    /// Whether the rules of several VirtualServices meet on the host.
    is_shared: bool,
}

/// Writes the routes of a host.
pub(crate) fn build(
    reader: &mut Reader<'_>,
    ground: &Ground<'_>,
    tenants: &[Tenant],
    narrower: &mut Narrower,
    output: &mut Output,
) {
    // Those that are there by names of handshakes alone have no say on requests.
    let of_requests = tenants.iter().filter(|it| it.named != Named::Sni);
    let is_shared = of_requests.clone().count() > 1;
    let mut regexes = Regexes::new(reader.settings().regexes_per_host);
    for (number, tenant) in of_requests.enumerate() {
        let service = &tenant.service;
        let bounds = reader.settings().bounds_of(service.meta.key.namespace());
        let mut left = DelegatedLeft::of(service, &bounds);
        for (at, root) in service.spec.http.iter().enumerate() {
            let mut rules = match is_delegating(root) {
                false => vec![Rule {
                    service: service.clone(),
                    at,
                    route: Text::Own(service.clone(), at),
                    is_foreign: false,
                }],
                true => delegated(reader, service, (at, root), &mut left, output),
            };
            let taken = narrower.take(reader, (ground.host, tenant), bytes_of(&rules));
            if let Err(max) = taken {
                let field = format!("spec.http[{at}]");
                output
                    .findings
                    .push(narrower::says_too_much(service, &field, max));
                rules = vec![Rule {
                    service: service.clone(),
                    at,
                    route: Text::Merged(Box::default()),
                    is_foreign: false,
                }];
            }
            for rule in &rules {
                let place = RulePosition {
                    tenant: number,
                    rule: at,
                    matched: 0,
                };
                let whole = (ground, tenant, rule);
                add_rule(reader, whole, place, is_shared, &mut regexes, output);
            }
            if taken.is_err() {
                break;
            }
        }
    }
}

/// The bytes of the routes of rules on a host.
fn bytes_of(rules: &[Rule]) -> usize {
    let bytes = rules.iter().map(|rule| {
        let routes = rule.route.matches.len().max(1);
        texts::of_rows(&rule.route).saturating_add(routes * ROUTE_BYTES)
    });
    bytes.fold(0, usize::saturating_add)
}

/// The rules that a rule of a VirtualService delegates to; none where that has no effect.
fn delegated(
    reader: &mut Reader<'_>,
    service: &Arc<VirtualService>,
    (at, root): (usize, &HttpRoute),
    left: &mut DelegatedLeft,
    output: &mut Output,
) -> Vec<Rule> {
    let mut say = |message: String, remedy: &str| {
        let field = format!("spec.http[{at}].delegate");
        let key = &service.meta.key;
        let finding = Finding::new(Severity::Error, key, field, message, remedy);
        output.findings.push(finding);
    };
    match delegate::follow(reader, (service, at), root, left) {
        Ok(followed) => {
            if let Some((problem, remedy)) = followed.problem {
                say(problem, remedy);
            }
            followed.rules
        }
        Err((problem, remedy)) => {
            say(format!("{problem}, so the rule has no effect"), remedy);
            Vec::new()
        }
    }
}

fn takes_all(path: &PathMatch) -> bool {
    match path {
        PathMatch::Prefix(text) => **text == *"/",
        PathMatch::Regex(text) => **text == *"(?:.*)\\z",
        PathMatch::Exact(_) | PathMatch::Start(_) => false,
    }
}

fn is_delegating(route: &HttpRoute) -> bool {
    route
        .rare
        .as_ref()
        .is_some_and(|rare| rare.delegate.is_some())
}

fn add_rule(
    reader: &mut Reader<'_>,
    (ground, tenant, rule): (&Ground<'_>, &Tenant, &Rule),
    place: RulePosition,
    is_shared: bool,
    regexes: &mut Regexes,
    output: &mut Output,
) {
    let mut sending = Sending::of(rule, &tenant.service);
    let mut policy = policy::build(&rule.route, &mut sending.problems);
    let left = headers::EditsLeft::beside(policy.headers.as_deref());
    let mut action = sending.action(reader, left);
    if let Action::Forward(shares) = &mut action {
        policy.mirrors = sending.mirrors(reader);
        sending.keep_client(reader, shares, &mut policy);
    } else {
        // What is never sent on is never sent again either.
        policy = Policy {
            fault: policy.fault,
            cors: policy.cors,
            headers: policy.headers,
            ..Policy::default()
        };
    }
    policy.rate_limits = limits::of_rule(ground.host, rule);
    if matches!(action, Action::Forward(_)) {
        policy.processor = processor::of_rule(rule);
    }
    policy.underscores = reader.settings().underscores(Underscores::Colliding);
    policy.path_reading = PathReading::Base;
    policy.is_foreign = rule.is_foreign;
    policy.is_operators = is_operators(reader, tenant, rule, &action);
    let policy = Arc::new(policy);
    if is_closed(reader, rule) {
        sending.needs.clear();
        action = Action::Forward(Arc::default());
    }
    let Sending {
        problems,
        of_root,
        needs,
        ..
    } = sending;
    tell(&rule.service, rule.at, problems, output);
    tell(&tenant.service, place.rule, of_root, output);
    let scene = RuleScene {
        ground,
        tenant,
        rule,
        action,
        policy,
        is_shared,
    };
    let routes_before = output.routes.count();
    if rule.route.matches.is_empty() {
        scene.push(reader, None, place, regexes, output);
    }
    for (at, matched) in rule.route.matches.iter().enumerate() {
        let place = RulePosition {
            matched: at,
            ..place
        };
        scene.push(reader, Some(matched), place, regexes, output);
    }
    if output.routes.count() > routes_before {
        output.needs.extend(needs);
    }
}

/// Tells of the problems of a rule of an object.
fn tell(service: &VirtualService, rule: usize, problems: Vec<RuleProblem>, output: &mut Output) {
    let findings = problems.into_iter().map(|problem| {
        let field = format!("spec.http[{rule}].{}", problem.field);
        let (key, message, remedy) = (&service.meta.key, problem.message, problem.remedy);
        Finding::new(Severity::Error, key, field, message, remedy)
    });
    output.findings.extend(findings);
}

/// Whether a rule that leads to another namespace's endpoints is the operator's: the gateway itself
/// stands in its namespace, and nobody of another one has a say in it.
fn is_operators(reader: &Reader<'_>, tenant: &Tenant, rule: &Rule, action: &Action) -> bool {
    let namespace = rule.service.meta.key.namespace();
    let Action::Forward(shares) = action else {
        return false;
    };
    let names = shares.iter().map(|share| share.upstream.as_str());
    // Asked only where it matters, since the answer parts views.
    let leads_away = names
        .filter_map(|name| name.split('/').next())
        .any(|it| it != namespace);
    let is_its = !rule.is_foreign && tenant.service.meta.key.namespace() == namespace;
    is_its && leads_away && reader.view().is_of(namespace)
}

/// Whether a rule does what nobody can, so that nothing of it is sent on.
fn is_closed(reader: &Reader<'_>, rule: &Rule) -> bool {
    limits::is_closed(rule)
        || processor::is_closed(rule, reader.settings())
        || policy::is_closed(&rule.route)
        || headers::is_closed(&rule.route)
        || answer::is_closed(&rule.route)
        || redirect::is_closed(&rule.route)
}

impl RuleScene<'_> {
    fn push(
        &self,
        reader: &Reader<'_>,
        matched: Option<&HttpMatch>,
        place: RulePosition,
        regexes: &mut Regexes,
        output: &mut Output,
    ) {
        let fit = self.source_fit(reader, matched);
        if fit == SourceFit::Other {
            return;
        }
        let listeners = self.listeners(matched);
        if listeners.is_empty() {
            return;
        }
        let parts =
            matching::path(matched).and_then(|path| Ok((path, matching::conditions(matched)?)));
        let (path, conditions) = match parts {
            Ok(parts) => parts,
            Err(unfit) => {
                let (rule, at) = (self.rule.at, place.matched);
                output.findings.push(Finding::new(
                    Severity::Error,
                    &self.rule.service.meta.key,
                    format!("spec.http[{rule}].match[{at}].{}", unfit.field),
                    format!("{}, so the match has no effect", unfit.problem),
                    unfit.remedy,
                ));
                return;
            }
        };
        let mut action = match takes_all(&path) && conditions.is_empty() {
            true => self.unless_misspelt(output),
            false => self.action.clone(),
        };
        let mut policy = self.policy.clone();
        let unknown = (fit == SourceFit::Unknown).then(|| self.unknown_source(reader, place));
        if unknown.is_some()
            || matched.is_some_and(|matched| binding::is_beyond(&matched.rare().gateways))
        {
            (action, policy) = (Action::Forward(Arc::default()), self.closed_policy());
        }
        output.findings.extend(unknown);
        let admitted = regexes.admit_all(&path, &conditions, &policy);
        let Err(TooMany(max)) = admitted else {
            let parts = (path, conditions, action, policy);
            self.add(listeners, parts, place, output);
            return;
        };
        let uri = matched.and_then(|matched| matched.uri.as_ref());
        let rest = Rest::of(uri, path, conditions, regexes);
        let is_closed = rest.is_closed(&action, &policy);
        let (rule, at, becomes) = (self.rule.at, place.matched, rest.becomes(is_closed));
        output.findings.push(Finding::new(
            Severity::Error,
            &self.rule.service.meta.key,
            format!("spec.http[{rule}].match[{at}]"),
            format!("has a regex beyond the {max} that a host may have, {becomes}"),
            "write plain prefixes where they do, or raise --regexes-per-host",
        ));
        if is_closed {
            let closed = Action::Forward(Arc::default());
            let parts = (rest.path, rest.conditions, closed, self.closed_policy());
            self.add(listeners, parts, place, output);
        }
    }

    fn add(
        &self,
        listeners: Arc<[Name]>,
        (path, conditions, action, policy): (PathMatch, Vec<ValueMatch>, Action, Arc<Policy>),
        place: RulePosition,
        output: &mut Output,
    ) {
        let route = Route {
            listeners,
            hosts: self.ground.hosts.clone(),
            rank: self.rank(&path, &conditions, place),
            path,
            conditions: conditions.into(),
            action,
            policy,
        };
        let origin_of = |service: &VirtualService| Origin {
            kind: OriginKind::VirtualService,
            id: service.meta.key.id().clone(),
        };
        let (root, host) = (self.tenant.service.meta.key.id(), self.ground.label);
        let draft = Draft {
            origin: origin_of(&self.rule.service),
            label: self.label(),
            rule: u32::try_from(place.rule).unwrap_or(u32::MAX),
            matched: u16::try_from(place.matched).unwrap_or(u16::MAX),
            route,
        };
        let prefix = format!("{root}/{host}/");
        let claimant = origin_of(&self.tenant.service);
        output.routes.add(prefix, claimant, draft);
    }

    /// Whether the workload that is served here is the source that a match names.
    fn source_fit(&self, reader: &Reader<'_>, matched: Option<&HttpMatch>) -> SourceFit {
        let root = self.tenant.service.meta.key.namespace();
        let by = [root, self.rule.service.meta.key.namespace()];
        matched.map_or(SourceFit::Fits, |it| matching::source(it, by, reader))
    }

    fn unknown_source(&self, reader: &Reader<'_>, place: RulePosition) -> Finding {
        let (rule, at) = (self.rule.at, place.matched);
        let field = format!("spec.http[{rule}].match[{at}].sourceLabels");
        matching::unknown_source(reader, &self.rule.service.meta.key, field)
    }

    /// The policy of what is never sent on, with none of the regexes of the rule.
    fn closed_policy(&self) -> Arc<Policy> {
        Arc::new(Policy {
            underscores: self.policy.underscores,
            path_reading: self.policy.path_reading,
            ..Policy::default()
        })
    }

    /// The action of a rule that takes every request; no endpoint at all where that is most likely
    /// for a condition that was misspelt.
    fn unless_misspelt(&self, output: &mut Output) -> Action {
        let service = &self.rule.service;
        let Some(note) = misspelt::lost_condition(service, self.rule.at) else {
            return self.action.clone();
        };
        output.findings.push(misspelt::finding(service, note));
        Action::Forward(Arc::default())
    }

    /// The delegate and its rule, between the places of rule and match, where there is one.
    fn label(&self) -> Label {
        let root = self.tenant.service.meta.key.id();
        let own = self.rule.service.meta.key.id();
        Label::Rule(match own == root {
            true => Box::default(),
            false => format!(">{own}/{}", self.rule.at).into(),
        })
    }

    /// The rank of all rules of a VirtualService, but for those that take everything. Their order
    /// is that in which they are added, so that no rank tells how many go before.
    fn rank(&self, path: &PathMatch, conditions: &[ValueMatch], place: RulePosition) -> u64 {
        let class = match self.is_shared && takes_all(path) && conditions.is_empty() {
            true => CATCH_ALL_RANK,
            false => RULE_RANK,
        };
        class | (place.tenant as u64).min((1 << 12) - 1) << 44
    }

    /// The listeners of the entrances that a match admits, sorted.
    fn listeners(&self, matched: Option<&HttpMatch>) -> Arc<[Name]> {
        let own = self.rule.service.meta.key.namespace();
        let port = matched.map_or(0, |matched| matched.port);
        let gateways = matched.map_or(&[][..], |matched| &matched.rare().gateways);
        let ways = self.tenant.ways(gateways, own).filter(|way| {
            // What a redirecting server lets by was HTTPS at a balancer in front.
            let is_open = matches!(way.door, Door::Plain | Door::ToTls | Door::Tls);
            is_open && (port == 0 || port == way.port)
        });
        let mut listeners: Vec<Name> = ways.map(|way| way.listener.clone()).collect();
        listeners.sort_unstable();
        listeners.dedup();
        listeners.into()
    }
}
