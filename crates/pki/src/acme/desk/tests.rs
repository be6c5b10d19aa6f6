//! Years of luck and bad luck in seconds: a desk, authorities that are made up, and crashes.

mod faults;
mod many;
mod replacing;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    Bounds, CertificateWish, Desk, Effect, StepOutcome, StepTrouble, Task, TaskStep, TroubleNotice,
};
use crate::acme::{
    AcmeIssuer, Challenge, ChallengeKind, DAY, Directory, DnsRecord, HOUR, HeldCertificate,
    KeyKind, MINUTE, Millis, NAMES_MAX, Order, OrderKey, OrderStage, RenewalWindow, SECOND,
};

const FIRST: &str = "https://first.example/dir";
const SECOND_CA: &str = "https://second.example/dir";
const START: Millis = 1_800_000_000 * SECOND;

/// A world of one desk.
struct Sim {
    desk: Desk,
    seed: u64,
    now: Millis,
    /// The orders that are kept, as their texts.
    kept: BTreeMap<Arc<str>, String>,
    /// The certificates that are kept.
    stored: BTreeMap<Arc<str>, HeldCertificate>,
    wishes: BTreeMap<Arc<str>, CertificateWish>,
    told: BTreeMap<Arc<str>, TroubleNotice>,
    /// Steps under way: when they end.
    running: Vec<(Millis, Task)>,
    /// The orders that authorities have, by URL: whose, and with which key they were finalised.
    orders: BTreeMap<String, Placed>,
    /// When orders were placed where.
    placings: Vec<(Millis, Box<str>, Arc<str>)>,
    /// How often a certificate was looked at before an order.
    proofs: BTreeMap<Arc<str>, Vec<Millis>>,
    issued_at: BTreeMap<Arc<str>, Millis>,
    behaviour: fn(&Sim, &Task) -> Option<StepTrouble>,
    latency: fn(&Task) -> Millis,
    window: Option<RenewalWindow>,
    /// Whether authorities do not find the certificates again that are to be replaced.
    is_forgetful: bool,
    issuer: AcmeIssuer,
    bounds: Bounds,
    most_running: usize,
    /// Whether names are proven by DNS, and the texts that are there.
    is_in_dns: bool,
    zone: BTreeSet<Box<str>>,
    /// From when on authoritative servers show them.
    seen_at: Millis,
    /// How often texts were set, and how often it was tried to remove them.
    was_set: usize,
    cleans: usize,
}

struct Placed {
    id: Arc<str>,
    accepted: bool,
    key: Option<OrderKey>,
}

fn directory(url: &str) -> Directory {
    Directory {
        url: url.into(),
        email: None,
        profile: None,
        binding: None,
    }
}

fn issuer(urls: &[&str]) -> AcmeIssuer {
    AcmeIssuer {
        directories: urls.iter().map(|url| directory(url)).collect(),
        challenge: ChallengeKind::Http,
        dns: None,
        key: KeyKind::default(),
        is_tenants: false,
    }
}

fn wish(name: &str) -> CertificateWish {
    CertificateWish {
        names: vec![name.into()],
        issuer: "default".into(),
    }
}

impl Sim {
    fn new(bounds: Bounds, seed: u64) -> Sim {
        let mut sim = Sim {
            desk: Desk::new(bounds, seed),
            seed,
            now: START,
            kept: BTreeMap::new(),
            stored: BTreeMap::new(),
            wishes: BTreeMap::new(),
            told: BTreeMap::new(),
            running: Vec::new(),
            orders: BTreeMap::new(),
            placings: Vec::new(),
            proofs: BTreeMap::new(),
            issued_at: BTreeMap::new(),
            behaviour: |_, _| None,
            latency: |_| 20,
            window: None,
            is_forgetful: false,
            issuer: issuer(&[FIRST]),
            bounds,
            most_running: 0,
            is_in_dns: false,
            zone: BTreeSet::new(),
            seen_at: START,
            was_set: 0,
            cleans: 0,
        };
        sim.boot();
        sim
    }

