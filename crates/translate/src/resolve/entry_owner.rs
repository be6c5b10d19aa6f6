//! Whose ServiceEntries tell others of a name: those of the namespace of the one that has claimed
//! it longest, among those that somebody sees.

use std::collections::BTreeSet;

use myriad_api::istio::ServiceEntry;
use myriad_api::{Finding, ObjectKey, Severity};
use myriad_model::Host;

use super::facts::SharedFact;
use super::names;
use crate::engine::{Output, Reader, Stake, StakeClaim, namespace_of};
use crate::settings::first_names;
use crate::store::FactHasher;

/// The most names of a ServiceEntry of which it is told who has them.
const TOLD_NAMES_MAX: usize = 64;

/// The names that a ServiceEntry claims.
pub(crate) fn claimed_names(entry: &ServiceEntry) -> BTreeSet<Host> {
    let hosts = entry.spec.hosts.iter();
    hosts.filter_map(|text| names::host(text).ok()).collect()
}

/// The fact that is read by who looks for the ServiceEntries of a name.
pub(crate) fn fact(hasher: &FactHasher, host: &Host) -> u64 {
    hasher.fact(SharedFact::EntryShapes(names::written(host)))
}

/// The seat of the ServiceEntries of a name.
pub(crate) fn seat(hasher: &FactHasher, host: &Host) -> u64 {
    hasher.fact(SharedFact::EntrySeat(host.as_str()))
}

/// Claims the names of a ServiceEntry, and tells of those that another namespace claimed before.
pub(crate) fn tell(reader: &mut Reader<'_>, entry: &ServiceEntry, output: &mut Output) {
    let key = &entry.meta.key;
    let own = key.namespace();
    let Some(order) = order(entry) else {
        return;
    };
    for (at, text) in entry.spec.hosts.iter().enumerate().take(TOLD_NAMES_MAX) {
        let Ok(host) = names::host(text) else {
            continue;
        };
        let domain = &reader.settings().cluster_domain;
        // A name in the domain of the cluster is of its namespace, however old its claims are.
        if names::service(&text.to_ascii_lowercase(), own, domain).is_some() {
            continue;
        }
        let seat = reader.hash(SharedFact::EntrySeat(host.as_str()));
        let claim = StakeClaim {
            order,
            created: reader.claim(&entry.meta, &host).since(),
            id: key.id().clone(),
            value: 0,
        };
        let first = reader.seat(seat);
        let first =
            first.filter(|it| it.order == 0 && (it.created, &it.id) < (claim.created, &claim.id));
        let owner = first.filter(|it| namespace_of(&it.id) != own);
        // The gateway's own go before the oldest.
        if let Some(owner) = owner.filter(|_| !reader.view().is_of(own)) {
            output.findings.push(lost(key, (at, &host), &owner.id));
        }
        output.stakes.push(Stake { seat, claim });
    }
}

/// The class of the claims of a ServiceEntry: 0 of those that everybody sees, 1 of those that some
/// see; none of those that nobody else does.
fn order(entry: &ServiceEntry) -> Option<u8> {
    let own = entry.meta.key.namespace();
    let to = first_names(&entry.spec.export_to);
    if to.is_empty() || to.iter().any(|it| **it == *"*") {
        return Some(0);
    }
    let mut to = to.iter();
    let has_others = to.any(|it| !matches!(&**it, "." | "~") && **it != *own);
    has_others.then_some(1)
}

fn lost(key: &ObjectKey, (at, host): (usize, &Host), owner: &str) -> Finding {
    let name = names::written(host);
    Finding::new(
        Severity::Warning,
        key,
        format!("spec.hosts[{at}]"),
        format!(
            "has no effect on requests of other namespaces to {name}, which belongs to namespace \
             {} by ServiceEntry {owner}, but where they have one of their own",
            namespace_of(owner)
        ),
        "use another name, or let each namespace write a ServiceEntry of its own",
    )
}
