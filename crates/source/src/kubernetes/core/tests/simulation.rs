//! A simulated server whose connection breaks in every way: the end equals a fresh list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Change, Object, ObjectKey};
use myriad_base::clock::{self, Instant};
use proptest::prelude::*;

use super::super::{Bookmark, Core, Failure, Request};
use super::{HOLD, Step, core, head, put};

const NAMES: u32 = 6;

/// The objects in effect, or in the server: a content by id.
type State = BTreeMap<Arc<str>, u32>;

/// A server that remembers its history, with one connection and its faults.
struct Server {
    history: Vec<Step>,
    version: u64,
    /// Versions below this one are forgotten.
    compacted: u64,
    can_stream: bool,
}

enum Wire {
    Closed,
    Stream { objects: Vec<Step>, listed: u64 },
    Watch { sent: u64, past: Vec<Step> },
}

struct World {
    server: Server,
    core: Core,
    wire: Wire,
    /// The pages that are still to come, and the version that they show.
    pages: Option<(Vec<Step>, u64)>,
    effect: State,
    now: Instant,
    removed: Vec<ObjectKey>,
}

impl Server {
    fn state_at(&self, version: u64) -> State {
        let mut state = State::new();
        for step in self.history.iter().filter(|step| step.version <= version) {
            match step.content {
                Some(content) => state.insert(step.id.clone(), content),
                None => state.remove(&step.id),
            };
        }
        state
    }

    /// The objects that a list shows, each with the version of its last change.
    fn objects(&self) -> Vec<Step> {
        let mut latest: BTreeMap<Arc<str>, Step> = BTreeMap::new();
        for step in &self.history {
            latest.insert(step.id.clone(), step.clone());
        }
        latest
            .into_values()
            .filter(|step| step.content.is_some())
            .collect()
    }

    fn write(&mut self, name: u32, content: Option<u32>) {
        let id: Arc<str> = format!("/n{name}").into();
        if content.is_none() && !self.state_at(self.version).contains_key(&id) {
            return;
        }
        self.version += 1;
        let version = self.version;
        self.history.push(Step {
            version,
            id,
            content,
        });
    }
}

impl World {
    fn new(hold: Duration, can_stream: bool) -> Self {
        World {
            server: Server {
                history: Vec::new(),
                version: 10,
                compacted: 0,
                can_stream,
            },
            core: core(hold),
            wire: Wire::Closed,
            pages: None,
            effect: State::new(),
            now: clock::now(),
            removed: Vec::new(),
        }
    }

    /// One step of the client: the next request, or `amount` events in an order of chance.
    fn advance(&mut self, amount: usize, chance: u32) {
        match std::mem::replace(&mut self.wire, Wire::Closed) {
            Wire::Closed => self.ask(),
            Wire::Stream { objects, listed } => self.stream(objects, listed, amount, chance),
            Wire::Watch { sent, past } => self.watch(sent, past, amount, chance),
        }
        self.settle();
    }

    fn ask(&mut self) {
        match self.core.request(self.now) {
            Request::Stream if self.server.can_stream => {
                let objects = self.server.objects();
                let listed = self.server.version;
                self.wire = Wire::Stream { objects, listed };
            }
            Request::Stream => {
                self.core.fail(Failure::Unsupported("no".to_owned()));
            }
            Request::Page { limit, token } => self.page(limit as usize, token.is_some()),
            Request::Probe => {
                self.core.end_probe(self.server.version);
            }
            Request::Check { version, .. } if version < self.server.compacted => {
                self.core.fail(Failure::Gone);
            }
            Request::Check { id, version } => {
                let past = self.server.history.iter().rev();
                let mut past = past.filter(|step| step.version <= version && step.id == id);
                let last = past.next().filter(|step| step.content.is_some());
                self.core.end_check(last.map(head).as_ref());
            }
            Request::Watch(from) if from < self.server.compacted => {
                self.core.fail(Failure::Gone);
            }
            Request::Watch(from) => {
                let past = Vec::new();
                self.wire = Wire::Watch { sent: from, past };
            }
        }
    }