    /// One in which names are proven by DNS.
    fn in_dns(seed: u64) -> Sim {
        let mut sim = Sim::new(Bounds::default(), seed);
        sim.is_in_dns = true;
        sim
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.seed >> 33) % below
    }

    /// A new process finds what the one before has kept.
    fn boot(&mut self) {
        self.desk = Desk::new(self.bounds, self.seed);
        self.running.clear();
        // Findings end with their process.
        self.told.clear();
        let issuer = self.issuer.clone();
        let mut effects = self.desk.put_issuer("default", issuer, self.now);
        for text in self.kept.values() {
            let order = Order::from_text(text).unwrap();
            self.desk.restore_order(order, self.now);
        }
        for (id, held) in &self.stored {
            self.desk.restore_certificate(id, held.clone(), self.now);
        }
        for (id, wish) in &self.wishes {
            effects.extend(self.desk.want(id, wish.clone(), self.now));
        }
        effects.extend(self.desk.sweep(self.now));
        self.carry_out(effects);
    }

    fn want(&mut self, name: &str) {
        let id: Arc<str> = format!("shop/{name}").into();
        self.wishes.insert(id.clone(), wish(name));
        let effects = self.desk.want(&id, wish(name), self.now);
        self.carry_out(effects);
    }

    fn unwant(&mut self, name: &str) {
        let id: Arc<str> = format!("shop/{name}").into();
        self.wishes.remove(&id);
        let effects = self.desk.unwant(&id, self.now);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Keep(order) => {
                    self.kept.insert(order.id.clone(), order.expose_text());
                }
                Effect::Drop(id) => {
                    self.kept.remove(&id);
                }
                Effect::Tell(id, Some(notice)) => {
                    self.told.insert(id, notice);
                }
                Effect::Tell(id, None) => {
                    self.told.remove(&id);
                }
            }
        }
    }

    /// Begins all steps that there are places for.
    fn begin(&mut self) {
        loop {
            let (task, effects) = self.desk.next(self.now);
            self.carry_out(effects);
            let Some(task) = task else { break };
            if task.keep {
                let order = task.order.as_ref().unwrap();
                self.kept.insert(task.id.clone(), order.expose_text());
            }
            let ends = self.now + (self.latency)(&task);
            self.running.push((ends, task));
        }
        self.most_running = self.most_running.max(self.running.len());
        let bounds = self.bounds;
        assert!(self.running.len() <= bounds.proofs_max + 2 * bounds.steps_max);
        let open = self.desk.authorities.values().map(|it| it.open.count());
        assert!(open.max().unwrap_or(0) <= bounds.open_max);
    }

    /// Lets time pass until the next thing happens; none where nothing ever does.
    fn step(&mut self) -> Option<()> {
        self.begin();
        let ends = self.running.iter().map(|(ends, _)| *ends).min();
        let next = ends.into_iter().chain(self.desk.due()).min()?;
        self.now = self.now.max(next);
        let at = self.running.iter().position(|(ends, _)| *ends <= self.now);
        if let Some(at) = at {
            let (_, task) = self.running.swap_remove(at);
            let result = self.perform(&task);
            if let Ok(StepOutcome::Issued(held)) = &result {
                let order = task.order.as_ref().unwrap();
                let held = HeldCertificate {
                    directory: Some(order.directory.clone()),
                    placed_at: Some(order.placed_at),
                    ..held.clone()
                };
                self.stored.insert(task.id.clone(), held);
                self.issued_at.insert(task.id.clone(), self.now);
            }
            let effects = self.desk.done(&task, result, self.now);
            self.carry_out(effects);
        }
        Some(())
    }

    fn run_for(&mut self, span: Millis) {
        let end = self.now + span;
        loop {
            self.begin();
            let ends = self.running.iter().map(|(ends, _)| *ends).min();
            let next = ends.into_iter().chain(self.desk.due()).min();
            if next.is_none_or(|next| next > end) {
                self.now = end;
                return;
            }
            self.step();
        }
    }

    /// The authorities' part of a step.
    fn perform(&mut self, task: &Task) -> Result<StepOutcome, StepTrouble> {
        if task.step == TaskStep::Prove {
            self.proofs
                .entry(task.id.clone())
                .or_default()
                .push(self.now);
        }
        self.cleans += usize::from(task.step == TaskStep::Clean);
        let trouble = (self.behaviour)(self, task);
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        let order = task.order.as_deref();
        Ok(match &task.step {
            TaskStep::Prove => self.prove(order.unwrap()),
            TaskStep::Place => return self.place_or_anew(task, order.unwrap()),
            TaskStep::Answer => self.answer(&task.id, order.unwrap()),
            TaskStep::Clean => self.clean(order.unwrap()),
            TaskStep::Accept => {
                self.placed(order).accepted = true;
                StepOutcome::Accepted
            }
            TaskStep::Look => {
                let key = OrderKey::new(self.now.to_be_bytes().to_vec());
                match self.placed(order).accepted {
                    true => StepOutcome::Ready(key),
                    false => StepOutcome::Pending(100),
                }
            }
            TaskStep::Finalise => {
                let key = key_of(order);
                self.placed(order).key.get_or_insert(key);
                StepOutcome::Finalised
            }
            TaskStep::Fetch => {
                let key = key_of(order);
                let names = order.unwrap().names.clone();
                assert_eq!(
                    self.placed(order).key.as_ref(),
                    Some(&key),
                    "its key is lost"
                );
                StepOutcome::Issued(self.certificate(names))
            }
            TaskStep::Window(..) => StepOutcome::Window(self.window),
        })
    }

    /// The records that prove the names of an order, where they are proven by DNS.
    fn prove(&self, order: &Order) -> StepOutcome {
        let names = order.names.iter().filter(|_| self.is_in_dns);
        let records = names.map(|name| DnsRecord {
            name: name.clone(),
            fqdn: format!("_acme-challenge.{name}").into(),
            zone: "example".into(),
            value: None,
        });
        StepOutcome::Proven(records.collect())
    }

    /// Takes an order in, as a new one where it has to and may be one.
    fn place_or_anew(&mut self, task: &Task, order: &Order) -> Result<StepOutcome, StepTrouble> {
        let is_found = order.replaces.is_none() || !self.is_forgetful;
        if !is_found && !task.may_be_new {
            return Err(StepTrouble::Unreplaced("could not find it".to_owned()));
        }
        match self.place(&task.id, order) {
            StepOutcome::Placed(url, challenges) if !is_found => {
                Ok(StepOutcome::PlacedNew(url, challenges))
            }
            placed => Ok(placed),
        }
    }

    /// Takes an order in, and asks a challenge of it.
    fn place(&mut self, id: &Arc<str>, order: &Order) -> StepOutcome {
        let url = format!("{}/{}", order.directory, self.orders.len());
        let placed = Placed {
            id: id.clone(),
            accepted: false,
            key: None,
        };
        self.orders.insert(url.clone(), placed);
        self.placings
            .push((self.now, order.directory.clone(), id.clone()));
        let kind = match self.is_in_dns {
            true => "dns-01",
            false => "http-01",
        };
        let challenge = Challenge {
            name: order.names[0].clone(),
            kind: kind.into(),
            token: "t".into(),
            answer: format!("t.k.{}", self.orders.len()).into(),
        };
        StepOutcome::Placed(url.into(), vec![challenge])
    }

    /// Sets the records of an order, which are seen later.
    fn answer(&mut self, id: &Arc<str>, order: &Order) -> StepOutcome {
        for record in &order.records {
            let value = record.value.clone().unwrap();
            // Whoever dies now finds it again.
            assert!(self.kept[id].contains(&*value), "it is not kept");
            self.zone.insert(value);
            self.was_set += 1;
        }
        match self.now < self.seen_at {
            true => StepOutcome::Pending(100),
            false => StepOutcome::Answered,
        }
    }

    /// Removes the records of an order.
    fn clean(&mut self, order: &Order) -> StepOutcome {
        let records = order.records.iter();
        for value in records.filter_map(|record| record.value.as_ref()) {
            self.zone.remove(value);
        }
        StepOutcome::Cleaned
    }

    fn certificate(&self, names: Vec<Box<str>>) -> HeldCertificate {
        HeldCertificate {
            names,
            from: self.now,
            until: self.now + 90 * DAY,
            ari: Some("a.s".into()),
            directory: None,
            placed_at: None,
        }
    }

    fn placed(&mut self, order: Option<&Order>) -> &mut Placed {
        let url = match &order.unwrap().stage {
            OrderStage::Finalising(url, _) | OrderStage::Fetching(url, _) => url,
            stage => &stage.placed().unwrap().url,
        };
        self.orders.get_mut(&**url).unwrap()
    }

    /// How many certificates were asked for, by whom.
    fn finalised(&self) -> BTreeMap<Arc<str>, usize> {
        let mut count = BTreeMap::new();
        for placed in self.orders.values().filter(|it| it.key.is_some()) {
            *count.entry(placed.id.clone()).or_default() += 1;
        }
        count
    }
}

