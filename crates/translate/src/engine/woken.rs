//! Hosts and ports to which objects come without an edit of their own, since others let them:
//! routes and VirtualServices by an edit of a Gateway, listeners by that of the Gateway of their
//! ListenerSet, or either since whoever kept them out is gone.
//!
//! A host stays with the namespace that has it. A namespace that comes to a disputed host in this
//! way has it no earlier than it did before the batch, or else from now on, which is noted as a
//! late claim of the object that woke: of a route for that namespace alone, as it may have the host
//! by Gateways of others for longer. A claim that was lost a short while ago counts as had, so that
//! nobody loses a host for good by a Gateway that was edited by mistake, or by a class that is made
//! anew. All of it is known of objects that were there before; objects of a first list, and new
//! ones, are as old as they say.
//!
//! Where there are several gateways, an object that an edit leads to others than before has since
//! the edit what namespaces have there that claim it at none where the object stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_model::Host;

use super::Engine;
use super::batch::{EnteredBefore, Had, NeedsMoved, Run};
use super::claimed::Claimed;
use super::late::{LEFT_MAX, LEFT_SECONDS_MAX};
use super::output::Output;
use super::ports::{PortClaim, PortFact, PortKey, PortSpeech};
use super::stakes::{Stake, StakeClaim, Stakes};
use super::stamp::{Slot, Stamp};
use super::unit::{Unit, UnitId, namespace_of};
use super::units::Record;

/// The most claims to a host that are looked at before they change, the oldest first.
const CLAIMS_LOOKED_AT_MAX: usize = 64;

/// The claims to hosts that objects lost a short while ago, by their namespaces: nobody takes the
/// place of others at a Gateway that they share.
#[derive(Default)]
pub(super) struct Lapsed {
    lanes: BTreeMap<Box<str>, Lane>,
    /// They are not looked through before then.
    until: i64,
}

/// The claims that objects of one namespace lost.
#[derive(Default)]
struct Lane {
    /// The oldest of each seat, and of the namespace that let it in.
    lapses: BTreeMap<(u64, Box<str>), Lapse>,
    /// Before then each of them counts, as far as that is known.
    until: i64,
}

/// A claim that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lapse {
    /// Since when it was made.
    since: i64,
    /// When it was lost.
    at: i64,
}

impl Lapse {
    /// Whether it still counts as had.
    fn counts(self, now: i64) -> bool {
        now < self.at.saturating_add(LEFT_SECONDS_MAX)
    }
}

impl Lapsed {
    /// Since when objects of a namespace had what they lost a short while ago, at a seat where they
    /// were let in by another one.
    fn since(&self, own: &str, (seat, by): (u64, &str), now: i64) -> Option<i64> {
        let lane = self.lanes.get(own)?;
        let lapse = lane.lapses.get(&(seat, Box::<str>::from(by)))?;
        lapse.counts(now).then_some(lapse.since)
    }

    /// Notes what objects of a namespace have lost now. Of one that loses very much the first that
    /// still counts is remembered.
    fn add(&mut self, own: &str, (seat, by): (u64, &str), (since, now): (i64, i64)) {
        let lane = self.lanes.entry(own.into()).or_default();
        let place = (seat, Box::<str>::from(by));
        let known = lane.lapses.get(&place);
        if known.is_some_and(|it| it.counts(now) && it.since < since) {
            return;
        }
        let is_new = known.is_none();
        if is_new && lane.lapses.len() >= LEFT_MAX && now >= lane.until {
            lane.forget(now);
        }
        if !is_new || lane.lapses.len() < LEFT_MAX {
            lane.lapses.insert(place, Lapse { since, at: now });
        }
    }

    /// Forgets what does not count any more, now and then.
    fn forget(&mut self, now: i64) {
        if now < self.until || self.lanes.is_empty() {
            return;
        }
        self.until = now.saturating_add(LEFT_SECONDS_MAX);
        self.lanes.retain(|_, lane| {
            lane.forget(now);
            !lane.lapses.is_empty()
        });
    }
}

impl Lane {
    /// Forgets what does not count any more.
    fn forget(&mut self, now: i64) {
        self.lapses.retain(|_, lapse| lapse.counts(now));
        let first = self.lapses.values().map(|lapse| lapse.at).min();
        self.until = first.map_or(0, |at| at.saturating_add(LEFT_SECONDS_MAX));
    }
}

impl EnteredBefore {
    fn of(host: &Host, stakes: &Stakes, seat: u64) -> Self {
        EnteredBefore {
            host: host.clone(),
            namespaces: oldest(stakes.all(seat).take(CLAIMS_LOOKED_AT_MAX)),
            units: BTreeMap::new(),
        }
    }
}

