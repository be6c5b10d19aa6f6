//! Namespaces that want very much of what all share: places, orders of an authority, and orders for
//! a registered domain. And what is remembered of it.

use std::sync::Arc;

use super::{FIRST, SECOND_CA, START, Sim, issuer, wide, wish};
use crate::acme::desk::{Bounds, CertificateWish, Desk, StepOutcome, StepTrouble, TaskStep};
use crate::acme::{DAY, HOUR, HeldCertificate, MINUTE, Millis, SECOND, SpentBudget};

impl Sim {
    /// A namespace wants a certificate of an issuer.
    fn want_of(&mut self, namespace: &str, name: &str, issuer: &str) {
        let id: Arc<str> = format!("{namespace}/{name}").into();
        let wish = CertificateWish {
            issuer: issuer.into(),
            ..wish(name)
        };
        self.wishes.insert(id.clone(), wish.clone());
        let effects = self.desk.want(&id, wish, self.now);
        self.carry_out(effects);
    }

    fn want_in(&mut self, namespace: &str, name: &str) {
        self.want_of(namespace, name, "default");
    }

    /// How many orders were placed before the first of a namespace, from one on.
    fn turns_until(&self, from: usize, namespace: &str) -> Option<usize> {
        let mut placed = self.placings[from..].iter();
        placed.position(|(_, _, id)| id.starts_with(namespace))
    }
}

#[test]
fn hundreds_of_orders_of_one_namespace_delay_the_first_of_another_by_one_turn() {
    let bounds = Bounds {
        orders_per_authority: 50,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 31);
    for number in 0..300 {
        sim.want_in("mall", &format!("{number}.example"));
    }
    sim.run_for(HOUR);
    let before = sim.placings.len();
    assert!((50..=70).contains(&before), "one that is alone has all");
    for number in 0..20 {
        sim.want_in("blog", &format!("{number}.blog.example"));
    }
    sim.run_for(HOUR);
    let turns = sim.turns_until(before, "blog/");
    assert!(turns.is_some_and(|turns| turns <= 1), "{turns:?}");
    // From then on they take turns.
    let placed = &sim.placings[before..];
    let own = placed.iter().filter(|(_, _, id)| id.starts_with("blog/"));
    let (own, all) = (own.count(), placed.len());
    assert!((all / 2..=all / 2 + 1).contains(&own), "{own} of {all}");
}

#[test]
fn a_namespace_whose_orders_fail_and_one_whose_do_not_both_have_their_turns() {
    let bounds = Bounds {
        orders_per_authority: 50,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 36);
    // The first try of the other one's order is refused.
    sim.behaviour = |sim, task| {
        let tries = sim.proofs.get(&task.id).map_or(0, Vec::len);
        let is_first = task.id.starts_with("blog/") && tries <= 1 && task.step == TaskStep::Place;
        is_first.then(|| StepTrouble::Refused("not yet".to_owned()))
    };
    sim.want_in("blog", "b.example");
    sim.run_for(SECOND);
    for number in 0..600 {
        sim.want_in("mall", &format!("{number}.example"));
    }
    // One that failed waits for some minutes, and then for two turns at most.
    sim.run_for(30 * MINUTE);
    assert!(sim.stored.contains_key("blog/b.example"));
}

#[test]
fn names_of_one_namespace_that_hang_hold_up_the_proofs_of_another_until_one_ends() {
    let bounds = Bounds {
        proofs_max: 8,
        ..wide()
    };
    let mut sim = Sim::new(bounds, 32);
    sim.latency = |task| match task.id.starts_with("mall/") && task.step == TaskStep::Prove {
        true => MINUTE,
        false => 20,
    };
    for number in 0..100 {
        sim.want_in("mall", &format!("{number}.example"));
    }
    sim.run_for(SECOND);
    assert_eq!(sim.running.len(), 7, "one that is alone has all but one");
    for number in 0..8 {
        sim.want_in("blog", &format!("{number}.blog.example"));
    }
    // Once for its proofs, and once for its answers.
    sim.run_for(2 * MINUTE + 10 * SECOND);
    let own = sim.stored.keys().filter(|id| id.starts_with("blog/"));
    assert_eq!(own.count(), 8);
}

