use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::places::UNANSWERED_BEHIND_MAX;
use super::{
    DEMANDS_UNANSWERED_MAX, Demand, DemandWait, Demanded, REFUSED_MAX, TOLD_MAX, USED_MAX,
};
use crate::admission::silent::source_of;

/// How long a refusal lasts in these tests: for ever.
const LONG: Duration = Duration::from_secs(3_600);

/// One whose names are told however many have no answer.
fn open() -> Demand {
    let demand = Demand::default().for_clients_elsewhere();
    demand.open();
    demand
}

/// One for clients of this process.
fn open_here() -> Demand {
    let demand = Demand::default();
    demand.open();
    demand
}

/// How many names are told that have no answer, and whether one of them is it.
fn tell_all(demand: &Demand, name: &str) -> (usize, bool) {
    let names: Vec<Option<Demanded>> = std::iter::from_fn(|| told(demand).map(Some)).collect();
    (names.len(), names.contains(&wanted(name)))
}

fn want(demand: &Demand, name: &str, source: u64) -> DemandWait {
    let wanted = demand.want(name, source, 1_000_000);
    wanted.expect("it is not refused")
}

fn source(address: &str) -> u64 {
    source_of(address.parse().unwrap())
}

/// Sources of each of so many addresses ask for a name of their own, which is refused.
fn flood(demand: &Demand, address: impl Fn(usize) -> String, count: usize) {
    let waits: Vec<_> = (0..count)
        .map(|it| want(demand, &format!("flood{it}.example"), source(&address(it))))
        .collect();
    while let Some(Demanded::Wanted(name)) = told(demand) {
        demand.refuse(&name, Duration::ZERO);
    }
    assert!(waits.iter().all(is_over));
}

/// The next thing that is told, if there is any.
fn told(demand: &Demand) -> Option<Demanded> {
    demand.lock().next()
}

fn wanted(name: &str) -> Option<Demanded> {
    Some(Demanded::Wanted(name.into()))
}

fn is_over(wait: &DemandWait) -> bool {
    let mut over = std::pin::pin!(wait.over());
    let mut context = Context::from_waker(Waker::noop());
    matches!(over.as_mut().poll(&mut context), Poll::Ready(()))
}

/// Whether there is an answer for one who waits.
fn is_answered(wait: &DemandWait) -> bool {
    is_over(wait) && !wait.is_evicted()
}

#[test]
fn a_name_is_told_once_while_handshakes_wait_for_it_and_then_forgotten() {
    let demand = open();
    let waits = [want(&demand, "a.example", 1), want(&demand, "a.example", 2)];
    assert_eq!(told(&demand), wanted("a.example"));
    assert_eq!(told(&demand), None);
    let another = want(&demand, "a.example", 3);
    assert_eq!(told(&demand), None);
    assert!(!is_answered(&another));
    demand.settle("a.example");
    assert!(waits.iter().chain([&another]).all(is_answered));
    drop((waits, another));
    assert!(demand.lock().wanted.is_empty());
    // Who asks for it again is told of again.
    let _again = want(&demand, "a.example", 1);
    assert_eq!(told(&demand), wanted("a.example"));
}

#[test]
fn a_name_that_nobody_waits_for_any_more_is_not_told() {
    let demand = open();
    for number in 0..10_000 {
        drop(want(&demand, &format!("n{number}.example"), number % 7));
    }
    assert_eq!(told(&demand), None);
    let state = demand.lock();
    assert!(state.wanted.is_empty() && state.turns.is_empty());
}