/// The oldest claims of namespaces among some to a seat, the oldest of which come first.
fn oldest<'a>(claims: impl Iterator<Item = &'a StakeClaim>) -> Had {
    let mut namespaces = BTreeMap::new();
    for claim in claims {
        let namespace = namespace_of(&claim.id);
        namespaces.entry(namespace.into()).or_insert(claim.created);
    }
    namespaces
}

impl Engine {
    /// Notes the hosts and ports that an edited object has at gateways where it did not have them,
    /// though it had them at others: there it has them from now on. It is asked before what the
    /// unit needs is kept, for each need with the views that it is for.
    pub(super) fn note_elsewhere(
        &mut self,
        id: UnitId,
        (needs, views): (&[Unit], &[Stamp]),
        run: &mut Run,
    ) {
        if run.moved.is_empty() {
            return;
        }
        let unit = self.units.get(id).map(Record::unit);
        let unit = unit.filter(|unit| unit.kind().claim_fact.is_some());
        let Some(key) = unit.and_then(Unit::object_key) else {
            return;
        };
        let Some(moved) = run.moved.remove(&key) else {
            return;
        };
        let gateways = self.views.of_gateways();
        let mut late = Vec::new();
        for (need, views) in needs.iter().zip(views) {
            let claims = claims_of(need, &moved);
            let known = self.units.find(&self.hasher, need);
            let Some(known) = known.filter(|_| !claims.is_empty()) else {
                continue;
            };
            let had = self.units.need(id, known).common(gateways);
            let (gained, kept) = (views.minus(&had).common(gateways), views.common(&had));
            // To gateways that are new nobody was led before.
            let gained = gained.iter().filter(|slot| !run.came.contains(slot));
            let gained: Stamp = gained.collect();
            if self.is_had_elsewhere((need, known), key.namespace(), (&gained, &kept), run) {
                let time = self.late_time();
                late.extend(claims.into_iter().map(|claimed| (claimed, time)));
            }
        }
        if let Some(created) = self.created(&key) {
            self.note_late(&key, created, late, run);
        }
    }

    /// Whether another namespace claims a host or a port at gateways to which an object comes, and
    /// claims it at none that the object keeps: where it does both, who of them was first is
    /// settled, and nobody shall lose anything by coming to a further gateway.
    fn is_had_elsewhere(
        &self,
        need: (&Unit, UnitId),
        own: &str,
        (gained, kept): (&Stamp, &Stamp),
        run: &Run,
    ) -> bool {
        if gained.is_empty() {
            return false;
        }
        let others = |views: &Stamp| self.others_at(need, own, views, run);
        let (there, here) = (others(gained), others(kept));
        // What is below a wildcard is of whoever claims it.
        let is_wildcard = need.0.host().and_then(self.rules.suffix_of).is_some();
        (is_wildcard && here.is_empty()) || !there.is_subset(&here)
    }

