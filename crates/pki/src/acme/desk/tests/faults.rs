//! Authorities that are slow or want to be left alone, and clocks that are wrong by a day.

use std::sync::Arc;

use super::{FIRST, SECOND_CA, START, Sim, issuer, wide, wish};
use crate::acme::desk::{Bounds, CertificateWish, StepTrouble, Task, TaskStep};
use crate::acme::{DAY, HOUR, MINUTE, Millis, Order, SECOND};

impl Sim {
    /// Sets the clock, back or forward. The time that steps take, and that records of DNS are
    /// there, is another one.
    fn set_clock(&mut self, by: Millis) {
        self.now += by;
        self.seen_at += by;
        for (ends, _) in &mut self.running {
            *ends += by;
        }
    }
}

#[test]
fn an_authority_that_is_slow_holds_up_nobody_who_orders_elsewhere() {
    let mut sim = Sim::new(wide(), 22);
    sim.latency = |task| {
        let order = task.order.as_ref();
        let is_slow = order.is_some_and(|order| *order.directory == *FIRST);
        match is_slow && task.step != TaskStep::Prove {
            true => 30 * SECOND,
            false => 20,
        }
    };
    let effects = sim.desk.put_issuer("other", issuer(&[SECOND_CA]), sim.now);
    sim.carry_out(effects);
    for number in 0..200 {
        sim.want(&format!("{number}.example"));
    }
    sim.run_for(10 * SECOND);
    assert!(sim.stored.is_empty());
    let id: Arc<str> = "blog/b.example".into();
    let other = CertificateWish {
        issuer: "other".into(),
        ..wish("b.example")
    };
    sim.wishes.insert(id.clone(), other.clone());
    let effects = sim.desk.want(&id, other, sim.now);
    sim.carry_out(effects);
    sim.run_for(SECOND);
    assert_eq!(sim.stored.keys().collect::<Vec<_>>(), [&id]);
    // The others get there as well, as many at a time as there are places.
    sim.run_for(HOUR);
    assert_eq!(sim.stored.len(), 201);
    assert!(sim.told.is_empty(), "to be slow is no trouble");
}

#[test]
fn an_authority_that_wants_to_be_left_alone_is_left_alone_for_as_long_as_it_says() {
    let mut sim = Sim::new(wide(), 23);
    sim.behaviour = |sim, task| {
        let is_limited = task.step == TaskStep::Place && sim.now < START + 12 * HOUR;
        is_limited.then(|| StepTrouble::Limited("too many orders".to_owned(), HOUR))
    };
    sim.want("a.example");
    sim.run_for(11 * HOUR);
    let tries = &sim.proofs["shop/a.example"];
    assert!((2..=11).contains(&tries.len()), "{tries:?}");
    assert!(tries.windows(2).all(|two| two[1] - two[0] >= HOUR));
    let told = &sim.told["shop/a.example"].message;
    assert!(told.contains("too many orders"), "{told}");
    sim.run_for(2 * DAY);
    assert_eq!((sim.stored.len(), sim.orders.len()), (1, 1));
    assert!(sim.told.is_empty());
}

#[test]
fn a_clock_that_is_set_right_by_a_day_at_any_step_delays_nothing() {
    for at in 0..=7 {
        for by in [DAY, -DAY] {
            let mut sim = Sim::new(Bounds::default(), 24);
            sim.want("a.example");
            for _ in 0..at {
                sim.step();
            }
            sim.begin();
            sim.set_clock(by);
            sim.run_for(HOUR);
            assert_eq!(sim.stored.len(), 1, "{by} at {at}");
            assert_eq!(sim.orders.len(), 1, "{by} at {at}");
            assert!(sim.kept.is_empty() && sim.told.is_empty());
            // It is renewed in time all the same, whichever way the clock goes next.
            sim.set_clock(-by);
            sim.run_for(80 * DAY);
            let held = &sim.stored["shop/a.example"];
            assert!(held.until > sim.now + 50 * DAY, "{by} at {at}");
            assert_eq!(sim.orders.len(), 2, "{by} at {at}");
        }
    }
}

