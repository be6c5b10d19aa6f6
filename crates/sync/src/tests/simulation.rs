//! Several proxies and two replicas, one of them often behind, under a seed: connections break at
//! any frame, either end restarts, proxies move between replicas, resources are refused, and either
//! end is upgraded to a build that knows one more kind of resources, and rolled back.

use std::sync::Arc;
use std::time::Duration;

use myriad_model::{Digest, Form, Key, Snapshot};

use super::kinds::{FUTURE, future, newer, older};
use super::pair::{Pair, REFUSED_PORT, Random, World};
use crate::Anchors;
use crate::log::{Logged, Replay};
use crate::wire::KnownKinds;

const PROXIES: usize = 4;
/// Fewer than the timeout for proxies that are ahead, so that none may ever go back.
const PATIENCE: Duration = Duration::from_secs(5);

/// The authority that signs at first.
const FIRST_AUTHORITY: u8 = 1;

/// A name, and its port or that it goes. Every eighth is of the kind of the future.
type Event = (usize, Option<u16>);

const FUTURE_EVERY: usize = 8;

struct Replica {
    world: World,
    read: usize,
    form: Form,
    /// Whether it is of the build that knows the kind of the future.
    is_newer: bool,
    /// Which authority signs here. The one before it and the next one are trusted as well.
    authority: u8,
}

impl Replica {
    fn new(form: Form, is_newer: bool) -> Self {
        Replica {
            world: World::new(form),
            read: 0,
            form,
            is_newer,
            authority: FIRST_AUTHORITY,
        }
    }

    fn anchors(&self) -> Arc<Anchors> {
        let roots = self.authority - 1..=self.authority + 1;
        Arc::new(Anchors {
            roots: roots.map(|it| vec![it].into()).collect(),
            trust_domains: vec!["cluster.local".to_owned()],
        })
    }

    fn read_to(&mut self, history: &[Event], end: usize) {
        for (name, port) in &history[self.read..end.max(self.read)] {
            let is_future = name % FUTURE_EVERY == 0;
            let text = format!("e{name}");
            match port {
                _ if is_future && !self.is_newer => self.world.skip(),
                Some(port) if is_future => self.world.put_value(&text, future(*port)),
                Some(port) => self.world.put(&text, *port),
                None if is_future => self.world.remove_key(&Key::new(FUTURE, &*text)),
                None => self.world.remove(&text),
            }
        }
        self.read = end.max(self.read);
    }
}

/// A proxy: what survives its process, and its connection.
#[derive(Default)]
struct Proxy {
    /// The records of its log, encoded: another build may read them.
    disk: Vec<Vec<u8>>,
    is_newer: bool,
    held: Snapshot,
    key: Option<[u8; 32]>,
    stream: Option<(usize, Pair)>,
    revision: u64,
    /// The newest request, counted over all streams.
    asked: u64,
}

impl Proxy {
    /// Ends the connection at whatever frame it was.
    fn disconnect(&mut self) {
        if let Some((_, mut pair)) = self.stream.take() {
            self.disk
                .extend(pair.logged.drain(..).map(|it| it.encode()));
            self.held = pair.client.held().clone();
            self.key = pair.key;
        }
    }

    fn kinds(&self) -> KnownKinds {
        match self.is_newer {
            true => newer(),
            false => older(),
        }
    }

    /// Starts again, as this build.
    fn restart(&mut self, is_newer: bool) {
        self.disconnect();
        let is_same = self.is_newer == is_newer;
        self.is_newer = is_newer;
        let mut replay = Replay::new(myriad_model::wire::SCHEMA).knowing(self.kinds());
        for record in &self.disk {
            let record = Logged::decode(record.clone().into());
            replay.apply(record.expect("a record of any build"));
        }
        let (restored, key, unread) = replay.finish();
        let digest = |it: &Snapshot| match is_same {
            true => it.digest(),
            false => known_to_all(it),
        };
        assert_eq!(
            digest(&restored),
            digest(&self.held),
            "the log lost something"
        );
        assert_eq!(key, self.key);
        assert!(unread == 0 || !is_newer, "{unread} were not read");
        self.held = restored;
    }

    fn connect(&mut self, number: usize, replica: &Replica) {
        self.disconnect();
        let pair = Pair::connect_wanting(&replica.world, self.held.clone(), self.key);
        let mut pair = pair.knowing(self.kinds());
        pair.server.anchor(replica.anchors());
        self.stream = Some((number, pair));
    }

    /// Asks for a certificate, if that may be.
    fn ask(&mut self) {
        let Some((_, pair)) = &mut self.stream else {
            return;
        };
        let request = self.asked.to_be_bytes().to_vec();
        if let Some(asked) = pair.client.ask(request.into(), String::new()) {
            pair.to_server.push_back(asked);
        }
    }

    /// Every answer is one to the newest request, and its authority is trusted by who gets it.
    fn check_signed(&mut self) {
        let Some((_, pair)) = &mut self.stream else {
            return;
        };
        for signed in pair.signed.drain(..) {
            if let Ok(signed) = signed {
                assert_eq!(signed.chain[0], self.asked.to_be_bytes()[..]);
                assert!(signed.anchors.roots.contains(&signed.chain[1]));
            }
            self.asked += 1;
        }
    }

