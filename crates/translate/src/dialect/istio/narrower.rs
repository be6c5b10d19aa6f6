//! The texts of VirtualServices for wildcards on hosts below them, which only Gateways name.
//!
//! A VirtualService counts for its own hosts. What it says is repeated on each narrower host that
//! Gateways name, of which nobody knows when it is counted. So the bytes there are bounded for
//! each host, and the more hosts the Gateways of a namespace name, the fewer they are: all of them
//! together are a part of what a namespace may have.

use std::collections::BTreeMap;

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};
use myriad_model::Host;

use super::scene::{Named, Tenant};
use crate::engine::{Reader, namespace_of};
use crate::settings::{Holding, ROW_TEXT_BYTES};

/// The most bytes of the VirtualServices of a namespace on a narrower host.
const BYTES_MAX: usize = 64 << 10;

/// The bytes that they may have there however many hosts Gateways name.
const BYTES_LEAST: usize = 2 << 10;

/// The part of what a namespace may have in routes that is for all narrower hosts together.
const SHARE: u64 = 4;

/// The bytes that a route counts for beside its texts.
pub(crate) const ROUTE_BYTES: usize = 64;

/// The bytes that a stream route counts for beside its texts: it is a resource of its own.
pub(crate) const STREAM_ROUTE_BYTES: usize = 512;

/// The bytes that are left on a host, by the namespace of VirtualServices.
#[derive(Default)]
pub(crate) struct Narrower(BTreeMap<Box<str>, Left>);

/// The bytes that are left to one namespace.
struct Left {
    bytes: usize,
    max: usize,
    /// Whether it is known how many hosts Gateways name, which nobody asks who says little.
    is_asked: bool,
}

impl Narrower {
    /// Takes the bytes of a rule of a VirtualService on a host.
    ///
    /// # Errors
    /// The most that there may be, where they are not within that.
    pub(crate) fn take(
        &mut self,
        reader: &mut Reader<'_>,
        (host, tenant): (&Host, &Tenant),
        bytes: usize,
    ) -> Result<(), usize> {
        let namespace = tenant.service.meta.key.namespace();
        let bounds = reader.settings().bounds_of(namespace);
        let Some(bound) = bounds.get(Holding::Routes) else {
            return Ok(());
        };
        if tenant.named == Named::Captured || tenant.names.has_host(host) {
            return Ok(());
        }
        let left = self.0.entry(namespace.into()).or_insert(Left {
            bytes: BYTES_LEAST,
            max: BYTES_LEAST,
            is_asked: false,
        });
        if bytes > left.bytes && !std::mem::replace(&mut left.is_asked, true) {
            left.max = bytes_max(reader, tenant, bound);
            left.bytes += left.max - BYTES_LEAST;
        }
        let rest = left.bytes.checked_sub(bytes);
        left.bytes = rest.unwrap_or_default();
        rest.map(|_| ()).ok_or(left.max)
    }
}

/// The most bytes on each host, where there are as many as the Gateways by which a VirtualService
/// enters name in their namespaces, or rules for TLS in its own.
fn bytes_max(reader: &mut Reader<'_>, tenant: &Tenant, bound: u64) -> usize {
    let gateways = tenant.entrances.iter().map(|(id, _)| namespace_of(id));
    let own = tenant.service.meta.key.namespace();
    let mut namespaces: Vec<&str> = gateways.chain([own]).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    let hosts = namespaces.into_iter().map(|it| reader.hosts_of(it));
    let hosts = hosts.max().unwrap_or(1).max(1);
    let all = bound.saturating_mul(ROW_TEXT_BYTES as u64) / SHARE;
    let each = usize::try_from(all / hosts).unwrap_or(BYTES_MAX);
    each.clamp(BYTES_LEAST, BYTES_MAX)
}

/// Tells that a rule and all behind it would be repeated on too many hosts.
pub(crate) fn says_too_much(service: &VirtualService, field: &str, max: usize) -> Finding {
    Finding::new(
        Severity::Error,
        &service.meta.key,
        field,
        format!(
            "brings what this namespace says on hosts below its wildcards beyond {max} bytes for \
             each, so there what the rules before it do not take gets 503"
        ),
        "write less, or name those hosts in spec.hosts, where it counts for --bound routes",
    )
}
