//! One upstream, as requests find it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_model::{
    Dns, DnsMode, Limits, MeshTls, Name, SealedArc, Upstream, UpstreamOptions, UpstreamTls,
};
use smallvec::SmallVec;

use super::dynamic::Dynamic;
use super::endpoint::EndpointTable;
use super::original::Originals;
use super::resolve::{DnsAnswer, Resolution};
use super::slices::{self, SliceSettings, Slices};
use crate::balance::usage::Usage;
use crate::balance::{Endpoint, Pool, TransportSettings};
use crate::failure::{Failure, FailureKind};
use crate::local::Local;
use crate::net::names::{self, Names};
use crate::random::hash::hash;
use crate::telemetry::standard::{Book, Reporter};

/// The class of upstream names among hashes.
const CLASS: u8 = 10;

/// An upstream with its endpoints. Either part may be missing: translation sends them apart.
pub struct UpstreamEntry {
    /// The hash of its name.
    pub hash: u64,
    /// Its name, shared with whichever part is there.
    pub name: Name,
    /// The namespace that it is of, by its hash.
    pub owner: u64,
    /// The resource of kind upstream.
    pub upstream: Option<SealedArc>,
    /// The resources of kind endpoints, by name: one, unless there are many endpoints.
    pub endpoints: Parts,
    /// Its endpoints by part, where there are several parts; otherwise they are the pool's own.
    slices: Slices,
    /// The endpoints, ready to be picked from; empty for upstreams that DNS resolves.
    pub pool: Pool,
    /// The endpoints that DNS tells, or the client's connection.
    pub resolution: Option<Resolving>,
    /// How endpoints are spoken to.
    pub manner: Arc<TransportSettings>,
    /// The connections and requests in use, of all workers.
    pub usage: Arc<Usage>,
    /// The upstream over HTTP/2 for clients that speak it, where it follows them.
    http2: Option<Arc<UpstreamEntry>>,
}

/// The resources that hold the endpoints of an upstream, by name.
pub type Parts = SmallVec<[SealedArc; 1]>;

/// The source of endpoints that no resource lists.
pub enum Resolving {
    /// Names that the upstream lists.
    Listed(Box<Resolution>),
    /// The host that each request names.
    Named(Dynamic),
    /// The original destination of the client's connection.
    Original(Originals),
}

/// The hash of an upstream's name.
pub fn hash_of(name: &str) -> u64 {
    hash(CLASS, name)
}

impl UpstreamEntry {
    /// Builds the entry from its parts. What is in use at the one before stays counted.
    pub fn new(
        name: Name,
        upstream: Option<SealedArc>,
        endpoints: Parts,
        targets: &mut EndpointTable,
        before: Option<&UpstreamEntry>,
    ) -> Self {
        let (own, sealed) = (upstream.clone(), endpoints.clone());
        let mut entry = Self::build(name, own, sealed, targets, (before, false));
        if entry.options().is_some_and(|it| it.follows_client) {
            let before = before.and_then(|before| before.http2.as_deref());
            let name = entry.name.clone();
            let mut twin = Self::build(name, upstream, endpoints, targets, (before, true));
            twin.usage = entry.usage.clone();
            entry.http2 = Some(Arc::new(twin));
        }
        let max = entry.limits().map_or(0, |limits| limits.connections_max);
        entry.usage.bear(max);
        entry
    }

    fn build(
        name: Name,
        upstream: Option<SealedArc>,
        endpoints: Parts,
        targets: &mut EndpointTable,
        (before, is_http2): (Option<&UpstreamEntry>, bool),
    ) -> Self {
        let value = upstream.as_ref().and_then(|sealed| sealed.upstream());
        let manner = manner(&name, value, is_http2, before);
        let options = value.and_then(|value| value.options.as_deref());
        let known = before.and_then(|before| before.resolution.as_ref());
        let resource = upstream.as_ref().and_then(|sealed| sealed.resource());
        let owner = names::owner(resource.map_or("", |resource| resource.origin.namespace()));
        let resolution = value.and_then(|value| Resolving::new(owner, value, &manner, known));
        let is_listed = resolution.is_none() && !endpoints.is_empty();
        let (slices, pool) = match value.filter(|_| is_listed) {
            Some(value) => {
                let plain = unsecured(value, &manner);
                let default = UpstreamOptions::default();
                let settings = SliceSettings {
                    options: options.unwrap_or(&default),
                    owner,
                    before: before.map(|before| &before.pool),
                    secured: &manner,
                    plain: plain.as_ref().unwrap_or(&manner),
                };
                // With other options, whatever was made by them is made anew.
                let is_same = |it: &&UpstreamEntry| {
                    Arc::ptr_eq(&it.manner, &manner) && it.options() == options
                };
                let known = before.filter(is_same).map(|it| &it.slices);
                listed(&endpoints, known, &settings, targets)
            }
            None => (Slices::default(), Pool::default()),
        };
        UpstreamEntry {
            hash: hash_of(&name),
            name,
            owner,
            upstream,
            endpoints,
            slices,
            pool,
            resolution,
            manner,
            usage: before.map_or_else(Arc::default, |before| before.usage.clone()),
            http2: None,
        }
    }

