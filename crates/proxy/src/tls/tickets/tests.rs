use std::sync::Arc;

use myriad_base::metrics::Metrics;
use rustls::server::ProducesTickets;

use super::{
    LIFETIME_SECONDS, ROTATION_SECONDS, SKEW_SECONDS, TicketKeys, TicketSecret, Ticketer,
    context_of, until,
};
use crate::tls::config::{Speaks, Want};

const NOW: i64 = 1_800_000_000;

fn want(speaks: Speaks) -> Want {
    Want {
        settings: Arc::default(),
        speaks,
        mesh: None,
        clients: None,
    }
}

fn ticketer(keys: &Arc<TicketKeys>, speaks: Speaks) -> Ticketer {
    Ticketer::new(keys.clone(), &want(speaks)).unwrap()
}

/// A ticket that is made now, of a session that has no end of its own.
fn made(ticketer: &Ticketer) -> Vec<u8> {
    let mut ticket = None;
    let mut end = i64::MAX;
    until::around(&mut end, &mut || ticket = ticketer.encrypt(b"session"));
    ticket.unwrap()
}

fn own() -> Arc<TicketKeys> {
    Arc::new(TicketKeys::new(Vec::new()).unwrap())
}

/// Secrets as a file has them, each told by a number.
fn file(numbers: &[u8]) -> Vec<TicketSecret> {
    let secret = |number: &u8| TicketSecret {
        since: NOW + i64::from(*number),
        bytes: [*number; 32],
    };
    numbers.iter().map(secret).collect()
}

/// A replica whose file has these.
fn replica(numbers: &[u8]) -> (Arc<TicketKeys>, Ticketer) {
    let keys = own();
    assert!(keys.take(file(numbers)));
    let ticketer = ticketer(&keys, Speaks::Http);
    (keys, ticketer)
}

#[test]
fn the_next_process_opens_the_tickets_of_this_one_under_the_same_settings_alone() {
    let keys = own();
    let ticket = made(&ticketer(&keys, Speaks::Http));
    let next = Arc::new(TicketKeys::new(keys.own()).unwrap());
    let opened = ticketer(&next, Speaks::Http).decrypt(&ticket);
    assert_eq!(opened.as_deref(), Some(b"session".as_slice()));
    assert_eq!(ticketer(&next, Speaks::Anything).decrypt(&ticket), None);
    assert_eq!(ticketer(&own(), Speaks::Http).decrypt(&ticket), None);
}

#[test]
fn what_is_no_ticket_opens_nothing() {
    let ticketer = ticketer(&own(), Speaks::Http);
    let ticket = made(&ticketer);
    for length in 0..ticket.len() {
        assert_eq!(ticketer.decrypt(&ticket[..length]), None);
    }
    for place in 0..ticket.len() {
        let mut broken = ticket.clone();
        broken[place] ^= 1;
        assert_eq!(ticketer.decrypt(&broken), None);
    }
}

#[test]
fn a_secret_whose_time_has_passed_still_opens_and_makes_no_more() {
    let secret = TicketSecret::new(NOW).unwrap();
    let keys = Arc::new(TicketKeys::new(vec![secret]).unwrap());
    let ticketer = ticketer(&keys, Speaks::Http);
    let ticket = ticketer.seal(b"session", NOW + 1, i64::MAX).unwrap();
    let later = NOW + ROTATION_SECONDS;
    let opened = ticketer.open(&ticket, later);
    assert_eq!(opened.as_deref(), Some(b"session".as_slice()));
    let secrets = keys.own();
    assert_eq!(secrets.len(), 2);
    assert_ne!(secrets[0].bytes, secrets[1].bytes);
    let next = ticketer.seal(b"session", later, i64::MAX).unwrap();
    assert_ne!(ticket[..16], next[..16]);
    // After as long again it is forgotten.
    assert!(
        ticketer
            .seal(b"session", later + ROTATION_SECONDS, i64::MAX)
            .is_some()
    );
    assert!(ticketer.open(&ticket, later + ROTATION_SECONDS).is_none());
    assert_eq!(keys.own()[1].bytes, secrets[0].bytes);
}

#[test]
fn a_ticket_ends_though_the_secret_that_it_was_made_by_stays() {
    let (_, maker) = replica(&[1]);
    let (_, other) = replica(&[1]);
    let ticket = maker.seal(b"session", NOW, i64::MAX).unwrap();
    for (age, opens) in [
        (0, true),
        (LIFETIME_SECONDS - 1, true),
        (LIFETIME_SECONDS, false),
        (-SKEW_SECONDS, true),
        (-SKEW_SECONDS - 1, false),
    ] {
        assert_eq!(other.open(&ticket, NOW + age).is_some(), opens, "{age}");
    }
}