#[test]
fn a_newcomer_waits_for_no_step_of_another_that_hangs() {
    let mut sim = Sim::new(wide(), 39);
    sim.latency = |task| match task.id.starts_with("mall/") {
        true => MINUTE,
        false => 20,
    };
    for number in 0..10_000 {
        sim.want_in("mall", &format!("{number}.example"));
    }
    sim.run_for(10 * MINUTE);
    let (names, rest): (Vec<_>, Vec<_>) = sim
        .running
        .iter()
        .partition(|(_, task)| matches!(task.step, TaskStep::Prove | TaskStep::Answer));
    assert_eq!((names.len(), rest.len()), (224, 28), "all but an eighth");
    // Neither its names nor the authority are asked any later for that.
    for namespace in ["blog", "zoo"] {
        sim.want_in(namespace, &format!("{namespace}.example"));
        sim.run_for(SECOND);
        let id = format!("{namespace}/{namespace}.example");
        assert!(sim.stored.contains_key(&*id), "{namespace}");
    }
}

#[test]
fn orders_of_one_namespace_that_never_end_leave_places_for_those_of_others() {
    let bounds = Bounds {
        open_max: 160,
        ..wide()
    };
    let mut desk = Desk::new(bounds, 1);
    desk.put_issuer("default", issuer(&[FIRST]), START);
    let want = |desk: &mut Desk, namespace: &str, count: usize| {
        for number in 0..count {
            let name = format!("{number}.{namespace}{number}.example");
            let id: Arc<str> = format!("{namespace}/{name}").into();
            desk.want(&id, wish(&name), START);
        }
        let placed = place_all(desk, START).len();
        // Whoever runs it is not told to come back at once.
        assert!(desk.due().is_none_or(|due| due > START));
        placed
    };
    assert_eq!(want(&mut desk, "mall", 1_000), 140);
    assert_eq!(want(&mut desk, "blog", 1), 1);
    for number in 0..6 {
        assert_eq!(want(&mut desk, &format!("n{number}"), 10), 3);
    }
    // That is all, and one that ends is for those that have few.
    assert_eq!(want(&mut desk, "late", 5), 1);
    assert_eq!(desk.counts().open, 160);
    let of_mall = |desk: &Desk| {
        let entries = desk.certificates.iter();
        let open = entries.filter(|(_, entry)| entry.counted.is_some());
        let mut ids = open.map(|(id, _)| id.clone());
        ids.find(|id| id.starts_with("mall/"))
    };
    let ended = of_mall(&desk).unwrap();
    desk.unwant(&ended, START);
    assert_eq!(place_all(&mut desk, START).len(), 1);
    let late = desk
        .certificates
        .iter()
        .filter(|(id, entry)| id.starts_with("late/") && entry.counted.is_some());
    assert_eq!(late.count(), 2);
}

#[test]
fn answers_that_hang_take_no_place_of_the_authority() {
    let bounds = Bounds {
        steps_max: 4,
        ..wide()
    };
    let mut sim = Sim::new(bounds, 33);
    sim.latency = |task| match task.id.starts_with("mall/") && task.step == TaskStep::Answer {
        true => HOUR,
        false => 20,
    };
    for number in 0..32 {
        sim.want_in("mall", &format!("{number}.example"));
    }
    sim.run_for(10 * SECOND);
    let answering = sim.running.iter();
    let answering = answering.filter(|(_, task)| task.step == TaskStep::Answer);
    assert_eq!(answering.count(), 32);
    sim.want_in("blog", "b.example");
    sim.run_for(SECOND);
    assert_eq!(sim.stored.len(), 1);
}

#[test]
fn an_answer_that_cannot_be_given_waits_with_its_order_but_not_for_ever() {
    let mut sim = Sim::new(Bounds::default(), 37);
    sim.behaviour = |_, task| {
        let trouble = StepTrouble::Unreachable("no answer".to_owned(), 0);
        matches!(task.step, TaskStep::Answer).then_some(trouble)
    };
    sim.want_in("mall", "a.example");
    sim.want_in("mall", "b.example");
    let mut steps = 0;
    while sim.now < START + HOUR {
        sim.step();
        steps += 1;
    }
    assert_eq!(sim.orders.len(), 2);
    assert!(steps < 5_000, "{steps}: it is asked in a loop");
    let troubles = sim.desk.authorities.values().map(|it| it.troubles);
    assert_eq!(troubles.max(), Some(0), "the authority is well");
    sim.run_for(DAY);
    assert!((3..=20).contains(&sim.orders.len()), "{}", sim.orders.len());
}