    fn page(&mut self, limit: usize, is_continued: bool) {
        if !is_continued {
            self.pages = Some((self.server.objects(), self.server.version));
        }
        let Some((mut rest, version)) = self.pages.take() else {
            self.core.fail(Failure::Gone);
            return;
        };
        let later = rest.split_off(limit.min(rest.len()));
        rest.iter().for_each(|step| put(&mut self.core, step));
        let token = (!later.is_empty()).then(|| Arc::from("token"));
        self.core.end_page(version, token, self.now);
        self.pages = Some((later, version));
    }

    fn stream(&mut self, mut objects: Vec<Step>, listed: u64, amount: usize, chance: u32) {
        let later = objects.split_off(amount.min(objects.len()));
        shuffle(&mut objects, chance);
        objects.iter().for_each(|step| put(&mut self.core, step));
        if later.is_empty() && chance.is_multiple_of(2) {
            let bookmark = Bookmark {
                version: listed,
                ends_list: true,
            };
            self.core.bookmark(bookmark, self.now);
            let past = Vec::new();
            self.wire = Wire::Watch { sent: listed, past };
        } else {
            let objects = later;
            self.wire = Wire::Stream { objects, listed };
        }
    }

    fn watch(&mut self, mut sent: u64, mut past: Vec<Step>, amount: usize, chance: u32) {
        let due = self
            .server
            .history
            .iter()
            .filter(|step| step.version > sent);
        let fresh: Vec<Step> = due.take(amount).cloned().collect();
        sent = fresh.last().map_or(sent, |step| step.version);
        past.extend(fresh.iter().cloned());
        // Some of what was sent before comes again, anywhere among the new.
        let mut events: Vec<Step> = fresh;
        let again = past.iter().rev().take(chance as usize % 5).cloned();
        events.extend(again);
        shuffle(&mut events, chance);
        for step in &events {
            match step.content {
                Some(_) => put(&mut self.core, step),
                None => self.core.delete(&head(step)),
            }
        }
        if chance.is_multiple_of(3) {
            let bookmark = Bookmark {
                version: sent,
                ends_list: false,
            };
            self.core.bookmark(bookmark, self.now);
        }
        if !self.core.is_watch_over() {
            self.wire = Wire::Watch { sent, past };
        }
    }

    fn cut(&mut self, failure: Failure) {
        let was_open = !matches!(self.wire, Wire::Closed);
        self.wire = Wire::Closed;
        self.pages = None;
        if was_open {
            self.core.fail(failure);
        }
        self.settle();
    }

    /// An older state is put back, which restarts the server and so cuts the connection.
    fn restore(&mut self, steps: u64) {
        self.server.version = self.server.version.saturating_sub(steps).max(10);
        let version = self.server.version;
        self.server.history.retain(|step| step.version <= version);
        self.server.compacted = self.server.compacted.min(version);
        self.cut(Failure::Lost("gone".to_owned()));
        // A client that was between two requests meets the server while it restarts.
        self.core.fail(Failure::Lost("refused".to_owned()));
        for _ in 0..2 {
            self.advance(0, 0);
        }
    }

    /// An older state is put back, and has climbed past what the client had seen by the time the
    /// client asks again.
    fn restore_and_climb(&mut self, steps: u64, chance: u32) {
        let seen = self.server.version;
        self.wire = Wire::Closed;
        self.pages = None;
        self.server.version = self.server.version.saturating_sub(steps).max(10);
        let version = self.server.version;
        self.server.history.retain(|step| step.version <= version);
        self.server.compacted = self.server.compacted.min(version);
        for number in 0.. {
            if self.server.version > seen + 3 {
                break;
            }
            let name = 1 + (chance % NAMES + number) % NAMES;
            self.server.write(name, Some(100 + number));
        }
        self.core.fail(Failure::Lost("reset".to_owned()));
        self.settle();
    }

