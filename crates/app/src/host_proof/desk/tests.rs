use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_model::Host;

use super::{
    GONE_FOR, IN_FLIGHT_MAX, IN_FLIGHT_PER_NAMESPACE_MAX, PACE, PACE_PER_NAMESPACE, PROVEN_FOR,
    ProofDesk, ProofQuestion, ProofVerdict, UNPROVEN_FOR,
};
use crate::rivals::Dispute;

fn set(names: &[&str]) -> BTreeSet<Box<str>> {
    names.iter().map(|name| Box::from(*name)).collect()
}

fn dispute(host: &str, holders: &[&str], others: &[&str]) -> Dispute {
    Dispute {
        host: Host::parse(host).unwrap(),
        holders: set(holders),
        others: set(others),
    }
}

/// The next question, at whatever time it may be asked.
fn ask(desk: &mut ProofDesk, now: &mut Instant) -> ProofQuestion {
    *now = (*now).max(desk.due().expect("a question comes"));
    desk.next(*now).expect("a question")
}

fn proven(namespace: &str) -> Option<ProofVerdict> {
    Some(ProofVerdict::Proven(namespace.into()))
}

#[test]
fn a_host_is_asked_of_at_once_and_again_once_the_answer_is_old() {
    let (start, mut now) = (clock::now(), clock::now());
    let mut desk = ProofDesk::new(start);
    assert_eq!(desk.due(), None);
    desk.take(dispute("a.test", &["shop"], &["blog"]), now);
    assert!(desk.due().is_some_and(|due| due <= now));
    let question = ask(&mut desk, &mut now);
    assert_eq!(desk.due(), None, "it is asked of");
    // Nobody is named; then nobody answers; then the one that has it is.
    for (named, holds_for) in [
        (Some(set(&[])), UNPROVEN_FOR),
        (None, UNPROVEN_FOR),
        (Some(set(&["nobody"])), UNPROVEN_FOR),
    ] {
        assert_eq!(desk.end(&question, named.as_ref(), None, now), None);
        assert_eq!(desk.due(), Some(now + holds_for));
        assert_eq!(desk.next(now + holds_for - PACE), None);
        assert_eq!(ask(&mut desk, &mut now), question);
    }
    let named = set(&["shop", "nobody"]);
    let verdict = desk.end(&question, Some(&named), None, now);
    assert_eq!(verdict, proven("shop"));
    assert_eq!(desk.due(), Some(now + PROVEN_FOR));
    // The same once more changes nothing.
    assert_eq!(ask(&mut desk, &mut now), question);
    assert_eq!(desk.end(&question, Some(&named), Some("shop"), now), None);
    desk.take(dispute("a.test", &[], &[]), now);
    assert_eq!((desk.due(), desk.len()), (None, 0));
}

#[test]
fn an_owner_changes_by_the_proof_of_another_claimant_and_by_nothing_else() {
    let mut now = clock::now();
    let mut desk = ProofDesk::new(now);
    desk.take(dispute("a.test", &["shop"], &["blog"]), now);
    let mut end = |named: Option<&[&str]>, held: Option<&str>| {
        let question = ask(&mut desk, &mut now);
        let named = named.map(set);
        desk.end(&question, named.as_ref(), held, now)
    };
    assert_eq!(end(None, Some("shop")), None, "DNS is down");
    assert_eq!(end(Some(&[]), Some("shop")), None, "the record is away");
    assert_eq!(
        end(Some(&["docs"]), Some("shop")),
        None,
        "it claims nothing"
    );
    assert_eq!(end(Some(&["blog", "shop"]), Some("shop")), None);
    assert_eq!(end(Some(&["blog", "docs"]), Some("shop")), proven("blog"));
    assert_eq!(
        end(Some(&["blog", "shop"]), None),
        proven("shop"),
        "it has it"
    );
    assert_eq!(end(Some(&["blog"]), None), proven("blog"));
}

#[test]
fn a_host_is_kept_for_who_does_not_claim_it_until_its_record_is_away_for_long() {
    let mut now = clock::now();
    let mut desk = ProofDesk::new(now);
    desk.take(dispute("a.test", &[], &["blog"]), now);
    let mut end = |named: Option<&[&str]>| {
        let question = ask(&mut desk, &mut now);
        let named = named.map(set);
        let verdict = desk.end(&question, named.as_ref(), Some("shop"), now);
        (verdict, now)
    };
    assert_eq!(end(Some(&["shop"])).0, None);
    // Servers that do not have it yet, or do not answer, end nothing.
    let (verdict, first) = end(Some(&[]));
    assert_eq!(verdict, None);
    assert_eq!(end(Some(&["shop"])).0, None);
    let (_, since) = end(Some(&[]));
    assert!(since > first);
    let mut last = since;
    while last < since + GONE_FOR {
        let (verdict, asked) = end(None);
        assert_eq!((verdict, asked > last), (None, true));
        last = asked;
    }
    let released = end(Some(&[]));
    assert_eq!(released.0, Some(ProofVerdict::Released));
}

