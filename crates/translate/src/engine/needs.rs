//! The units that a unit needs, once it has run or one of its views has moved.

use std::collections::BTreeMap;

use myriad_model::Host;

use super::Engine;
use super::batch::Run;
use super::stamp::{Slot, Stamp};
use super::unit::{Bond, Unit, UnitId};
use super::units::{NeedsChange, Record, Restamped};

impl Engine {
    /// Notes what a unit needs, and for which views where there are several.
    pub(super) fn settle_needs(
        &mut self,
        id: UnitId,
        needs: Vec<Unit>,
        stamps: Option<Vec<Stamp>>,
        run: &mut Run,
    ) {
        let mut new = Vec::new();
        let mut ids = Vec::with_capacity(needs.len());
        for need in needs {
            let (need_id, is_new) = self.units.find_or_insert(&self.hasher, need);
            ids.push(need_id);
            new.extend(is_new.then_some(need_id));
        }
        let stamps = stamps.map(|stamps| {
            // None stands there twice, so both are sorted alike.
            let mut both: Vec<(UnitId, Stamp)> = ids.iter().copied().zip(stamps).collect();
            both.sort_unstable();
            both.into_iter().map(|(_, stamp)| stamp).collect()
        });
        ids.sort_unstable();
        ids.dedup();
        let change = self.units.set_needs(id, ids.into(), stamps);
        let record = self.units.get(id);
        let bond = record.map_or(Bond::NONE, |record| record.unit().kind().bond);
        if bond.is_read {
            self.note_moved(id, &change, run);
            let kept = change.kept.iter().filter(|_| bond.is_read_whole);
            for host in change.gained.iter().chain(&change.lost).chain(kept) {
                let is_asked_alone = bond.is_read_by_view
                    && !new.contains(host)
                    && self.is_asked_alone(*host, &change.restamped);
                if !is_asked_alone {
                    self.mark(*host, true, run);
                }
            }
            for host in change.gained.iter().chain(&change.lost) {
                self.mark_below(*host, run);
            }
            for host in &new {
                self.mark_apex(*host, run);
            }
            self.mark_moved(&change.restamped, |it| &it.moved, run);
            return;
        }
        for lost in change.lost {
            self.mark(lost, false, run);
        }
        self.mark_moved(&change.restamped, |it| &it.shrunk, run);
        let mut gained: BTreeMap<UnitId, Stamp> = BTreeMap::new();
        gained.extend(change.gained.into_iter().map(|id| (id, Stamp::EMPTY)));
        let grown = change.restamped.into_iter();
        gained.extend(
            grown
                .filter(|it| !it.grown.is_empty())
                .map(|it| (it.id, it.grown)),
        );
        self.take_up(gained, &new, run);
    }

    /// Notes what a claimant needs and did not need before the batch, and the other way round.
    fn note_moved(&self, id: UnitId, change: &NeedsChange, run: &mut Run) {
        let needer = self.units.get(id).map(Record::unit);
        let Some(needer) = needer.filter(|_| self.late.is_kept() && !run.is_first) else {
            return;
        };
        let unit_of = |id: &UnitId| self.units.get(*id).map(Record::unit);
        for need in change.gained.iter().filter_map(unit_of) {
            run.needs.gain(need, needer);
        }
        for need in change.lost.iter().filter_map(unit_of) {
            run.needs.lose(need, needer);
        }
    }

    /// Whether a unit that reads who needs it need not run for all views, since few of them are
    /// others to it.
    fn is_asked_alone(&self, id: UnitId, restamped: &[Restamped]) -> bool {
        let moved = restamped.iter().find(|it| it.id == id);
        moved.is_some_and(|it| !self.are_many(id, it.moved.len()))
    }

    /// Marks what a unit needs for other views than before, and lets run what it needs for more.
    pub(super) fn settle_moved(&mut self, unit: &Unit, moved: Vec<Restamped>, run: &mut Run) {
        if unit.kind().bond.is_read {
            self.mark_moved(&moved, |it| &it.moved, run);
            return;
        }
        self.mark_moved(&moved, |it| &it.shrunk, run);
        let grown = moved.into_iter().filter(|it| !it.grown.is_empty());
        self.take_up(grown.map(|it| (it.id, it.grown)).collect(), &[], run);
    }

    fn mark_moved(&self, moved: &[Restamped], of: impl Fn(&Restamped) -> &Stamp, run: &mut Run) {
        for restamped in moved {
            let below = self.below(restamped.id);
            for slot in of(restamped).iter() {
                self.mark_in(restamped.id, slot, run);
                for reader in &below {
                    self.mark_in(*reader, slot, run);
                }
            }
        }
    }

    /// The hosts that read who claims a wildcard, if the unit is of one. Requests for all names are
    /// answered by every kind of object that claims hosts.
    pub(super) fn below(&self, id: UnitId) -> Vec<UnitId> {
        let host = self.units.get(id).map(Record::unit).and_then(Unit::host);
        let suffix = host.and_then(|host| (self.rules.suffix_of)(host));
        match suffix {
            Some(suffix) => self.units.readers((self.rules.above)(&self.hasher, suffix)),
            None => Vec::new(),
        }
    }

    /// Lets the hosts run that read what a wildcard means.
    pub(super) fn mark_below(&self, id: UnitId, run: &mut Run) {
        for below in self.below(id) {
            if below != id {
                self.mark(below, true, run);
            }
        }
    }

    /// Lets the host run that a new wildcard is right below: an issuer proves both by one record of
    /// DNS, so that either says who has it once the other is there.
    fn mark_apex(&self, id: UnitId, run: &mut Run) {
        let host = self.units.get(id).map(Record::unit).and_then(Unit::host);
        let suffix = host.and_then(|host| (self.rules.suffix_of)(host));
        let name = suffix.and_then(|suffix| suffix.strip_prefix('.'));
        let apex = name.and_then(|name| Host::parse(name).ok());
        let Some(apex) = apex.filter(|_| self.settings.issuers.is_some()) else {
            return;
        };
        let unit = (self.rules.host)(&apex);
        if let Some(id) = self.units.find(&self.hasher, &unit) {
            self.mark(id, true, run);
        }
    }

    /// Marks a unit of which a view may see other things than before.
    pub(super) fn mark_in(&self, id: UnitId, slot: Slot, run: &mut Run) {
        if let Some(record) = self.units.get(id) {
            run.add_view(record.unit().clone(), id, slot);
        }
    }

    /// Runs what is needed now, and for which views it was not. What a route refers to goes
    /// first, so that no commit refers to what a later one has. In the order of the units, since
    /// numbers depend on history.
    fn take_up(&mut self, gained: BTreeMap<UnitId, Stamp>, new: &[UnitId], run: &mut Run) {
        let gained = gained.into_iter();
        let mut gained: Vec<(Unit, UnitId, Stamp)> = gained
            .filter_map(|(id, slots)| Some((self.units.get(id)?.unit().clone(), id, slots)))
            .collect();
        gained.sort_unstable();
        self.weigh_needed(&gained, run);
        for (unit, id, slots) in gained {
            let pending = run.pending.remove(&unit);
            let must_run = pending.as_ref().is_some_and(|pending| pending.must_run);
            if must_run || new.contains(&id) {
                self.translate(&unit, id, run);
                continue;
            }
            let marked = pending.map(|pending| pending.slots).unwrap_or_default();
            self.revisit(&unit, id, &slots.union(&marked), run);
        }
    }
}
