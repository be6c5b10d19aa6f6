//! One upstream, as requests find it.

use std::sync::atomic::AtomicU32;

use myriad_model::{Name, SealedArc, UpstreamTls};

use super::resolve::Resolution;
use super::target::Targets;
use crate::balance::{Member, Pool};
use crate::net::hash::hash;

/// The class of upstream names among hashes.
const CLASS: u8 = 10;

/// An upstream with its endpoints. Either part may be missing: translation sends them apart.
pub struct UpstreamEntry {
    /// The hash of its name.
    pub hash: u64,
    /// Its name, shared with whichever part is there.
    pub name: Name,
    /// The resource of kind upstream.
    pub upstream: Option<SealedArc>,
    /// The resource of kind endpoints.
    pub endpoints: Option<SealedArc>,
    /// The endpoints, ready to be picked from; empty for upstreams that DNS resolves.
    pub pool: Pool,
    /// The endpoints that DNS tells.
    pub resolution: Option<Box<Resolution>>,
    /// Repetitions in flight, of all workers, since the upstream last changed.
    pub repeating: AtomicU32,
}

/// The hash of an upstream's name.
pub fn hash_of(name: &str) -> u64 {
    hash(CLASS, name)
}

impl UpstreamEntry {
    /// Builds the entry from its parts.
    pub fn new(
        name: Name,
        upstream: Option<SealedArc>,
        endpoints: Option<SealedArc>,
        targets: &mut Targets,
    ) -> Self {
        let value = upstream.as_ref().and_then(|sealed| sealed.upstream());
        let tls = value.filter(|value| value.protocol.is_tls()).map(|value| {
            value.tls.as_deref().cloned().unwrap_or(UpstreamTls {
                verify: true,
                ..UpstreamTls::unverified()
            })
        });
        let names = value.and_then(|value| value.dns.as_deref());
        let first = names.and_then(|dns| dns.names.first());
        let resolution = first.map(|first| Box::new(Resolution::new(first.clone(), tls.clone())));
        let listed = endpoints.as_ref().and_then(|sealed| sealed.endpoints());
        let pool = match (value, listed) {
            (Some(value), Some(listed)) if value.dns.is_none() => {
                Pool::new(listed.endpoints.iter().map(|endpoint| Member {
                    target: targets.acquire(endpoint.address, tls.as_ref()),
                    weight: endpoint.weight,
                }))
            }
            _ => Pool::default(),
        };
        UpstreamEntry {
            hash: hash_of(&name),
            name,
            upstream,
            endpoints,
            pool,
            resolution,
            repeating: AtomicU32::new(0),
        }
    }

    /// Whether endpoints are spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        let value = self.upstream.as_ref().and_then(|sealed| sealed.upstream());
        value.is_some_and(|value| value.protocol.is_tls())
    }

    /// Whether endpoints are spoken to in HTTP/2.
    pub fn is_http2(&self) -> bool {
        let value = self.upstream.as_ref().and_then(|sealed| sealed.upstream());
        value.is_some_and(|value| value.protocol.is_h2())
    }

    /// Gives back the targets, once another entry has taken the place of this one.
    pub fn release(&self, targets: &mut Targets) {
        for member in self.pool.members() {
            targets.release(&member.target);
        }
    }
}