#[test]
fn sources_have_turns_however_many_names_one_of_them_asks_for() {
    let demand = open();
    let names: Vec<String> = (0..1_000).map(|it| format!("n{it}.example")).collect();
    let mut waits: Vec<DemandWait> = names.iter().map(|name| want(&demand, name, 1)).collect();
    waits.push(want(&demand, "mine.example", 2));
    // The flood asks for another's name too, before and after.
    waits.push(want(&demand, "mine.example", 1));
    waits.push(want(&demand, "n999.example", 3));
    assert_eq!(told(&demand), wanted("n0.example"));
    let next = [told(&demand), told(&demand)];
    assert!(next.contains(&wanted("mine.example")), "{next:?}");
    assert!(next.contains(&wanted("n999.example")), "{next:?}");
    let rest = std::iter::from_fn(|| told(&demand)).count();
    assert_eq!(rest, 998);
}

#[test]
fn a_refused_name_keeps_nobody_waiting_until_its_time_is_over() {
    let demand = open();
    let name: Arc<str> = "a.example".into();
    let wait = want(&demand, &name, 1);
    demand.refuse(&name, LONG);
    assert!(is_answered(&wait));
    drop(wait);
    assert!(demand.want(&name, 1, 9).is_none());
    assert_eq!(told(&demand), None);
    demand.refuse(&name, Duration::ZERO);
    drop(want(&demand, &name, 1));
    // One whose certificate has come by another way is not refused.
    demand.refuse(&name, LONG);
    demand.settle(&name);
    drop(want(&demand, &name, 1));
}

#[test]
fn refusals_are_bounded_and_the_oldest_go() {
    let demand = open();
    let first: Arc<str> = "first.example".into();
    demand.refuse(&first, LONG);
    for number in 0..REFUSED_MAX + 100 {
        demand.refuse(&format!("n{number}.example").into(), LONG);
        // One that is refused time and again is no older than its last refusal.
        if number % 1_000 == 0 {
            demand.refuse(&first, LONG);
        }
    }
    let state = demand.lock();
    assert_eq!(state.refusals.len(), REFUSED_MAX);
    assert!(state.refused.len() <= REFUSED_MAX);
    assert!(state.refused.contains_key(&first));
    assert!(!state.refused.contains_key("n0.example"));
}

#[test]
fn so_many_wait_for_one_name_and_whoever_has_most_gives_way() {
    let demand = open();
    let crowd = ["2001:db8:1:1::", "2001:db8:1:2::", "2001:db8:1:3::"].map(source);
    let ask = |source| demand.want("a.example", source, 4).unwrap();
    let elsewhere = ask(source("2001:db8:2::"));
    let waits = crowd.map(&ask);
    let another = ask(source("192.0.2.1"));
    let evicted =
        |waits: &[DemandWait]| -> Vec<bool> { waits.iter().map(DemandWait::is_evicted).collect() };
    assert_eq!(evicted(&waits), [true, false, false]);
    let more = crowd.map(&ask);
    assert_eq!(evicted(&waits), [true, true, true]);
    assert_eq!(evicted(&more), [true, false, false]);
    assert!(!elsewhere.is_evicted() && !another.is_evicted());
    // Those who lost their places wait no longer, and without an answer.
    assert!(is_over(&waits[0]) && !is_answered(&waits[0]) && !is_over(&more[2]));
    drop(demand.want("b.example", crowd[0], 4));
    assert!(!is_over(&more[1]), "another name has places of its own");
    demand.settle("a.example");
    assert!([&elsewhere, &another, &more[1], &more[2]].map(is_answered) == [true; 4]);
    drop((elsewhere, another, waits, more));
    assert!(demand.lock().wanted.is_empty());
}

