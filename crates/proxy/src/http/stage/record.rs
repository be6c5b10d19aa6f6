//! The record of a request once it is over. The account of a request
//! ([`RequestAccount`](crate::http::account::RequestAccount)) gathers it from the head on, and
//! writes it at the end: counts, a line of the access log, a span.

use super::Scene;
use super::dry_run::StageVerdict;

pub(super) fn explain(scene: &Scene<'_>) -> StageVerdict {
    let Some(recording) = scene.tables.recording() else {
        return StageVerdict::Silent;
    };
    let mut told = Vec::new();
    match recording.has_logs() {
        Some(true) => told.push("in the access log, as its filters say".to_owned()),
        Some(false) => told.push("in no access log".to_owned()),
        None => {}
    }
    if let Some(tracing) = recording.told.tracing.as_ref().filter(|it| !it.is_silent) {
        told.push(format!(
            "as a span for {}, where it is sampled",
            tracing.upstream
        ));
    }
    match told.is_empty() {
        true => StageVerdict::Silent,
        false => StageVerdict::Passes(told.join(", and ")),
    }
}
