//! Names that are yet to be told, in turns of the networks whose clients asked for them.
//!
//! A wide network has one turn, however many narrower ones are in it, and those take turns for it.
//! Beside networks without refusals, those whose last name was refused have a part of the turns.
//! A provider has networks without end that nothing was refused yet: they
//! have one turn among the providers. No refusal stands against a provider as a whole; it goes
//! behind while only such of its networks wait that refusals stand against.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock::{self, Instant};

use super::places::OpenPlaces;
use crate::admission::networks::{EVERYWHERE, NetworkKey, is_of_provider, is_source, networks_of};

/// How many turns networks without refusals have for each of the others, where there are both.
const TURNS_BEFORE: u32 = 3;

/// How long the refusal of its last name stands against a network.
const REFUSAL_TIME: Duration = Duration::from_secs(5 * 60);

/// The most networks that refusals stand against.
const MARKS_MAX: usize = 16_384;

/// The names that wait, each behind the others of its source.
#[derive(Default)]
pub(super) struct NameTurns {
    names: HashMap<u64, Arc<str>>,
    lines: HashMap<NetworkKey, Line>,
    marks: Marks,
    number: u64,
}

/// The place of a name: the source behind which it waits, and its number.
pub(super) type NamePlace = (u64, u64);

/// A name whose turn it is.
pub(super) struct NextName {
    /// The name.
    pub name: Arc<str>,
    /// The source behind which it waited.
    pub source: u64,
    /// Whether the last name of the network of that was refused.
    pub is_behind: bool,
}

/// The line of a network, by the numbers of turns: narrower networks, by address, or the names of
/// a source.
#[derive(Default)]
struct Line {
    /// How many names wait in it.
    names: usize,
    first: BTreeMap<u64, u64>,
    /// The networks or names behind them whose last name was refused.
    refused: BTreeMap<u64, u64>,
    /// How many of the first have had a turn since one of the refused had.
    passed: u32,
    /// The turn of the network in the one around it.
    turn: u64,
}

/// The networks whose last name was refused, until when, and the same in the order in which that
/// happened.
#[derive(Default)]
struct Marks {
    until: HashMap<NetworkKey, Instant>,
    order: VecDeque<(NetworkKey, Instant)>,
}

impl NameTurns {
    /// A number greater than all before.
    pub(super) fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Puts a name behind the others of a source.
    pub(super) fn line_up(&mut self, name: &Arc<str>, source: u64) -> NamePlace {
        let (turn, now) = (self.number(), clock::now());
        self.names.insert(turn, name.clone());
        // Beginning with the name in the line of its source, whatever is new to the line around.
        let mut is_new = true;
        let (mut of_member, mut member, mut is_refused) = (turn, turn, false);
        for network in networks_of(source).into_iter().rev() {
            let line = self.lines.entry(network).or_default();
            line.names += 1;
            match is_new {
                true => line.put(turn, member, is_refused),
                // What has come may be the first of it that is not refused.
                false if !is_refused => line.lift(of_member),
                false => {}
            }
            is_new = line.names == 1;
            if is_new {
                line.turn = turn;
            }
            (of_member, member) = (line.turn, network.1);
            is_refused = self.is_behind(network, now);
        }
        (source, turn)
    }

    /// Takes out a name that waits.
    pub(super) fn take_back(&mut self, (source, number): NamePlace) -> Option<Arc<str>> {
        let name = self.names.remove(&number)?;
        let (mut turn, mut is_over) = (number, true);
        for network in networks_of(source).into_iter().rev() {
            let line = self.lines.get_mut(&network)?;
            line.names -= 1;
            if is_over {
                line.take(turn);
            }
            turn = line.turn;
            is_over = line.names == 0;
            if is_over {
                self.lines.remove(&network);
            }
        }
        Some(name)
    }

    /// Takes the next name that there is a place for, and the source whose turn it was.
    pub(super) fn next(&mut self, places: &OpenPlaces) -> Option<NextName> {
        let now = clock::now();
        let admits_behind = places.admits_behind();
        let mut network = EVERYWHERE;
        let (source, number) = loop {
            // Whoever is inside of a provider's network is judged with it.
            let is_inside = network != EVERYWHERE && !is_of_provider(network);
            let takes_refused = admits_behind || is_inside;
            let mut line = std::mem::take(self.lines.get_mut(&network)?);
            let found = line.first(
                takes_refused,
                |inside| is_source(network) || places.admits((network.0 + 1, inside)),
                |inside| {
                    let inside = (network.0 + 1, inside);
                    !is_source(network) && self.is_behind(inside, now)
                },
            );
            self.lines.insert(network, line);
            match found {
                Some((turn, _)) if is_source(network) => break (network.1, turn),
                Some((_, member)) => network = (network.0 + 1, member),
                // Refusals stand against all of the provider's networks by now: it is behind.
                None if network != EVERYWHERE && !takes_refused => network = EVERYWHERE,
                None => return None,
            }
        };
        let [_, _, judged, ..] = networks_of(source);
        let is_behind = self.is_behind(judged, now);
        let name = self.take_back((source, number))?;
        self.step_back(source, now);
        Some(NextName {
            name,
            source,
            is_behind,
        })
    }

