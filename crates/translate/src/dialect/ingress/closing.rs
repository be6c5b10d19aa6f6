//! The rest of an Ingress that its namespace may not hold: a claim without paths, by which those
//! of its namespace on its hosts are closed, where it restricted some of them. It costs proxies
//! nothing, however many there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use myriad_api::{Ingress, IngressRule};

use super::annotations::{self, Defaults};
use super::claimant::Claimant;
use super::claims;
use crate::engine::{Reader, namespace_of};

/// The stand-in for an Ingress; `None` where there is no need of one, since without it nobody may
/// do more than with it.
pub(crate) fn closing(ingress: &Ingress, ignored: &BTreeSet<String>) -> Option<Ingress> {
    let (options, _) = annotations::read(&ingress.meta, ignored, &Defaults::default());
    // A canary takes a share of what another Ingress restricts or does not.
    if options.canary.is_some() || !options.restricts() || !claims::leads_somewhere(ingress) {
        return None;
    }
    let hosts = ingress.rules.iter().map(|rule| rule.host.clone());
    let mut hosts: BTreeSet<Option<Box<str>>> = hosts.collect();
    if hosts.is_empty() {
        hosts.insert(None);
    }
    let rules = hosts.into_iter().map(|host| IngressRule {
        host,
        paths: Box::default(),
    });
    Some(Ingress {
        meta: ingress.meta.clone(),
        class_name: ingress.class_name.clone(),
        default_backend: None,
        tls: Box::default(),
        rules: rules.collect(),
    })
}

/// Whether one of these Ingresses is such a claim, in the namespace of one that has the host.
pub(crate) fn is_closed(reader: &Reader<'_>, ids: &[Arc<str>], claimants: &[Claimant]) -> bool {
    let mut closing = ids.iter().filter(|id| reader.is_beyond(id)).peekable();
    if closing.peek().is_none() {
        return false;
    }
    let namespaces: BTreeSet<&str> = claimants.iter().map(Claimant::namespace).collect();
    closing.any(|id| namespaces.contains(namespace_of(id)))
}