    fn settle(&mut self) {
        self.core.tick(self.now);
        let Some(output) = self.core.take() else {
            return;
        };
        for change in output.changes {
            match change {
                Change::Put(Object::IngressClass(class)) => {
                    let content = class.controller.parse().expect("a number");
                    self.effect.insert(class.meta.key.id().clone(), content);
                }
                Change::Put(other) => panic!("{other:?} is of another kind"),
                Change::Remove(key) => {
                    assert!(
                        self.effect.remove(key.id()).is_some(),
                        "{key} was not there"
                    );
                    self.removed.push(key);
                }
            }
        }
    }

    fn step(&mut self, op: u8, argument: u32) {
        let name = 1 + argument % NAMES;
        match op {
            0..=29 => self.server.write(name, Some(argument / 7 % 50)),
            30..=39 => self.server.write(name, None),
            40..=79 => self.advance(1 + (argument % 4) as usize, argument / 3),
            80..=84 => self.cut(Failure::Lost("reset".to_owned())),
            85..=86 => self.cut(Failure::Idle),
            87..=90 => self.cut(Failure::Gone),
            91..=94 => self.server.compacted = self.server.version,
            _ => self.now += Duration::from_secs(u64::from(argument % 40)),
        }
        self.settle();
    }

    /// Lets everything come to rest without further faults.
    fn rest(&mut self) {
        for _ in 0..200 {
            self.advance(100, 6);
        }
        self.now += HOLD;
        self.settle();
    }
}

fn shuffle(steps: &mut [Step], chance: u32) {
    let mut chance = chance;
    for at in (1..steps.len()).rev() {
        chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        steps.swap(at, (chance >> 16) as usize % (at + 1));
    }
}

fn steps(ops: u8) -> impl Strategy<Value = Vec<(u8, u32)>> {
    prop::collection::vec((0..ops, any::<u32>()), 0..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_happens_the_end_equals_a_fresh_list(
        steps in steps(100),
        can_stream: bool,
        holds: bool,
        restores in prop::collection::vec((0_usize..250, 0_u64..20), 0..3),
    ) {
        let hold = if holds { HOLD } else { Duration::ZERO };
        let mut world = World::new(hold, can_stream);
        for (number, (op, argument)) in steps.into_iter().enumerate() {
            for (at, back) in &restores {
                if *at == number {
                    world.restore(*back);
                }
            }
            world.step(op, argument);
        }
        world.rest();
        prop_assert_eq!(&world.effect, &world.server.state_at(u64::MAX));
        prop_assert!(world.core.is_listed);
        prop_assert_eq!(world.core.version, world.server.version);
        prop_assert_eq!(world.core.known.len(), world.effect.len());
    }

    #[test]
    fn a_state_put_back_that_has_climbed_past_ours_is_found_out(
        steps in steps(90),
        back in 1_u64..8,
        chance: u32,
    ) {
        let mut world = World::new(HOLD, true);
        for (op, argument) in steps {
            world.step(op, argument);
        }
        // Something has happened that the older state does not have, and the client has seen it.
        for number in 0..back as u32 {
            world.server.write(1 + number % NAMES, Some(number));
        }
        world.rest();
        world.restore_and_climb(back, chance);
        world.rest();
        prop_assert_eq!(&world.effect, &world.server.state_at(world.server.version));
    }

    #[test]
    fn what_is_never_deleted_is_never_removed(steps in steps(100), can_stream: bool) {
        let mut world = World::new(Duration::ZERO, can_stream);
        world.server.write(0, Some(1));
        for (op, argument) in steps {
            world.step(op, argument);
        }
        world.rest();
        prop_assert!(world.removed.iter().all(|key| key.name() != "n0"));
        prop_assert_eq!(world.effect.get("/n0"), Some(&1));
    }
}