fn key_of(order: Option<&Order>) -> OrderKey {
    match &order.unwrap().stage {
        OrderStage::Finalising(_, key) | OrderStage::Fetching(_, key) => key.clone(),
        stage => panic!("no key at {stage:?}"),
    }
}

fn is_bad(task: &Task) -> bool {
    task.id.contains("bad")
}

fn unproven() -> StepTrouble {
    StepTrouble::Unproven("leads elsewhere".to_owned(), "mend it".to_owned())
}

fn wide() -> Bounds {
    Bounds {
        orders_per_authority: 100_000,
        ..Bounds::default()
    }
}

#[test]
fn a_certificate_comes_by_every_step_and_is_renewed_before_its_end() {
    let mut sim = Sim::new(Bounds::default(), 1);
    sim.want("a.example");
    sim.run_for(MINUTE);
    let first = sim.stored["shop/a.example"].clone();
    assert!(sim.kept.is_empty() && sim.told.is_empty());
    assert_eq!(sim.orders.len(), 1);
    sim.run_for(50 * DAY);
    assert_eq!(sim.stored["shop/a.example"], first);
    sim.run_for(11 * DAY);
    assert!(sim.stored["shop/a.example"].from > first.from + 50 * DAY);
    assert_eq!(sim.orders.len(), 2);
    // Years later, each was in time.
    sim.run_for(3_650 * DAY);
    assert!(sim.stored["shop/a.example"].until > sim.now + 25 * DAY);
    assert!(
        (60..=75).contains(&sim.orders.len()),
        "{}",
        sim.orders.len()
    );
}

