//! Very many certificates, issuers and authorities: the work of a turn, and what is remembered.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{FIRST, SECOND_CA, START, Sim, issuer, unproven, wide, wish};
use crate::acme::desk::authorities::LEFT_MAX;
use crate::acme::desk::{Bounds, CertificateWish, Desk, Entry, FIGURES, StepOutcome, VISITS_MAX};
use crate::acme::directory::AuthorityState;
use crate::acme::{AcmeIssuer, DAY, HOUR, HeldCertificate, MINUTE, Millis, SECOND, TaskStep};

const VISITS: u64 = VISITS_MAX as u64;

/// One that is good for 90 days from a moment on, and that no authority has a window for.
fn held(name: &str, from: Millis) -> HeldCertificate {
    HeldCertificate {
        names: vec![name.into()],
        from,
        until: from + 90 * DAY,
        ari: None,
        directory: None,
        placed_at: None,
    }
}

fn wish_of(name: &str, issuer: &str) -> CertificateWish {
    CertificateWish {
        issuer: issuer.into(),
        ..wish(name)
    }
}

/// Lets a desk have certificates of one issuer, all of one minute, and returns how they are called.
fn fill(desk: &mut Desk, issuer: &str, count: usize) -> Vec<Arc<str>> {
    let ids = (0..count).map(|number| {
        let name = format!("{number}.{issuer}.example");
        let id: Arc<str> = format!("shop/{name}").into();
        let from = START + Millis::try_from(number % 60).unwrap() * SECOND;
        desk.restore_certificate(&id, held(&name, from), START);
        assert!(desk.want(&id, wish_of(&name, issuer), START).is_empty());
        id
    });
    ids.collect()
}

/// The desk of one issuer.
fn desk(proofs_max: usize) -> Desk {
    let bounds = Bounds {
        proofs_max,
        ..wide()
    };
    let mut desk = Desk::new(bounds, 1);
    desk.put_issuer("default", issuer(&[FIRST]), START);
    desk
}

/// The figures of the desk as a walk over all certificates counts them.
fn walked(desk: &Desk) -> [usize; FIGURES] {
    let mut counted = [0; FIGURES];
    for entry in desk.certificates.values() {
        for (counted, is) in counted.iter_mut().zip(entry.figures()) {
            *counted += usize::from(is);
        }
    }
    counted
}

#[test]
fn a_change_of_an_issuer_costs_its_own_certificates_and_of_many_a_few_in_each_turn() {
    let mut desk = desk(256);
    fill(&mut desk, "many", 2_000);
    fill(&mut desk, "few", 3);
    let cost = |desk: &mut Desk, change: &dyn Fn(&mut Desk)| {
        let before = desk.visits();
        change(desk);
        desk.visits() - before
    };
    let put = |name: &'static str, url: &'static str| {
        move |desk: &mut Desk| drop(desk.put_issuer(name, issuer(&[url]), START))
    };
    assert_eq!(cost(&mut desk, &put("few", FIRST)), 3);
    assert_eq!(cost(&mut desk, &put("nobody's", FIRST)), 0);
    assert_eq!(cost(&mut desk, &put("many", FIRST)), VISITS);
    // The others follow, and meanwhile another issuer is no dearer than before.
    assert_eq!(desk.due(), Some(Millis::MIN));
    let remove = |desk: &mut Desk| drop(desk.remove_issuer("few", START));
    assert!(cost(&mut desk, &remove) <= VISITS);
    let mut visited = 0;
    while desk.due() == Some(Millis::MIN) {
        let turn = cost(&mut desk, &|desk: &mut Desk| {
            assert!(desk.next(START).0.is_none());
        });
        assert!(turn <= VISITS, "{turn}");
        visited += turn;
    }
    assert!(visited <= 2_000 - VISITS + 3, "{visited}");
    // The same one again is no change.
    assert_eq!(cost(&mut desk, &put("many", FIRST)), 0);
}

