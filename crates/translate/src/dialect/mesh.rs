//! Istio's dialect at sidecars: what a workload may reach, and what is accepted for it.
//!
//! A Service or ServiceEntry is one unit for all sidecars. Of a view it asks little: whether it is
//! imported, and whether the view is of its namespace. So two thousand sidecars of fifty
//! namespaces share what it gives. What is accepted for a workload is one unit for that workload.

mod blocks;
mod captured;
mod endpoints;
pub(crate) mod facts;
mod owned;
mod peers;
mod reachable;
pub(crate) mod reader;
pub(crate) mod scope;
mod sidecar;
mod strangers;
pub(crate) mod units;
mod workload;

pub(crate) use captured::CaptureKey;

use myriad_api::{Finding, Object, Severity};

use crate::engine::{Dialect, Output, Reader, Unit};

/// The rules that the engine has for sidecars.
pub(crate) const DIALECT: Dialect = Dialect {
    touch: facts::touch,
    found_under: facts::found_under,
    ..Dialect::BLANK
};

/// Says what is wrong with an object that is for sidecars alone: without a mesh, that it has no
/// effect.
pub(crate) fn judge(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let key = unit.object_key();
    let is_mesh = reader.settings().sidecars;
    match key.as_ref().and_then(|key| reader.itself(key)) {
        None => Output::default(),
        Some(Object::Sidecar(it)) if is_mesh => sidecar::judge(&it),
        Some(Object::PeerAuthentication(it)) if is_mesh => sidecar::judge_peers(&it),
        Some(object) => Output {
            findings: vec![Finding::new(
                Severity::Error,
                object.key(),
                "",
                "is for sidecars, of which there are none without a mesh, so it has no effect",
                "start the controller with --mesh, or remove it",
            )],
            ..Output::default()
        },
    }
}