#[test]
fn steps_of_one_namespace_that_hang_hold_up_each_of_another_until_one_ends() {
    let bounds = Bounds {
        steps_max: 4,
        ..wide()
    };
    let mut sim = Sim::new(bounds, 34);
    sim.latency = |task| {
        let is_asked = !matches!(task.step, TaskStep::Prove | TaskStep::Answer);
        match task.id.starts_with("mall/") && is_asked {
            true => 30 * SECOND,
            false => 20,
        }
    };
    for number in 0..200 {
        sim.want_in("mall", &format!("{number}.example"));
    }
    sim.run_for(10 * SECOND);
    sim.want_in("blog", "b.example");
    // It has five steps at the authority.
    sim.run_for(5 * 31 * SECOND);
    assert!(sim.stored.contains_key("blog/b.example"));
}

#[test]
fn an_authority_of_a_tenant_spends_no_domain_at_another() {
    let bounds = Bounds {
        orders_per_domain: 5,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 35);
    let effects = sim
        .desk
        .put_issuer("mall/own", issuer(&[SECOND_CA]), sim.now);
    sim.carry_out(effects);
    sim.behaviour = |_, task| {
        let order = task.order.as_ref()?;
        let is_own = *order.directory == *SECOND_CA && task.step == TaskStep::Place;
        is_own.then(|| StepTrouble::Refused("no".to_owned()))
    };
    for number in 0..20 {
        sim.want_of("mall", &format!("{number}.shop.example"), "mall/own");
    }
    sim.run_for(MINUTE);
    // It has spent all of the domain there.
    let told = |words: &str| {
        let told = sim.told.values();
        told.filter(|it| it.message.contains(words)).count()
    };
    assert_eq!(told("is refused by"), 5);
    assert_eq!(told("shop.example has had as many"), 15);
    sim.want_in("shop", "www.shop.example");
    sim.run_for(MINUTE);
    assert_eq!(sim.stored.len(), 1);
}

#[test]
fn certificates_of_one_namespace_delay_another_at_the_same_domain_by_one_turn() {
    let bounds = Bounds {
        orders_per_domain: 5,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 38);
    for number in 0..20 {
        sim.want_in("all", &format!("{number}.shop.example"));
    }
    sim.run_for(MINUTE);
    assert_eq!(sim.placings.len(), 5, "one that is alone has all");
    sim.want_in("zoo", "www.shop.example");
    // One becomes free in a fifth of a week.
    sim.run_for(3 * 34 * HOUR);
    let turns = sim.turns_until(5, "zoo/");
    assert!(turns.is_some_and(|turns| turns <= 1), "{turns:?}");
    assert!(sim.placings.len() >= 7, "the others have theirs");
}

/// Lets a desk place all orders that it may, and returns what is spent with each.
fn place_all(desk: &mut Desk, now: Millis) -> Vec<Arc<SpentBudget>> {
    let mut spent = Vec::new();
    while let (Some(task), _) = desk.next(now) {
        let outcome = match task.step {
            TaskStep::Prove => StepOutcome::Proven(Vec::new()),
            TaskStep::Place => {
                let order = task.order.as_ref().unwrap();
                spent.extend(order.spent.clone());
                StepOutcome::Placed("u".into(), Vec::new())
            }
            _ => StepOutcome::Pending(HOUR),
        };
        desk.done(&task, Ok(outcome), now);
    }
    spent
}

fn want_all(desk: &mut Desk, count: usize) {
    for number in 0..count {
        let id: Arc<str> = format!("shop/{number}").into();
        desk.want(&id, wish(&format!("{number}.shop.example")), START);
    }
}

