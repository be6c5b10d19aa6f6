use std::sync::Arc;

use myriad_pki::acme::{Millis, Suffixes};

use super::{
    ALLOWED_FOR, ANSWERS_MAX, ASKING_MAX, AskAnswer, DemandBook, FAILED_FOR, NameVerdict,
    PENDING_FOR, REFUSED_FOR, SweptNames,
};
use crate::settings::OnDemandSettings;

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;

/// A book with the usual settings, but for what a test changes; 300 orders in three hours.
fn book(change: impl FnOnce(&mut OnDemandSettings)) -> DemandBook {
    let mut settings = OnDemandSettings::default();
    change(&mut settings);
    DemandBook::new(&settings, (300, Suffixes::default()))
}

#[test]
fn customers_of_a_platform_that_is_a_suffix_keep_no_name_of_each_other_back() {
    let settings = OnDemandSettings {
        per_domain: 1,
        ..OnDemandSettings::default()
    };
    let suffixes = Suffixes::parse("app.example").unwrap();
    let mut book = DemandBook::new(&settings, (300, suffixes));
    for (text, is_wanted) in [
        ("a.one.app.example", true),
        ("b.one.app.example", false),
        ("two.app.example", true),
    ] {
        let verdict = ask(&mut book, text, AskAnswer::Yes, 0);
        assert_eq!(verdict == NameVerdict::Want, is_wanted, "{text}");
    }
}

fn name(text: &str) -> Arc<str> {
    text.into()
}

/// Handshakes wait for a name, and the endpoint answers, if it is asked.
fn ask(book: &mut DemandBook, text: &str, answer: AskAnswer, now: Millis) -> NameVerdict {
    let name = name(text);
    match book.demand(&name, false, now) {
        NameVerdict::Ask => book.end_ask(&name, answer, now),
        verdict => verdict,
    }
}

#[test]
fn a_name_is_asked_about_once_and_the_answer_remembered() {
    let mut book = book(|_| {});
    let no = name("no.example");
    assert_eq!(book.demand(&no, false, 0), NameVerdict::Ask);
    // Meanwhile nobody asks again.
    assert_eq!(book.demand(&no, false, 1), NameVerdict::Nothing);
    let refused = book.end_ask(&no, AskAnswer::No, 1_000);
    assert_eq!(refused, NameVerdict::Refuse(REFUSED_FOR));
    let later = book.demand(&no, false, 11_000);
    assert_eq!(later, NameVerdict::Refuse(REFUSED_FOR - 10_000));
    let over = book.demand(&no, false, 1_000 + REFUSED_FOR);
    assert_eq!(over, NameVerdict::Ask);

    let silent = ask(&mut book, "slow.example", AskAnswer::Silence, 0);
    assert_eq!(silent, NameVerdict::Refuse(FAILED_FOR));
    let again = book.demand(&name("slow.example"), false, FAILED_FOR);
    assert_eq!(again, NameVerdict::Ask);
    let allowed = ask(&mut book, "yes.example", AskAnswer::Yes, 0);
    assert_eq!((allowed, book.len()), (NameVerdict::Want, 1));
    // It waits for its certificate.
    let waits = ask(&mut book, "yes.example", AskAnswer::No, 5);
    assert_eq!(waits, NameVerdict::Nothing);
}

#[test]
fn nothing_is_asked_about_what_is_no_host() {
    let mut book = book(|_| {});
    for text in ["localhost", "*.example", "192.0.2.7", "a_b.example", "a..b"] {
        let verdict = book.demand(&name(text), false, 0);
        assert_eq!(verdict, NameVerdict::Refuse(REFUSED_FOR), "{text}");
    }
    assert_eq!(book.next_ask(0), None);
    assert!(book.asking.is_empty() && book.len() == 0);
}

#[test]
fn questions_have_a_budget_and_places() {
    let mut book = book(|settings| settings.asks_max = 2);
    let mut asked = 0;
    // As fast as they may come, for a minute, each answered at once.
    for now in (0..60_000).step_by(10) {
        while book.next_ask(now).is_none() {
            let name = format!("n{asked}.example");
            ask(&mut book, &name, AskAnswer::No, now);
            asked += 1;
        }
    }
    // A burst of those of ten seconds, and two in each second.
    assert!((135..=141).contains(&asked), "{asked}");
    let now = 200_000;
    for number in 0..ASKING_MAX {
        assert_eq!(book.next_ask(now), None);
        let name = name(&format!("open{number}.example"));
        assert_eq!(book.demand(&name, false, now), NameVerdict::Ask);
    }
    assert_eq!(book.next_ask(now), Some(Millis::MAX));
    book.end_ask(&name("open0.example"), AskAnswer::No, now);
    assert_eq!(book.next_ask(now), None);
}

#[test]
fn answers_are_bounded_and_the_oldest_go() {
    let mut book = book(|_| {});
    for number in 0..ANSWERS_MAX + 10 {
        book.remember(&name(&format!("n{number}.example")), AskAnswer::No, 0);
    }
    assert_eq!(book.answered.len(), ANSWERS_MAX);
    assert_eq!(book.answers.len(), ANSWERS_MAX);
    assert_eq!(book.answer("n9.example", 1), None);
    assert!(book.answer("n10.example", 1).is_some());
    assert_eq!(book.answer("n10.example", REFUSED_FOR), None);
}

