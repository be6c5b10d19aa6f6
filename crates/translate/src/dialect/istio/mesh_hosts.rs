//! Hosts that VirtualServices name in the mesh, where nobody has them, or others do.

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};
use myriad_model::Host;
use myriad_model::host::Pattern;

use crate::engine::Reader;
use crate::resolve::names;
use crate::settings::first_names;

/// The owner of a host that is of another namespace than who names it.
struct Stranger {
    /// The host, in words.
    what: String,
    /// The namespace; none where there are several.
    namespace: Option<String>,
}

/// Judges the hosts of a VirtualService in the mesh: a sidecar knows the hosts of Services and
/// ServiceEntries, and no others, though a wildcard may yet cover one. Rules for those of other
/// namespaces hold for callers of its own.
pub(super) fn judge(reader: &mut Reader<'_>, service: &VirtualService) -> Vec<Finding> {
    let written = first_names(&service.spec.gateways);
    if !written.is_empty() && !written.iter().any(|it| **it == *names::MESH) {
        return Vec::new();
    }
    let mut gateways = service.spec.gateways.iter();
    let is_alone = gateways.all(|it| **it == *names::MESH);
    let is_asked = is_for_others(reader, service);
    let key = &service.meta.key;
    let mut findings = Vec::new();
    for (at, text) in service.spec.hosts.iter().enumerate() {
        let Ok(host) = names::host(text) else {
            continue;
        };
        let text = text.to_ascii_lowercase();
        let is_exact = matches!(host.pattern(), Pattern::Exact(_));
        if is_alone && is_exact && !is_there(reader, &text, key.namespace()) {
            findings.push(Finding::new(
                Severity::Warning,
                key,
                format!("spec.hosts[{at}]"),
                "is the host of no Service and no ServiceEntry, so it has no effect in the mesh",
                "name a Service by its full name, or write a ServiceEntry for the host",
            ));
        } else if is_asked && let Some(stranger) = stranger(reader, service, &text, &host) {
            findings.push(held(reader, service, at, &stranger));
        }
    }
    findings
}

fn is_there(reader: &mut Reader<'_>, host: &str, namespace: &str) -> bool {
    let domain = &reader.settings().cluster_domain;
    let service = names::service(host, namespace, domain);
    service.is_some_and(|id| reader.has_service(&id)) || !reader.entry_shapes(host).is_empty()
}

/// Whether it says anything to callers of other namespaces, and is not of the root namespace, whose
/// rules hold for all.
fn is_for_others(reader: &Reader<'_>, service: &VirtualService) -> bool {
    let own = service.meta.key.namespace();
    let exports = first_names(&service.spec.export_to);
    let is_kept = |to: &str| matches!(to, "." | "~") || to == own;
    own != reader.settings().root_namespace()
        && (exports.is_empty() || !exports.iter().all(|to| is_kept(to)))
}

/// The owner of a host, where that is another namespace.
fn stranger(
    reader: &mut Reader<'_>,
    service: &VirtualService,
    text: &str,
    host: &Host,
) -> Option<Stranger> {
    let own = service.meta.key.namespace();
    let domain = &reader.settings().cluster_domain;
    let is_exact = matches!(host.pattern(), Pattern::Exact(_));
    if let Some(id) = names::service(text, own, domain).filter(|_| is_exact) {
        let (namespace, _) = id.split_once('/')?;
        if namespace == own {
            return None;
        }
        if reader.has_service(&id) {
            let namespace = Some(namespace.to_owned());
            let what = format!("is the host of Service {id}");
            return Some(Stranger { what, namespace });
        }
    }
    if !is_exact && let Some(stranger) = above_services(own, host, domain) {
        return Some(stranger);
    }
    let entries = reader.entry_shapes(text);
    let keys = entries.iter().map(|entry| &entry.meta.key);
    if keys.clone().any(|key| key.namespace() == own) {
        return None;
    }
    let first = keys.min()?;
    let (id, namespace) = (first.id(), first.namespace().to_owned());
    Some(Stranger {
        what: format!("is the host of ServiceEntry {id}"),
        namespace: Some(namespace),
    })
}

/// The owners of the Services that a wildcard covers.
fn above_services(own: &str, host: &Host, domain: &str) -> Option<Stranger> {
    let all = Stranger {
        what: "covers hosts of Services of all namespaces".to_owned(),
        namespace: None,
    };
    let Some(name) = host.as_str().strip_prefix("**.") else {
        return Some(all);
    };
    let domain = format!("svc.{domain}");
    let is_above = domain.strip_suffix(name);
    if is_above.is_some_and(|rest| rest.is_empty() || rest.ends_with('.')) {
        return Some(all);
    }
    let rest = name.strip_suffix(&*domain)?.strip_suffix('.')?;
    let namespace = rest.rsplit('.').next()?;
    (namespace != own).then(|| Stranger {
        what: format!("covers hosts of Services of namespace {namespace}"),
        namespace: Some(namespace.to_owned()),
    })
}

/// The finding about a host of another namespace.
fn held(
    reader: &Reader<'_>,
    service: &VirtualService,
    at: usize,
    Stranger { what, namespace }: &Stranger,
) -> Finding {
    let key = &service.meta.key;
    let (own, root) = (key.namespace(), reader.settings().root_namespace());
    let owner = match namespace {
        Some(namespace) => format!("namespace {namespace}"),
        None => "the owners".to_owned(),
    };
    Finding::new(
        Severity::Warning,
        key,
        format!("spec.hosts[{at}]"),
        format!("{what}, so its rules have no effect there for callers outside of namespace {own}"),
        format!(
            "let {owner} write the rules, or the operator in namespace {root}, or write exportTo: \
             [\".\"]"
        ),
    )
}
