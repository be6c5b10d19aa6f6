//! The Service whose pages take the place of errors.

use myriad_api::{BackendPort, Finding, IngressBackend, Severity};
use myriad_model::{ErrorPages, Name, Protocol};

use super::annotations::{Errors, PAGES_BACKEND, key_of};
use super::claimant::Claimant;
use crate::engine::{Output, Reader, Unit};
use crate::resolve::upstream::{self, PortFound};

/// The pages for errors of a backend; none, with a finding, where nobody has any.
pub(super) fn error_pages(
    reader: &mut Reader<'_>,
    claimant: &Claimant,
    (errors, backend): (&Errors, &IngressBackend),
    output: &mut Output,
) -> Option<Box<ErrorPages>> {
    let id = format!("{}/{}", claimant.namespace(), errors.service);
    let usual = [BackendPort::Number(80), BackendPort::Name("http".into())];
    let ports = match errors.port {
        Some(port) => vec![BackendPort::Number(port)],
        None => usual.to_vec(),
    };
    let number = ports
        .iter()
        .find_map(|port| match reader.service_port(&id, port) {
            PortFound::Listed(number) | PortFound::Implied(number) => Some(number),
            PortFound::NoService | PortFound::NoPort => None,
        });
    let Some(number) = number else {
        output.findings.push(missing(claimant, &id));
        return None;
    };
    let upstream = upstream::name(&id, number, Protocol::Http1);
    output.needs.push(Unit::upstream(upstream.clone()));
    Some(Box::new(ErrorPages {
        statuses: errors.statuses.iter().copied().collect(),
        upstream: Name::new(upstream),
        fields: fields(claimant, backend),
    }))
}

/// Headers that say whose errors they are, as those of ingress-nginx do.
fn fields(claimant: &Claimant, backend: &IngressBackend) -> Box<[(Box<str>, Box<str>)]> {
    let key = &claimant.ingress.meta.key;
    let mut fields = vec![
        ("x-namespace".into(), key.namespace().into()),
        ("x-ingress-name".into(), key.name().into()),
    ];
    if let IngressBackend::Service { name, port } = backend {
        let port = match port {
            BackendPort::Number(number) => number.to_string().into(),
            BackendPort::Name(name) => name.clone(),
        };
        fields.push(("x-service-name".into(), name.clone()));
        fields.push(("x-service-port".into(), port));
    }
    fields.into()
}

fn missing(claimant: &Claimant, id: &str) -> Finding {
    let meta = &claimant.ingress.meta;
    let key = key_of(meta, PAGES_BACKEND).unwrap_or(PAGES_BACKEND);
    Finding::new(
        Severity::Error,
        &meta.key,
        format!("metadata.annotations[{key}]"),
        format!("names Service {id}, which has no such port, so errors stay as they are"),
        "name a Service of the namespace that has port 80 or one called http, or write its port",
    )
}
