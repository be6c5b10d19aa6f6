//! The rules of HTTPRoutes and GRPCRoutes, as routes of requests.
//!
//! A rule is read into a plan, of which nothing depends on the view. From the plan follow the
//! routes at each group of sections, and what is wrong with the object. What cannot be honoured
//! refuses its requests, so that no rule of less precedence lets them through.

mod authorizer;
mod backends;
mod cors;
mod fault;
mod filters;
mod headers;
mod judging;
mod kit;
mod matching;
mod methods;
mod mirror;
mod plan;
mod rank;
mod redirect;
mod rewrite;
mod session;
mod timing;
pub(crate) mod weight;
mod written;

use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::gateway::BackendRef;
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::{Draft, Host, Label, Name, Origin, Route, Underscores};

use super::backend::{self, BackendAsker};
use super::backend_problem::BackendUse;
use super::judgement::Judgement;
use super::tenants::{Mesh, RouteObject, RouteTenant};
use crate::engine::{Output, Reader};
use crate::regex::Regexes;
use kit::RuleKit;
use plan::PlannedRule;
use redirect::PORTS_MAX;
use written::WrittenRule;

/// Adds the routes of an HTTPRoute or a GRPCRoute at a group of sections, and names the upstreams
/// that they need. What is wrong with its rules [`judge`] says.
pub(crate) fn build(reader: &mut Reader<'_>, tenant: &RouteTenant, output: &mut Output) {
    let key = tenant.route.key();
    let asking = BackendAsker {
        gateway: tenant.gateway.as_ref(),
        mesh: tenant.mesh.as_ref(),
    };
    let mut rules = plan_all(reader, &tenant.route, asking);
    for rule in &mut rules {
        rule.policy.is_operators = is_operators(reader, key.namespace(), rule);
    }
    let group = RouteGroup {
        prefix: tenant.prefix(),
        origin: tenant.route.origin(),
        created: tenant.route.meta().created,
        hosts: &tenant.hosts,
        listeners: tenant.listeners(),
        by_port: by_port(tenant),
    };
    for (number, rule) in rules.into_iter().enumerate() {
        if tenant.gateway.is_some() && group.keeps_ports(&rule) {
            let finding = many_ports(key, number, group.by_port.len());
            output.findings.push(finding);
        }
        group.add(number, rule, output);
    }
}

/// The finding about a redirect without a port at more ports than each have rows of their own.
fn many_ports(key: &ObjectKey, number: usize, count: usize) -> Finding {
    Finding::new(
        Severity::Warning,
        key,
        format!("spec.rules[{number}]"),
        format!(
            "leads clients to the port of the listener, of which there are {count}, more than \
             {PORTS_MAX}: they are led to the port that their requests name"
        ),
        "name a port or a scheme, or sections of the parent with fewer ports",
    )
}

/// Says what is wrong with the rules of an object, whoever its parents are: at gateways, or in the
/// mesh at a Service. Nothing of it depends on the view.
pub(crate) fn judge(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    mesh: Option<&Mesh>,
) -> Judgement {
    let asking = BackendAsker {
        gateway: None,
        mesh,
    };
    judging::judge(route.key(), &plan_all(reader, route, asking))
}

/// Reads all rules of an object.
fn plan_all(
    reader: &mut Reader<'_>,
    route: &RouteObject,
    asking: BackendAsker<'_>,
) -> Vec<PlannedRule> {
    let (settings, key) = (reader.settings(), route.key());
    // The operator answers for all endpoints, and a sidecar has its workload for its only client.
    let is_own = asking.mesh.is_some() || *settings.gateway_namespace == *key.namespace();
    let mut find = |reference: &BackendRef, used: BackendUse| {
        backend::resolve(reader, key, reference, used, asking)
    };
    let mut kit = RuleKit {
        find: &mut find,
        namespace: key.namespace(),
        cluster_domain: &settings.cluster_domain,
        underscores: settings.underscores(Underscores::Colliding),
        regexes: Regexes::new(settings.regexes_per_host),
    };
    let rules = WrittenRule::all(route).into_iter().enumerate();
    let rules = rules.map(|(number, rule)| {
        let name = rule.name.map_or_else(|| number.to_string(), str::to_owned);
        let seed = format!("{}/{}/{name}", route.word(), key.id());
        let mut planned = plan::read(&rule, &seed, &mut kit);
        if !is_own {
            planned.keep_client(key.namespace());
        }
        planned
    });
    rules.collect()
}

