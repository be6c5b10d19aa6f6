//! The desk: of which hosts DNS is asked, and when, and what follows from the answers. It has no
//! clock and asks nobody itself.
//!
//! Only hosts that several namespaces claim are asked of. Each question is charged to the namespace
//! that came to the host last and does not have it: so whoever claims the hosts of all others waits
//! for himself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use myriad_base::clock::Instant;
use myriad_model::Host;

use crate::rivals::Dispute;

/// How long an answer holds that proves nothing, and the pause after none came.
pub(super) const UNPROVEN_FOR: Duration = Duration::from_secs(30);

/// How long an answer holds that proves a host.
pub(super) const PROVEN_FOR: Duration = Duration::from_secs(600);

/// How long a record has to be away before a host is not kept any more for a namespace that does
/// not claim it: some servers of a zone follow others late.
pub(super) const GONE_FOR: Duration = Duration::from_secs(600);

/// The most questions at a time, and the most of one namespace.
pub(super) const IN_FLIGHT_MAX: usize = 64;
pub(super) const IN_FLIGHT_PER_NAMESPACE_MAX: usize = 4;

/// The shortest pause between the beginnings of two questions, and between two of one namespace.
pub(super) const PACE: Duration = Duration::from_millis(10);
pub(super) const PACE_PER_NAMESPACE: Duration = Duration::from_millis(100);

/// All hosts that several namespaces claim, and the order in which they are asked of.
pub(super) struct ProofDesk {
    cases: BTreeMap<Host, Case>,
    /// The hosts that are charged to each namespace.
    lanes: BTreeMap<Box<str>, AskLane>,
    /// When each namespace may have its next question.
    ready: BTreeSet<(Instant, Box<str>)>,
    in_flight: usize,
    /// No question before then.
    next_at: Instant,
}

/// One host.
struct Case {
    dispute: Dispute,
    /// The namespace that its questions are charged to.
    lane: Box<str>,
    /// When it is asked of; none while it is.
    due: Option<Instant>,
    /// Whether it is to be asked of once more, since others claim it by now.
    is_changed: bool,
    /// Since when there is no record any more that names who has proven it.
    gone_since: Option<Instant>,
}

/// The hosts that are charged to one namespace.
struct AskLane {
    due: BTreeSet<(Instant, Host)>,
    in_flight: usize,
    next_at: Instant,
    /// Its place among all.
    listed: Option<Instant>,
}

/// A host that DNS is to be asked of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProofQuestion {
    /// The host.
    pub host: Host,
    /// The namespace that it is charged to.
    lane: Box<str>,
}

impl ProofQuestion {
    /// The namespace that it is charged to.
    pub(super) fn charged(&self) -> &str {
        &self.lane
    }
}

/// A change of who has proven a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProofVerdict {
    /// This namespace has, which claims it.
    Proven(Box<str>),
    /// Nobody has any more who claims it.
    Released,
}

impl ProofDesk {
    /// A desk that has heard of nothing.
    pub(super) fn new(now: Instant) -> ProofDesk {
        ProofDesk {
            cases: BTreeMap::new(),
            lanes: BTreeMap::new(),
            ready: BTreeSet::new(),
            in_flight: 0,
            next_at: now,
        }
    }

    /// How many hosts several namespaces claim.
    pub(super) fn len(&self) -> usize {
        self.cases.len()
    }

    /// Takes in who claims a host now. It is asked of at once where that is somebody else than
    /// before, and not because somebody else has it.
    pub(super) fn take(&mut self, dispute: Dispute, now: Instant) {
        let host = dispute.host.clone();
        let former = self.cases.remove(&host);
        if let Some(former) = &former {
            self.unlist(&host, former);
        }
        if dispute.is_over() {
            return;
        }
        let known = former.as_ref().map(|case| &case.dispute);
        let is_new = |namespace: &str| known.is_none_or(|known| !known.has(namespace));
        let mut all = dispute.holders.iter().chain(&dispute.others);
        let is_changed = all.any(|namespace| is_new(namespace))
            || known.is_some_and(|known| {
                let mut all = known.holders.iter().chain(&known.others);
                all.any(|namespace| !dispute.has(namespace))
            });
        let lane = lane_of(&dispute, former.as_ref(), is_new);
        let due = match &former {
            Some(former) => former.due.map(|due| if is_changed { now } else { due }),
            None => Some(now),
        };
        let was_changed = former.as_ref().is_some_and(|former| former.is_changed);
        let case = Case {
            dispute,
            lane,
            due,
            is_changed: due.is_none() && (is_changed || was_changed),
            gone_since: former.and_then(|former| former.gone_since),
        };
        self.list(&host, &case, now);
        self.cases.insert(host, case);
    }