#[test]
fn whoever_comes_to_a_host_has_it_asked_of_at_once_and_pays_for_it() {
    let mut now = clock::now();
    let mut desk = ProofDesk::new(now);
    desk.take(dispute("a.test", &["shop"], &["blog"]), now);
    let question = ask(&mut desk, &mut now);
    assert_eq!(&*question.lane, "blog");
    // Somebody comes while it is asked of: the answer may be older.
    desk.take(dispute("a.test", &["shop"], &["blog", "docs"]), now);
    assert_eq!(desk.next(now + PROVEN_FOR), None);
    desk.end(&question, Some(&set(&["shop"])), Some("shop"), now);
    let question = ask(&mut desk, &mut now);
    assert_eq!(&*question.lane, "docs");
    desk.end(&question, Some(&set(&["shop"])), Some("shop"), now);
    // That another one has it now is no reason to ask.
    desk.take(dispute("a.test", &["docs"], &["blog", "shop"]), now);
    assert_eq!(desk.due(), Some(now + PROVEN_FOR));
    desk.take(dispute("a.test", &["docs"], &["blog"]), now);
    let due = desk.due().expect("it is due");
    assert!(due <= now + PACE_PER_NAMESPACE);
}

#[test]
fn a_flood_of_hosts_is_asked_of_within_bounds_and_holds_up_nobody_else() {
    const HOSTS: usize = 20_000;
    let start = clock::now();
    let mut desk = ProofDesk::new(start);
    for at in 0..HOSTS {
        desk.take(
            dispute(&format!("h{at}.test"), &["shop"], &["flood"]),
            start,
        );
    }
    // Nobody answers it, and its places are taken.
    let (mut now, mut asked) = (start, 0);
    let end = start + Duration::from_secs(60);
    while let Some(due) = desk.due().filter(|due| *due < end) {
        now = now.max(due);
        let question = desk.next(now).expect("it is due");
        assert_eq!(&*question.lane, "flood");
        asked += 1;
    }
    assert_eq!(asked, IN_FLIGHT_PER_NAMESPACE_MAX);
    // A neighbour comes, and is asked of at once.
    desk.take(dispute("a.test", &["blog"], &["docs"]), end);
    let question = desk.next(end).expect("a question");
    assert_eq!(&*question.lane, "docs");
}

#[test]
fn a_flood_that_is_answered_at_once_keeps_its_pace_and_so_do_all_together() {
    let start = clock::now();
    let names: Vec<String> = (0..100).map(|at| format!("n{at:02}")).collect();
    let mut desk = ProofDesk::new(start);
    for name in &names {
        for at in 0..200 {
            let host = format!("h{at}.{name}.test");
            desk.take(dispute(&host, &["shop"], &[name.as_str()]), start);
        }
    }
    let (mut now, mut asked) = (start, BTreeMap::<Box<str>, usize>::new());
    let end = start + Duration::from_secs(10);
    while let Some(due) = desk.due().filter(|due| *due < end) {
        now = now.max(due);
        let question = desk.next(now).expect("it is due");
        *asked.entry(question.lane.clone()).or_default() += 1;
        desk.end(&question, Some(&set(&[])), None, now);
    }
    let all: usize = asked.values().sum();
    assert_eq!(all, 1_000, "a hundred in each second");
    // In turns, whoever has how much.
    assert!(asked.values().all(|asked| *asked == 10), "{asked:?}");
}

#[test]
fn no_more_questions_are_open_than_there_are_places() {
    let start = clock::now();
    let mut desk = ProofDesk::new(start);
    for at in 0..3 * IN_FLIGHT_MAX {
        let name = format!("n{at}");
        desk.take(
            dispute(&format!("{name}.test"), &["shop"], &[name.as_str()]),
            start,
        );
    }
    let (mut now, mut open) = (start, Vec::new());
    while let Some(due) = desk.due() {
        now = now.max(due);
        open.extend(desk.next(now));
    }
    assert_eq!(open.len(), IN_FLIGHT_MAX);
    desk.end(&open[0], None, None, now);
    assert!(desk.due().is_some(), "there is a place again");
}