    /// The other namespaces that claim a host or a port at some gateways.
    fn others_at(
        &self,
        (need, id): (&Unit, UnitId),
        own: &str,
        views: &Stamp,
        run: &Run,
    ) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        if let Some(port) = need.port() {
            let standings = views.iter().filter_map(|slot| self.views.get(slot));
            for standing in standings {
                let claims = standing.ports.claims(port.number, port.is_udp);
                let claims = claims.map(|claim| claim.gateway.namespace());
                let others = claims.filter(|namespace| *namespace != own);
                found.extend(others.take(CLAIMS_LOOKED_AT_MAX));
            }
            return found;
        }
        let needers = self.units.needers(id).into_iter();
        let there = needers.filter(|needer| self.units.need(*needer, id).meets(views));
        let units = there.filter_map(|needer| self.units.get(needer).map(Record::unit));
        let units = units.filter(|unit| !run.needs.is_new(need, unit));
        let others = units.filter_map(Unit::namespace);
        found.extend(others.filter(|namespace| *namespace != own));
        found
    }

    /// Notes the hosts that an object names and to which others than the operator let it come,
    /// where no claim to a seat says so: it has them from now on, or since it had them if that
    /// ended a short while ago. It is asked before what the unit needs is kept.
    pub(super) fn note_let_in(
        &mut self,
        id: UnitId,
        (needs, let_in): (&[Unit], &[Host]),
        run: &mut Run,
    ) {
        let is_noted = self.late.is_kept() && !run.is_first;
        let record = self.units.get(id).filter(|_| is_noted);
        let record = record.filter(|record| record.unit().kind().is_let_in);
        let kind = record.map(|record| record.unit().kind());
        let key = record.and_then(|record| record.unit().object_key());
        let (Some(record), Some(seat_of), Some(key)) =
            (record, kind.and_then(|kind| kind.claim_fact), key)
        else {
            return;
        };
        let Some(created) = self.created(&key) else {
            return;
        };
        let former = record.needs().iter();
        let former = former.filter_map(|need| self.units.get(*need)?.unit().host());
        let former: BTreeSet<&Host> = former.collect();
        let has: BTreeSet<&Host> = needs.iter().filter_map(Unit::host).collect();
        if former == has {
            return;
        }
        let let_in: BTreeSet<&Host> = let_in.iter().collect();
        let (own, made) = (key.namespace(), self.made(&key));
        let (mut late, mut lost) = (Vec::new(), Vec::new());
        for host in former.symmetric_difference(&has).copied() {
            let claimed = Claimed::Host(host.clone());
            if !made.contains(&claimed) || !self.is_disputed_before(host, own, run) {
                continue;
            }
            let since = self.late.since(&key, created, &claimed);
            let since = since.map_or(created, |since| since.max(created));
            let seat = seat_of(&self.hasher, "", host);
            if former.contains(host) {
                lost.push((seat, since));
                continue;
            }
            let had = self.lapsed.since(own, (seat, own), self.now);
            let had = had.unwrap_or_else(|| self.late_time());
            if since < had && let_in.contains(host) {
                late.push((claimed, had));
            }
        }
        for (seat, since) in lost {
            self.lapsed.add(own, (seat, own), (since, self.now));
        }
        if !run.newcomers.contains(&key) {
            self.note_late(&key, created, late, run);
        }
    }

    /// Notes the hosts to which a unit comes because others let it. It is asked before what the
    /// unit gave is kept, of what was before the batch, so that the order in that does not matter.
    pub(super) fn note_woken(&mut self, id: UnitId, output: &Output, run: &mut Run) {
        let record = self.units.get(id);
        let unit = record.map(Record::unit);
        let kind = unit.map(Unit::kind);
        let seat_of = kind.and_then(|kind| kind.entered_seat.or(kind.named_seat));
        let key = unit.and_then(Unit::object_key);
        let (Some(record), Some(seat_of), Some(key)) = (record, seat_of, key) else {
            return;
        };
        let unit = record.unit();
        if run.is_first || !self.concerns_claims(&key) {
            return;
        }
        let former = record.needs().iter();
        let former = former.filter_map(|need| self.units.get(*need)?.unit().host());
        let hosts = former.chain(output.needs.iter().filter_map(Unit::host));
        let hosts: BTreeSet<&Host> = hosts.collect();
        let mut claims: Vec<&Stake> = output.stakes.iter().collect();
        claims.sort_unstable();
        claims.dedup();
        let mut woken = Vec::new();
        for host in hosts {
            let seat = seat_of(&self.hasher, host);
            let from = claims.partition_point(|it| it.seat < seat);
            let to = claims.partition_point(|it| it.seat <= seat);
            let own = claims.get(from..to).unwrap_or_default();
            let before = || self.stakes.of_unit(id, seat);
            if own.iter().map(|stake| &stake.claim).eq(before()) {
                continue;
            }
            let entered = run.entered.entry(seat);
            let entered = entered.or_insert_with(|| EnteredBefore::of(host, &self.stakes, seat));
            let had = || oldest(before());
            entered.units.entry(unit.clone()).or_insert_with(had);
            let since = self.woken_since(unit, (seat, &*entered), own);
            let is_older = !since.is_empty() && !run.newcomers.contains(&key);
            if is_older && self.is_disputed_before(host, key.namespace(), run) {
                let is_let_in = unit.kind().entered_seat.is_some();
                woken.extend(since.into_iter().map(|(by, since)| match is_let_in {
                    true => (Claimed::Entered(host.clone(), by), since),
                    false => (Claimed::Host(host.clone()), since),
                }));
            }
        }
        if let Some(created) = self.created(&key) {
            self.note_late(&key, created, woken, run);
        }
    }

    /// The time since which a unit may have a host, by each namespace that lets it in, if its
    /// claims to the seat of it say that it has that for longer. By which others it had the host
    /// does not count: it is theirs.
    fn woken_since(
        &self,
        unit: &Unit,
        (seat, before): (u64, &EnteredBefore),
        claims: &[&Stake],
    ) -> BTreeMap<Arc<str>, i64> {
        let own = before.units.get(unit);
        let home = unit.namespace().unwrap_or_default();
        let mut times = BTreeMap::new();
        for claim in claims.iter().map(|stake| &stake.claim) {
            let namespace = namespace_of(&claim.id);
            let own = own.and_then(|had| had.get(namespace)).copied();
            let had = before.namespaces.get(namespace).copied();
            let lost = self.lapsed.since(home, (seat, namespace), self.now);
            let since = [own, had, lost].into_iter().flatten().min();
            let since = since.unwrap_or_else(|| self.late_time());
            if claim.created < since {
                times.insert(namespace.into(), since);
            }
        }
        times
    }

    /// Notes the ports to which an object comes at a gateway because others let it, by the claims
    /// that it makes there now: what another namespace had before the batch it has from now on, or
    /// since it had that if it lost it a short while ago.
    pub(super) fn note_ports(
        &mut self,
        key: &ObjectKey,
        slot: Slot,
        claims: &BTreeMap<PortKey, PortClaim>,
        run: &mut Run,
    ) {
        // At a gateway that is new nobody had anything before.
        let is_shared = self.views.of_gateways().has(slot) && !run.came.contains(&slot);
        let standing = self.views.get(slot).filter(|_| is_shared);
        let Some(standing) = standing.filter(|_| !run.is_first && self.concerns_claims(key)) else {
            return;
        };
        let (ports, own) = (&standing.ports, key.namespace());
        let none = BTreeMap::new();
        let former = ports.of(key).unwrap_or(&none);
        let seat_of = |port: &PortKey| {
            let number = PortFact::Number(port.number, port.is_udp);
            self.hasher.fact(number)
        };
        let (mut late, mut lost) = (Vec::new(), Vec::new());
        let gone = former
            .iter()
            .filter(|(port, _)| !claims.contains_key(*port));
        let new = claims
            .iter()
            .filter(|(port, _)| !former.contains_key(*port));
        for (port, claim) in new.chain(gone) {
            let owner = ports.owner(port.number, port.is_udp);
            let before = run.port_owners.entry((slot, port.number, port.is_udp));
            let before = before.or_insert_with(|| owner.cloned());
            if former.contains_key(port) {
                lost.push((seat_of(port), claim.created));
                continue;
            }
            let since = self.lapsed.since(own, (seat_of(port), own), self.now);
            let since = since.unwrap_or_else(|| self.late_time());
            let is_had = before
                .as_ref()
                .is_some_and(|owner| is_contrary(owner, claim));
            if is_had && claim.created < since {
                late.push((Claimed::Port(port.number, claim.speech), since));
            }
        }
        for (seat, since) in lost {
            self.lapsed.add(own, (seat, own), (since, self.now));
        }
        let created = self.created(key).filter(|_| !run.newcomers.contains(key));
        if let Some(created) = created {
            self.note_late(key, created, late, run);
        }
    }

    /// Whether objects of other namespaces claimed a host before the batch, or may have.
    fn is_disputed_before(&self, host: &Host, own: &str, run: &mut Run) -> bool {
        // What is below a wildcard is of whoever claims it.
        if (self.rules.suffix_of)(host).is_some() {
            return true;
        }
        let moved = &run.needs;
        let known = run.claiming.entry(host.clone());
        let known = known.or_insert_with(|| self.two_claiming(host, moved));
        known.iter().any(|namespace| **namespace != *own)
    }

    /// The namespaces of the objects that claim a host, two of them at most, or claimed it before
    /// some needs moved.
    fn two_claiming(&self, host: &Host, moved: &NeedsMoved) -> Vec<Box<str>> {
        let unit = (self.rules.host)(host);
        let id = self.units.find(&self.hasher, &unit);
        let needers = id.map(|id| self.units.needers(id)).unwrap_or_default();
        let records = needers.iter().filter_map(|id| self.units.get(*id));
        let needers = records.map(Record::unit);
        let needers = needers.filter(|needer| !moved.is_new(&unit, needer));
        let mut found: Vec<Box<str>> = Vec::new();
        for namespace in needers.chain(moved.gone(&unit)).filter_map(Unit::namespace) {
            if !found.iter().any(|known| **known == *namespace) {
                found.push(namespace.into());
            }
            if found.len() > 1 {
                break;
            }
        }
        found
    }

    /// Remembers for a while which of the hosts that others claim too objects lost in a batch, as
    /// far as others had let them in.
    pub(super) fn note_lapsed(&mut self, run: &mut Run) {
        self.lapsed.forget(self.now);
        for (seat, before) in std::mem::take(&mut run.entered) {
            let units = before.units.iter();
            let lost: Vec<(&Unit, Had)> = units
                .map(|(unit, had)| (unit, self.lost(unit, seat, had)))
                .filter(|(_, lost)| !lost.is_empty())
                .collect();
            if lost.is_empty() {
                continue;
            }
            let is_wildcard = (self.rules.suffix_of)(&before.host).is_some();
            let claiming = self.two_claiming(&before.host, &NeedsMoved::default());
            for (unit, lost) in lost {
                let own = unit.namespace().unwrap_or_default();
                if !is_wildcard && claiming.iter().all(|it| **it == *own) {
                    continue;
                }
                for (by, since) in lost {
                    self.lapsed.add(own, (seat, &*by), (since, self.now));
                }
            }
        }
    }

    /// The claims to a seat among those that a unit had which it does not have any more, or has
    /// since later.
    fn lost(&self, unit: &Unit, seat: u64, had: &Had) -> Had {
        let id = self.units.find(&self.hasher, unit);
        let has = oldest(id.into_iter().flat_map(|id| self.stakes.of_unit(id, seat)));
        let mut lost = had.clone();
        lost.retain(|by, since| has.get(by).is_none_or(|it| it > since));
        lost
    }
}

