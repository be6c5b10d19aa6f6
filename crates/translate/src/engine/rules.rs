//! Which DestinationRules there are for a host, without noting that somebody asked.

use std::sync::Arc;

use myriad_api::Object;
use myriad_api::istio::DestinationRule;

use super::facts::{Fact, FactHasher};
use super::objects::Objects;
use crate::istio;

/// The DestinationRules of a namespace for a host or wildcard in full.
pub fn find(
    (objects, hasher): (&Objects, &FactHasher),
    domain: &str,
    namespace: &str,
    pattern: &str,
    visited: &mut u64,
) -> Vec<Arc<DestinationRule>> {
    let mut found = Vec::new();
    // A rule may name a Service of its own namespace in short.
    let suffix = format!(".{namespace}.svc.{domain}");
    let short = pattern
        .strip_suffix(&suffix)
        .filter(|it| !it.contains(['.', '*']));
    for written in [Some(pattern), short].into_iter().flatten() {
        let fact = hasher.hash(Fact::RulesIn(namespace, written));
        for object in objects.collection(fact) {
            *visited += 1;
            if let Object::DestinationRule(rule) = object
                && rule.meta.key.namespace() == namespace
                && istio::rule_host(&rule.spec.host, namespace, domain) == pattern
            {
                found.push(rule);
            }
        }
    }
    found
}