/// A session was resumed for as long as its client came back in time, by a certificate that had
/// ended.
#[test]
fn a_session_ends_with_its_certificates_however_often_it_is_resumed() {
    let (_, maker) = replica(&[1]);
    let (_, other) = replica(&[1]);
    let end = NOW + 100;
    let mut ticket = maker.seal(b"session", NOW, end).unwrap();
    for now in [NOW, NOW + 50, end] {
        // The next ticket knows what the one knew that was shown.
        let mut until = i64::MAX;
        until::around(&mut until, &mut || {
            assert!(other.open(&ticket, now).is_some(), "{now}");
            ticket = other.seal(b"session", now, until::get()).unwrap();
        });
        assert_eq!(until, end);
        assert_eq!(maker.open(&ticket, end + 1), None);
    }
    // Outside of a handshake nothing may be resumed.
    let ticket = maker.encrypt(b"session").unwrap();
    assert_eq!(maker.decrypt(&ticket), None);
}

#[test]
fn replicas_with_the_same_file_open_each_others_tickets_under_the_same_settings_alone() {
    let (_, maker) = replica(&[1, 2]);
    let (keys, other) = replica(&[1, 2]);
    let ticket = maker.seal(b"session", NOW, i64::MAX).unwrap();
    let opened = other.open(&ticket, NOW);
    assert_eq!(opened.as_deref(), Some(b"session".as_slice()));
    let elsewhere = ticketer(&keys, Speaks::Anything);
    assert_eq!(elsewhere.open(&ticket, NOW), None);
    // None of them is replaced by the process, however old it is.
    let later = NOW + 100 * ROTATION_SECONDS;
    assert_eq!(
        other.seal(b"x", later, i64::MAX).unwrap()[..16],
        ticket[..16]
    );
}

#[test]
fn a_ticket_opens_for_as_long_as_the_file_has_its_key_and_replicas_may_be_one_step_apart() {
    let (keys, maker) = replica(&[1, 2]);
    let (behind, other) = replica(&[1, 2]);
    let first = maker.seal(b"first", NOW, i64::MAX).unwrap();
    // The next key makes tickets before the other replica has heard of it.
    assert!(keys.take(file(&[2, 3, 1])));
    let second = maker.seal(b"second", NOW, i64::MAX).unwrap();
    assert_ne!(first[..16], second[..16]);
    for ticket in [&first, &second] {
        assert!(maker.open(ticket, NOW).is_some() && other.open(ticket, NOW).is_some());
    }
    assert!(behind.take(file(&[2, 3, 1])));
    assert!(other.open(&first, NOW).is_some());
    assert!(behind.take(file(&[3, 4, 2])));
    assert!(other.open(&first, NOW).is_none());
    assert!(other.open(&second, NOW).is_some());
}

#[test]
fn what_the_process_made_itself_still_opens_once_there_is_a_file() {
    let secret = TicketSecret::new(NOW).unwrap();
    let keys = Arc::new(TicketKeys::new(vec![secret.clone()]).unwrap());
    let ticketer = ticketer(&keys, Speaks::Http);
    let ticket = ticketer.seal(b"session", NOW, i64::MAX).unwrap();
    assert!(keys.take(file(&[1])));
    assert!(keys.take(file(&[2])));
    assert!(ticketer.open(&ticket, NOW).is_some());
    assert_ne!(
        ticketer.seal(b"session", NOW, i64::MAX).unwrap()[..16],
        ticket[..16]
    );
    // What was given is not handed over: the next process reads it itself.
    let handed: Vec<_> = keys.own().iter().map(|it| it.bytes).collect();
    assert_eq!(handed, [secret.bytes]);
}

#[test]
fn the_same_keys_again_change_nothing_and_metrics_tell_who_made_them_and_when() {
    let (metrics, keys) = (Metrics::new(), own());
    keys.register(&metrics);
    let has = |lines: [String; 4]| {
        let text = metrics.encode();
        for line in lines {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    };
    let lines = |own: u8, given: u8, since: i64, changes: u8| {
        [
            format!("myriad_ticket_keys{{source=\"process\"}} {own}\n"),
            format!("myriad_ticket_keys{{source=\"file\"}} {given}\n"),
            format!("myriad_ticket_key_timestamp_seconds {since}\n"),
            format!("myriad_ticket_key_changes_total {changes}\n"),
        ]
    };
    has(lines(1, 0, keys.own()[0].since, 0));
    assert!(!keys.take(Vec::new()));
    assert!(keys.take(file(&[1, 2])));
    has(lines(1, 2, NOW + 1, 1));
    assert!(!keys.take(file(&[1, 2])));
    // Another one behind it is no other key that makes tickets.
    let mut more = file(&[1, 3, 2]);
    more[0].since += 60;
    assert!(keys.take(more));
    has(lines(1, 3, NOW + 1, 1));
    assert!(keys.take(file(&[3, 1])));
    has(lines(1, 2, NOW + 3, 2));
}

#[test]
fn settings_are_told_by_the_bytes_of_this_form() {
    let context = context_of(&want(Speaks::Http));
    let text: String = context
        .iter()
        .take(8)
        .map(|it| format!("{it:02x}"))
        .collect();
    assert_eq!(text, "74438c231be77120", "raise FORM, and pin this");
}