#[test]
fn whatever_step_it_dies_at_no_certificate_is_lost_or_ordered_twice() {
    // How many things happen on the way.
    let mut whole = Sim::new(Bounds::default(), 1);
    whole.want("a.example");
    let mut steps = 0;
    while whole.stored.is_empty() {
        whole.step();
        steps += 1;
    }
    assert_eq!(steps, 7);
    for at in 0..=steps {
        for is_carried_out in [false, true] {
            let mut sim = Sim::new(Bounds::default(), 1);
            sim.want("a.example");
            for _ in 0..at {
                sim.step();
            }
            // The process dies in the middle of a step, of which the authority has heard or not.
            sim.begin();
            if is_carried_out && let Some((_, task)) = sim.running.pop() {
                let _ = sim.perform(&task);
            }
            sim.boot();
            sim.run_for(HOUR);
            assert_eq!(sim.stored.len(), 1, "died at {at}");
            assert_eq!(sim.finalised()["shop/a.example"], 1, "died at {at}");
            assert!(sim.kept.is_empty());
        }
    }
}

#[test]
fn crashes_at_any_moment_lose_none_of_many() {
    for seed in 0..40 {
        let mut sim = Sim::new(wide(), seed);
        for number in 0..30 {
            sim.want(&format!("{number}.example"));
        }
        for _ in 0..12 {
            for _ in 0..sim.random(60) {
                sim.step();
            }
            // Some of what is under way is heard and some is not.
            let running = std::mem::take(&mut sim.running);
            for (_, task) in running {
                if sim.random(2) == 0 {
                    let _ = sim.perform(&task);
                }
            }
            sim.boot();
        }
        sim.run_for(HOUR);
        assert_eq!(sim.stored.len(), 30, "seed {seed}");
        assert!(
            sim.finalised().values().all(|count| *count == 1),
            "seed {seed}"
        );
        assert!(sim.kept.is_empty(), "seed {seed}");
        let open = sim.desk.authorities.values().map(|it| it.open.count());
        assert_eq!(open.sum::<usize>(), 0, "seed {seed}");
    }
}