#[test]
fn what_is_spent_is_kept_apart_from_certificates_and_no_order_counts_twice() {
    let bounds = Bounds {
        orders_per_authority: 4,
        orders_per_domain: 4,
        ..Bounds::default()
    };
    let desk = |spent: Option<&SpentBudget>, now| {
        let mut desk = Desk::new(bounds, 1);
        desk.put_issuer("default", issuer(&[FIRST]), START);
        if let Some(spent) = spent {
            desk.restore_spent(spent, now);
        }
        desk
    };
    let mut first = desk(None, START);
    want_all(&mut first, 3);
    let each = place_all(&mut first, START);
    assert_eq!(each.len(), 3);
    let mut kept = SpentBudget::clone(&each[0]);
    for spent in &each {
        kept.merge(spent);
    }
    assert_eq!((&*kept.directory, kept.noted_at), (FIRST, START));

    // The next process finds no certificate, and may place one more.
    let mut next = desk(Some(&kept), START);
    want_all(&mut next, 9);
    assert_eq!(place_all(&mut next, START).len(), 1);
    // With an order that is still open it may as well.
    let mut next = desk(Some(&kept), START);
    let open = first.certificates.values().next().unwrap();
    next.restore_order((**open.order.as_ref().unwrap()).clone(), START);
    want_all(&mut next, 9);
    assert_eq!(place_all(&mut next, START).len(), 1);
    // Without what was kept, and with a time that is far off, nothing is spent for longer.
    let mut next = desk(None, START);
    want_all(&mut next, 9);
    assert_eq!(place_all(&mut next, START).len(), 4);
    kept.whole_at = Millis::MAX;
    let mut next = desk(Some(&kept), START);
    want_all(&mut next, 9);
    assert!(place_all(&mut next, START).is_empty());
    assert_eq!(place_all(&mut next, START + HOUR).len(), 1);
}

#[test]
fn a_placing_that_somebody_elses_secret_stops_spends_nothing() {
    let bounds = Bounds {
        orders_per_authority: 2,
        orders_per_domain: 2,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 40);
    // The Secret is found to be somebody else's when the order is about to be placed.
    sim.behaviour = |_, task| {
        let is_stopped = task.id.starts_with("mall/") && task.step == TaskStep::Place;
        is_stopped.then(super::unproven)
    };
    for number in 0..5 {
        sim.want_in("mall", &format!("{number}.shop.example"));
    }
    sim.run_for(HOUR);
    assert!(sim.proofs.values().all(|tries| tries.len() > 5));
    assert!(sim.told.values().all(|it| it.message == "leads elsewhere"));
    // All of it is there for another, who is not kept waiting for a turn either.
    for number in 0..2 {
        sim.want_in("blog", &format!("{number}.blog.shop.example"));
    }
    sim.run_for(SECOND);
    assert_eq!(sim.stored.len(), 2);
}

#[test]
fn nothing_is_kept_of_the_authorities_of_tenants() {
    let mut desk = Desk::new(Bounds::default(), 1);
    let mut own = issuer(&[FIRST]);
    own.is_tenants = true;
    desk.put_issuer("default", own, START);
    want_all(&mut desk, 3);
    assert!(place_all(&mut desk, START).is_empty());
    assert_eq!(desk.counts().open, 3);
}

#[test]
fn a_certificate_of_unknown_origin_spends_nothing_and_no_name_of_an_authority_is_endless() {
    let mut desk = Desk::new(Bounds::default(), 1);
    desk.put_issuer("default", issuer(&[FIRST]), START);
    let id: Arc<str> = "mall/web".into();
    let held = |directory: &str, placed_at| HeldCertificate {
        names: vec!["www.shop.example".into()],
        from: START,
        until: START + 90 * DAY,
        ari: None,
        directory: Some(directory.into()),
        placed_at,
    };
    for number in 0..1_000 {
        let directory = format!("https://{number}.example/dir");
        desk.restore_certificate(&id, held(&directory, None), START);
        let long = format!("https://{number}.example/{}", "x".repeat(5_000));
        desk.restore_certificate(&id, held(&long, Some(START)), START);
        desk.restore_certificate(&id, held(FIRST, None), START);
    }
    assert_eq!(desk.authorities.values().count(), 1);
    want_all(&mut desk, 3);
    assert_eq!(place_all(&mut desk, START).len(), 3);
    // However often one is taken in, no more is spent than there is.
    for _ in 0..10_000 {
        desk.restore_certificate(&id, held(FIRST, Some(START)), START);
    }
    let authority = desk.authorities.get(FIRST).unwrap();
    assert!(authority.budget.free_at() <= START + HOUR);
}