/// The sections of a tenant by their ports, each list sorted.
fn by_port(tenant: &RouteTenant) -> BTreeMap<u16, Arc<[Name]>> {
    let mut by_port: BTreeMap<u16, Vec<Name>> = BTreeMap::new();
    for section in &tenant.sections {
        let names = by_port.entry(section.port).or_default();
        names.push(section.name.clone());
    }
    let by_port = by_port.into_iter();
    by_port.map(|(port, names)| (port, names.into())).collect()
}

/// Whether a rule that leads to another namespace's endpoints is the operator's: the gateway itself
/// stands in its namespace.
fn is_operators(reader: &Reader<'_>, namespace: &str, rule: &PlannedRule) -> bool {
    let upstreams = rule.action.upstreams();
    let mut owners = upstreams.filter_map(|name| name.split('/').next());
    // Asked only where it matters, since the answer parts views.
    let leads_away = owners.any(|owner| owner != namespace);
    leads_away && reader.view().is_of(namespace)
}

/// The routes of an object at a group of sections.
struct RouteGroup<'a> {
    /// The start of their names.
    prefix: String,
    origin: Origin,
    /// The age of the object.
    created: i64,
    hosts: &'a Arc<[Host]>,
    /// The names of all sections, sorted.
    listeners: Arc<[Name]>,
    /// The names of the sections with each port.
    by_port: BTreeMap<u16, Arc<[Name]>>,
}

impl RouteGroup<'_> {
    /// Whether a rule leads clients to the port of the listener, of which there are too many.
    fn keeps_ports(&self, rule: &PlannedRule) -> bool {
        rule.action.is_by_port() && self.by_port.len() > PORTS_MAX
    }

    /// Adds the routes of a rule. Where it leads clients to the port of the listener, there are
    /// some for each port, unless there are too many.
    fn add(&self, number: usize, rule: PlannedRule, output: &mut Output) {
        let name = rule.name.as_ref().map(|name| format!(":{name}"));
        let name = name.unwrap_or_default();
        let is_by_port = rule.action.is_by_port() && !self.keeps_ports(&rule);
        let places: Vec<(Option<u16>, Arc<[Name]>, String)> = match is_by_port {
            true => {
                let by_port = self.by_port.iter();
                let place = |(port, listeners): (&u16, &Arc<[Name]>)| {
                    (Some(*port), listeners.clone(), format!("{name}@{port}"))
                };
                by_port.map(place).collect()
            }
            false => vec![(None, self.listeners.clone(), name)],
        };
        let places: Vec<_> = places
            .into_iter()
            .map(|(port, listeners, label)| (rule.action.at(port), listeners, label))
            .collect();
        let policy = Arc::new(rule.policy);
        let before = output.routes.count();
        for matched in rule.matches {
            for (action, listeners, label) in &places {
                let route = Route {
                    listeners: listeners.clone(),
                    hosts: self.hosts.clone(),
                    path: matched.taken.path.clone(),
                    conditions: matched.taken.conditions.clone().into(),
                    rank: rank::rank(matched.taken.precedence, self.created),
                    action: action.clone(),
                    policy: policy.clone(),
                };
                let draft = Draft {
                    origin: self.origin.clone(),
                    label: Label::Rule(label.as_str().into()),
                    rule: u32::try_from(number).unwrap_or(u32::MAX),
                    matched: matched.number,
                    route,
                };
                let prefix = self.prefix.clone();
                output.routes.add(prefix, self.origin.clone(), draft);
            }
        }
        if output.routes.count() > before {
            output.needs.extend(rule.needs);
        }
    }
}

#[cfg(test)]
mod tests;
