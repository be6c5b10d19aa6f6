//! Orders that say which certificates they replace, at authorities that fail by that or by all.

use std::sync::Arc;

use super::{FIRST, START, Sim, is_bad, wide, wish};
use crate::acme::desk::{Bounds, StepTrouble, Task, TaskStep};
use crate::acme::{HOUR, HeldCertificate, MINUTE, Millis, RenewalWindow};

/// A world with so many certificates below one domain, all of which the authority wants renewed at
/// once. They were ordered at this moment, if it is known when.
fn to_renew(bounds: Bounds, count: usize, placed_at: Option<Millis>) -> Sim {
    let mut sim = Sim::new(bounds, 50);
    sim.window = Some(RenewalWindow {
        start: START - HOUR,
        end: START - HOUR + MINUTE,
        look_again: 6 * HOUR,
    });
    for number in 0..count {
        let name = format!("{number}.shop.example");
        let held = HeldCertificate {
            directory: Some(FIRST.into()),
            placed_at,
            ..sim.certificate(vec![name.as_str().into()])
        };
        let id: Arc<str> = format!("shop/{name}").into();
        sim.stored.insert(id.clone(), held);
        sim.wishes.insert(id, wish(&name));
    }
    sim.boot();
    sim
}

/// Whether an order is to be placed that says what it replaces.
fn is_replacing(task: &Task) -> bool {
    let order = task.order.as_ref();
    task.step == TaskStep::Place && order.is_some_and(|it| it.replaces.is_some())
}

#[test]
fn an_authority_that_does_not_find_what_is_replaced_has_new_orders_instead() {
    let mut sim = to_renew(wide(), 20, None);
    sim.is_forgetful = true;
    sim.run_for(MINUTE);
    assert_eq!(sim.placings.len(), 20, "{:?}", sim.told);
    assert!(sim.told.is_empty());
    let authority = sim.desk.authorities.get(FIRST).unwrap();
    assert_eq!(authority.troubles, 0);
    // They count as what they are.
    let names: [Box<str>; 1] = ["new.shop.example".into()];
    assert!(authority.domains.admits(&names, "shop", sim.now));
    let free = 50 - 20;
    for number in 0..2 * free {
        sim.want(&format!("new{number}.shop.example"));
    }
    sim.run_for(MINUTE);
    assert_eq!(sim.placings.len(), 20 + free);
}

#[test]
fn a_new_order_in_the_place_of_a_renewal_is_kept_among_what_is_spent() {
    let mut sim = to_renew(wide(), 1, None);
    sim.is_forgetful = true;
    let mut spent = Vec::new();
    for _ in 0..20 {
        sim.begin();
        let kept = sim.running.iter().filter(|(_, task)| task.keep);
        let orders = kept.filter_map(|(_, task)| task.order.as_ref()?.spent.clone());
        spent.extend(orders);
        sim.step();
    }
    assert!(spent[0].domains.is_empty(), "as a renewal it is free");
    let domains = spent.iter().flat_map(|spent| spent.domains.keys());
    let domains: Vec<&str> = domains.map(|domain| &**domain).collect();
    assert_eq!(domains.first(), Some(&"shop.example"), "{spent:?}");
}

#[test]
fn renewals_that_may_be_no_new_orders_wait_and_lose_nothing_by_it() {
    let bounds = Bounds {
        orders_per_domain: 4,
        steps_max: 2,
        ..wide()
    };
    let mut sim = to_renew(bounds, 60, None);
    sim.is_forgetful = true;
    sim.run_for(10 * HOUR);
    // Four, and one more for each that was under way with the last of them.
    let placed = sim.placings.len();
    assert!((4..=4 + bounds.steps_max).contains(&placed), "{placed}");
    let told = &sim.told.values().next().unwrap().remedy;
    assert!(told.contains("--acme-orders-per-domain"), "{told}");
    // They cost nothing where they are found again, and all still say what they replace.
    sim.is_forgetful = false;
    sim.run_for(HOUR);
    assert_eq!(sim.placings.len(), 60);
    assert!(sim.told.is_empty());
}

#[test]
fn an_outage_while_renewals_are_queued_costs_none_of_them_what_it_replaces() {
    let bounds = Bounds {
        orders_per_domain: 1,
        ..wide()
    };
    // Whether their domain has room for a new order, so that both are tried, or has none.
    for placed_at in [None, Some(START)] {
        let mut sim = to_renew(bounds, 100, placed_at);
        sim.behaviour = |sim, task| {
            let fails = task.step == TaskStep::Place && sim.now < START + 10 * MINUTE;
            fails.then(|| match is_replacing(task) && !task.may_be_new {
                true => StepTrouble::Unreplaced("status 500".to_owned()),
                false => StepTrouble::Unreachable("status 500".to_owned(), 0),
            })
        };
        sim.run_for(8 * MINUTE);
        let authority = sim.desk.authorities.get(FIRST).unwrap();
        let (troubles, budget) = (authority.troubles, authority.budget);
        assert!(troubles > 1, "it is left alone: {troubles}");
        assert!(budget.free_at() <= sim.now && sim.placings.is_empty());
        // As new orders they would wait for weeks.
        sim.run_for(40 * MINUTE);
        assert_eq!(sim.placings.len(), 100, "{placed_at:?}");
        assert!(sim.told.is_empty(), "{placed_at:?}");
    }
}

#[test]
fn an_order_that_is_taken_without_what_it_replaces_is_placed_as_a_new_one_and_counts_twice() {
    let bounds = Bounds {
        orders_per_authority: 2,
        ..Bounds::default()
    };
    let mut sim = to_renew(bounds, 1, None);
    sim.behaviour = |_, task| {
        let is_it = is_replacing(task);
        is_it.then(|| StepTrouble::Unheeded("replaces field mismatch".to_owned()))
    };
    sim.run_for(MINUTE);
    assert_eq!(sim.placings.len(), 1);
    assert!(sim.told.is_empty());
    let authority = sim.desk.authorities.get(FIRST).unwrap();
    assert_eq!(authority.troubles, 0, "nobody else waits for it");
    assert!(authority.budget.free_at() > sim.now, "it has placed both");
}

/// New orders are not where they were.
fn is_elsewhere(sim: &Sim, task: &Task) -> Option<StepTrouble> {
    let fails = task.step == TaskStep::Place && sim.now < START + 20 * MINUTE;
    fails.then(|| match is_bad(task) {
        true => StepTrouble::NoAccount("no such account".to_owned()),
        false => StepTrouble::Lost("status 404".to_owned()),
    })
}

#[test]
fn an_authority_that_knows_neither_new_orders_nor_the_account_is_left_alone_and_spends_nothing() {
    let bounds = Bounds {
        orders_per_authority: 2,
        orders_per_domain: 2,
        ..Bounds::default()
    };
    for name in ["a.example", "bad.example"] {
        let mut sim = Sim::new(bounds, 51);
        sim.behaviour = is_elsewhere;
        sim.want(name);
        sim.run_for(19 * MINUTE);
        let tries = sim.proofs[&*format!("shop/{name}")].len();
        assert!((4..=12).contains(&tries), "{name}: {tries}");
        let authority = sim.desk.authorities.get(FIRST).unwrap();
        assert!(authority.troubles > 2, "{name}");
        assert!(authority.budget.free_at() <= sim.now, "{name}");
        sim.run_for(HOUR);
        assert_eq!((sim.stored.len(), sim.placings.len()), (1, 1), "{name}");
        assert!(sim.told.is_empty(), "{name}");
    }
}
