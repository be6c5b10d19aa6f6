//! The Ingresses that claim a host, as far as has to be known of all of them to say whose it is.

use std::sync::Arc;

use myriad_api::ObjectKind;
use myriad_model::{Host, host::Pattern};

use crate::engine::{Reader, Unit};
use crate::resolve::Claim;

/// An Ingress that claims a host, and is not opened.
pub(crate) struct Contender {
    /// Its claim.
    pub claim: Claim,
    /// Whether it only takes a share of what others serve, and so owns nothing.
    pub is_canary: bool,
}

/// The claiming Ingresses, in no order that has a meaning, but for those beyond a bound.
pub(crate) fn contenders(reader: &Reader<'_>, host: &Host, ids: &[Arc<str>]) -> Vec<Contender> {
    let ids = ids.iter().filter(|id| !reader.is_beyond(id));
    let contenders = ids.filter_map(|id| {
        Some(Contender {
            claim: reader.claim_of(ObjectKind::Ingress, id, host)?,
            is_canary: reader.owns_none(&Unit::ingress(id.clone())),
        })
    });
    contenders.collect()
}

/// Leaves those that may answer for hosts that nobody names; returns the claims of the others.
pub(crate) fn leave_unadmitted(
    reader: &Reader<'_>,
    host: &Host,
    contenders: &mut Vec<Contender>,
) -> Vec<Claim> {
    if host.pattern() != Pattern::Any {
        return Vec::new();
    }
    let admitted = &reader.settings().catch_all_namespaces;
    leave(contenders, |namespace| admitted.admits(namespace))
}

/// Leaves those of the namespace that the host belongs to; returns the claims of the others.
pub(crate) fn leave_strangers(owner: &Claim, contenders: &mut Vec<Contender>) -> Vec<Claim> {
    leave(contenders, |namespace| owner.is_of(namespace))
}

fn leave(contenders: &mut Vec<Contender>, stays: impl Fn(&str) -> bool) -> Vec<Claim> {
    let all = std::mem::take(contenders).into_iter();
    let (kept, lost): (Vec<_>, Vec<_>) = all.partition(|it| stays(it.claim.key.namespace()));
    *contenders = kept;
    lost.into_iter().map(|it| it.claim).collect()
}