#[test]
fn names_that_fail_for_ever_delay_nobody_and_are_tried_ever_more_rarely() {
    let mut sim = Sim::new(wide(), 3);
    sim.behaviour = |_, task| (is_bad(task) && task.step == TaskStep::Prove).then(unproven);
    // Whoever leads nowhere is found out by waiting.
    sim.latency = |task| match is_bad(task) {
        true => 10 * SECOND,
        false => 20,
    };
    for number in 0..2_000 {
        sim.want(&format!("bad{number}.example"));
    }
    sim.run_for(HOUR);
    for number in 0..200 {
        sim.want(&format!("{number}.example"));
        let before = sim.now;
        sim.run_for(30 * SECOND);
        let id: Arc<str> = format!("shop/{number}.example").into();
        let took = sim.issued_at[&id] - before;
        assert!(took <= 200, "{number} took {took} ms");
    }
    sim.run_for(DAY);
    assert_eq!(sim.told.len(), 2_000);
    let tries: Vec<usize> = sim
        .proofs
        .values()
        .map(Vec::len)
        .filter(|it| *it > 1)
        .collect();
    assert_eq!(tries.len(), 2_000);
    // The longest wait is 15 minutes: about a hundred a day, and a few before.
    let most = tries.iter().max().copied().unwrap_or(0);
    assert!((90..=180).contains(&most), "{most}");
    // They do not come all at once.
    let last: BTreeSet<Millis> = sim
        .proofs
        .values()
        .filter_map(|it| it.last().copied())
        .collect();
    assert!(last.len() > 1_000);
    assert!(sim.placings.iter().all(|(_, _, id)| !id.contains("bad")));
}

#[test]
fn an_authority_that_refuses_is_asked_at_most_five_times_an_hour() {
    let mut sim = Sim::new(Bounds::default(), 4);
    sim.behaviour = |_, task| {
        let refused = StepTrouble::Refused("CAA forbids it (caa)".to_owned());
        (task.step == TaskStep::Look).then_some(refused)
    };
    sim.want("bad.example");
    sim.run_for(10 * DAY);
    let times: Vec<Millis> = sim.placings.iter().map(|(at, ..)| *at).collect();
    for start in &times {
        let hour = times
            .iter()
            .filter(|at| (*start..start + HOUR).contains(at));
        assert!(hour.count() <= 5);
    }
    assert!((12..=30).contains(&times.len()), "{}", times.len());
    assert!(
        sim.told["shop/bad.example"]
            .message
            .contains("CAA forbids it")
    );
    // Its waits outlive a restart.
    sim.boot();
    let before = sim.placings.len();
    sim.run_for(MINUTE);
    assert_eq!(sim.placings.len(), before);
    // Once nobody wants it, nothing of it is left.
    sim.unwant("bad.example");
    assert!(sim.kept.is_empty() && sim.told.is_empty() && sim.desk.certificates.is_empty());
    assert_eq!(sim.desk.due(), None);
}

#[test]
fn an_order_that_was_looked_at_while_nobody_answered_is_placed_again_soon() {
    let mut sim = Sim::new(Bounds::default(), 17);
    sim.want("a.example");
    while !sim.orders.values().any(|placed| placed.accepted) {
        sim.step();
    }
    // The process dies while the authority looks, which has refused it by the next one's start.
    sim.behaviour = |sim, task| {
        let is_first = sim.orders.len() == 1 && task.step == TaskStep::Accept;
        is_first.then(|| StepTrouble::Refused("connection refused (connection)".to_owned()))
    };
    sim.boot();
    sim.run_for(20 * SECOND);
    assert_eq!((sim.stored.len(), sim.orders.len()), (1, 2));
    assert!(sim.kept.is_empty() && sim.told.is_empty());
}

#[test]
fn an_order_that_is_refused_is_placed_seldom_however_often_the_process_dies() {
    let mut sim = Sim::new(Bounds::default(), 18);
    sim.behaviour = |_, task| {
        let refused = StepTrouble::Refused("CAA forbids it (caa)".to_owned());
        (task.step == TaskStep::Look).then_some(refused)
    };
    sim.want("bad.example");
    let end = sim.now + HOUR;
    let mut deaths = 0;
    while sim.now < end {
        sim.step();
        // It dies each time that the authority begins to look.
        let accepted = sim.orders.values().filter(|placed| placed.accepted);
        if accepted.count() > deaths {
            deaths += 1;
            sim.boot();
        }
    }
    assert!((2..=5).contains(&deaths), "{deaths}");
    assert_eq!(sim.placings.len(), deaths);
    assert!(sim.stored.is_empty());
}

