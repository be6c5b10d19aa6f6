//! The amounts that upstreams count for of the copies of endpoints that their namespace may have.
//!
//! An endpoint that an object lists counts with that object. Here it counts once more for each
//! subset that is chosen from among it and others, whoever the subset's labels find: to look is
//! work as well. One that a selector looks at, since it has the first of its labels, counts for
//! each port of each Service or ServiceEntry that has the selector; the Pods and WorkloadEntries
//! that one of a ServiceEntry looks at count up to a power of two. One counts once more too for
//! each way in which Ingresses want equal requests at the same endpoint, for each certificate that
//! Gateways show there, and for each further port of its Service by the same name. Beside them
//! long texts of DestinationRules count, which each port of a host and each of its subsets has.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{Origin, OriginKind};

use super::endpoint_source::Speech;
use super::{Address, Draft, HASH, Members, Owner, TLS, service};
use crate::engine::{Output, Reader, Weight};
use crate::resolve::names::service_host;
use crate::resolve::service_entry::Entry;
use crate::resolve::{destination_rule, hash_by};
use crate::settings::{Holding, REDUCED_POINTS, text_rows};

/// The namespace of an upstream, and whether its endpoints are a copy of those of its port.
pub(crate) fn namespace(name: &str) -> Option<(&str, bool)> {
    let address = Address::read(name)?;
    Some((namespace_of(address.owner)?, address.is_copy()))
}

fn namespace_of(owner: Owner<'_>) -> Option<&str> {
    match owner {
        Owner::Service(id) => Some(id.split_once('/')?.0),
        Owner::Entry(namespace, _) | Owner::Outside(namespace, _) => Some(namespace),
    }
}

/// The amount that an upstream counts for, known before it is translated.
pub(crate) fn weigh(reader: &mut Reader<'_>, name: &str) -> Option<Weight> {
    reader.settings().bounds.copies()?;
    let address = Address::read(name)?;
    if address.is_copy() {
        let end = match (address.subset, address.hash_by) {
            ("", "") => TLS,
            ("", _) => HASH,
            _ => "@",
        };
        let (port, _) = name.split_once(end)?;
        return reader.weigh_once(port, |reader| weigh_port(reader, address));
    }
    weigh_port(reader, address)
}

/// The endpoints that count, and the rows of texts. It is the same for all copies of a port.
fn weigh_port(reader: &mut Reader<'_>, address: Address<'_>) -> Option<Weight> {
    let texts = weigh_texts(reader, address);
    let endpoints = match address.owner {
        // Most clusters have no workloads, and then no Service selects any.
        Owner::Service(id)
            if !address.is_copy()
                && !reader.has_workloads()
                && !service::is_repeated(reader, address.port, id) =>
        {
            None
        }
        Owner::Service(id) => service::weigh(reader, address, id),
        Owner::Entry(namespace, host) => {
            let entry = Entry::read(reader, namespace, host, address.port)?;
            entry.weigh(reader, address.is_copy())
        }
        Owner::Outside(..) => None,
    };
    let (Some(one), Some(other)) = (endpoints, texts) else {
        return endpoints.or(texts);
    };
    let copies = one.copies.saturating_add(other.copies);
    Some(Weight { copies, ..one })
}

/// The rows of what the rules of its own namespace say. Those of others are of whoever operates the
/// gateway, or of the clients beside whom the upstream is made.
fn weigh_texts(reader: &mut Reader<'_>, address: Address<'_>) -> Option<Weight> {
    if !reader.has_rules() {
        return None;
    }
    let namespace = namespace_of(address.owner)?;
    let (created, host, entry) = match address.owner {
        Owner::Service(id) => {
            let host = service_host(id, &reader.settings().cluster_domain);
            (reader.service(id)?.meta.created, host, None)
        }
        Owner::Entry(namespace, host) => {
            let entry = Entry::read(reader, namespace, host, address.port)?;
            (entry.first().meta.created, host.to_owned(), Some(entry))
        }
        Owner::Outside(..) => return None,
    };
    let rules = destination_rule::find(reader, &host, namespace);
    if rules.namespace() != namespace {
        return None;
    }
    let names = entry.as_ref().map_or(&[][..], Entry::subject_alt_names);
    let port = (address.port, address.is_copy());
    Weight::new(created, text_rows(rules.text_bytes(reader, port, names)))
}