#[test]
fn an_endpoint_that_says_yes_to_everything_gets_what_budgets_have() {
    let mut book = book(|settings| settings.asks_max = 10_000);
    // One registered domain, and as many names below it as anybody likes.
    let mut wanted = 0;
    for number in 0..200 {
        let name = format!("n{number}.flood.example");
        let verdict = ask(&mut book, &name, AskAnswer::Yes, 0);
        wanted += usize::from(verdict == NameVerdict::Want);
    }
    assert_eq!(wanted, 10);
    // Another domain has its own.
    assert_eq!(
        ask(&mut book, "a.other.example", AskAnswer::Yes, 0),
        NameVerdict::Want
    );
    // And many of them half of what an authority is asked for.
    for number in 0..1_000 {
        let name = format!("a.d{number}.example");
        let verdict = ask(&mut book, &name, AskAnswer::Yes, 0);
        wanted += usize::from(verdict == NameVerdict::Want);
    }
    assert_eq!(wanted + 1, 150);
    assert!(book.domains.len() <= 512, "{}", book.domains.len());
    // What was refused so is refused for a moment, and comes back.
    let verdict = ask(&mut book, "b.d999.example", AskAnswer::Yes, 1);
    assert!(matches!(verdict, NameVerdict::Refuse(time) if time <= REFUSED_FOR));
    let later = ask(&mut book, "b.d999.example", AskAnswer::Yes, 2 * HOUR);
    assert_eq!(later, NameVerdict::Want);
}

#[test]
fn certificates_are_so_many_and_one_that_is_over_makes_room() {
    let mut book = book(|settings| settings.certificates_max = 2);
    book.restore(&name("old.example"), DAY, 0);
    assert_eq!(
        ask(&mut book, "a.example", AskAnswer::Yes, 0),
        NameVerdict::Want
    );
    let full = ask(&mut book, "b.example", AskAnswer::Yes, 0);
    assert_eq!(full, NameVerdict::Refuse(REFUSED_FOR));
    let swept = book.sweep(DAY);
    assert_eq!(swept.over, [name("old.example")]);
    assert_eq!(
        ask(&mut book, "b.example", AskAnswer::Yes, DAY),
        NameVerdict::Want
    );
    assert_eq!(book.len(), 2);
}

#[test]
fn what_cannot_be_proven_costs_no_budget_and_is_forgotten() {
    let mut book = book(|settings| settings.per_domain = 2);
    for _ in 0..100 {
        for text in ["a.lost.example", "b.lost.example"] {
            assert_eq!(ask(&mut book, text, AskAnswer::Yes, 0), NameVerdict::Want);
            assert!(book.give_up(text, 0));
        }
    }
    assert_eq!(book.len(), 0);
    // Once an authority has heard of it, it has cost something.
    assert_eq!(
        ask(&mut book, "a.lost.example", AskAnswer::Yes, 0),
        NameVerdict::Want
    );
    book.place("a.lost.example");
    assert!(book.give_up("a.lost.example", 0));
    assert_eq!(
        ask(&mut book, "b.lost.example", AskAnswer::Yes, 0),
        NameVerdict::Want
    );
    let third = ask(&mut book, "c.lost.example", AskAnswer::Yes, 0);
    assert!(matches!(third, NameVerdict::Refuse(_)), "{third:?}");
}

#[test]
fn a_certificate_is_renewed_while_it_is_used_and_allowed() {
    let mut book = book(|_| {});
    let a = name("a.example");
    book.restore(&a, 90 * DAY, 0);
    // After a start it is not renewed before somebody has used it.
    assert_eq!(book.demand(&a, true, DAY), NameVerdict::Want);
    assert_eq!(book.demand(&a, true, 2 * DAY), NameVerdict::Nothing);
    assert_eq!(book.sweep(16 * DAY), SweptNames::default());
    assert_eq!(book.sweep(16 * DAY + 1).idle, std::slice::from_ref(&a));
    assert_eq!(book.demand(&a, true, 20 * DAY), NameVerdict::Want);
    book.issue(&a, 180 * DAY);
    // The endpoint allows it no more: it is served to its end.
    book.remember(&a, AskAnswer::Silence, 21 * DAY);
    assert!(!book.give_up(&a, 21 * DAY), "nobody has refused it");
    book.remember(&a, AskAnswer::No, 22 * DAY);
    assert!(book.give_up(&a, 22 * DAY));
    assert_eq!(book.sweep(179 * DAY), SweptNames::default());
    assert_eq!(book.sweep(180 * DAY).over, std::slice::from_ref(&a));
    assert_eq!(book.len(), 0);
    // One that is not known here is nobody's.
    assert_eq!(book.demand(&a, true, 180 * DAY), NameVerdict::Nothing);
}

#[test]
fn an_order_that_fails_keeps_nobody_waiting_and_is_given_up_after_a_day() {
    let mut book = book(|_| {});
    let a = name("a.example");
    assert_eq!(ask(&mut book, &a, AskAnswer::Yes, 0), NameVerdict::Want);
    book.trouble(&a, true);
    let verdict = book.demand(&a, false, HOUR);
    assert_eq!(verdict, NameVerdict::Refuse(REFUSED_FOR));
    book.trouble(&a, false);
    assert_eq!(book.demand(&a, false, HOUR), NameVerdict::Nothing);
    assert_eq!(book.sweep(HOUR + PENDING_FOR), SweptNames::default());
    let swept = book.sweep(HOUR + PENDING_FOR + 1);
    assert_eq!(swept.over, [a]);
    const { assert!(ALLOWED_FOR < HOUR) };
}
