//! The Service that gets copies of requests.

use myriad_api::{BackendPort, Finding, Severity};
use myriad_model::{Mirror, Name, Share};

use super::annotations::{MIRROR_TARGET, RequestCopies, key_of};
use super::claimant::Claimant;
use crate::engine::{Output, Reader, Unit};
use crate::resolve::upstream::{self, PortFound};

/// Where copies go: to a Service of the namespace, as all that its Ingresses reach. None, with a
/// finding, where there is no such one.
pub(super) fn mirror(
    reader: &mut Reader<'_>,
    claimant: &Claimant,
    copies: &RequestCopies,
    output: &mut Output,
) -> Option<Mirror> {
    let namespace = claimant.namespace();
    let domain = &reader.settings().cluster_domain;
    let (message, remedy) = match service_of(&copies.host, namespace, domain) {
        None => (
            format!(
                "names {}, which is no Service of namespace {namespace}",
                copies.host
            ),
            "name a Service of the namespace; one of type ExternalName leads to other hosts",
        ),
        Some(name) => {
            let id = format!("{namespace}/{name}");
            match reader.service_port(&id, &BackendPort::Number(copies.port)) {
                PortFound::Listed(number) | PortFound::Implied(number) => {
                    let upstream = upstream::name(&id, number, copies.protocol);
                    output.needs.push(Unit::upstream(upstream.clone()));
                    return Some(Mirror {
                        upstream: Name::new(upstream),
                        share: Share::ALL,
                        authority: copies.authority.clone(),
                        omits_body: copies.omits_body,
                        keeps_authority: false,
                    });
                }
                PortFound::NoService => (
                    format!("names Service {id}, which is not there"),
                    "create the Service, or correct the name",
                ),
                PortFound::NoPort => (
                    format!(
                        "names port {}, which Service {id} does not have",
                        copies.port
                    ),
                    "name a port of the Service's spec.ports",
                ),
            }
        }
    };
    let meta = &claimant.ingress.meta;
    let key = key_of(meta, MIRROR_TARGET).unwrap_or(MIRROR_TARGET);
    output.findings.push(Finding::new(
        Severity::Error,
        &meta.key,
        format!("metadata.annotations[{key}]"),
        format!("{message}, so no copies are made"),
        remedy,
    ));
    None
}

/// The name of a Service of a namespace, by one of its hosts.
fn service_of<'a>(host: &'a str, namespace: &str, domain: &str) -> Option<&'a str> {
    let Some((name, rest)) = host.split_once('.') else {
        return Some(host);
    };
    let behind = rest.strip_prefix(namespace)?;
    let is_service = match behind.strip_prefix(".svc") {
        Some(behind) => behind.is_empty() || behind.strip_prefix('.') == Some(domain),
        None => behind.is_empty(),
    };
    is_service.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::service_of;

    #[test]
    fn a_service_has_hosts_in_its_namespace_alone() {
        for (host, name) in [
            ("copy", Some("copy")),
            ("copy.shop", Some("copy")),
            ("copy.shop.svc", Some("copy")),
            ("copy.shop.svc.cluster.local", Some("copy")),
            ("copy.shop.svc.cluster.other", None),
            ("copy.shop.svcs", None),
            ("copy.shopping", None),
            ("copy.blog.svc", None),
            ("copy.example", None),
        ] {
            assert_eq!(service_of(host, "shop", "cluster.local"), name, "{host}");
        }
    }
}