#[test]
fn an_authority_in_trouble_is_left_alone_and_the_next_one_asked() {
    let down = |sim: &Sim, task: &Task| {
        let order = task.order.as_ref()?;
        let is_down = *order.directory == *FIRST && sim.now < START + DAY;
        let trouble = StepTrouble::Unreachable("nobody listens".to_owned(), 0);
        (is_down && task.step != TaskStep::Prove).then_some(trouble)
    };
    let mut sim = Sim::new(wide(), 5);
    sim.behaviour = down;
    sim.want("a.example");
    sim.run_for(12 * HOUR);
    assert!(sim.stored.is_empty());
    let told = &sim.told["shop/a.example"].message;
    assert!(told.contains("nobody listens"), "{told}");
    sim.run_for(DAY);
    assert_eq!(sim.stored.len(), 1);
    assert!(sim.told.is_empty());

    let mut sim = Sim::new(wide(), 5);
    sim.issuer = issuer(&[FIRST, SECOND_CA]);
    sim.behaviour = down;
    sim.boot();
    for number in 0..100 {
        sim.want(&format!("{number}.example"));
    }
    sim.run_for(MINUTE);
    assert_eq!(sim.stored.len(), 100);
    assert!(sim.placings.iter().all(|(_, url, _)| **url == *SECOND_CA));
    // Once it is well it is the first again.
    sim.run_for(2 * DAY);
    sim.want("late.example");
    sim.run_for(MINUTE);
    assert_eq!(&*sim.placings.last().unwrap().1, FIRST);
}

#[test]
fn an_order_that_one_authority_refuses_is_placed_at_the_next_at_once() {
    let mut sim = Sim::new(Bounds::default(), 6);
    sim.issuer = issuer(&[FIRST, SECOND_CA]);
    sim.behaviour = |_, task| {
        let order = task.order.as_ref()?;
        let is_first = *order.directory == *FIRST && task.step == TaskStep::Place;
        is_first.then(|| StepTrouble::Limited("too many".to_owned(), HOUR))
    };
    sim.boot();
    sim.want("a.example");
    sim.run_for(SECOND);
    assert_eq!(
        &*sim.stored["shop/a.example"].directory.clone().unwrap(),
        SECOND_CA
    );
}

#[test]
fn budgets_hold_for_an_authority_and_for_a_registered_domain_and_outlive_restarts() {
    let bounds = Bounds {
        orders_per_authority: 50,
        orders_per_domain: 5,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 7);
    for number in 0..20 {
        sim.want(&format!("{number}.shop.example"));
    }
    for number in 0..300 {
        sim.want(&format!("www.{number}.example"));
    }
    for _ in 0..24 {
        sim.run_for(HOUR);
        sim.boot();
    }
    let within = |from: Millis, span: Millis, part: &str| {
        let placed = sim.placings.iter();
        let of = placed.filter(|(at, _, id)| (from..from + span).contains(at) && id.contains(part));
        of.count()
    };
    let shop = within(START, DAY, ".shop.example");
    assert_eq!(shop, 5, "the others have to wait for more than a day");
    let first = within(START, 3 * HOUR, "");
    // All of the budget at once, and what becomes free meanwhile.
    assert!((50..=100).contains(&first), "{first}");
    assert_eq!(sim.stored.len(), 305);
    sim.run_for(HOUR);
    assert!(
        sim.told["shop/19.shop.example"]
            .message
            .contains("shop.example has had as many")
    );
    sim.run_for(30 * DAY);
    assert_eq!(sim.stored.len(), 320);
}

#[test]
fn thousands_are_under_way_within_the_bounds() {
    let bounds = Bounds {
        proofs_max: 64,
        steps_max: 16,
        open_max: 100,
        ..wide()
    };
    let mut sim = Sim::new(bounds, 8);
    for number in 0..5_000 {
        sim.want(&format!("{number}.example"));
    }
    sim.run_for(HOUR);
    assert_eq!(sim.stored.len(), 5_000);
    assert!(sim.most_running <= 64 + 16);
    assert_eq!(sim.desk.counts().held, 5_000);
    assert_eq!(sim.desk.counts().open, 0);
}

