//! The read side: everything that a handshake or a request looks up, under one root.
//!
//! A clone costs a few reference counts. A change copies the nodes on its way (see
//! [`myriad_model::Tree`]), so the tables before it go on serving whoever holds them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_model::{
    CaptureDirection, Certificate, ChallengeAnswer, Domain, Host, Listener, Name, Origin,
    SealedArc, Tree,
    host::{HOST_BYTES_MAX, Pattern},
    is_demandable,
};

use super::access_policies::AccessPolicies;
use super::captured::{Aim, CapturedEntry};
use super::certificate::{self, CertificateEntry};
use super::challenge::{self, ChallengeEntry};
use super::claims::VerifiedClaims;
use super::entry::RouteEntry;
use super::handed_on::HandedOn;
use super::host::HostEntry;
use super::identity::IdentityEntry;
use super::leaf::{HostTable, Hosted, Keyed, Leaf, has_listener, place};
use super::on_demand::{self, OnDemandEntry};
use super::stream_route::{
    Arrival, HostStreamRoutes, ListenerStreamRoutes, StreamRouteEntry, listener_hash, specificity,
};
use super::telemetry::Telemetries;
use super::trust::{self, TrustEntry};
use crate::balance::draw_share;
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::pattern::Budget;
use crate::random::rng::Rng;
use crate::telemetry::recording::Recording;
use crate::upstream::entry::{self, UpstreamEntry};

/// All tables at one moment.
#[derive(Clone, Default)]
pub struct Tables {
    /// Counts commits, so that a connection knows whether anything has changed since it looked.
    pub generation: u64,
    pub(super) listeners: Arc<[SealedArc]>,
    pub(super) captured: Tree<Leaf<CapturedEntry>>,
    pub(super) providers: Arc<[SealedArc]>,
    pub(super) telemetries: Telemetries,
    pub(super) domains: HostTable<DomainEntry>,
    /// How many domains are of a section of their listeners.
    pub(super) sections: usize,
    pub(super) handed_on: HandedOn,
    pub(super) hosts: HostTable<HostEntry>,
    pub(super) stream_routes: HostTable<HostStreamRoutes>,
    pub(super) listener_stream_routes: Tree<Leaf<ListenerStreamRoutes>>,
    pub(super) certificates: Tree<Leaf<CertificateEntry>>,
    /// The certificates of hosts that no domain names.
    pub(super) on_demand: Tree<Leaf<OnDemandEntry>>,
    pub(super) challenges: Tree<Leaf<ChallengeEntry>>,
    pub(super) upstreams: Tree<Leaf<UpstreamEntry>>,
    pub(super) trusts: Tree<Leaf<TrustEntry>>,
    pub(super) access_policies: AccessPolicies,
    pub(super) identity: Option<Arc<IdentityEntry>>,
}

/// The domains of one host pattern: one, unless listeners differ.
pub struct DomainEntry {
    hash: u64,
    /// The domains by name; never empty.
    pub(super) domains: Vec<SealedArc>,
}

