//! Which facts about hosts a DestinationRule touches.
//!
//! A rule for a host touches that host. A rule for a wildcard touches the fact of the wildcard,
//! which every host below it reads. All wildcards that cover every Service of the cluster are one
//! fact to Services, so that a Service reads two facts however long the cluster's domain is.

use myriad_api::istio::DestinationRule;

use super::names;

/// How a rule differs from its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleChange {
    /// Another set of hosts or subsets, or seen by others.
    Shape,
    /// Only what is set for them.
    Settings,
}

/// The differences between two states of a rule.
pub(super) fn rule_change(
    old: Option<&DestinationRule>,
    new: Option<&DestinationRule>,
) -> RuleChange {
    let (Some(old), Some(new)) = (old, new) else {
        return RuleChange::Shape;
    };
    let subsets = |rule: &DestinationRule| {
        let names = rule.spec.subsets.iter().map(|subset| subset.name.clone());
        names.collect::<Vec<_>>()
    };
    let is_same = old.meta.created == new.meta.created
        && old.spec.host == new.spec.host
        && old.spec.export_to == new.spec.export_to
        && old.spec.workload_selector == new.spec.workload_selector
        && subsets(old) == subsets(new);
    match is_same {
        true => RuleChange::Settings,
        false => RuleChange::Shape,
    }
}

/// The suffix of all Services of the cluster.
pub(super) fn cluster_suffix(cluster_domain: &str) -> String {
    format!("svc.{cluster_domain}")
}

/// The patterns of rules that hold for a host, as their facts are named.
pub(super) fn fact_patterns(host: &str, cluster_domain: &str) -> Vec<String> {
    let suffix = cluster_suffix(cluster_domain);
    let is_service = host
        .strip_suffix(&suffix)
        .is_some_and(|rest| rest.ends_with('.'));
    let mut patterns = vec![host.to_owned()];
    for pattern in names::broader_texts(host) {
        // From here on all cover every Service.
        if is_service && pattern.strip_prefix("*.") == Some(&suffix) {
            patterns.push(pattern);
            break;
        }
        patterns.push(pattern);
    }
    patterns
}