/// The slots of the hash table that an upstream has because an Ingress wants it.
pub(crate) fn weigh_slots(reader: &mut Reader<'_>, name: &str) -> Option<Weight> {
    let address = Address::read(name).filter(|address| !address.hash_by.is_empty())?;
    let slots_max = reader.settings().bounds.upstream_hash_slots;
    let slots = hash_by::slots(address.hash_by, slots_max)?;
    let Owner::Service(id) = address.owner else {
        return None;
    };
    let service = reader.service(id)?;
    Weight::new(service.meta.created, usize::try_from(slots).ok()?)
}

/// The finding about an upstream whose hash table is smaller, since its namespace has as much as it
/// may.
pub(super) fn table_beyond(key: &ObjectKey, address: Address<'_>, bound: u64) -> Finding {
    Finding::new(
        Severity::Error,
        key,
        "spec.ports",
        format!(
            "would bring namespace {} beyond {bound} slots of hash tables by upstream-hash-by, so \
             that of port {} by {} is a ring of {REDUCED_POINTS} points",
            key.namespace(),
            address.port,
            address.hash_by
        ),
        format!(
            "hash fewer Services, or in fewer ways, or raise --bound {}={bound}",
            Holding::HashSlots.name()
        ),
    )
}

/// The resources of an upstream that has more than its namespace may: it answers 503, and no
/// endpoint is looked at.
pub(super) fn close(reader: &mut Reader<'_>, name: &Arc<str>, address: Address<'_>) -> Output {
    // It runs again with what it counts for.
    weigh(reader, name);
    let (key, origin) = match address.owner {
        Owner::Service(id) => {
            let key = ObjectKey::from_id(ObjectKind::Service, id.into());
            let kind = OriginKind::Service;
            let id = key.id().clone();
            (key, Origin { kind, id })
        }
        Owner::Entry(namespace, host) => {
            let entry = Entry::read(reader, namespace, host, address.port);
            let Some(entry) = entry else {
                return Output::default();
            };
            (entry.first().meta.key.clone(), entry.origin())
        }
        // It counts for nothing, so that it is never beyond anything.
        Owner::Outside(..) => return Output::default(),
    };
    let draft = Draft {
        name,
        address,
        key: &key,
        origin,
        speech: Speech::Http1,
        subject_alt_names: &[],
        members: Members::default(),
        is_open: false,
    };
    let mut output = draft.close(reader);
    let bound = reader.settings().bounds.endpoint_copies;
    output.findings.push(finding(&key, address, bound));
    output
}

fn finding(key: &ObjectKey, address: Address<'_>, bound: u64) -> Finding {
    let (namespace, port) = (key.namespace(), address.port);
    let what = match address.subset {
        "" if !address.hash_by.is_empty() => {
            format!("port {port} by {}", address.hash_by)
        }
        "" if address.is_copy() => format!("port {port} with the certificate of a Gateway"),
        "" => format!("port {port}"),
        subset => format!("subset {subset} of port {port}"),
    };
    Finding::new(
        Severity::Error,
        key,
        "spec.ports",
        format!(
            "would bring namespace {namespace} beyond {bound} endpoints in subsets, by \
             upstream-hash-by and by selectors, or texts of DestinationRules, so {what} has none, \
             and its routes answer 503"
        ),
        format!(
            "remove subsets, selectors and long texts of DestinationRules that nobody needs, or \
             raise --bound endpoint-copies={bound}"
        ),
    )
}
