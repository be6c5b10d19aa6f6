//! Which DestinationRules hold for a host, and what they add up to for one of its ports.

use std::sync::Arc;

use myriad_api::Finding;
use myriad_api::istio::destination_rule::{Subset, TrafficPolicy};
use myriad_api::istio::{DestinationRule, Labels};
use myriad_api::{ObjectKey, Severity};

use super::merged::{Merged, of_port};
use super::notes::notes;
use super::subset::Rank;
use super::{client_tls, names, options, policy_texts};
use crate::engine::{Output, Reader, Viewpoint};
use crate::settings::{Bounds, SELECTOR_LABELS_MAX};

/// The DestinationRules that hold for a host, the oldest first; empty where nobody wrote one.
#[derive(Default)]
pub(crate) struct HostRules {
    rules: Vec<Arc<DestinationRule>>,
    /// The subsets that are defined, from the first of the oldest rule on.
    subsets_max: usize,
}

/// The outcome of the search for a subset that a destination names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubsetFound {
    /// A rule defines it.
    Defined,
    /// No rule does.
    Unknown,
    /// It is none of those that are defined, and rules have more than so many.
    Beyond(usize),
}

/// The policy of one port of a host, or of a subset of it.
pub(crate) struct Choice<'a> {
    /// The labels of the subset; none for all endpoints.
    pub labels: Option<&'a Labels>,
    /// The place of the subset; none for all endpoints.
    rank: Option<Rank>,
    /// The parts that the rules set.
    pub policy: Merged<'a>,
}

/// The rules that hold for a host of a namespace. As Istio's clients look for them: those of the
/// view's namespace, what the host's own namespace exports to the view, and what the root namespace
/// exports to it. Of the root namespace, a view of it sees first what it keeps to itself alone.
pub(crate) fn find(reader: &mut Reader<'_>, host: &str, namespace: &str) -> Arc<HostRules> {
    reader.note_rules(host);
    look_up(reader, host, namespace)
}

/// Whether the rules that hold for a host of a namespace define a subset.
pub(crate) fn find_subset(
    reader: &mut Reader<'_>,
    host: &str,
    namespace: &str,
    subset: &str,
) -> SubsetFound {
    reader.note_subsets(host);
    look_up(reader, host, namespace).find_subset(subset)
}

fn look_up(reader: &mut Reader<'_>, host: &str, namespace: &str) -> Arc<HostRules> {
    // Every upstream of every Ingress asks, by each pattern in each namespace.
    if !reader.has_rules() {
        return Arc::default();
    }
    reader.host_rules((host, namespace), |reader| search(reader, host, namespace))
}

fn search(reader: &mut Reader<'_>, host: &str, namespace: &str) -> HostRules {
    let settings = reader.settings();
    let subsets_max = settings.bounds.subsets_max();
    let (view, root) = (reader.view(), settings.root_namespace());
    let mut patterns = vec![host.to_owned()];
    patterns.extend(names::broader_texts(host));
    for pattern in &patterns {
        let mut rules = reader.own_rules(pattern);
        let is_root = !rules.is_empty() && view.is_of(root);
        rules.retain(|rule| match is_root {
            true => matches!(&*rule.spec.export_to, [only] if &**only == "."),
            false => view.sees(&rule.spec.export_to, rule.meta.key.namespace()),
        });
        if !rules.is_empty() {
            let rules = select(rules, view);
            return HostRules { rules, subsets_max };
        }
    }
    // The root namespace may be the view's own, which was asked for what it keeps to itself.
    let levels = [Some(namespace).filter(|it| *it != root), Some(root)];
    for level in levels.into_iter().flatten() {
        for pattern in &patterns {
            let mut rules = reader.rules(level, pattern);
            rules.retain(|rule| view.sees(&rule.spec.export_to, level));
            if !rules.is_empty() {
                let rules = select(rules, view);
                return HostRules { rules, subsets_max };
            }
        }
    }
    HostRules::default()
}