#[test]
fn a_turn_looks_at_a_part_of_those_that_wait_for_a_domain_that_has_had_its_share() {
    let bounds = Bounds {
        orders_per_domain: 1,
        ..wide()
    };
    let mut desk = Desk::new(bounds, 1);
    desk.put_issuer("default", issuer(&[FIRST]), START);
    // They are proven while their authority is left alone.
    let tell = |desk: &mut Desk, until: Millis| {
        let change = |it: &mut AuthorityState| it.not_before = until;
        desk.authorities.change(FIRST, START, change);
    };
    tell(&mut desk, START + HOUR);
    for number in 0..2_000 {
        let id = format!("shop/{number}").into();
        desk.want(&id, wish(&format!("{number}.shop.example")), START);
    }
    while let (Some(task), _) = desk.next(START) {
        desk.done(&task, Ok(StepOutcome::Proven(Vec::new())), START);
    }
    tell(&mut desk, START);
    let (mut placed, mut turns) = (0, 0);
    while desk.due().is_some_and(|due| due <= START) {
        let before = desk.visits();
        placed += usize::from(desk.next(START).0.is_some());
        turns += 1;
        assert!(desk.visits() - before <= VISITS && turns < 100);
    }
    assert_eq!(placed, 1);
    assert!(turns >= 2_000 / VISITS_MAX, "{turns}");
}

#[test]
fn looks_at_windows_of_an_issuer_that_moves_keep_no_place_of_the_authority_before() {
    let mut desk = desk(256);
    for number in 0..1_000 {
        let name = format!("{number}.example");
        let id: Arc<str> = format!("shop/{name}").into();
        let held = HeldCertificate {
            ari: Some("a.s".into()),
            ..held(&name, START)
        };
        desk.restore_certificate(&id, held, START);
        desk.want(&id, wish(&name), START);
    }
    // All wait for a look. Those have half of the places.
    let now = START + 6 * HOUR;
    let mut running = Vec::new();
    for _ in 0..100 {
        running.extend(desk.next(now).0);
    }
    assert_eq!(running.len(), wide().steps_max / 2);
    // Few of them are led to the other authority at once.
    desk.put_issuer("default", issuer(&[SECOND_CA]), now);
    while let Some(task) = running.pop() {
        desk.done(&task, Ok(StepOutcome::Window(None)), now);
        running.extend(desk.next(now).0);
    }
    let places = desk.authorities.values().map(|it| it.steps.is_taken());
    assert!(places.into_iter().all(|is_taken| !is_taken));
}

#[test]
fn nothing_is_begun_of_an_issuer_that_is_gone_though_its_certificates_were_not_looked_at_yet() {
    let mut desk = desk(256);
    for number in 0..1_000 {
        let id = format!("shop/{number}").into();
        desk.want(&id, wish(&format!("{number}.example")), START);
    }
    desk.remove_issuer("default", START);
    while desk.due() == Some(Millis::MIN) {
        assert!(desk.next(START).0.is_none());
    }
    assert_eq!(desk.due(), None);
    desk.put_issuer("default", issuer(&[FIRST]), START);
    let mut begun = 0;
    while let (Some(task), _) = desk.next(START) {
        assert_eq!(task.step, TaskStep::Prove);
        begun += 1;
    }
    // All places but those that are kept for other namespaces.
    assert_eq!(begun, 224);
}

#[test]
fn an_authority_that_nobody_names_is_forgotten_once_its_budget_is_whole() {
    let bounds = Bounds {
        orders_per_authority: 3,
        ..Bounds::default()
    };
    let mut sim = Sim::new(bounds, 20);
    for number in 0..3 {
        sim.want(&format!("{number}.example"));
    }
    sim.run_for(MINUTE);
    assert_eq!(sim.stored.len(), 3);
    let change = |sim: &mut Sim, issuer: Option<AcmeIssuer>| {
        let effects = match issuer {
            Some(issuer) => sim.desk.put_issuer("default", issuer, sim.now),
            None => sim.desk.remove_issuer("default", sim.now),
        };
        sim.carry_out(effects);
    };
    // An issuer that goes and comes back has had what it has had.
    change(&mut sim, None);
    sim.run_for(MINUTE);
    change(&mut sim, Some(issuer(&[FIRST])));
    sim.want("late.example");
    sim.run_for(30 * MINUTE);
    assert_eq!(sim.stored.len(), 3);
    sim.run_for(HOUR);
    assert_eq!(sim.stored.len(), 4);
    // With another directory, the former is remembered for as long as its budget needs it.
    change(&mut sim, Some(issuer(&[SECOND_CA])));
    let is_known = |sim: &Sim, url| sim.desk.authorities.get(url).is_some();
    assert!(is_known(&sim, FIRST) && is_known(&sim, SECOND_CA));
    sim.run_for(4 * HOUR);
    sim.begin();
    assert!(!is_known(&sim, FIRST) && is_known(&sim, SECOND_CA));
    change(&mut sim, None);
    assert!(!is_known(&sim, SECOND_CA));
}

