//! The desk: what is done next for which certificate. It has no clock, no file and no connection.
//!
//! - Every certificate is for itself. One that fails waits longer each time, and gives way to those
//!   that have not failed.
//! - An authority is asked for no more orders than its budget has, no more at a time than there are
//!   places, and for nothing while it is in trouble.
//! - An order says by its stage what is next, so that after a crash it goes on where it was kept.

mod places;
mod results;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use super::directory::{AuthorityState, Line, Places};
use super::{
    AcmeIssuer, Challenge, DAY, DnsRecord, HOUR, HeldCertificate, Millis, Order, OrderKey,
    OrderStage, RenewalWindow, registered_domain,
};

/// The bounds of a desk.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Names that are looked at together, before an authority is asked for anything.
    pub proofs_max: usize,
    /// Requests to one authority at a time.
    pub steps_max: usize,
    /// Orders of one authority that are placed and not over.
    pub open_max: usize,
    /// New orders at one authority in three hours.
    pub orders_per_authority: u32,
    /// New orders for one registered domain in a week; renewals that an authority has asked for
    /// are not counted.
    pub orders_per_domain: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            proofs_max: 256,
            steps_max: 32,
            open_max: 2_000,
            orders_per_authority: 300,
            orders_per_domain: 50,
        }
    }
}

/// A certificate that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateWish {
    /// Its DNS names, sorted, at most [`NAMES_MAX`](super::NAMES_MAX).
    pub names: Vec<Box<str>>,
    /// The name of its issuer.
    pub issuer: Box<str>,
}

/// A step that is to be carried out.
#[derive(Clone, Debug)]
pub struct Task {
    /// The certificate.
    pub id: Arc<str>,
    /// The number of the step, which its result comes back with.
    pub ticket: u64,
    /// The step.
    pub step: TaskStep,
    /// The order as it stands; none where there is no order.
    pub order: Option<Box<Order>>,
    /// Whether the order has to be kept before the step.
    pub keep: bool,
    has_failed: bool,
}

/// The kinds of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStep {
    /// Find out whether the names lead here.
    Prove,
    /// Ask for an order.
    Place,
    /// Bring the answers into service.
    Answer,
    /// Tell the authority that they are.
    Accept,
    /// See what the authority says to them.
    Look,
    /// Ask for the certificate.
    Finalise,
    /// Fetch it, check it and keep it.
    Fetch,
    /// Remove the records of DNS that were set.
    Clean,
    /// Ask when a certificate is to be renewed: at this directory, by this name.
    Window(Box<str>, Box<str>),
}

/// The good outcomes of steps.
#[derive(Clone, Debug)]
pub enum StepOutcome {
    /// The names lead here, and records of DNS for their challenges go there.
    Proven(Vec<DnsRecord>),
    /// The authority has an order of this URL, with these challenges that are not met yet.
    Placed(Box<str>, Vec<Challenge>),
    /// The answers are in service.
    Answered,
    /// The authority knows.
    Accepted,
    /// It is not through; it may be asked again after so many milliseconds.
    Pending(Millis),
    /// The challenges are met, and this is the key that the certificate shall have.
    Ready(OrderKey),
    /// The certificate is asked for.
    Finalised,
    /// The certificate is there and kept.
    Issued(HeldCertificate),
    /// The records are removed.
    Cleaned,
    /// When the authority wants it to be renewed; none where it does not say.
    Window(Option<RenewalWindow>),
}

/// The bad outcomes of steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepTrouble {
    /// A name does not lead here: why, and the remedy.
    Unproven(String, String),
    /// The authority refuses the order, in these words.
    Refused(String),
    /// It has had too many orders, and may be asked again after so many milliseconds.
    Limited(String, Millis),
    /// It cannot be asked, or answers with something that is no answer; nor for so long.
    Unreachable(String, Millis),
    /// It does not know the order or the account any more.
    Lost(String),
    /// This machine fails.
    Local(String),
}

/// Something that whoever runs the desk does at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Keep an order.
    Keep(Box<Order>),
    /// Forget the order of a certificate, and take its answers out of service.
    Drop(Arc<str>),
    /// Tell people how it is with a certificate; none where all is well.
    Tell(Arc<str>, Option<TroubleNotice>),
}

/// The trouble with a certificate, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TroubleNotice {
    /// The trouble.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

/// Numbers for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeskCounts {
    /// Certificates that are wanted.
    pub wanted: usize,
    /// Of those, the ones that are there.
    pub held: usize,
    /// Orders that authorities have.
    pub open: usize,
    /// Orders that failed and wait for their next try.
    pub failing: usize,
}

/// The desk.
pub struct Desk {
    bounds: Bounds,
    seed: u64,
    issuers: BTreeMap<Box<str>, AcmeIssuer>,
    certificates: HashMap<Arc<str>, Entry>,
    timers: BTreeSet<(Millis, Arc<str>)>,
    proofs: Places,
    authorities: BTreeMap<Box<str>, AuthorityState>,
    /// Budgets of registered domains for which something was ordered of late.
    domains: HashMap<Box<str>, Budget>,
    tickets: u64,
}