/// The problems of a DestinationRule alone.
pub(crate) fn judge(reader: &mut Reader<'_>, rule: &DestinationRule) -> Output {
    let mut output = Output::default();
    let key = &rule.meta.key;
    output.findings = notes(key, &rule.notes);
    output
        .findings
        .extend(names::judge_exports(key, &rule.spec.export_to));
    output
        .findings
        .extend(judge_labels(key, &rule.spec.subsets));
    let subsets_max = reader.settings().bounds.subsets_max();
    if rule.spec.subsets.len() > subsets_max {
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            format!("spec.subsets[{subsets_max}]"),
            format!(
                "is beyond the {subsets_max} subsets that a host may have, so it is not defined, \
                 nor are those behind it"
            ),
            format!("remove subsets, or raise --bound host-subsets={subsets_max}"),
        ));
    }
    let mut policies: Vec<(String, &TrafficPolicy)> = Vec::new();
    if let Some(policy) = rule.spec.traffic_policy.as_deref() {
        policies.push(("spec.trafficPolicy".to_owned(), policy));
    }
    for (at, subset) in rule.spec.subsets.iter().enumerate() {
        if let Some(policy) = subset.traffic_policy.as_deref() {
            policies.push((format!("spec.subsets[{at}].trafficPolicy"), policy));
        }
    }
    for (field, policy) in policies {
        judge_policy(reader, key, &field, policy, &mut output);
    }
    output
}

/// The problem of a subset with more labels than a workload can be asked for.
fn judge_labels(key: &ObjectKey, subsets: &[Subset]) -> Option<Finding> {
    let is_beyond = |subset: &Subset| subset.labels.len() > SELECTOR_LABELS_MAX;
    let at = subsets.iter().position(is_beyond)?;
    Some(Finding::new(
        Severity::Error,
        key,
        format!("spec.subsets[{at}].labels"),
        format!(
            "are more than {SELECTOR_LABELS_MAX}, so the subset has no endpoint, and its routes \
             answer 503"
        ),
        "choose its Pods by fewer labels",
    ))
}

impl HostRules {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether any rule defines a subset.
    fn find_subset(&self, name: &str) -> SubsetFound {
        if self.subsets().any(|known| *known.name == *name) {
            SubsetFound::Defined
        } else if self.subsets_written() > self.subsets_max {
            SubsetFound::Beyond(self.subsets_max)
        } else {
            SubsetFound::Unknown
        }
    }

    /// The subsets that are defined, the oldest first.
    fn subsets(&self) -> impl Iterator<Item = &Subset> {
        self.places().map(|(.., subset)| subset)
    }

    /// The same, each with its rule and its place in it.
    fn places(&self) -> impl Iterator<Item = (&DestinationRule, usize, &Subset)> {
        let all = self.rules.iter().flat_map(|rule| {
            let subsets = rule.spec.subsets.iter().enumerate();
            subsets.map(move |(at, subset)| (&**rule, at, subset))
        });
        all.take(self.subsets_max)
    }

    fn subsets_written(&self) -> usize {
        self.rules.iter().map(|rule| rule.spec.subsets.len()).sum()
    }

    /// The policy of a port of a subset, or of all endpoints where its name is empty; `None` where
    /// no rule defines the subset. The oldest rule that says something wins.
    pub(crate) fn choose(
        &self,
        reader: &mut Reader<'_>,
        subset: &str,
        port: u16,
    ) -> Option<Choice<'_>> {
        let policy = self.policy(reader, port);
        if subset.is_empty() {
            return Some(Choice {
                labels: None,
                rank: None,
                policy,
            });
        }
        let mut subsets = self.places().enumerate();
        let found = subsets.find(|(_, (.., known))| *known.name == *subset)?;
        let (before, (rule, at, found)) = found;
        let count = self.subsets_written().min(self.subsets_max);
        Some(Choice {
            labels: Some(&found.labels),
            rank: Some(Rank { before, count }),
            policy: of_subset(reader, policy, (rule, at, found), port),
        })
    }

    /// The policy of a port for all endpoints: that of the oldest rule which has one.
    fn policy(&self, reader: &mut Reader<'_>, port: u16) -> Merged<'_> {
        let mut rules = self.rules.iter();
        let top = rules.find_map(|rule| Some((rule, rule.spec.traffic_policy.as_deref()?)));
        let unset = Merged {
            namespace: self.namespace(),
            ..Merged::default()
        };
        top.map_or(unset, |(rule, policy)| {
            let place = reader.port_place(rule, None, port);
            let port = place.and_then(|at| policy.port_level_settings.get(at));
            unset.overlay(policy, port)
        })
    }

    /// The namespace of the rules: those that hold are of one place where rules are looked for.
    pub(crate) fn namespace(&self) -> &str {
        let first = self.rules.first();
        first.map_or("", |rule| rule.meta.key.namespace())
    }

    /// The most bytes that an upstream of a port takes for the texts of its policy: of one of the
    /// subsets, or of that for all endpoints. `names` are those of the host's ServiceEntry.
    pub(crate) fn text_bytes(
        &self,
        reader: &mut Reader<'_>,
        (port, is_subset): (u16, bool),
        names: &[Box<str>],
    ) -> usize {
        let policy = self.policy(reader, port);
        let of_all = policy_texts::bytes(&policy, names);
        let own = self.places().filter(|_| is_subset);
        let own = own.filter(|(.., subset)| subset.traffic_policy.is_some());
        let of_subsets = own.map(|place| {
            let policy = of_subset(reader, policy, place, port);
            policy_texts::bytes(&policy, names)
        });
        of_subsets.fold(of_all, usize::max)
    }
}