/// The entry that answers a handshake for a name.
pub enum Answerer<'a> {
    /// A domain, its certificate, and the object that it came from.
    Domain(&'a Domain, &'a Arc<CertificateEntry>, &'a Origin),
    /// The listener, with its default certificate or one that was obtained on demand.
    Listener(&'a Arc<CertificateEntry>),
    /// Nobody.
    Nobody,
}

/// A route that was found, with the host pattern it was found under.
#[derive(Debug, PartialEq, Eq)]
pub struct NotFound(pub FailureKind);

impl Tables {
    /// The access policies, which are asked of every request before its route has a say.
    pub fn access_policies(&self) -> &AccessPolicies {
        &self.access_policies
    }

    /// The identity of the proxy in its mesh; `None` before it was told, and then nothing of the
    /// mesh is accepted or opened.
    pub fn identity(&self) -> Option<&Arc<IdentityEntry>> {
        self.identity.as_ref()
    }

    /// Sets the identity of the proxy in its mesh from the next handshake on.
    pub fn identify(&mut self, identity: Arc<IdentityEntry>) {
        self.generation += 1;
        self.identity = Some(identity);
    }

    /// The settings of what is recorded; `None` where the proxy's own hold.
    pub fn recording(&self) -> Option<&Arc<Recording>> {
        self.telemetries.recording()
    }

    /// The listener of a name.
    pub fn listener(&self, name: &Name) -> Option<&Listener> {
        let at = self
            .listeners
            .binary_search_by(|sealed| sealed.name().cmp(name));
        self.listeners.get(at.ok()?)?.listener()
    }

    /// The listener that a captured connection belongs to: that of its address and port, or else
    /// of its port, or else of its direction.
    pub fn captured(
        &self,
        direction: CaptureDirection,
        original: SocketAddr,
    ) -> Option<&Arc<CapturedEntry>> {
        let mut aims = Aim::all(direction, original).into_iter();
        aims.find_map(|aim| self.captured_at(aim))
    }

    pub(super) fn captured_at(&self, aim: Aim) -> Option<&Arc<CapturedEntry>> {
        let is_it = |leaf: &Leaf<CapturedEntry>| leaf.0.aim() == aim;
        Some(&self.captured.get(aim.hash(), is_it)?.0)
    }

    /// The answer to a token that a lower-case host is asked for over HTTP.
    pub fn challenge(&self, host: &str, token: &str) -> Option<&Arc<ChallengeEntry>> {
        // Whoever asks chooses how long both are.
        let may_be = host.len() <= HOST_BYTES_MAX && ChallengeAnswer::is_token(token);
        match may_be && !self.challenges.is_empty() {
            true => self.challenge_of(&ChallengeAnswer::http_question(host, token)),
            false => None,
        }
    }

    /// The answer in handshakes for a lower-case host.
    pub fn challenge_by_tls(&self, host: &str) -> Option<&Arc<ChallengeEntry>> {
        match host.len() <= HOST_BYTES_MAX && !self.challenges.is_empty() {
            true => self.challenge_of(&ChallengeAnswer::tls_question(host)),
            false => None,
        }
    }

    fn challenge_of(&self, question: &str) -> Option<&Arc<ChallengeEntry>> {
        let is_it = |leaf: &Leaf<ChallengeEntry>| *leaf.0.question == *question;
        Some(&self.challenges.get(challenge::hash_of(question), is_it)?.0)
    }

    /// The provider of a name. They are few.
    pub fn provider(&self, name: &str) -> Option<&SealedArc> {
        let mut providers = self.providers.iter();
        providers.find(|sealed| sealed.name().as_str() == name)
    }

    /// The domain that covers a lower-case name on a listener.
    pub fn domain(&self, listener: &Name, name: &str) -> Option<&Domain> {
        self.domain_resource(listener, name)?.domain()
    }

    /// The resource behind [`Tables::domain`]. Of several of one pattern that of no section: what a
    /// listener has of its own goes before sections that are no more specific.
    pub fn domain_resource(&self, listener: &Name, name: &str) -> Option<&SealedArc> {
        let is_on = |sealed: &SealedArc, of_section: bool| {
            let domain = sealed.domain();
            domain.is_some_and(|domain| {
                domain.section.is_some() == of_section && has_listener(&domain.listeners, listener)
            })
        };
        self.domains.most_specific(name, |entry| {
            let find = |of_section| {
                let mut domains = entry.domains.iter();
                domains.find(|sealed| is_on(sealed, of_section))
            };
            find(false).or_else(|| find(true))
        })
    }

    /// The entry that answers for a name on a listener; without a name, for every host. A domain
    /// without a usable certificate has nobody: an alert is better than another's certificate.
    pub fn answerer(&self, listener: &Name, name: Option<&str>) -> Answerer<'_> {
        let sealed = self.domain_resource(listener, name.unwrap_or_default());
        let domain = sealed.and_then(|sealed| sealed.domain());
        let origin = sealed.and_then(|sealed| sealed.resource());
        let (Some(domain), Some(resource)) = (domain, origin) else {
            let entry = self.fallback(listener, name);
            return entry.map_or(Answerer::Nobody, Answerer::Listener);
        };
        let auth = domain.client_auth.as_ref();
        let entry = if domain.mesh {
            self.identity.as_ref().map(|identity| &identity.certificate)
        } else if auth.is_some_and(|auth| self.trust(&auth.trust).is_none()) {
            None
        } else if let Some(certificate) = &domain.certificate {
            let mut all = std::iter::once(certificate).chain(&domain.alternatives);
            all.find_map(|name| self.certificate(name))
        } else {
            self.fallback(listener, name)
        };
        match entry {
            Some(entry) => Answerer::Domain(domain, entry, &resource.origin),
            None => Answerer::Nobody,
        }
    }

    /// The certificate that was obtained on demand for a lower-case name.
    pub fn on_demand(&self, name: &str) -> Option<&OnDemandEntry> {
        if self.on_demand.is_empty() {
            return None;
        }
        let is_it = |leaf: &Leaf<OnDemandEntry>| *leaf.0.host == *name;
        Some(&self.on_demand.get(on_demand::hash_of(name), is_it)?.0)
    }

    /// Whether a name is served on a listener and has no certificate of its own, so that one may be
    /// obtained on demand. `is_streamed` says that a stream route takes its connections.
    pub fn lacks_certificate(&self, listener: &Name, name: &str, is_streamed: bool) -> bool {
        let domain = self.domain(listener, name);
        if domain.is_some_and(|domain| domain.mesh || domain.certificate.is_some()) {
            return false;
        }
        let is_served = || self.served(listener, name).is_some();
        is_demandable(name) && self.on_demand(name).is_none() && (is_streamed || is_served())
    }

    /// The certificate of a name.
    pub fn certificate(&self, name: &Name) -> Option<&Arc<CertificateEntry>> {
        let is_it = |leaf: &Leaf<CertificateEntry>| leaf.0.sealed.name() == name;
        let leaf = self.certificates.get(certificate::hash_of(name), is_it)?;
        Some(&leaf.0)
    }

    /// The trust of a name.
    pub fn trust(&self, name: &Name) -> Option<&Arc<TrustEntry>> {
        let is_it = |leaf: &Leaf<TrustEntry>| leaf.0.sealed.name() == name;
        Some(&self.trusts.get(trust::hash_of(name), is_it)?.0)
    }

    /// The upstream of a name whose hash the caller has.
    pub fn upstream(&self, hash: u64, name: &Name) -> Option<&Arc<UpstreamEntry>> {
        let leaf = self.upstreams.get(hash, |leaf| leaf.0.name == *name)?;
        Some(&leaf.0)
    }

    /// The route of a request: the first that matches, of the most specific host pattern that has
    /// any route on the listener. `token` is what a verified token of the request says, and
    /// `budget` what finding it may cost.
    ///
    /// # Errors
    /// That no host pattern covers the request, that no route of the one that does matches, or
    /// that its dialect refuses the path, or that finding it takes too many steps.
    pub fn route(
        &self,
        listener: &Name,
        head: &Head<'_>,
        token: Option<VerifiedClaims<'_>>,
        budget: &Budget,
    ) -> Result<&RouteEntry, NotFound> {
        let served = self.served(listener, &head.host);
        let (listener, host) = served.ok_or(NotFound(FailureKind::NoHost))?;
        host.find(listener, head, token, budget).map_err(NotFound)
    }

    /// The routes beside the one that was found whose restrictions hold too, since the endpoint
    /// may read the path so that the request is theirs.
    pub fn routes_otherwise<'t: 'a, 'a>(
        &'t self,
        listener: &'a Name,
        found: &'a RouteEntry,
        head: &'a Head<'_>,
        token: Option<VerifiedClaims<'a>>,
        budget: &'a Budget,
    ) -> impl Iterator<Item = &'t RouteEntry> {
        let readings = head.readings.as_ref();
        let served = readings.and_then(|_| self.served(listener, &head.host));
        let others = served
            .into_iter()
            .flat_map(move |(listener, host)| host.find_otherwise(listener, head, token, budget));
        others.filter(move |other| !other.is_same(found))
    }

    /// Whether there is any stream route.
    pub fn has_stream_routes(&self) -> bool {
        !self.stream_routes.is_empty() || !self.listener_stream_routes.is_empty()
    }

    /// The stream route of a connection: the first that takes it, of the most specific host pattern
    /// that has any, unless a domain is more specific than that pattern. Those for all
    /// connections of the listener come last, but for those that it stands behind.
    pub fn stream_route(
        &self,
        arrival: Arrival<'_>,
        name: Option<&str>,
    ) -> Option<&Arc<StreamRouteEntry>> {
        if !self.has_stream_routes() {
            return None;
        }
        let domain = self.domain(arrival.listener, name.unwrap_or_default());
        let bound = domain.map(|domain| specificity(domain.host.pattern()));
        let found = self.named_stream_route(arrival, name.unwrap_or_default());
        if let Some((own, entry)) = found {
            let named = (Some(own) >= bound).then_some(entry)?;
            let addressed = match named.behind() {
                0 => None,
                rank => self
                    .of_listener(arrival.listener)
                    .and_then(|all| all.find_addressed(arrival, rank)),
            };
            return Some(addressed.unwrap_or(named));
        }
        if bound.is_some_and(|bound| bound > specificity(Pattern::Any)) {
            return None;
        }
        self.of_listener(arrival.listener)?.find(arrival)
    }

    pub(super) fn of_listener(&self, listener: &Name) -> Option<&ListenerStreamRoutes> {
        let is_it = |leaf: &Leaf<ListenerStreamRoutes>| leaf.0.listener() == listener;
        let leaf = self
            .listener_stream_routes
            .get(listener_hash(listener), is_it)?;
        Some(&leaf.0)
    }

    /// One of the upstreams of a stream route, by weight; none where that is not there.
    pub fn draw_upstream(
        &self,
        entry: &StreamRouteEntry,
        dice: &Rng,
    ) -> Option<&Arc<UpstreamEntry>> {
        let upstreams = &entry.stream_route()?.upstreams;
        let index = draw_share(upstreams.iter().map(|share| share.weight), dice)?;
        let share = upstreams.get(index)?;
        self.upstream(*entry.upstream_hashes().get(index)?, &share.upstream)
    }

    /// Whether an address is itself a host of routes on a listener.
    pub fn is_host(&self, listener: &Name, address: IpAddr) -> bool {
        let host = Host::of_name(&address.to_canonical().to_string()).ok();
        let entry = host.and_then(|host| self.hosts.get(&host));
        entry.is_some_and(|entry| entry.is_on(listener))
    }

    /// How many nodes of all tables were copied so far.
    pub fn nodes_copied(&self) -> u64 {
        self.domains.nodes_copied()
            + self.handed_on.nodes_copied()
            + self.captured.nodes_copied()
            + self.hosts.nodes_copied()
            + self.stream_routes.nodes_copied()
            + self.listener_stream_routes.nodes_copied()
            + self.certificates.nodes_copied()
            + self.on_demand.nodes_copied()
            + self.upstreams.nodes_copied()
            + self.trusts.nodes_copied()
    }

    /// Everything that the tables hold, as lines that are equal for equal tables.
    pub fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for sealed in self.listeners.iter() {
            lines.push(format!("listener {} {}", sealed.name(), sealed.version()));
        }
        for leaf in self.captured.iter() {
            let sealed = &leaf.0.sealed;
            lines.push(format!("captured {} {}", sealed.name(), sealed.version()));
        }
        for sealed in self.access_policies.iter() {
            lines.push(format!(
                "access_policy {} {}",
                sealed.name(),
                sealed.version()
            ));
        }
        for sealed in self.providers.iter() {
            lines.push(format!("provider {} {}", sealed.name(), sealed.version()));
        }
        for sealed in self.telemetries.iter() {
            lines.push(format!("telemetry {} {}", sealed.name(), sealed.version()));
        }
        for entry in self.domains.iter() {
            for sealed in &entry.domains {
                let (host, name) = (entry.host(), sealed.name());
                lines.push(format!("domain {host} {name} {}", sealed.version()));
            }
        }
        for entry in self.hosts.iter() {
            for (place, route) in entry.routes().iter().enumerate() {
                let (host, name) = (entry.host(), route.name());
                let version = route.sealed().version();
                lines.push(format!("route {host} {place} {name} {version}"));
            }
        }
        for entry in self.stream_routes.iter() {
            describe_stream_routes(entry.host().as_str(), entry.stream_routes(), &mut lines);
        }
        for leaf in self.listener_stream_routes.iter() {
            describe_stream_routes(leaf.0.listener(), leaf.0.stream_routes(), &mut lines);
        }
        let on_demand = self.on_demand.iter().map(|leaf| &leaf.0.certificate);
        for entry in self
            .certificates
            .iter()
            .map(|leaf| &leaf.0)
            .chain(on_demand)
        {
            let (name, version) = (entry.sealed.name(), entry.sealed.version());
            lines.push(format!("certificate {name} {version}"));
        }
        for leaf in self.challenges.iter() {
            let (name, version) = (leaf.0.sealed.name(), leaf.0.sealed.version());
            lines.push(format!("challenge_answer {name} {version}"));
        }
        for leaf in self.trusts.iter() {
            let sealed = &leaf.0.sealed;
            lines.push(format!("trust {} {}", sealed.name(), sealed.version()));
        }
        for leaf in self.upstreams.iter() {
            let entry = &leaf.0;
            let parts = entry.upstream.iter().chain(&entry.endpoints);
            let versions: Vec<_> = parts.map(|sealed| sealed.version()).collect();
            let members = entry.pool.len();
            lines.push(format!("upstream {} {versions:?} {members}", entry.name));
        }
        lines.sort();
        lines
    }

    /// The certificate where no domain has one for the name.
    fn fallback(&self, listener: &Name, name: Option<&str>) -> Option<&Arc<CertificateEntry>> {
        let found = name.and_then(|name| self.on_demand(name));
        let found = found.map(|entry| &entry.certificate);
        found.or_else(|| self.default_certificate(listener))
    }

    fn default_certificate(&self, listener: &Name) -> Option<&Arc<CertificateEntry>> {
        let listener = self.listener(listener)?;
        self.certificate(listener.default_certificate.as_ref()?)
    }
}

