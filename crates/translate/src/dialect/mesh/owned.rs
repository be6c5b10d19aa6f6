//! The owners of the names and addresses that the cluster gives to Services, and how far what
//! objects of others say of them holds: for callers of their own namespace, and for all others only
//! where they are of the owner's namespace or of the root namespace. Names and addresses that no
//! Service has are bounded for strangers alone.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use myriad_api::istio::ServiceEntry;
use myriad_api::istio::service_entry::EntryPort;
use myriad_api::{BackendPort, Finding, ObjectKey, Service, Severity};
use myriad_model::Host;

use super::blocks::{self, LOOKS_MAX};
use super::strangers::{self, Author};
use crate::engine::{Output, Reader};
use crate::resolve::upstream::PortFound;
use crate::resolve::{Spoken, names};

/// The effect of a host of a ServiceEntry in a view.
pub(super) enum HostEffect {
    /// The same as that of any other host.
    Whole,
    /// The same, but at ports of the Service of this `namespace/name`, which goes first.
    Behind(String),
    /// Nothing: the host is of another owner.
    None,
}

/// A name of the cluster.
#[derive(Debug, PartialEq, Eq)]
struct ClusterName<'a> {
    owner: Owner<'a>,
    /// The `namespace/name` of the Service that has the name, or that it lies below.
    service: Option<String>,
    /// Whether that Service has the name itself.
    is_whole: bool,
    /// Whether its domain makes it one of the cluster; of others it is one while the Service is
    /// there.
    is_certain: bool,
}

/// The owner of a name of the cluster.
#[derive(Debug, PartialEq, Eq)]
enum Owner<'a> {
    /// A namespace.
    Namespace(&'a str),
    /// The namespace of whoever calls it.
    Caller,
    /// The cluster.
    Cluster,
}

/// The addresses of a ServiceEntry that have an effect in a view.
pub(super) struct Addresses {
    /// Addresses that no Service has.
    free: Places,
    /// Addresses of Services, which go first at the ports that they have.
    shared: Vec<Shared>,
    /// Whether none is written.
    pub is_everywhere: bool,
}

/// An address of Services.
struct Shared {
    block: IpNet,
    /// Whether it is written as a block.
    is_block: bool,
    services: Vec<Arc<str>>,
}

/// The places that connections go to.
#[derive(Clone, Default)]
pub(super) struct Places {
    /// The addresses that have listeners of their own.
    pub addresses: Vec<IpAddr>,
    /// The other addresses, as blocks.
    pub blocks: Vec<IpNet>,
    /// The addresses as hosts of requests.
    pub hosts: Vec<Host>,
}

/// Whether what an object of a namespace says of something of an owner's holds in the view.
pub(super) fn may_say(reader: &Reader<'_>, namespace: &str, owner: &str) -> bool {
    // Whether it is the caller's is asked last, since the answer parts views.
    namespace == owner
        || namespace == reader.settings().root_namespace()
        || reader.view().is_of(namespace)
}

/// The effect of a host of a ServiceEntry, which is the one at a place of those that it lists.
pub(super) fn judge_host(
    reader: &mut Reader<'_>,
    (key, author): (&ObjectKey, Author),
    (at, host): (usize, &Host),
    output: &mut Output,
) -> HostEffect {
    let own = key.namespace();
    let field = || format!("spec.hosts[{at}]");
    let kept = |reader: &Reader<'_>, why: &str| strangers::kept(reader, key, field(), why);
    if let Ok(address) = host.as_str().parse::<IpAddr>() {
        let services = reader.services_at(address.to_canonical());
        if let Some(service) = stranger(reader, own, &services) {
            let finding = not_its_address(reader, key, field(), &service);
            output.findings.push(finding);
            return HostEffect::None;
        }
        if services.is_empty() && author.is_stranger() {
            let why = "is an address that no Service of its namespace has";
            output.findings.push(kept(reader, why));
            return HostEffect::None;
        }
        return HostEffect::Whole;
    }
    let why = strangers::why_not_host(host, &reader.settings().cluster_domain);
    if let Some(why) = why.filter(|_| author.is_stranger()) {
        output.findings.push(kept(reader, why));
        return HostEffect::None;
    }
    let Some(name) = ClusterName::read(host, &reader.settings().cluster_domain) else {
        return HostEffect::Whole;
    };
    let mut service = name.service.iter();
    if !name.is_certain && !service.any(|id| reader.has_service(id)) {
        return HostEffect::Whole;
    }
    let owner = match name.owner {
        Owner::Namespace(owner) => owner,
        Owner::Caller | Owner::Cluster => "",
    };
    if !may_say(reader, own, owner) {
        output
            .findings
            .push(not_its_name(reader, key, field(), &name.owner));
        return HostEffect::None;
    }
    let service = match name.owner {
        Owner::Caller => Some(format!("{own}/{host}")),
        Owner::Namespace(_) | Owner::Cluster => name.service.filter(|_| name.is_whole),
    };
    service.map_or(HostEffect::Whole, HostEffect::Behind)
}