/// One certificate.
#[derive(Default)]
struct Entry {
    wish: Option<CertificateWish>,
    held: Option<HeldCertificate>,
    window: Option<RenewalWindow>,
    /// When the window is looked at next.
    look_at: Millis,
    order: Option<Order>,
    /// Whether the order has changed since it was kept.
    is_changed: bool,
    /// Whether any state of the order is kept.
    is_kept: bool,
    /// Whether a process before has placed the order: the authority may have looked at its answers
    /// while nobody gave them.
    is_found: bool,
    /// The directory of the authority where it counts among the open orders.
    counted: Option<Box<str>>,
    state: Wait,
    timer: Option<Millis>,
    /// Whether people are told of a trouble.
    is_told: bool,
    /// How often it was tried to remove the order's records of DNS.
    sweeps: u32,
    /// When that is tried next.
    sweep_at: Millis,
}

/// The thing that a certificate waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wait {
    /// A moment, or nothing.
    #[default]
    Idle,
    /// A place, with this number.
    Queued(u64),
    /// The outcome of a step, with this number.
    Running(u64),
}

/// The line that a certificate belongs into.
enum Belongs {
    Nowhere,
    Timer(Millis),
    Proofs,
    Placing(Box<str>),
    Steps(Box<str>),
}

/// The span of the budget of an authority, and of a registered domain.
const AUTHORITY_SPAN: Millis = 3 * HOUR;
const DOMAIN_SPAN: Millis = 7 * DAY;

/// How far apart the first looks at renewal windows are.
const LOOK_INTERVAL: Millis = 50;

impl Desk {
    /// A desk that nothing is wanted of. Equal seeds do alike.
    pub fn new(bounds: Bounds, seed: u64) -> Desk {
        Desk {
            bounds,
            seed,
            issuers: BTreeMap::new(),
            certificates: HashMap::new(),
            timers: BTreeSet::new(),
            proofs: Places::new(bounds.proofs_max),
            authorities: BTreeMap::new(),
            domains: HashMap::new(),
            tickets: 0,
        }
    }

    /// Adds an issuer, or puts it in the place of that of its name.
    pub fn put_issuer(&mut self, name: &str, issuer: AcmeIssuer, now: Millis) -> Vec<Effect> {
        self.issuers.insert(name.into(), issuer);
        self.wake_those_of(name, now)
    }

    /// Takes an issuer away. Certificates that are there stay, and nothing is ordered.
    pub fn remove_issuer(&mut self, name: &str, now: Millis) -> Vec<Effect> {
        self.issuers.remove(name);
        self.wake_those_of(name, now)
    }

    fn wake_those_of(&mut self, name: &str, now: Millis) -> Vec<Effect> {
        let entries = self.certificates.iter();
        let is_of = |entry: &Entry| entry.wish.as_ref().is_some_and(|it| *it.issuer == *name);
        let of_it = entries.filter(|(_, entry)| is_of(entry));
        let ids: Vec<Arc<str>> = of_it.map(|(id, _)| id.clone()).collect();
        ids.iter().flat_map(|id| self.settle(id, now)).collect()
    }

    /// Takes in an order that was kept, before anything is wanted.
    pub fn restore_order(&mut self, order: Order, now: Millis) {
        let (names, directory, placed_at) = (
            order.names.clone(),
            order.directory.clone(),
            order.placed_at,
        );
        // The certificate of one that is over counts for it.
        let is_over = order.stage == OrderStage::Leaving;
        if placed_at > 0 && order.replaces.is_none() && !is_over {
            self.note_placed(&names, &directory, placed_at, now);
        }
        let is_open = order.stage.is_open();
        if is_open {
            self.authority(&directory).open += 1;
        }
        let entry = self.certificates.entry(order.id.clone()).or_default();
        entry.counted = is_open.then_some(directory);
        entry.is_kept = true;
        entry.is_found = order.stage.placed().is_some();
        entry.order = Some(order);
    }

    /// Takes in a certificate that is there.
    pub fn restore_certificate(&mut self, id: &Arc<str>, held: HeldCertificate, now: Millis) {
        if let (Some(directory), Some(placed_at)) = (held.directory.clone(), held.placed_at) {
            self.note_placed(&held.names, &directory, placed_at, now);
        }
        // The first looks after a start do not come all at once.
        let before = i64::try_from(self.certificates.len()).unwrap_or(i64::MAX);
        let entry = self.certificates.entry(id.clone()).or_default();
        entry.look_at = now.saturating_add(before.saturating_mul(LOOK_INTERVAL));
        entry.held = Some(held);
    }

    /// Forgets the orders of certificates that nobody wants, once it is known what is wanted.
    pub fn sweep(&mut self, now: Millis) -> Vec<Effect> {
        let entries = self.certificates.iter();
        let unwanted = entries.filter(|(_, entry)| entry.wish.is_none());
        let ids: Vec<Arc<str>> = unwanted.map(|(id, _)| id.clone()).collect();
        ids.iter().flat_map(|id| self.settle(id, now)).collect()
    }