fn describe_stream_routes(
    place: &str,
    stream_routes: &[Arc<StreamRouteEntry>],
    lines: &mut Vec<String>,
) {
    for (number, entry) in stream_routes.iter().enumerate() {
        let (name, version) = (entry.sealed().name(), entry.sealed().version());
        lines.push(format!("stream_route {place} {number} {name} {version}"));
    }
}

impl DomainEntry {
    /// The domains of a host pattern; none for none.
    pub fn new(mut domains: Vec<SealedArc>) -> Option<Self> {
        domains.sort_by(|a, b| a.name().cmp(b.name()));
        let host = &domains.first()?.domain()?.host;
        Some(DomainEntry {
            hash: place(host.pattern()),
            domains,
        })
    }
}

impl Keyed for DomainEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.host() == other.host()
    }
}

impl Hosted for DomainEntry {
    fn host(&self) -> &Host {
        static ANY: std::sync::LazyLock<Host> = std::sync::LazyLock::new(Host::any);
        let first = self.domains.first().and_then(|sealed| sealed.domain());
        first.map_or(&ANY, |domain| &domain.host)
    }
}

impl Keyed for UpstreamEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// The value of a certificate entry.
pub fn value_of(entry: &CertificateEntry) -> Option<&Certificate> {
    entry.sealed.certificate()
}

/// The hash of an upstream's name; see [`Tables::upstream`].
pub fn upstream_hash(name: &str) -> u64 {
    entry::hash_of(name)
}