/// Whether a Service has a port in the view, so that nobody else has its names there.
pub(super) fn is_taken(reader: &mut Reader<'_>, id: &str, port: u16) -> bool {
    let (found, service) = reader.exported_port(id, &BackendPort::Number(port));
    let Some(service) = service.filter(|_| matches!(found, PortFound::Listed(_))) else {
        return false;
    };
    let namespace = service.meta.key.namespace();
    let host = names::service_host(id, &reader.settings().cluster_domain);
    let view = reader.view();
    view.sees(service.exports(), namespace) && view.imports(namespace, &host, port)
}

impl<'a> ClusterName<'a> {
    /// Reads a host; `None` for one that is never of the cluster.
    fn read(host: &'a Host, domain: &str) -> Option<Self> {
        let text = host.as_str();
        let (name, is_wildcard) = match text.strip_prefix("**.") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let before = names::before_domain(name, domain);
        let mut labels = before.unwrap_or(name).rsplit('.');
        let last = labels.next().filter(|label| !label.is_empty());
        let service = last.and_then(|last| Some(format!("{last}/{}", labels.next()?)));
        let owner = match (before, last, &service) {
            // A wildcard for all names of a length says nothing of the cluster.
            (None, _, None) if is_wildcard || name == "*" => return None,
            (None, _, None) => Owner::Caller,
            (_, Some(namespace), _) => Owner::Namespace(namespace),
            (_, None, _) => Owner::Cluster,
        };
        Some(ClusterName {
            is_certain: before.is_some() || owner == Owner::Caller,
            is_whole: !is_wildcard && labels.next().is_none(),
            owner,
            service,
        })
    }
}

impl Addresses {
    /// Reads the addresses of a ServiceEntry.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        (entry, author): (&ServiceEntry, Author),
        output: &mut Output,
    ) -> Self {
        let key = &entry.meta.key;
        let own = key.namespace();
        let mut found = Addresses {
            free: Places::default(),
            shared: Vec::new(),
            is_everywhere: true,
        };
        let mut looks = LOOKS_MAX;
        for (at, text) in entry.spec.addresses.iter().enumerate() {
            let (block, is_block) = match (text.parse::<IpAddr>(), text.parse::<IpNet>()) {
                (Ok(address), _) => (IpNet::from(address), false),
                (_, Ok(block)) => (block.trunc(), true),
                _ => continue,
            };
            found.is_everywhere = false;
            if let Some(why) = strangers::why_not_block(block).filter(|_| author.is_stranger()) {
                let field = format!("spec.addresses[{at}]");
                let finding = strangers::kept(reader, key, field, why);
                output.findings.push(finding);
                continue;
            }
            if block.prefix_len() < block.max_prefix_len() {
                let field = || format!("spec.addresses[{at}]");
                match author.is_stranger() {
                    true => found.add_block(reader, key, (field, block), &mut looks, output),
                    false => found.free.blocks.push(block),
                }
                continue;
            }
            let services = reader.services_at(block.addr().to_canonical());
            if let Some(service) = stranger(reader, own, &services) {
                let field = format!("spec.addresses[{at}]");
                let finding = not_its_address(reader, key, field, &service);
                output.findings.push(finding);
            } else if services.is_empty() {
                found.free.add(author, block, is_block);
                if !(is_block || author.is_stranger()) {
                    found.free.add_host(block);
                }
            } else {
                let services = services.iter().map(|it| it.meta.key.id().clone());
                let mut services: Vec<Arc<str>> = services.collect();
                // They are asked one after the other, which must not depend on who came first.
                services.sort_unstable();
                found.shared.push(Shared {
                    block,
                    is_block,
                    services,
                });
            }
        }
        found
    }

    /// Adds a block of a stranger that is no single address, without the parts where Services
    /// stand.
    fn add_block(
        &mut self,
        reader: &mut Reader<'_>,
        key: &ObjectKey,
        (field, block): (impl FnOnce() -> String, IpNet),
        looks: &mut usize,
        output: &mut Output,
    ) {
        let left = blocks::left_of(reader, block, looks);
        if let Some(taken) = left.taken {
            let is_whole = left.blocks.is_empty();
            let finding = covers_services(reader, key, field(), (taken, is_whole));
            output.findings.push(finding);
        }
        self.free.blocks.extend(left.blocks);
    }

    /// The addresses that no Service takes at a port.
    pub(super) fn at(&self, reader: &mut Reader<'_>, author: Author, port: u16) -> Cow<'_, Places> {
        if self.shared.is_empty() {
            return Cow::Borrowed(&self.free);
        }
        let mut places = self.free.clone();
        for shared in &self.shared {
            let mut services = shared.services.iter();
            if !services.any(|id| is_taken(reader, id, port)) {
                places.add(author, shared.block, shared.is_block);
                if !shared.is_block {
                    places.add_host(shared.block);
                }
            }
        }
        Cow::Owned(places)
    }
}