/// The claims among those that an object makes otherwise by an edit which need a unit.
fn claims_of(need: &Unit, moved: &BTreeSet<Claimed>) -> Vec<Claimed> {
    let host = need.host().map(|host| Claimed::Host(host.clone()));
    let speeches = [
        PortSpeech::Http,
        PortSpeech::Tls,
        PortSpeech::Tcp,
        PortSpeech::Udp,
    ];
    let ports = need.port().into_iter().flat_map(|port| {
        let spoken = speeches.into_iter();
        let spoken = spoken.filter(move |speech| (*speech == PortSpeech::Udp) == port.is_udp);
        spoken.map(move |speech| Claimed::Port(port.number, speech))
    });
    let claims = host.into_iter().chain(ports);
    claims.filter(|claimed| moved.contains(claimed)).collect()
}

/// Whether a port cannot be had by a claim beside that of another namespace.
fn is_contrary(owner: &PortClaim, claim: &PortClaim) -> bool {
    let is_named = matches!(claim.speech, PortSpeech::Http | PortSpeech::Tls);
    let is_beside = is_named && owner.speech == claim.speech && owner.realm == claim.realm;
    !is_beside && owner.gateway.namespace() != claim.gateway.namespace()
}

#[cfg(test)]
mod tests {
    use super::{LEFT_MAX, LEFT_SECONDS_MAX, Lapsed};