    /// The next question that there is a place for.
    pub(super) fn next(&mut self, now: Instant) -> Option<ProofQuestion> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        let (_, lane) = self.ready.pop_first()?;
        let own = self.lanes.get_mut(&lane)?;
        own.listed = None;
        let (_, host) = own.due.pop_first()?;
        own.in_flight += 1;
        own.next_at = now + PACE_PER_NAMESPACE;
        self.in_flight += 1;
        self.next_at = now + PACE;
        if let Some(case) = self.cases.get_mut(&host) {
            case.due = None;
        }
        self.relist(&lane);
        Some(ProofQuestion { host, lane })
    }

    /// When there may be a question; none before an answer or another host comes.
    pub(super) fn due(&self) -> Option<Instant> {
        let (first, _) = self.ready.first()?;
        (self.in_flight < IN_FLIGHT_MAX).then(|| (*first).max(self.next_at))
    }

    /// Takes in which namespaces the records of a host name, or that nobody says, where one has
    /// proven it before. Who has it keeps it for as long as no other one proves it.
    pub(super) fn end(
        &mut self,
        question: &ProofQuestion,
        named: Option<&BTreeSet<Box<str>>>,
        proven: Option<&str>,
        now: Instant,
    ) -> Option<ProofVerdict> {
        self.in_flight -= 1;
        if let Some(lane) = self.lanes.get_mut(&question.lane) {
            lane.in_flight -= 1;
        }
        self.relist(&question.lane);
        let mut case = self.cases.remove(&question.host)?;
        // It came again while it was asked of, and waits.
        if case.due.is_some() {
            self.cases.insert(question.host.clone(), case);
            return None;
        }
        let (holds_for, verdict) = match named {
            None => (UNPROVEN_FOR, None),
            Some(named) => case.judge(named, proven, now),
        };
        let holds_for = match std::mem::take(&mut case.is_changed) {
            true => Duration::ZERO,
            false => holds_for,
        };
        case.due = Some(now + holds_for);
        self.list(&question.host, &case, now);
        self.cases.insert(question.host.clone(), case);
        verdict
    }

    /// Lets a host wait in the lane of its namespace.
    fn list(&mut self, host: &Host, case: &Case, now: Instant) {
        let lane = self.lanes.entry(case.lane.clone());
        let lane = lane.or_insert_with(|| AskLane {
            due: BTreeSet::new(),
            in_flight: 0,
            next_at: now,
            listed: None,
        });
        if let Some(due) = case.due {
            lane.due.insert((due, host.clone()));
        }
        self.relist(&case.lane);
    }

    fn unlist(&mut self, host: &Host, case: &Case) {
        if let (Some(lane), Some(due)) = (self.lanes.get_mut(&case.lane), case.due) {
            lane.due.remove(&(due, host.clone()));
        }
        self.relist(&case.lane);
    }

    /// Gives a namespace its place by what it has waiting, and forgets one that has nothing.
    fn relist(&mut self, name: &str) {
        let Some(lane) = self.lanes.get_mut(name) else {
            return;
        };
        if let Some(listed) = lane.listed.take() {
            self.ready.remove(&(listed, name.into()));
        }
        match lane.due.first() {
            Some((due, _)) if lane.in_flight < IN_FLIGHT_PER_NAMESPACE_MAX => {
                let place = (*due).max(lane.next_at);
                lane.listed = Some(place);
                self.ready.insert((place, name.into()));
            }
            None if lane.in_flight == 0 => {
                self.lanes.remove(name);
            }
            _ => {}
        }
    }
}

impl Case {
    /// How long an answer holds, and what follows from it.
    fn judge(
        &mut self,
        named: &BTreeSet<Box<str>>,
        proven: Option<&str>,
        now: Instant,
    ) -> (Duration, Option<ProofVerdict>) {
        let claims = |namespace: &str| named.contains(namespace) && self.dispute.has(namespace);
        // Of several, the one that has it stays.
        let of_proof = proven.filter(|namespace| claims(namespace));
        let mut holders = self.dispute.holders.iter().map(|it| &**it);
        let mut others = self.dispute.others.iter().map(|it| &**it);
        let found = of_proof
            .or_else(|| holders.find(|namespace| claims(namespace)))
            .or_else(|| others.find(|namespace| claims(namespace)));
        if let Some(found) = found {
            let verdict = (Some(found) != proven).then(|| ProofVerdict::Proven(found.into()));
            self.gone_since = None;
            return (PROVEN_FOR, verdict);
        }
        let is_away = |namespace: &&str| !self.dispute.has(namespace);
        let Some(kept_for) = proven.filter(is_away) else {
            self.gone_since = None;
            return (UNPROVEN_FOR, None);
        };
        if named.contains(kept_for) {
            self.gone_since = None;
            return (UNPROVEN_FOR, None);
        }
        let since = *self.gone_since.get_or_insert(now);
        let is_over = now.saturating_duration_since(since) >= GONE_FOR;
        (UNPROVEN_FOR, is_over.then_some(ProofVerdict::Released))
    }
}

/// The namespace that the questions of a host are charged to: the one that came last and does not
/// have it.
fn lane_of(dispute: &Dispute, former: Option<&Case>, is_new: impl Fn(&str) -> bool) -> Box<str> {
    let mut others = dispute.others.iter();
    let newest = others.find(|namespace| former.is_some() && is_new(namespace));
    let former = former.map(|case| &case.lane);
    let former = former.filter(|lane| dispute.others.contains(*lane));
    let first = dispute.others.first().or(dispute.holders.first());
    newest.or(former).or(first).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests;