    /// Whether one more name of a source would have its turn before one that waits behind another.
    pub(super) fn is_sooner(&self, source: u64, (before, _): NamePlace) -> bool {
        let now = clock::now();
        let own_is_behind = |network: NetworkKey| match is_of_provider(network) {
            // One more name of a network without refusals takes it out of there.
            true => {
                let [_, _, inside, ..] = networks_of(source);
                let line = self.lines.get(&network);
                let has_first = line.is_some_and(|line| !line.first.is_empty());
                self.is_behind(inside, now) && !has_first
            }
            false => self.is_behind(network, now),
        };
        let names = |network| self.lines.get(&network).map_or(0, |line| line.names);
        let pairs = networks_of(source).into_iter().zip(networks_of(before));
        let mut different = pairs
            .filter(|(own, other)| own != other)
            .map(|(own, other)| {
                let own = (own_is_behind(own), names(own) + 1);
                own.cmp(&(self.is_behind(other, now), names(other)))
            });
        different
            .find(|order| order.is_ne())
            .is_some_and(|order| order.is_lt())
    }

    /// The last name of a source was refused, or not.
    pub(super) fn mark(&mut self, source: u64, is_refused: bool) {
        let now = clock::now();
        let networks = networks_of(source).into_iter().skip(1);
        for network in networks.filter(|network| !is_of_provider(*network)) {
            match is_refused {
                true => self.marks.set(network, now + REFUSAL_TIME),
                false => self.marks.clear(network),
            }
        }
    }

    /// Forgets all refusals.
    pub(super) fn forgive(&mut self) {
        self.marks = Marks::default();
    }

    /// Puts the networks of a source, as far as names wait there, behind the others around them:
    /// the narrowest first, by which wider ones are judged.
    fn step_back(&mut self, source: u64, now: Instant) {
        let turn = self.number();
        let networks = networks_of(source);
        let pairs = networks.into_iter().zip(networks.into_iter().skip(1));
        for (around, network) in pairs.rev() {
            let Some(line) = self.lines.get_mut(&network) else {
                continue;
            };
            let before = std::mem::replace(&mut line.turn, turn);
            let is_refused = self.is_behind(network, now);
            if let Some(around) = self.lines.get_mut(&around) {
                around.take(before);
                around.put(turn, network.1, is_refused);
            }
        }
    }

    /// Whether a network stands behind those without refusals: its last name was refused, or where
    /// it is a provider's, that of each network in it that waits.
    fn is_behind(&self, network: NetworkKey, now: Instant) -> bool {
        match is_of_provider(network) {
            true => {
                let line = self.lines.get(&network);
                line.is_some_and(|line| line.first.is_empty())
            }
            false => self.marks.has(network, now),
        }
    }

    /// Whether nothing is kept of names that waited.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.lines.is_empty()
    }

    /// How many networks refusals stand against, and the most of them.
    #[cfg(test)]
    pub(super) fn marks(&self) -> (usize, usize) {
        (
            self.marks.until.len().max(self.marks.order.len()),
            MARKS_MAX,
        )
    }
}

impl Line {
    fn put(&mut self, turn: u64, member: u64, is_refused: bool) {
        match is_refused {
            true => self.refused.insert(turn, member),
            false => self.first.insert(turn, member),
        };
    }

    /// Puts one that stands behind, and no longer should, among the first.
    fn lift(&mut self, turn: u64) {
        if let Some(member) = self.refused.remove(&turn) {
            self.first.insert(turn, member);
        }
    }

    fn take(&mut self, turn: u64) {
        if self.first.remove(&turn).is_none() {
            self.refused.remove(&turn);
        }
    }

    /// The turn that is next of those who are admitted, and whose it is. Whoever was refused a name
    /// since it came is put among those first, once. Few are not admitted.
    fn first(
        &mut self,
        takes_refused: bool,
        admits: impl Fn(u64) -> bool,
        is_refused: impl Fn(u64) -> bool,
    ) -> Option<(u64, u64)> {
        let find = |line: &BTreeMap<u64, u64>| {
            let mut pairs = line.iter().map(|(turn, member)| (*turn, *member));
            pairs.find(|(_, member)| admits(*member))
        };
        loop {
            let refused = find(&self.refused).filter(|_| takes_refused);
            let first = find(&self.first);
            let (turn, member) = match (first, refused) {
                (Some(first), Some(_)) if self.passed < TURNS_BEFORE => first,
                (Some(first), None) => first,
                (_, Some(refused)) => {
                    self.passed = 0;
                    return Some(refused);
                }
                (None, None) => return None,
            };
            if !is_refused(member) {
                self.passed += u32::from(refused.is_some());
                return Some((turn, member));
            }
            self.first.remove(&turn);
            self.refused.insert(turn, member);
        }
    }
}

impl Marks {
    fn has(&self, network: NetworkKey, now: Instant) -> bool {
        self.until.get(&network).is_some_and(|until| *until > now)
    }

    fn set(&mut self, network: NetworkKey, until: Instant) {
        while self.order.len() >= MARKS_MAX {
            let Some((oldest, until)) = self.order.pop_front() else {
                break;
            };
            // It may have been set again since.
            if self.until.get(&oldest) == Some(&until) {
                self.until.remove(&oldest);
            }
        }
        self.until.insert(network, until);
        self.order.push_back((network, until));
    }

    fn clear(&mut self, network: NetworkKey) {
        self.until.remove(&network);
    }
}
