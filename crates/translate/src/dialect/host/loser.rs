//! The unit of an object that claims a host in vain.

use myriad_api::ObjectKind;

use crate::dialect::{gateway, ingress, istio};
use crate::engine::{Output, Reader, Unit};
use crate::resolve::losers::Loss;

/// Tells an object that a host belongs to another namespace, or that its own may not have it.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let loss = Loss::of(unit);
    let finding = loss.and_then(|loss| match loss.loser.kind {
        ObjectKind::Ingress => ingress::lost(reader, &loss),
        ObjectKind::Gateway | ObjectKind::ListenerSet => gateway::lost(reader, &loss),
        _ => istio::lost(reader, &loss),
    });
    Output {
        findings: finding.into_iter().collect(),
        ..Output::default()
    }
}