/// The policy of a subset, in place of that for all endpoints.
fn of_subset<'a>(
    reader: &mut Reader<'_>,
    policy: Merged<'a>,
    (rule, at, subset): (&'a DestinationRule, usize, &'a Subset),
    port: u16,
) -> Merged<'a> {
    match subset.traffic_policy.as_deref() {
        Some(own) => {
            let place = reader.port_place(rule, Some(at), port);
            policy.overlay(own, place.and_then(|at| own.port_level_settings.get(at)))
        }
        None => policy,
    }
}

impl Choice<'_> {
    /// The endpoints that it may have, of a host that has so many; one that has more has none.
    pub(crate) fn room(&self, endpoints: usize, bounds: &Bounds) -> usize {
        let rank = self.rank;
        rank.map_or(usize::MAX, |it| it.room(endpoints, bounds.subset_endpoints))
    }
}

/// The rules for one host that hold: those for the gateway's workload alone where there are any,
/// else those for all. A selector means workloads of the rule's own namespace.
fn select(mut rules: Vec<Arc<DestinationRule>>, view: &Viewpoint<'_>) -> Vec<Arc<DestinationRule>> {
    rules.sort_unstable_by(|left, right| {
        let place = |rule: &DestinationRule| (rule.meta.created, rule.meta.key.clone());
        place(left).cmp(&place(right))
    });
    let is_chosen = |rule: &DestinationRule| {
        let selector = rule.spec.workload_selector.as_ref();
        selector.is_some_and(|selector| {
            view.is_of(rule.meta.key.namespace()) && view.has_labels(&selector.match_labels)
        })
    };
    if rules.iter().any(|rule| is_chosen(rule)) {
        rules.retain(|rule| is_chosen(rule));
    } else {
        rules.retain(|rule| rule.spec.workload_selector.is_none());
    }
    rules
}

fn judge_policy(
    reader: &mut Reader<'_>,
    key: &ObjectKey,
    field: &str,
    policy: &TrafficPolicy,
    output: &mut Output,
) {
    let mut parts = vec![(String::new(), Merged::default().overlay(policy, None))];
    for (at, port) in policy.port_level_settings.iter().enumerate() {
        parts.push((format!("portLevelSettings[{at}]."), of_port(port)));
    }
    let mut problems = Vec::new();
    for (prefix, part) in parts {
        let mut own = Vec::new();
        options::build(&part, &reader.settings().bounds, &mut own);
        if let Some(tls) = part.tls {
            client_tls::judge(reader, tls, key.namespace(), &mut own);
        }
        problems.extend(own.into_iter().map(|mut problem| {
            problem.field.insert_str(0, &prefix);
            problem
        }));
    }
    for problem in problems {
        let severity = match problem.is_error {
            true => Severity::Error,
            false => Severity::Warning,
        };
        let field = format!("{field}.{}", problem.field);
        let finding = Finding::new(severity, key, field, problem.message, problem.remedy);
        output.findings.push(finding);
    }
}