    /// A proxy never goes back while it waits for a replica that is behind.
    fn check_order(&mut self) {
        if let Some((_, pair)) = &self.stream {
            let position = pair.client.held().position();
            let revision = position
                .revisions
                .first()
                .map_or(0, |(_, revision)| *revision);
            assert!(revision >= self.revision, "went back");
            self.revision = revision;
        }
    }
}

/// The whole world of one seed.
struct Simulation {
    random: Random,
    scale: Scale,
    history: Vec<Event>,
    replicas: [Replica; 2],
    proxies: Vec<Proxy>,
}

/// How much there is of everything.
#[derive(Clone, Copy)]
struct Scale {
    names: usize,
    /// Changes at a time.
    burst: usize,
    steps: usize,
}

/// Few resources that change one by one.
const SMALL: Scale = Scale {
    names: 80,
    burst: 1,
    steps: 4_000,
};

/// More changes at a time than fit into one commit.
const LARGE: Scale = Scale {
    names: 12_000,
    burst: 3_000,
    steps: 1_500,
};

/// Runs one world to its end, and returns how many bytes the servers sent in the last streams.
fn simulate(seed: u64, scale: Scale) -> u64 {
    eprintln!("MYRIAD_SEED={seed}");
    let mut simulation = Simulation {
        random: Random::new(seed),
        scale,
        history: Vec::new(),
        replicas: [Form::Encoded, Form::Value].map(|form| Replica::new(form, false)),
        proxies: (0..PROXIES).map(|_| Proxy::default()).collect(),
    };
    for _ in 0..scale.steps {
        simulation.step();
    }
    simulation.finish()
}

impl Simulation {
    fn step(&mut self) {
        let at = self.random.below(PROXIES);
        let number = self.random.below(self.replicas.len());
        match self.random.below(40) {
            0..8 if self.scale.burst == 1 || self.random.below(40) == 0 => self.change(),
            8..12 => self.advance(number),
            12 => self.proxies[at].connect(number, &self.replicas[number]),
            13 => self.proxies[at].disconnect(),
            14 if self.random.below(3) == 0 => {
                let is_other = self.random.below(3) == 0;
                let is_newer = self.proxies[at].is_newer != is_other;
                self.proxies[at].restart(is_newer);
            }
            15 if self.random.below(5) == 0 => self.restart_replica(number),
            16 if self.random.below(4) == 0 => self.follow_authority(number),
            17 => self.proxies[at].ask(),
            18 => self.sign(at),
            other => self.exchange(at, other % 3),
        }
    }

    /// Objects change.
    fn change(&mut self) {
        for _ in 0..self.scale.burst {
            let port = match self.random.below(8) {
                0..2 => None,
                2 => Some(REFUSED_PORT),
                _ => Some(1 + self.random.below(60) as u16),
            };
            self.history
                .push((self.random.below(self.scale.names), port));
        }
    }

    /// A replica reads some of what it has not read yet.
    fn advance(&mut self, number: usize) {
        let replica = &mut self.replicas[number];
        let unread = self.history.len() - replica.read;
        let end = replica.read + self.random.below(unread + 1);
        replica.read_to(&self.history, end);
        for (follows, pair) in self.proxies.iter_mut().filter_map(|it| it.stream.as_mut()) {
            if *follows == number {
                pair.server.update(replica.world.snapshot().clone());
            }
        }
    }

    /// A replica lets the next authority sign, never by more than one ahead of the other.
    fn follow_authority(&mut self, number: usize) {
        let least = self.replicas.iter().map(|it| it.authority).min();
        let replica = &mut self.replicas[number];
        if Some(replica.authority) == least && replica.authority < u8::MAX - 1 {
            replica.authority += 1;
        }
        let anchors = replica.anchors();
        for (follows, pair) in self.proxies.iter_mut().filter_map(|it| it.stream.as_mut()) {
            if *follows == number {
                pair.server.anchor(anchors.clone());
            }
        }
    }

    /// The replica that a proxy follows signs what it was asked for.
    fn sign(&mut self, at: usize) {
        let Some((number, pair)) = &mut self.proxies[at].stream else {
            return;
        };
        let authority = self.replicas[*number].authority;
        if let Some(asked) = pair.server.asked(pair.now) {
            let chain = vec![asked.request, vec![authority].into()];
            pair.server.signed(Ok(chain));
        }
    }

    /// A replica that restarts reads everything before it answers anybody.
    fn restart_replica(&mut self, number: usize) {
        let Replica {
            read,
            form,
            authority,
            is_newer,
            ..
        } = self.replicas[number];
        let end = read + self.random.below(self.history.len() - read + 1);
        let is_other = self.random.below(2) == 0;
        self.replicas[number] = Replica::new(form, is_newer != is_other);
        self.replicas[number].authority = authority;
        self.replicas[number].read_to(&self.history, end);
        self.hang_up(number);
    }

