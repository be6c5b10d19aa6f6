//! The hosts that Istio's objects may claim.

use myriad_api::ObjectKey;
use myriad_model::{Host, host::Pattern};

use crate::engine::Reader;
use crate::settings::Settings;

/// Whether an object may claim a host. What is for all hosts is for connections without a name as
/// well, and each server says for itself whether it may answer for names.
pub(super) fn may_claim(reader: &Reader<'_>, key: &ObjectKey, host: &Host) -> bool {
    may_claim_by(reader.settings(), key.namespace(), host)
}

/// The same of the objects of a namespace, by the settings.
pub(super) fn may_claim_by(settings: &Settings, namespace: &str, host: &Host) -> bool {
    host.pattern() == Pattern::Any || settings.may_claim(namespace, host)
}