    #[test]
    fn what_was_lost_counts_for_a_while_by_the_oldest_claim() {
        let mut lapsed = Lapsed::default();
        let place = (7, "infra");
        lapsed.add("shop", place, (20, 1_000));
        lapsed.add("shop", place, (30, 1_100));
        assert_eq!(lapsed.since("shop", place, 1_200), Some(20));
        assert_eq!(lapsed.since("blog", place, 1_200), None);
        assert_eq!(lapsed.since("shop", (7, "else"), 1_200), None);
        let over = 1_000 + LEFT_SECONDS_MAX;
        assert_eq!(lapsed.since("shop", place, over), None);
        // Who had it again loses it anew.
        lapsed.add("shop", place, (20, 1_300));
        assert_eq!(lapsed.since("shop", place, over), Some(20));
        lapsed.forget(1_300 + LEFT_SECONDS_MAX);
        assert!(lapsed.lanes.is_empty());
    }

    #[test]
    fn of_what_a_namespace_lost_so_much_is_remembered() {
        let mut lapsed = Lapsed::default();
        let max = LEFT_MAX as u64;
        for seat in 0..max + 3 {
            lapsed.add("shop", (seat, "infra"), (20, 1_000));
        }
        assert_eq!(lapsed.lanes["shop"].lapses.len(), LEFT_MAX);
        lapsed.add("blog", (7, "infra"), (20, 1_000));
        assert_eq!(lapsed.since("blog", (7, "infra"), 1_000), Some(20));
        // What does not count any more makes room at once.
        let over = 1_000 + LEFT_SECONDS_MAX;
        for now in [over - 1, over] {
            lapsed.add("shop", (max + 3, "infra"), (20, now));
            let is_there = lapsed.since("shop", (max + 3, "infra"), now).is_some();
            assert_eq!(is_there, now == over);
        }
        assert_eq!(lapsed.lanes["shop"].lapses.len(), 1);
    }
}