impl Places {
    /// Adds an address or a block. An address of a stranger has no listener of its own: it stands
    /// behind endpoints of Services, which have none.
    fn add(&mut self, author: Author, block: IpNet, is_block: bool) {
        match is_block || author.is_stranger() {
            true => self.blocks.push(block),
            false => self.addresses.push(block.addr()),
        }
    }

    /// Adds an address as the host of requests.
    fn add_host(&mut self, block: IpNet) {
        self.hosts.extend(Host::parse(&block.addr().to_string()));
    }
}

/// The protocol of a port of a ServiceEntry.
pub(super) fn spoken(port: &EntryPort) -> Spoken {
    Spoken::of_word(&port.protocol).unwrap_or(Spoken::Tcp)
}

/// The first of some Services of which an object of a namespace has no say in the view.
fn stranger(reader: &Reader<'_>, own: &str, services: &[Arc<Service>]) -> Option<ObjectKey> {
    let keys = services.iter().map(|service| &service.meta.key);
    let strangers = keys.filter(|key| !may_say(reader, own, key.namespace()));
    strangers.min().cloned()
}

fn not_its_name(reader: &Reader<'_>, key: &ObjectKey, field: String, owner: &Owner<'_>) -> Finding {
    let (own, root) = (key.namespace(), reader.settings().root_namespace());
    let (whose, remedy) = match owner {
        Owner::Namespace(owner) => (
            format!("is a name of namespace {owner}"),
            format!(
                "let namespace {owner} write the ServiceEntry, or the operator in namespace {root}"
            ),
        ),
        Owner::Caller => (
            "has no dot, so it is a name of each caller's namespace".to_owned(),
            format!("write a name in full, or let the operator write it in namespace {root}"),
        ),
        Owner::Cluster => (
            "covers names of Services of all namespaces".to_owned(),
            format!("write other names, or let the operator write it in namespace {root}"),
        ),
    };
    Finding::new(
        Severity::Error,
        key,
        field,
        format!("{whose}, so it has no effect for callers outside of namespace {own}"),
        remedy,
    )
}

fn not_its_address(
    reader: &Reader<'_>,
    key: &ObjectKey,
    field: String,
    service: &ObjectKey,
) -> Finding {
    let (own, root) = (key.namespace(), reader.settings().root_namespace());
    let (id, owner) = (service.id(), service.namespace());
    Finding::new(
        Severity::Error,
        key,
        field,
        format!(
            "is the address of Service {id}, so it has no effect for callers outside of namespace \
             {own}"
        ),
        format!(
            "let namespace {owner} write the ServiceEntry, or the operator in namespace {root}"
        ),
    )
}

fn covers_services(
    reader: &Reader<'_>,
    key: &ObjectKey,
    field: String,
    (taken, is_whole): (IpNet, bool),
) -> Finding {
    let (own, root) = (key.namespace(), reader.settings().root_namespace());
    let (severity, place) = match is_whole {
        true => (Severity::Error, ""),
        false => (Severity::Warning, " there"),
    };
    Finding::new(
        severity,
        key,
        field,
        format!(
            "covers addresses of Services in {taken}, so it has no effect{place} for callers \
             outside of namespace {own}"
        ),
        format!(
            "write blocks in which there are none, or let the operator write it in namespace {root}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use myriad_model::Host;

    use super::{ClusterName, Owner};

    #[test]
    fn names_of_the_cluster_say_whose_they_are() {
        let read = |text: &str| {
            let host = Host::parse(text).unwrap();
            let name = ClusterName::read(&host, "corp.example")?;
            let owner = match name.owner {
                Owner::Namespace(namespace) => namespace,
                Owner::Caller => "caller",
                Owner::Cluster => "cluster",
            };
            let certain = if name.is_certain { "!" } else { "" };
            let service = name.service.filter(|_| name.is_whole);
            let service = service.unwrap_or_default();
            Some(format!("{owner}{certain} {service}"))
        };
        let known = |text: &str| read(text).unwrap();
        for end in ["svc.corp.example", "svc.cluster.local", "svc"] {
            assert_eq!(known(&format!("cart.shop.{end}")), "shop! shop/cart");
            assert_eq!(known(&format!("a.cart.shop.{end}")), "shop! ");
            assert_eq!(known(&format!("**.cart.shop.{end}")), "shop! ");
            assert_eq!(known(&format!("**.shop.{end}")), "shop! ");
            assert_eq!(known(&format!("**.{end}")), "cluster! ");
        }
        assert_eq!(known("cart.shop"), "shop shop/cart");
        assert_eq!(known("a.cart.shop"), "shop ");
        assert_eq!(known("**.cart.shop"), "shop ");
        assert_eq!(known("cart"), "caller! ");
        assert_eq!(read("**.shop"), None);
        assert_eq!(read("*"), None);
    }
}
