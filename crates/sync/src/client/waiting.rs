//! Removals that a server infers, and that wait at the proxy where they would take much.
//!
//! A server that compares says of some resources that it does not have them. It is told that they
//! are gone, so that both ends go on from the same digest; but while they wait here they stay in
//! service and in the log. A connection that ends forgets what waits: the next server compares
//! again, and infers it again or not.

use std::collections::{BTreeMap, HashSet};

use myriad_base::clock::Instant;
use myriad_base::hold::{HoldLimits, Loss};
use myriad_model::{COMMIT_RESOURCES_MAX, Key, Kind, Name, SealedArc, Snapshot, Value};

/// The kinds that are counted, and how people read them.
pub(crate) const COUNTED: [(Kind, &str); 3] = [
    (Kind::Domain, "domains"),
    (Kind::Route, "routes"),
    (Kind::Certificate, "certificates"),
];

/// The removals that wait.
pub(super) struct Waiting {
    limits: HoldLimits,
    /// How many of each counted kind were in service when the stream began.
    before: [usize; COUNTED.len()],
    /// The resources; at most those in service.
    all: BTreeMap<Key, SealedArc>,
    domains: usize,
    /// Whether some have come since they were judged.
    is_fresh: bool,
    /// Whether the server has said all of them.
    is_whole: bool,
    /// The loss that there would be, if that is too much.
    loss: Option<Loss>,
    since: Option<Instant>,
}

impl Waiting {
    pub(super) fn new(limits: HoldLimits, held: &Snapshot) -> Self {
        Waiting {
            limits,
            before: COUNTED.map(|(kind, _)| held.count(kind)),
            all: BTreeMap::new(),
            domains: 0,
            is_fresh: false,
            is_whole: false,
            loss: None,
            since: None,
        }
    }

    pub(super) fn loss(&self) -> Option<Loss> {
        self.loss
    }

    /// When what is held takes effect by itself.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.since? + self.limits.time?)
    }

    /// The resource is to go.
    pub(super) fn insert(&mut self, sealed: SealedArc) {
        (self.is_fresh, self.is_whole) = (true, false);
        let key = sealed.key().clone();
        let is_domain = key.kind == Kind::Domain;
        let former = self.all.insert(key, sealed);
        self.domains += usize::from(is_domain && former.is_none());
    }

    /// Something was sent in place of the resource.
    pub(super) fn forget(&mut self, key: &Key) {
        if self.all.remove(key).is_some() {
            self.note_removed(key);
        }
    }

    /// The server has said all. Returns what may go at once: everything if it is confirmed or
    /// little, else the certificates that nothing which is held shows.
    pub(super) fn judge(
        &mut self,
        held: &Snapshot,
        received: &Snapshot,
        is_confirmed: bool,
    ) -> Vec<SealedArc> {
        if self.all.is_empty() {
            return Vec::new();
        }
        self.is_whole = true;
        let losses = self.losses(held, received);
        let is_over = |loss: &&Loss| self.limits.are_exceeded_by(**loss);
        let loss = losses.iter().find(is_over).filter(|_| !is_confirmed);
        self.loss = loss.copied();
        if self.loss.is_none() {
            return self.take();
        }
        match std::mem::take(&mut self.is_fresh) {
            true => self.take_unshown(),
            false => Vec::new(),
        }
    }

    /// Everything that waits is meant.
    pub(super) fn confirm(&mut self) {
        self.loss = None;
    }

    /// Removals that may take effect now, at most as many as one commit has.
    pub(super) fn release(&mut self, now: Instant) -> Vec<SealedArc> {
        if self.loss.is_some() {
            self.since.get_or_insert(now);
            if self.deadline().is_none_or(|until| now < until) {
                return Vec::new();
            }
            self.loss = None;
        }
        match self.is_whole {
            true => self.take(),
            false => Vec::new(),
        }
    }

    /// The losses of each counted kind. Domains are themselves: those of another cluster are
    /// no substitute. Routes and certificates are counted, since a newer version of the controller
    /// may name them otherwise.
    fn losses(&self, held: &Snapshot, received: &Snapshot) -> Vec<Loss> {
        let loss = |((kind, what), before): (&(Kind, &'static str), usize)| {
            let lost = match kind {
                Kind::Domain => self.domains,
                kind => before.saturating_sub(received.count(*kind)),
            };
            // A stream that began with little has more now.
            let of = if before < lost {
                held.count(*kind)
            } else {
                before
            };
            Loss { what, lost, of }
        };
        COUNTED.iter().zip(self.before).map(loss).collect()
    }

    fn take(&mut self) -> Vec<SealedArc> {
        // The names of domains go before what they lead to.
        let rank = |sealed: &SealedArc| match sealed.key().kind {
            Kind::Listener => 0,
            Kind::Domain => 1,
            Kind::StreamRoute => 2,
            Kind::Route => 3,
            Kind::Certificate => 4,
            Kind::Telemetry | Kind::Provider | Kind::ChallengeAnswer => 5,
            Kind::Upstream => 6,
            Kind::Endpoints | Kind::Trust => 7,
            Kind::AccessPolicy => 8,
            // None is in service.
            Kind::Newer(_) => 9,
        };
        let mut all: Vec<SealedArc> = self.all.values().cloned().collect();
        all.sort_by_key(rank);
        all.truncate(COMMIT_RESOURCES_MAX);
        for sealed in &all {
            self.forget(sealed.key());
        }
        all
    }

    fn note_removed(&mut self, key: &Key) {
        self.domains -= usize::from(key.kind == Kind::Domain);
        if self.all.is_empty() {
            (self.loss, self.since) = (None, None);
        }
    }

    /// Takes out the certificates that nothing which is held shows, unless they are many: they were
    /// given up by domains that stay, since they are refused or revoked.
    fn take_unshown(&mut self) -> Vec<SealedArc> {
        let shown: HashSet<Name> = self.all.values().flat_map(shown).collect();
        let is_unshown = |key: &Key| key.kind == Kind::Certificate && !shown.contains(&key.name);
        let before = COUNTED.iter().zip(self.before);
        let certificates = before.filter(|((kind, _), _)| *kind == Kind::Certificate);
        let loss = Loss {
            what: "certificates",
            lost: self.all.keys().filter(|key| is_unshown(key)).count(),
            of: certificates.map(|(_, before)| before).sum(),
        };
        if self.limits.are_exceeded_by(loss) {
            return Vec::new();
        }
        let taken = self.all.extract_if(.., |key, _| is_unshown(key));
        taken.map(|(_, sealed)| sealed).collect()
    }
}

/// The certificates that a resource shows.
fn shown(sealed: &SealedArc) -> Vec<Name> {
    match sealed.resource().map(|resource| &resource.value) {
        Some(Value::Domain(domain)) => {
            let others = domain.alternatives.iter();
            domain.certificate.iter().chain(others).cloned().collect()
        }
        Some(Value::Listener(listener)) => listener.default_certificate.iter().cloned().collect(),
        Some(Value::Upstream(upstream)) => {
            let tls = upstream.tls.iter();
            tls.filter_map(|tls| tls.certificate.clone()).collect()
        }
        _ => Vec::new(),
    }
}