#[test]
fn a_window_of_now_renews_all_of_them_and_names_what_is_replaced() {
    let mut sim = Sim::new(wide(), 9);
    for number in 0..500 {
        sim.want(&format!("{number}.example"));
    }
    sim.run_for(2 * HOUR);
    let before = sim.orders.len();
    assert_eq!(before, 500);
    sim.window = Some(RenewalWindow {
        start: sim.now - HOUR,
        end: sim.now,
        look_again: 6 * HOUR,
    });
    sim.run_for(7 * HOUR);
    assert_eq!(sim.orders.len(), 1_000, "each once");
    assert!(sim.stored.values().all(|held| held.from > START + 2 * HOUR));
}

#[test]
fn other_names_are_another_certificate_and_the_same_are_not() {
    let mut sim = Sim::new(Bounds::default(), 10);
    sim.want("a.example");
    sim.run_for(MINUTE);
    sim.want("a.example");
    sim.run_for(MINUTE);
    assert_eq!(sim.orders.len(), 1);
    let id: Arc<str> = "shop/a.example".into();
    let both = CertificateWish {
        names: vec!["a.example".into(), "b.example".into()],
        issuer: "default".into(),
    };
    sim.wishes.insert(id.clone(), both.clone());
    let effects = sim.desk.want(&id, both, sim.now);
    sim.carry_out(effects);
    sim.run_for(MINUTE);
    assert_eq!((sim.orders.len(), sim.stored[&id].names.len()), (2, 2));
    // One that somebody took away comes again.
    sim.stored.remove(&id);
    let effects = sim.desk.lose(&id, sim.now);
    sim.carry_out(effects);
    sim.run_for(MINUTE);
    assert_eq!((sim.orders.len(), sim.stored.len()), (3, 1));
    const { assert!(NAMES_MAX >= 2) };
}

#[test]
fn an_issuer_that_comes_late_is_waited_for_and_one_that_goes_orders_nothing() {
    let mut sim = Sim::new(Bounds::default(), 11);
    let effects = sim.desk.remove_issuer("default", sim.now);
    sim.carry_out(effects);
    sim.want("a.example");
    sim.run_for(DAY);
    assert!(sim.orders.is_empty() && sim.desk.due().is_none());
    let effects = sim.desk.put_issuer("default", issuer(&[FIRST]), sim.now);
    sim.carry_out(effects);
    sim.run_for(MINUTE);
    assert_eq!(sim.stored.len(), 1);
}

#[test]
fn whatever_step_it_dies_at_no_record_of_dns_stays() {
    let mut whole = Sim::in_dns(12);
    whole.want("a.example");
    let mut steps = 0;
    while whole.stored.is_empty() || !whole.zone.is_empty() {
        whole.step();
        steps += 1;
    }
    assert_eq!((steps, whole.was_set, whole.cleans), (8, 1, 1));
    assert!(whole.kept.is_empty() && whole.told.is_empty());
    for at in 0..=steps {
        for is_carried_out in [false, true] {
            let mut sim = Sim::in_dns(12);
            sim.want("a.example");
            for _ in 0..at {
                sim.step();
            }
            sim.begin();
            if is_carried_out && let Some((_, task)) = sim.running.pop() {
                let _ = sim.perform(&task);
            }
            sim.boot();
            sim.run_for(HOUR);
            assert_eq!(sim.stored.len(), 1, "died at {at}");
            assert_eq!(sim.finalised()["shop/a.example"], 1, "died at {at}");
            assert!(sim.zone.is_empty(), "died at {at}: {:?}", sim.zone);
            assert!(sim.kept.is_empty(), "died at {at}");
            let open = sim.desk.authorities.values().map(|it| it.open.count());
            assert_eq!(open.sum::<usize>(), 0, "died at {at}");
        }
    }
}

#[test]
fn records_of_orders_that_fail_are_removed_at_once() {
    let mut sim = Sim::in_dns(13);
    sim.behaviour = |_, task| {
        let refused = StepTrouble::Refused("it saw another text".to_owned());
        (task.step == TaskStep::Look).then_some(refused)
    };
    sim.want("bad.example");
    sim.run_for(MINUTE);
    assert_eq!((sim.was_set, sim.cleans), (1, 1));
    assert!(sim.zone.is_empty());
    let kept = Order::from_text(&sim.kept["shop/bad.example"]).unwrap();
    assert!(!kept.is_set() && kept.not_before > sim.now);
    // One that goes to another authority takes nothing of the first along.
    let mut sim = Sim::in_dns(13);
    sim.issuer = issuer(&[FIRST, SECOND_CA]);
    sim.behaviour = |_, task| {
        let order = task.order.as_ref()?;
        let trouble = StepTrouble::Unreachable("it is down".to_owned(), 0);
        (*order.directory == *FIRST && task.step == TaskStep::Accept).then_some(trouble)
    };
    sim.boot();
    sim.want("a.example");
    sim.run_for(HOUR);
    assert_eq!(sim.stored.len(), 1);
    assert!(sim.zone.is_empty() && sim.was_set >= 2, "{:?}", sim.zone);
}

