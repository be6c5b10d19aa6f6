//! The hosts that Istio's objects may claim.

use myriad_api::ObjectKey;
use myriad_model::{Host, host::Pattern};

use crate::engine::Reader;
use crate::settings::Settings;

/// Whether an object may claim a host. What is for all hosts is for connections without a name as
/// well, and who enters by a server is asked there whether it may answer for names.
pub(super) fn may_claim(reader: &Reader<'_>, key: &ObjectKey, host: &Host) -> bool {
    may_claim_by(reader.settings(), key.namespace(), host)
}

/// The same of the objects of a namespace, by the settings.
pub(super) fn may_claim_by(settings: &Settings, namespace: &str, host: &Host) -> bool {
    host.pattern() == Pattern::Any || settings.may_claim(namespace, host)
}

/// Whether objects of a namespace may answer for hosts that nobody names, whoever's servers they
/// enter by.
pub(super) fn may_be_unnamed(reader: &Reader<'_>, namespace: &str) -> bool {
    let settings = reader.settings();
    let is_admitted =
        || settings.catch_all_namespaces.admits(namespace) || reader.view().is_of(namespace);
    settings.may_claim(namespace, &Host::any()) && is_admitted()
}