#[test]
fn however_many_issuers_come_and_go_few_authorities_are_remembered() {
    let mut desk = Desk::new(Bounds::default(), 1);
    let ours = |number: usize| format!("{FIRST}#{number}");
    for number in 0..3 * LEFT_MAX {
        let url = ours(number);
        let now = START + Millis::try_from(number).unwrap();
        desk.put_issuer("shop/le", issuer(&[&url]), now);
        // Something was ordered there just now, so that its budget is not whole.
        let held = HeldCertificate {
            directory: Some(url.into()),
            placed_at: Some(now),
            ..held("a.example", now)
        };
        desk.restore_certificate(&"shop/web".into(), held, now);
    }
    let known = desk.authorities.values().count();
    assert_eq!(known, LEFT_MAX + 1, "and the one that is named");
    // Those whose budgets were longest without use have gone first.
    assert!(desk.authorities.get(&ours(0)).is_none());
    assert!(desk.authorities.get(&ours(3 * LEFT_MAX - 2)).is_some());
}

#[test]
fn a_turn_without_anything_due_costs_nothing_however_many_there_are() {
    for count in [100, 20_000] {
        let mut desk = desk(256);
        fill(&mut desk, "default", count);
        let due = desk.due().unwrap();
        assert!(due > START + 50 * DAY, "{due}");
        let before = desk.visits();
        for hour in 0..1_000 {
            let (task, effects) = desk.next(START + hour * HOUR);
            assert!(task.is_none() && effects.is_empty());
        }
        assert_eq!(desk.visits(), before);
        // Nor does what is due cost more than a part of it in one turn.
        let later = START + 70 * DAY;
        let mut begun = 0;
        while desk.due().is_some_and(|due| due <= later) && begun < 256 {
            let before = desk.visits();
            begun += usize::from(desk.next(later).0.is_some());
            assert!(desk.visits() - before <= VISITS);
        }
        assert_eq!(begun, count.min(224));
    }
}

/// The renewals that begin in each hour, for certificates that are all of one minute. In the middle
/// of them, the process begins anew.
fn renewals_by_hour(count: usize) -> Vec<usize> {
    // Some places are kept for other namespaces.
    let mut desk = desk(2 * count);
    let ids = fill(&mut desk, "default", count);
    let mut left: BTreeSet<Arc<str>> = ids.into_iter().collect();
    let mut by_hour = Vec::new();
    let (first, last) = (51 * 24, 60 * 24);
    for hour in first..=last {
        if hour == (first + last) / 2 {
            desk = self::desk(2 * count);
            for id in &left {
                let name = id.strip_prefix("shop/").unwrap();
                let number: Millis = name.split('.').next().unwrap().parse().unwrap();
                let held = held(name, START + number % 60 * SECOND);
                let now = START + hour * HOUR;
                desk.restore_certificate(id, held, now);
                desk.want(id, wish(name), now);
            }
        }
        let mut begun = 0;
        let end = START + (hour + 1) * HOUR - 1;
        while desk.due().is_some_and(|due| due <= end) {
            while let (Some(task), _) = desk.next(end) {
                begun += 1;
                left.remove(&task.id);
            }
        }
        by_hour.push(begun);
    }
    assert!(left.is_empty(), "{} were never renewed", left.len());
    by_hour
}

#[test]
fn certificates_of_one_minute_are_renewed_evenly_also_after_a_restart() {
    let count = 100_000;
    let by_hour = renewals_by_hour(count);
    // The last one has but the end of a minute.
    let whole = &by_hour[..by_hour.len() - 1];
    let mean = count / whole.len();
    let most = by_hour.iter().max().copied().unwrap_or(0);
    assert!(
        most * 10 <= mean * 12,
        "{most} in one hour, {mean} on average"
    );
    assert_eq!(by_hour.iter().sum::<usize>(), count, "each once");
}

#[test]
fn the_first_looks_at_windows_after_a_start_are_spread_and_over_in_some_hours() {
    let mut desk = desk(256);
    for number in 0..20_000 {
        let name = format!("{number}.example");
        let id: Arc<str> = format!("shop/{name}").into();
        let held = HeldCertificate {
            ari: Some("a.s".into()),
            ..held(&name, START)
        };
        desk.restore_certificate(&id, held, START);
    }
    let looks = desk.certificates.values().map(|entry| entry.look_at);
    let looks: Vec<Millis> = looks.map(|at| at - START).collect();
    assert!(looks.iter().all(|wait| (0..=6 * HOUR).contains(wait)));
    let at_once = looks.iter().filter(|wait| **wait < SECOND).count();
    assert!(at_once <= 100, "{at_once}");
    let in_one_minute = looks.iter().filter(|wait| **wait < MINUTE).count();
    assert!(in_one_minute <= 2_000, "{in_one_minute}");
}