#[test]
fn waits_and_budgets_are_no_longer_by_a_clock_that_is_set_back() {
    let bounds = Bounds {
        orders_per_authority: 2,
        orders_per_domain: 2,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 25);
    sim.behaviour = |_, task| {
        let is_bad = task.id.contains("bad") && task.step == TaskStep::Prove;
        is_bad.then(super::unproven)
    };
    // Two orders are all that the authority has for now.
    for name in ["bad.example", "0.example", "1.example", "2.example"] {
        sim.want(name);
    }
    sim.run_for(MINUTE);
    assert_eq!(sim.stored.len(), 2);
    let tries = sim.proofs["shop/bad.example"].len();
    sim.set_clock(-DAY);
    // Whoever runs the desk looks at it once in a while.
    sim.run_for(MINUTE);
    sim.begin();
    sim.run_for(20 * MINUTE);
    assert!(sim.proofs["shop/bad.example"].len() > tries);
    assert_eq!(sim.stored.len(), 2, "the budget is spent all the same");
    sim.run_for(3 * HOUR);
    assert_eq!(sim.stored.len(), 3);
}

#[test]
fn a_registered_domain_is_waited_for_no_longer_by_a_clock_that_is_set_back() {
    let bounds = Bounds {
        orders_per_domain: 7,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 27);
    for number in 0..8 {
        sim.want(&format!("{number}.shop.example"));
    }
    sim.run_for(MINUTE);
    assert_eq!(sim.stored.len(), 7);
    sim.set_clock(-5 * DAY);
    // One becomes free each day.
    sim.run_for(23 * HOUR);
    assert_eq!(sim.stored.len(), 7, "the budget is spent all the same");
    sim.run_for(2 * HOUR);
    assert_eq!(sim.stored.len(), 8);
}

#[test]
fn an_order_that_a_fast_clock_has_kept_goes_on_and_counts() {
    let mut sim = Sim::new(Bounds::default(), 26);
    sim.set_clock(DAY);
    sim.behaviour = |_, task| {
        let refused = StepTrouble::Refused("CAA forbids it (caa)".to_owned());
        (task.step == TaskStep::Look).then_some(refused)
    };
    sim.want("a.example");
    sim.run_for(MINUTE);
    let kept = Order::from_text(&sim.kept["shop/a.example"]).unwrap();
    assert!(kept.not_before > sim.now && kept.placed_at > START + DAY - HOUR);
    // The next process has the right time.
    sim.set_clock(-DAY);
    sim.behaviour = |_, _| None;
    sim.boot();
    sim.run_for(HOUR);
    assert_eq!(sim.stored.len(), 1);
}

#[test]
fn names_are_looked_at_soon_after_a_start_however_often_they_failed_before() {
    let mut sim = Sim::new(Bounds::default(), 27);
    sim.behaviour = |_, task| (task.step == TaskStep::Answer).then(super::unproven);
    sim.want("a.example");
    while sim.proofs.get("shop/a.example").map_or(0, Vec::len) < 6 {
        sim.step();
    }
    sim.run_for(SECOND);
    let kept = sim.kept["shop/a.example"].clone();
    let order = Order::from_text(&kept).unwrap();
    let wait = order.not_before - sim.now;
    assert!(wait > 20 * SECOND, "{wait} after {}", order.failures);
    sim.behaviour = |_, _| None;
    sim.boot();
    sim.run_for(20 * SECOND);
    assert_eq!(sim.stored.len(), 1);
}

#[test]
fn what_could_not_be_kept_is_kept_before_the_next_try() {
    let mut sim = Sim::new(Bounds::default(), 28);
    sim.behaviour = |_, task| {
        let fails = task.step == TaskStep::Answer;
        fails.then(|| StepTrouble::Local("the server is away".to_owned()))
    };
    sim.want("a.example");
    sim.run_for(2 * SECOND);
    // The write was lost.
    assert_eq!(sim.kept.len(), 1);
    sim.kept.clear();
    sim.run_for(MINUTE);
    assert_eq!(sim.kept.len(), 1);
}