    /// A certificate is wanted.
    pub fn want(&mut self, id: &Arc<str>, wish: CertificateWish, now: Millis) -> Vec<Effect> {
        let entry = self.certificates.entry(id.clone()).or_default();
        if entry.wish.as_ref() == Some(&wish) {
            return Vec::new();
        }
        entry.wish = Some(wish);
        self.settle(id, now)
    }

    /// A certificate is not wanted any more.
    pub fn unwant(&mut self, id: &Arc<str>, now: Millis) -> Vec<Effect> {
        let Some(entry) = self.certificates.get_mut(id) else {
            return Vec::new();
        };
        entry.wish = None;
        self.settle(id, now)
    }

    /// A certificate is not there any more: somebody else has taken it away.
    pub fn lose(&mut self, id: &Arc<str>, now: Millis) -> Vec<Effect> {
        let Some(entry) = self.certificates.get_mut(id) else {
            return Vec::new();
        };
        entry.held = None;
        entry.window = None;
        self.settle(id, now)
    }

    /// The next step that may be carried out, if there is one. It is for whoever runs the desk to
    /// call [`Desk::done`] with what came of it.
    pub fn next(&mut self, now: Millis) -> (Option<Task>, Vec<Effect>) {
        let mut effects = Vec::new();
        while let Some((moment, id)) = self.timers.first().cloned() {
            if moment > now {
                break;
            }
            self.timers.pop_first();
            if let Some(entry) = self.certificates.get_mut(&id) {
                entry.timer = None;
            }
            effects.extend(self.settle(&id, now));
        }
        (self.pop(now, &mut effects), effects)
    }

    /// When there is next something to do though nothing happens before.
    pub fn due(&self) -> Option<Millis> {
        let timer = self.timers.first().map(|(moment, _)| *moment);
        let proofs = self.proofs.has_next().then_some(Millis::MIN);
        let of_authorities = self.authorities.values();
        let of_authorities = of_authorities.filter_map(|it| it.due(self.bounds.open_max));
        timer.into_iter().chain(proofs).chain(of_authorities).min()
    }

    /// Numbers for metrics: a walk over all certificates.
    pub fn counts(&self) -> DeskCounts {
        let mut counts = DeskCounts::default();
        for entry in self.certificates.values() {
            counts.wanted += usize::from(entry.wish.is_some());
            counts.held += usize::from(entry.wish.is_some() && entry.held.is_some());
            let order = entry.order.as_ref();
            counts.failing += usize::from(order.is_some_and(|order| order.failures > 0));
            counts.open += usize::from(order.is_some_and(|order| order.stage.is_open()));
        }
        counts
    }

    fn authority(&mut self, url: &str) -> &mut AuthorityState {
        let bounds = self.bounds;
        self.authorities
            .entry(url.into())
            .or_insert_with(|| AuthorityState {
                placing: Line::default(),
                steps: Places::new(bounds.steps_max),
                budget: Budget::new(bounds.orders_per_authority, AUTHORITY_SPAN),
                open: 0,
                troubles: 0,
                not_before: Millis::MIN,
            })
    }

    fn domain_budget(&self, domain: &str) -> Budget {
        let known = self.domains.get(domain).copied();
        known.unwrap_or_else(|| Budget::new(self.bounds.orders_per_domain, DOMAIN_SPAN))
    }

    /// Counts an order that was placed, where that is not too long ago to matter.
    fn note_placed(&mut self, names: &[Box<str>], directory: &str, at: Millis, now: Millis) {
        let is_recent = |span: Millis| (now.saturating_sub(span)..=now).contains(&at);
        if is_recent(AUTHORITY_SPAN) {
            self.authority(directory).budget.spend(at);
        }
        if is_recent(DOMAIN_SPAN) {
            self.spend_domains(names, at);
        }
    }

    fn spend_domains(&mut self, names: &[Box<str>], now: Millis) {
        for domain in domains_of(names) {
            let mut budget = self.domain_budget(&domain);
            budget.spend(now);
            let is_new = self.domains.insert(domain.into(), budget).is_none();
            // Whoever has all of its budget needs no row; amortised over the rows that came.
            if is_new && self.domains.len().is_power_of_two() {
                self.domains.retain(|_, budget| !budget.is_whole(now));
            }
        }
    }

    /// Takes back what a placing has spent that nobody took.
    fn give_back_placing(&mut self, order: &Order) {
        self.authority(&order.directory).budget.give_back();
        if order.replaces.is_none() {
            for domain in domains_of(&order.names) {
                if let Some(budget) = self.domains.get_mut(domain.as_ref()) {
                    budget.give_back();
                }
            }
        }
    }

    /// A number between 0 and the largest, another one each time.
    fn random(&mut self) -> u32 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }
}

/// The registered domains of names, each once.
fn domains_of(names: &[Box<str>]) -> BTreeSet<Cow<'_, str>> {
    names.iter().map(|name| registered_domain(name)).collect()
}

/// The share of a span that belongs to a certificate: the same each time, and another one for most
/// others.
fn share_of(id: &str) -> u16 {
    let hash = blake3::hash(id.as_bytes());
    let [first, second, ..] = *hash.as_bytes();
    u16::from_be_bytes([first, second])
}

fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}
