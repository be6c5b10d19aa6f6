//! A DestinationRule's preference among endpoints by locality. The proxy knows where it is itself.

use myriad_api::istio::destination_rule::balancer::{LoadBalancer, LocalityBalancer};
use myriad_model::{LocalityLevel, LocalityPart, LocalityRule, LocalityShares};

use super::policy_problem::{PolicyProblem, warn};
use super::policy_texts::{LOCALITIES_BYTES_MAX, are_localities};

/// The labels of a locality, as Kubernetes and Istio name them.
const LABELS: [(&str, LocalityLevel); 3] = [
    ("topology.kubernetes.io/region", LocalityLevel::Region),
    ("topology.kubernetes.io/zone", LocalityLevel::Zone),
    ("topology.istio.io/subzone", LocalityLevel::Subzone),
];

/// Which endpoints go first. Where endpoints are spared that do not answer, the near ones do, as
/// Istio's own mesh settings have it; without that none would ever yield to those farther away.
pub(super) fn build(
    written: Option<&LoadBalancer>,
    is_sparing: bool,
    problems: &mut Vec<PolicyProblem>,
) -> Option<Box<LocalityRule>> {
    let zone = written.and_then(|written| written.zone_aware.as_ref());
    if zone.is_some_and(|zone| zone.enabled != Some(false)) {
        problems.push(warn(
            "loadBalancer.zoneAwareLbSetting",
            "has no effect: a zone takes no share by the number of its endpoints",
            "write localityLbSetting, or set enabled to false",
        ));
    }
    let nothing = LocalityBalancer::default();
    let written = written.and_then(|written| written.locality.as_ref());
    let setting = written.unwrap_or(&nothing);
    if setting.enabled == Some(false) {
        return None;
    }
    if !are_localities(setting) {
        problems.push(warn(
            "loadBalancer.localityLbSetting",
            format!(
                "has more than {LOCALITIES_BYTES_MAX} bytes of localities, so it has no effect"
            ),
            "write fewer or shorter localities",
        ));
        return None;
    }
    if !setting.distribute.is_empty() {
        return Some(Box::new(shares(setting)));
    }
    if !is_sparing {
        if !setting.failover.is_empty() || !setting.failover_priority.is_empty() {
            problems.push(warn(
                "loadBalancer.localityLbSetting",
                "has no effect without outlierDetection: no endpoint would ever yield to others",
                "add outlierDetection",
            ));
        }
        return None;
    }
    if !setting.failover_priority.is_empty() {
        let parts = parts(setting, problems);
        return Some(Box::new(LocalityRule::Alike(parts)));
    }
    let regions = setting.failover.iter();
    let regions = regions.map(|pair| (pair.from.clone(), pair.to.clone()));
    let regions = regions.take(LocalityRule::ENTRIES_MAX);
    Some(Box::new(LocalityRule::Nearest(regions.collect())))
}

fn shares(setting: &LocalityBalancer) -> LocalityRule {
    let shares = setting.distribute.iter().map(|written| {
        let to = written.to.iter().take(LocalityRule::ENTRIES_MAX);
        LocalityShares {
            from: written.from.clone(),
            to: to
                .map(|(locality, percent)| (locality.clone(), *percent))
                .collect(),
        }
    });
    LocalityRule::Shares(shares.take(LocalityRule::ENTRIES_MAX).collect())
}

/// The labels as far as they are those of a locality: what follows another would decide too much.
fn parts(setting: &LocalityBalancer, problems: &mut Vec<PolicyProblem>) -> Box<[LocalityPart]> {
    let part = |text: &str| {
        let (key, value) = text
            .split_once('=')
            .map_or((text, None), |(key, value)| (key, Some(value.into())));
        let (_, level) = LABELS.into_iter().find(|(label, _)| *label == key)?;
        Some(LocalityPart { level, value })
    };
    let labels = &setting.failover_priority;
    let labels = labels.get(..LocalityRule::ENTRIES_MAX).unwrap_or(labels);
    let parts: Vec<LocalityPart> = labels.iter().map_while(|text| part(text)).collect();
    if let Some(other) = labels.get(parts.len()) {
        problems.push(warn(
            "loadBalancer.localityLbSetting.failoverPriority",
            format!(
                "has {other}, which is no label of a region, zone or subzone, so it and what \
                 follows it have no effect"
            ),
            "write topology.kubernetes.io/region, topology.kubernetes.io/zone or \
             topology.istio.io/subzone",
        ));
    }
    parts.into()
}