#[test]
fn figures_that_are_counted_are_those_of_a_walk_over_all() {
    let mut sim = Sim::new(wide(), 21);
    sim.behaviour = |_, task| {
        let is_bad = task.id.contains("bad") && task.step == TaskStep::Prove;
        is_bad.then(unproven)
    };
    for number in 0..50 {
        sim.want(&format!("bad-{number}.example"));
        sim.want(&format!("{number}.example"));
        for _ in 0..number {
            sim.step();
        }
        assert_eq!(sim.desk.figures, walked(&sim.desk));
        if number % 10 == 3 {
            sim.unwant(&format!("{number}.example"));
            sim.boot();
        }
        if number % 7 == 5 {
            let id: Arc<str> = format!("shop/{}.example", number - 5).into();
            sim.stored.remove(&id);
            let effects = sim.desk.lose(&id, sim.now);
            sim.carry_out(effects);
        }
    }
    // Nothing is under way at the end of this.
    sim.run_for(HOUR + MINUTE);
    assert_eq!(sim.desk.figures, walked(&sim.desk));
    let counts = sim.desk.counts();
    assert_eq!((counts.failing, counts.open), (50, 0));
    assert_eq!(counts.wanted, sim.wishes.len());
    // Without wishes nothing is counted, and nothing is left but what is kept for whoever has it.
    let names: Vec<Arc<str>> = sim.wishes.keys().cloned().collect();
    for id in &names {
        let effects = sim.desk.unwant(id, sim.now);
        sim.carry_out(effects);
    }
    assert_eq!(sim.desk.figures, [0; FIGURES]);
    let over = sim.desk.forget_over(sim.now + 91 * DAY);
    assert_eq!(over.len(), sim.stored.len());
    assert!(sim.desk.certificates.is_empty());
}

/// How many places in lines there are.
fn waiting(desk: &Desk) -> usize {
    let of_authorities = desk.authorities.values();
    let of_authorities = of_authorities.map(|it| it.placing.len() + it.steps.len());
    desk.proofs.len() + of_authorities.sum::<usize>()
}

#[test]
fn edits_without_end_leave_nothing_behind_in_any_line_and_keep_the_place_of_the_first() {
    let mut desk = desk(256);
    let id: Arc<str> = "shop/web".into();
    let held = HeldCertificate {
        ari: Some("a.s".into()),
        ..held("a.example", START)
    };
    desk.restore_certificate(&id, held, START);
    // By its names a look at its window is due or another is ordered, and now and then nobody
    // wants it.
    for number in 0..100_000 {
        match number % 3 {
            0 => drop(desk.want(&id, wish("a.example"), START)),
            1 => drop(desk.want(&id, wish("b.example"), START)),
            _ => drop(desk.unwant(&id, START)),
        }
        let expected = usize::from(number % 3 != 2);
        assert_eq!(waiting(&desk), expected, "after {number} edits");
    }
    drop(desk.unwant(&id, START));
    assert_eq!((waiting(&desk), desk.due()), (0, None));

    // One that is edited again and again has its turn before those that came later.
    desk.want(&id, wish("b.example"), START);
    for number in 0..100 {
        let name = format!("{number}.example");
        desk.want(&format!("shop/{name}").into(), wish(&name), START);
    }
    for number in 0..100_000 {
        let effects = desk.want(&id, wish(&format!("edit{number}.example")), START);
        assert!(effects.len() <= 2);
    }
    assert_eq!(waiting(&desk), 101);
    let (first, _) = desk.next(START);
    assert_eq!(first.map(|task| task.id), Some(id));
}

#[test]
fn one_that_came_out_of_its_line_while_its_issuer_was_away_waits_again() {
    let mut desk = desk(256);
    desk.want(&"shop/web".into(), wish("a.example"), START);
    // It comes out before it is visited.
    desk.issuers.clear();
    assert!(desk.next(START).0.is_none());
    assert_eq!(waiting(&desk), 0);
    desk.put_issuer("default", issuer(&[FIRST]), START);
    assert_eq!(waiting(&desk), 1);
    assert!(desk.next(START).0.is_some());
}

#[test]
fn a_certificate_that_waits_takes_a_few_hundred_bytes() {
    assert!(size_of::<Entry>() <= 272, "{}", size_of::<Entry>());
}
