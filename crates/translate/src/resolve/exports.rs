//! Namespaces to which Services and ServiceEntries are exported.

use std::collections::BTreeSet;

use myriad_api::{Object, Service};

use crate::settings::{NAMES_MAX, first_names};

/// The annotation of a Service with the namespaces that see it.
pub(crate) const EXPORT_TO: &str = "networking.istio.io/exportTo";

/// The namespaces to which a Service or ServiceEntry is exported, its own in place of `.`; none
/// for all.
pub(crate) fn exported_to(object: &Object) -> Option<BTreeSet<Box<str>>> {
    let written = match object {
        Object::Service(service) => exports(service),
        Object::ServiceEntry(entry) => first_names(&entry.spec.export_to).to_vec(),
        _ => return None,
    };
    if written.is_empty() || written.iter().any(|to| **to == *"*") {
        return None;
    }
    let own = object.key().namespace();
    let written = written.into_iter().filter(|to| **to != *"~");
    let resolved = written.map(|to| match &*to {
        "." => own.into(),
        _ => to,
    });
    Some(resolved.collect())
}

/// The first of the namespaces to which a Service is exported, as written; none for all.
pub(super) fn exports(service: &Service) -> Vec<Box<str>> {
    let written = service.meta.annotation(EXPORT_TO);
    let written = written.unwrap_or_default().split(',').map(str::trim);
    written
        .filter(|it| !it.is_empty())
        .take(NAMES_MAX)
        .map(Into::into)
        .collect()
}