#[tokio::test]
async fn whoever_asks_for_others_waits_on_where_a_place_is_lost() {
    let demand = open();
    let mut asking = std::pin::pin!(demand.ask("a.example", 1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(asking.as_mut().poll(&mut context).is_pending());
    let wait = demand.want("a.example", 2, 1).unwrap();
    assert!(asking.as_mut().poll(&mut context).is_pending());
    demand.refuse(&"a.example".into(), LONG);
    assert!(is_answered(&wait) && asking.await > LONG / 2);
}

#[test]
fn a_network_has_one_turn_however_many_sources_are_in_it() {
    let demand = open();
    let address = |it: usize| format!("2001:db8:1:{it:x}::1");
    let _flood: Vec<_> = (0..256)
        .map(|it| want(&demand, &format!("n{it}.example"), source(&address(it))))
        .collect();
    let _mine = want(&demand, "mine.example", source("2001:db8:2::1"));
    let next = [told(&demand), told(&demand)];
    assert!(next.contains(&wanted("mine.example")), "{next:?}");
    // The same inside of the network.
    let _neighbour = want(&demand, "near.example", source("2001:db8:1:ff00::1"));
    let next = [told(&demand), told(&demand)];
    assert!(next.contains(&wanted("near.example")), "{next:?}");
    // A name that somebody of the flood has asked for before is told as soon.
    let _same = want(&demand, "n200.example", source("2001:db8:3::1"));
    let next = [told(&demand), told(&demand)];
    assert!(next.contains(&wanted("n200.example")), "{next:?}");
}

/// Networks of 48 bits that nothing was refused yet: whoever has one of 32 bits has 65,536.
#[test]
fn fresh_networks_of_one_provider_have_one_turn_however_many_there_are() {
    let demand = open();
    let mut flood = Vec::new();
    let mut fresh = 0..;
    let mut ask_more = |count: usize| {
        for number in fresh.by_ref().take(count) {
            let address = source(&format!("2001:db8:{number:x}::1"));
            flood.push(want(&demand, &format!("n{number}.example"), address));
        }
    };
    ask_more(256);
    // Those who had a turn are refused, and others come without end.
    let mut turns_until = |wait: DemandWait, name: &str, is_refused: bool| {
        for turn in 1..=64 {
            ask_more(1);
            let Some(Demanded::Wanted(told)) = told(&demand) else {
                panic!("nothing is told");
            };
            let is_it = *told == *name;
            match is_it && !is_refused {
                true => demand.settle(name),
                false => demand.refuse(&told, Duration::ZERO),
            }
            if is_it {
                drop(wait);
                return turn;
            }
        }
        panic!("{name} has no turn");
    };
    let mine = want(&demand, "mine.example", source("2001:db9:1:1::1"));
    assert!(turns_until(mine, "mine.example", false) <= 2);
    // One that a refusal stands against has a part of the turns beside the flood.
    let typo = want(&demand, "typo.example", source("192.0.2.1"));
    assert!(turns_until(typo, "typo.example", true) <= 2);
    let again = want(&demand, "again.example", source("192.0.2.1"));
    assert!(turns_until(again, "again.example", false) <= 4);
}

/// No client of a provider is judged by another: many of them have a refusal now and then.
#[test]
fn a_provider_stands_among_the_first_while_one_of_its_networks_does() {
    let demand = open();
    let inside = |it: usize| format!("2001:db8:{it:x}::1");
    flood(&demand, inside, 64);
    let _refused: Vec<_> = (0..64)
        .map(|it| want(&demand, &format!("n{it}.example"), source(&inside(it))))
        .collect();
    let outside = |it: usize| source(&format!("198.51.{it}.1"));
    let _others: Vec<_> = (0..8)
        .map(|it| want(&demand, &format!("o{it}.example"), outside(it)))
        .collect();
    let _mine = want(&demand, "mine.example", source("2001:db8:ff::1"));
    // Sooner than the first turn of those whose name was refused.
    assert!((0..3).any(|_| told(&demand) == wanted("mine.example")));
}

#[test]
fn sources_whose_names_were_refused_go_behind_one_without_refusals() {
    let floods: [fn(usize) -> String; 3] = [
        |it| format!("2001:db8:1:{it:x}::1"),
        |it| format!("2001:db8:{it:x}::1"),
        |it| format!("198.51.{it}.1"),
    ];
    for address in floods {
        let demand = open();
        flood(&demand, address, 256);
        let _flood: Vec<_> = (0..256)
            .map(|it| want(&demand, &format!("n{it}.example"), source(&address(it))))
            .collect();
        assert!(told(&demand).is_some());
        let _mine = want(&demand, "mine.example", source("192.0.2.1"));
        let next = [told(&demand), told(&demand)];
        assert!(next.contains(&wanted("mine.example")), "{next:?}");
    }
}

#[test]
fn sources_whose_names_were_refused_have_a_part_of_the_turns_until_one_is_not() {
    let demand = open();
    let address = |it: usize| format!("2001:db8:{it:x}::1");
    flood(&demand, address, 1);
    // What is told and has no answer is not told again, so that each round has names of its own.
    let behind = |round, count| {
        let names = (0..100).map(|it| format!("n{it}.round{round}.example"));
        let names: Vec<_> = names.collect();
        let _others: Vec<_> = (0..100)
            .map(|it| want(&demand, &names[it], source(&address(it + 1))))
            .collect();
        let _late = want(&demand, "late.example", source(&address(0)));
        (0..count).any(|_| told(&demand) == wanted("late.example"))
    };
    assert!(!behind(1, 3) && behind(2, 4));
    // Its last name was not refused, so that it is the last of all that come before it.
    demand.settle("late.example");
    assert!(!behind(3, 100) && behind(4, 101));
}

/// Nobody answers for the names of a flood.
#[test]
fn one_network_that_waits_for_late_answers_keeps_no_other_one_back() {
    let demand = open_here();
    let names: Vec<String> = (0..100).map(|it| format!("slow{it}.example")).collect();
    let address = |it: usize| source(&format!("2001:db8:{it:x}::1"));
    let _flood: Vec<_> = (0..100)
        .map(|it| want(&demand, &names[it], address(it)))
        .collect();
    let (told_of_it, _) = tell_all(&demand, "");
    assert_eq!(told_of_it, DEMANDS_UNANSWERED_MAX / 2);
    let mine = want(&demand, "mine.example", source("192.0.2.1"));
    assert_eq!(tell_all(&demand, "mine.example"), (1, true));
    demand.allow("mine.example");
    // A handshake more for what was told is told nobody again, and takes no place.
    drop(want(&demand, "slow0.example", address(0)));
    let _again = want(&demand, "slow0.example", source("203.0.113.1"));
    let (more, _) = tell_all(&demand, "");
    let (held, networks) = demand.lock().places.counts();
    assert!(
        more <= 1 && held <= DEMANDS_UNANSWERED_MAX / 2 + 1,
        "{more} {held}"
    );
    assert_eq!(networks, 1);
    drop(mine);
    demand.close();
    assert_eq!(demand.lock().places.counts(), (0, 0));
}

#[test]
fn networks_whose_names_were_refused_have_a_few_places_together_however_many_they_are() {
    let floods: [fn(usize) -> String; 3] = [
        |it| format!("2001:db8:1:{it:x}::1"),
        |it| format!("2001:db8:{it:x}::1"),
        |it| format!("198.51.{it}.1"),
    ];
    for address in floods {
        let demand = open_here();
        // They are refused in turns, as there are places.
        for round in 0..256 {
            let name = format!("no{round}.example");
            let _wait = want(&demand, &name, source(&address(round)));
            assert_eq!(told(&demand), wanted(&name));
            demand.refuse(&name.as_str().into(), Duration::ZERO);
        }
        let _flood: Vec<_> = (0..256)
            .map(|it| want(&demand, &format!("slow{it}.example"), source(&address(it))))
            .collect();
        assert_eq!(tell_all(&demand, ""), (UNANSWERED_BEHIND_MAX, false));
        for it in 0..8 {
            let name = format!("mine{it}.example");
            let wait = want(&demand, &name, source("192.0.2.1"));
            assert_eq!(tell_all(&demand, &name), (1, true));
            demand.allow(&name);
            drop(wait);
        }
        // One of them that has an answer is followed by another.
        let first = demand.lock().told.keys().next().cloned().unwrap();
        demand.refuse(&first, LONG);
        assert_eq!(tell_all(&demand, "").0, 1);
    }
}

#[tokio::test]
async fn a_place_that_is_free_wakes_whoever_tells() {
    let demand = open_here();
    let flood = |it: usize| want(&demand, &format!("n{it}.example"), 1);
    let _flood: Vec<_> = (0..64).map(flood).collect();
    assert_eq!(tell_all(&demand, "").0, DEMANDS_UNANSWERED_MAX / 2);
    for it in 0..16 {
        let name: Arc<str> = format!("n{it}.example").into();
        match it % 3 {
            0 => demand.release(&name),
            1 => demand.settle(&name),
            _ => demand.allow(&name),
        }
        assert!(matches!(demand.next().await, Demanded::Wanted(_)));
    }
}

#[test]
fn what_is_remembered_of_names_and_networks_is_bounded() {
    let demand = open();
    let address = |it: usize| format!("{:x}:{:x}::", 0x2000 + it / 1_000, it % 1_000);
    let most = demand.lock().turns.marks().1;
    flood(&demand, address, most);
    assert_eq!(demand.lock().turns.marks(), (most, most));
    for number in 0..TOLD_MAX + 100 {
        let _wait = want(&demand, &format!("n{number}.example"), 1);
        assert!(told(&demand).is_some());
    }
    let state = demand.lock();
    assert_eq!(state.told_order.len(), TOLD_MAX);
    assert_eq!(state.told.len(), TOLD_MAX);
}

#[test]
fn names_in_use_are_bounded_and_told_in_turn_with_those_that_are_wanted() {
    let demand = open();
    for number in 0..USED_MAX {
        assert!(demand.used(&format!("n{number}.example").into()));
    }
    assert!(!demand.used(&"more.example".into()));
    let used = |name: &str| Some(Demanded::Used(name.into()));
    let _waits = ["a.example", "b.example"].map(|name| want(&demand, name, 1));
    assert_eq!(told(&demand), wanted("a.example"));
    assert_eq!(told(&demand), used("n0.example"));
    assert_eq!(told(&demand), wanted("b.example"));
    assert_eq!(told(&demand), used("n1.example"));
    assert_eq!(told(&demand), used("n2.example"));
    assert!(demand.used(&"more.example".into()));
}

#[test]
fn nobody_waits_once_it_is_closed() {
    let demand = open();
    let wait = want(&demand, "a.example", 1);
    demand.close();
    assert!(is_answered(&wait) && !demand.is_open());
}

#[tokio::test]
async fn whoever_obtains_certificates_is_woken() {
    let demand = open();
    let next = demand.next();
    let wait = want(&demand, "a.example", 1);
    assert_eq!(next.await, Demanded::Wanted("a.example".into()));
    drop(wait);
}

#[tokio::test]
async fn one_who_asks_for_clients_elsewhere_hears_of_a_certificate_and_of_a_refusal() {
    let demand = Demand::default();
    assert_eq!(demand.ask("a.example", 1).await, Duration::ZERO);
    assert!(!demand.tell_used(&"a.example".into()), "nobody would hear");
    demand.open();
    let answering = async {
        assert_eq!(demand.next().await, Demanded::Wanted("a.example".into()));
        demand.refuse(&"a.example".into(), LONG);
        assert_eq!(demand.next().await, Demanded::Wanted("b.example".into()));
        demand.settle("b.example");
    };
    let asking = async {
        let refused = demand.ask("a.example", 1).await;
        // The others of that time know it already.
        let again = demand.ask("a.example", 2).await;
        let settled = demand.ask("b.example", 1).await;
        (refused, again, settled)
    };
    let ((refused, again, settled), ()) = tokio::join!(asking, answering);
    assert!(refused > LONG / 2 && again > LONG / 2);
    assert_eq!(settled, Duration::ZERO);
    assert!(demand.lock().wanted.is_empty());
    assert!(demand.tell_used(&"b.example".into()));
    assert_eq!(told(&demand), Some(Demanded::Used("b.example".into())));
}