    /// The upstream for a request of a client that speaks HTTP/2, or does not.
    pub fn for_client(self: &Arc<Self>, is_http2: bool) -> &Arc<Self> {
        match &self.http2 {
            Some(twin) if is_http2 => twin,
            _ => self,
        }
    }

    /// The book where its traffic is counted. The reporter is the same for all of it.
    pub fn book(&self, local: &Local, reporter: Reporter) -> &Arc<Book> {
        self.usage.book.get_or_init(|| {
            let resource = self.upstream.as_ref().and_then(|sealed| sealed.resource());
            let origin = resource.map(|resource| &resource.origin);
            local.library.open(&self.name, origin, reporter)
        })
    }

    /// The endpoints that DNS tells of now; none where it is not asked. The host is that of the
    /// request, `asker` is the client by its address, and `original` is what the client's
    /// connection was meant for, where it was captured.
    ///
    /// # Errors
    /// When there is no address.
    pub async fn answer(
        &self,
        names: &Names,
        (host, asker): (&str, u64),
        original: Option<SocketAddr>,
    ) -> Result<Option<Arc<DnsAnswer>>, Failure> {
        let answer = match &self.resolution {
            Some(Resolving::Original(originals)) => match original {
                Some(address) => Ok(originals.answer(address)),
                None => Err(FailureKind::NoEndpoint.into()),
            },
            None => return Ok(None),
            Some(Resolving::Listed(resolution)) => resolution.answer(names).await,
            Some(Resolving::Named(dynamic)) => dynamic.answer(names, host, asker).await,
        };
        answer.map(Some)
    }

    /// Whether an endpoint is one of those that resources list.
    pub fn lists(&self, target: &Endpoint) -> bool {
        let mut members = self.pool.members();
        match self.slices.is_empty() {
            true => members.any(|member| member.target.id == target.id),
            false => {
                let found = self.slices.member_at(target.address);
                found.is_some_and(|member| member.target.id == target.id)
            }
        }
    }

    /// Whether an endpoint that resources list has an IP address.
    pub fn has_ip(&self, ip: IpAddr) -> bool {
        let mut members = self.pool.members();
        match self.slices.is_empty() {
            true => members.any(|member| member.target.address.ip() == ip),
            false => self.slices.has_ip(ip),
        }
    }

    /// The parts that are made of each of several resources.
    #[cfg(test)]
    pub fn slices(&self) -> &Slices {
        &self.slices
    }

    /// Whether the host of a request decides about its endpoints.
    pub fn is_dynamic(&self) -> bool {
        matches!(self.resolution, Some(Resolving::Named(_)))
    }

    /// The settings of its endpoints, where it has any.
    pub fn options(&self) -> Option<&UpstreamOptions> {
        let value = self.upstream.as_ref().and_then(|sealed| sealed.upstream());
        value?.options.as_deref()
    }

    /// The limits beyond which requests are refused, where it has any.
    pub fn limits(&self) -> Option<&Limits> {
        Some(&self.options()?.limits)
    }

    /// Whether endpoints are spoken to over TLS.
    pub fn is_tls(&self) -> bool {
        self.manner.tls.is_some()
    }

    /// Whether endpoints are spoken to in HTTP/2.
    pub fn is_http2(&self) -> bool {
        self.manner.is_http2
    }