#[test]
fn names_that_did_not_answer_make_no_wait_longer_of_an_order_that_is_refused() {
    let mut sim = Sim::new(Bounds::default(), 29);
    sim.behaviour = |sim, task| match task.step {
        TaskStep::Prove => (sim.now < START + HOUR).then(super::unproven),
        TaskStep::Look => Some(StepTrouble::Refused("CAA forbids it (caa)".to_owned())),
        _ => None,
    };
    sim.want("a.example");
    sim.run_for(HOUR);
    assert!(sim.proofs["shop/a.example"].len() >= 8);
    assert!(sim.placings.is_empty());
    // It is proven at last, and refused for the first time, the second and the third.
    sim.run_for(HOUR);
    let placed = sim.placings.len();
    assert!((3..=4).contains(&placed), "{placed}");
}

#[test]
fn orders_that_were_refused_make_no_wait_longer_of_names_that_do_not_answer() {
    let mut sim = Sim::new(Bounds::default(), 30);
    sim.behaviour = |sim, task| match task.step {
        TaskStep::Prove => (sim.now >= START + HOUR).then(super::unproven),
        TaskStep::Look => Some(StepTrouble::Refused("CAA forbids it (caa)".to_owned())),
        _ => None,
    };
    sim.want("a.example");
    sim.run_for(HOUR);
    let placed = sim.placings.len();
    assert!((3..=4).contains(&placed), "{placed}");
    sim.run_for(2 * HOUR);
    let tries = sim.proofs["shop/a.example"].iter();
    let missed: Vec<Millis> = tries.filter(|at| **at >= START + HOUR).copied().collect();
    let soon = missed.iter().filter(|at| **at < missed[0] + MINUTE);
    assert!(soon.count() >= 3, "{missed:?}");
    assert_eq!(sim.placings.len(), placed);
}

#[test]
fn a_start_makes_no_wait_shorter_of_an_order_that_was_refused_before() {
    let mut sim = Sim::new(Bounds::default(), 31);
    sim.behaviour = |_, task| {
        let refused = StepTrouble::Refused("CAA forbids it (caa)".to_owned());
        (task.step == TaskStep::Look).then_some(refused)
    };
    sim.want("a.example");
    while sim.placings.len() < 3 {
        sim.step();
    }
    sim.run_for(SECOND);
    let order = Order::from_text(&sim.kept["shop/a.example"]).unwrap();
    assert_eq!((order.failures, order.refusals), (0, 3));
    // The process dies shortly before the next try.
    sim.run_for(order.not_before - sim.now - MINUTE);
    sim.boot();
    sim.run_for(2 * MINUTE);
    let order = Order::from_text(&sim.kept["shop/a.example"]).unwrap();
    assert_eq!((sim.placings.len(), order.refusals), (4, 4));
    assert!(order.not_before - sim.now > HOUR - 5 * MINUTE);
}

/// The first order is gone once it is looked at, or the account with it.
fn without_order(sim: &Sim, task: &Task) -> Option<StepTrouble> {
    let is_first = sim.orders.len() == 1 && task.step == TaskStep::Look;
    is_first.then(|| StepTrouble::Lost("gone".to_owned()))
}

fn without_account(sim: &Sim, task: &Task) -> Option<StepTrouble> {
    let is_first = sim.orders.len() == 1 && task.step == TaskStep::Look;
    is_first.then(|| StepTrouble::NoAccount("gone".to_owned()))
}

#[test]
fn an_order_that_is_not_known_any_more_is_placed_again_soon_with_its_account_or_another() {
    let behaviours: [fn(&Sim, &Task) -> Option<StepTrouble>; 2] = [without_order, without_account];
    for behaviour in behaviours {
        let mut sim = Sim::new(Bounds::default(), 32);
        sim.behaviour = behaviour;
        sim.want("a.example");
        sim.run_for(SECOND);
        assert!(sim.told["shop/a.example"].message.contains("gone"));
        sim.run_for(20 * SECOND);
        assert_eq!((sim.stored.len(), sim.orders.len()), (1, 2));
    }
}