    /// All proxies of a replica lose their streams.
    fn hang_up(&mut self, number: usize) {
        for proxy in &mut self.proxies {
            if proxy.stream.as_ref().is_some_and(|it| it.0 == number) {
                proxy.disconnect();
            }
        }
    }

    /// One frame of one stream moves, and sometimes time does.
    fn exchange(&mut self, at: usize, what: usize) {
        let proxy = &mut self.proxies[at];
        let Some((_, pair)) = &mut proxy.stream else {
            return;
        };
        match what {
            0 => pair.speak(),
            1 => pair.serve_one(),
            _ => pair.obey_one(),
        };
        if self.random.below(50) == 0 && pair.now < clock_limit(pair) {
            pair.now += PATIENCE / 10;
        }
        proxy.check_order();
        proxy.check_signed();
    }

    /// Everybody reads everything and is connected, and nothing breaks any more.
    fn finish(mut self) -> u64 {
        let mut bytes = 0;
        let is_newer = self.random.below(4) > 0;
        for number in 0..self.replicas.len() {
            let Replica {
                form, authority, ..
            } = self.replicas[number];
            if self.replicas[number].is_newer != is_newer {
                self.replicas[number] = Replica::new(form, is_newer);
                self.replicas[number].authority = authority;
                self.hang_up(number);
            }
            self.replicas[number].read_to(&self.history, self.history.len());
        }
        let digests = self
            .replicas
            .each_ref()
            .map(|it| it.world.snapshot().digest());
        assert_eq!(digests[0], digests[1]);
        for (at, proxy) in self.proxies.iter_mut().enumerate() {
            if proxy.stream.is_none() {
                proxy.connect(at % 2, &self.replicas[at % 2]);
            }
            let (number, pair) = proxy.stream.as_mut().expect("it was connected");
            let newest = self.replicas[*number].world.snapshot();
            pair.server.update(newest.clone());
            pair.settle();
            if let Some(asked) = pair.server.asked(pair.now) {
                let authority = self.replicas[*number].authority;
                let chain = vec![asked.request, vec![authority].into()];
                pair.server.signed(Ok(chain));
                pair.settle();
            }
            assert!(pair.client.may_ask(), "a request was left unanswered");
            let anchors = self.replicas[*number].anchors();
            assert_eq!(pair.anchors.as_ref(), Some(&*anchors));
            assert!(pair.server.is_in_step());
            assert_eq!(pair.client.received(), newest.digest());
            check_held(pair.client.held(), newest, proxy.is_newer);
            let counters = &pair.server_counters;
            assert_eq!(counters.ahead_too_long.get(), 0);
            assert_eq!(
                counters.mismatches.get(),
                0,
                "an end was wrong about the other"
            );
            bytes += counters.bytes_sent.get();
            proxy.check_order();
            proxy.check_signed();
            proxy.restart(proxy.is_newer);
        }
        bytes
    }
}

/// The clock of a stream never reaches the timeout for proxies that are ahead.
fn clock_limit(pair: &Pair) -> myriad_base::clock::Instant {
    pair.server
        .deadline()
        .map_or(pair.now + PATIENCE, |deadline| deadline - PATIENCE)
}

/// Everything that is newest and not refused is held, and nothing that is gone.
fn check_held(held: &Snapshot, newest: &Snapshot, is_newer: bool) {
    for sealed in newest.iter() {
        let ours = held.get(sealed.slot(), sealed.key());
        let is_held = ours.is_some_and(|ours| ours.version() == sealed.version());
        let is_known = is_newer || sealed.key().kind != FUTURE;
        assert_eq!(is_held, is_known && !is_refused(sealed), "{}", sealed.key());
    }
    for sealed in held.iter() {
        assert!(newest.get(sealed.slot(), sealed.key()).is_some());
    }
}

/// The digest over what every build knows.
fn known_to_all(snapshot: &Snapshot) -> Digest {
    let known = snapshot.iter().filter(|it| it.key().kind != FUTURE);
    known.fold(Digest::default(), |digest, it| {
        digest.plus(Digest::of(it.slot(), it.version()))
    })
}

fn is_refused(sealed: &myriad_model::Sealed) -> bool {
    let resource = sealed.resource().cloned().unwrap_or_else(|| {
        let bytes = sealed.encoded().expect("one of two forms");
        myriad_model::wire::decode(bytes).expect("it was encoded here")
    });
    match resource.value {
        myriad_model::Value::Endpoints(it) => it.endpoints[0].address.port() == REFUSED_PORT,
        _ => false,
    }
}

#[test]
fn both_ends_reach_the_same_digest_whatever_happens_between_them() {
    let seed = std::env::var("MYRIAD_SEED").ok();
    if let Some(seed) = seed.and_then(|seed| seed.parse().ok()) {
        simulate(seed, SMALL);
        simulate(seed, LARGE);
        return;
    }
    let small: u64 = (0..100).map(|seed| simulate(seed, SMALL)).sum();
    let large: u64 = (0..5).map(|seed| simulate(seed, LARGE)).sum();
    eprintln!("{small} and {large} bytes");
}