#[test]
fn records_of_what_nobody_wants_any_more_are_removed_even_after_a_crash() {
    for dies in [false, true] {
        let mut sim = Sim::in_dns(14);
        sim.want("a.example");
        while sim.zone.is_empty() {
            sim.step();
        }
        sim.unwant("a.example");
        assert_eq!(sim.zone.len(), 1);
        if dies {
            sim.boot();
        }
        sim.run_for(MINUTE);
        assert!(sim.zone.is_empty() && sim.kept.is_empty());
        assert!(sim.desk.certificates.is_empty());
        assert_eq!(sim.desk.due(), None);
    }
    // Of names that have changed too, and the new ones are ordered.
    let mut sim = Sim::in_dns(14);
    sim.want("a.example");
    while sim.zone.is_empty() {
        sim.step();
    }
    let id: Arc<str> = "shop/a.example".into();
    let other = wish("b.example");
    sim.wishes.insert(id.clone(), other.clone());
    let effects = sim.desk.want(&id, other, sim.now);
    sim.carry_out(effects);
    sim.run_for(MINUTE);
    assert_eq!(&*sim.stored[&id].names[0], "b.example");
    assert!(sim.zone.is_empty() && sim.kept.is_empty());
}

#[test]
fn a_record_that_cannot_be_removed_is_left_and_holds_up_nothing() {
    let mut sim = Sim::in_dns(15);
    sim.behaviour = |_, task| {
        let trouble = StepTrouble::Local("the server refuses".to_owned());
        (task.step == TaskStep::Clean).then_some(trouble)
    };
    sim.want("a.example");
    sim.run_for(SECOND);
    // The certificate does not wait for it, and nobody is told.
    assert_eq!(sim.stored.len(), 1);
    assert!(sim.told.is_empty());
    sim.run_for(HOUR);
    assert_eq!(sim.cleans, 4);
    assert_eq!(sim.zone.len(), 1);
    assert!(sim.kept.is_empty());
    // The next one is renewed as ever.
    sim.run_for(61 * DAY);
    assert_eq!(sim.orders.len(), 2);
}

#[test]
fn a_record_that_is_not_seen_yet_is_waited_for_with_the_same_order() {
    let mut sim = Sim::in_dns(16);
    sim.seen_at = START + 5 * MINUTE;
    sim.want("a.example");
    sim.run_for(4 * MINUTE);
    assert!(sim.stored.is_empty() && sim.was_set > 10);
    assert!(!sim.orders.values().any(|placed| placed.accepted));
    sim.run_for(2 * MINUTE);
    assert_eq!((sim.stored.len(), sim.orders.len()), (1, 1));
    assert!(sim.zone.is_empty());
}

#[test]
fn windows_are_looked_at_as_often_as_settings_say_and_renewals_are_counted() {
    let bounds = Bounds {
        look_max: 10 * SECOND,
        orders_per_authority: 5,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 5);
    for number in 0..5 {
        sim.want(&format!("{number}.example"));
    }
    // The authority says that it wants none of them renewed, and to be asked in six hours.
    let window = |start| RenewalWindow {
        start,
        end: start + MINUTE,
        look_again: 6 * HOUR,
    };
    sim.window = Some(window(START + 80 * DAY));
    sim.run_for(5 * MINUTE);
    assert_eq!(sim.orders.len(), 5);
    assert_eq!(sim.desk.counts().renewing, 0);
    // From one moment to the next it wants all of them renewed at once.
    sim.window = Some(window(START - HOUR));
    sim.run_for(20 * SECOND);
    let counts = sim.desk.counts();
    assert_eq!((counts.held, counts.renewing), (5, 5), "no budget");
    sim.window = Some(window(sim.now + 80 * DAY));
    sim.run_for(4 * HOUR);
    assert_eq!(sim.orders.len(), 10);
    assert_eq!(sim.desk.counts().renewing, 0);
}