    /// Gives back the targets that the entry in its place, if any, has not taken over.
    pub fn release(&self, targets: &mut EndpointTable, now: Option<&UpstreamEntry>) {
        self.slices.release(targets, now.map(|now| &now.slices));
        if self.slices.is_empty() {
            let members = self.pool.members();
            members.for_each(|member| targets.release(&member.target));
        }
        if let Some(twin) = &self.http2 {
            twin.release(targets, now.and_then(|now| now.http2.as_deref()));
        }
    }
}

/// The pool of endpoints that resources list, and what is made of each resource where there are
/// several.
fn listed(
    endpoints: &[SealedArc],
    known: Option<&Slices>,
    settings: &SliceSettings<'_>,
    targets: &mut EndpointTable,
) -> (Slices, Pool) {
    if let [only] = endpoints {
        return (Slices::default(), slices::whole(only, settings, targets));
    }
    let slices = Slices::new(endpoints, known, settings, targets);
    let pool = slices.pool(settings, targets);
    targets.note_weighed(pool.weighed());
    (slices, pool)
}

impl Resolving {
    /// The way to resolve an upstream; none where its endpoints are listed. The owner is one of
    /// [`names::owner`].
    fn new(
        owner: u64,
        value: &Upstream,
        manner: &Arc<TransportSettings>,
        before: Option<&Resolving>,
    ) -> Option<Self> {
        let options = value.options.as_deref().cloned();
        let manner = match value.original_destination || value.dns.is_some() {
            true => unsecured(value, manner).unwrap_or_else(|| manner.clone()),
            false => return None,
        };
        let options = options.unwrap_or_default();
        if let Some(dns) = value.dns.as_deref() {
            return Some(Resolving::of_names(owner, dns, manner, options, before));
        }
        let before = match before {
            Some(Resolving::Original(before)) => Some(before),
            _ => None,
        };
        Some(Resolving::Original(Originals::new(manner, options, before)))
    }

    fn of_names(
        owner: u64,
        dns: &Dns,
        manner: Arc<TransportSettings>,
        options: UpstreamOptions,
        before: Option<&Resolving>,
    ) -> Self {
        match (dns.mode, before) {
            (DnsMode::Dynamic, Some(Resolving::Named(before))) => {
                Resolving::Named(Dynamic::new(owner, dns, manner, options, Some(before)))
            }
            (DnsMode::Dynamic, _) => {
                Resolving::Named(Dynamic::new(owner, dns, manner, options, None))
            }
            (_, before) => {
                let before = match before {
                    Some(Resolving::Listed(before)) => Some(&**before),
                    _ => None,
                };
                let resolution = Resolution::new(owner, dns.clone(), manner, options, before);
                Resolving::Listed(Box::new(resolution))
            }
        }
    }
}

/// How endpoints are spoken to. An upstream with options has connections of its own.
fn manner(
    name: &Name,
    value: Option<&Upstream>,
    is_http2: bool,
    before: Option<&UpstreamEntry>,
) -> Arc<TransportSettings> {
    let options = value.and_then(|value| value.options.as_deref());
    let tls = value.filter(|value| value.protocol.is_tls()).map(|value| {
        value.tls.as_deref().cloned().unwrap_or(UpstreamTls {
            verify: true,
            ..UpstreamTls::unverified()
        })
    });
    let manner = TransportSettings {
        tls,
        is_http2: is_http2 || value.is_some_and(|value| value.protocol.is_h2()),
        proxy_protocol: options.and_then(|options| options.proxy_protocol),
        owner: options.map(|_| name.clone()),
        source: value.and_then(|value| value.source_address.as_deref().copied()),
    };
    match before {
        Some(before) if *before.manner == manner => before.manner.clone(),
        _ => manner.intern(),
    }
}

/// How endpoints are spoken to that are not of the mesh, where only those of it are spoken to in
/// TLS. No such endpoint is told by DNS or by a client's connection.
fn unsecured(value: &Upstream, manner: &TransportSettings) -> Option<Arc<TransportSettings>> {
    let tls = value.tls.as_ref()?;
    let plain = || TransportSettings {
        tls: None,
        is_http2: manner.is_http2,
        proxy_protocol: manner.proxy_protocol,
        owner: manner.owner.clone(),
        source: manner.source,
    };
    (tls.mesh == MeshTls::Flagged).then(|| plain().intern())
}
