use std::rc::Rc;
use std::sync::Arc;

use super::{ConnectionRoom, Hush, Seat};
use crate::limits::SPARE;
use crate::limits::{Limits, Reached};
use crate::telemetry::count::{Count, Counts};

fn room(connections: usize, silent: usize) -> (Rc<ConnectionRoom>, Arc<Counts>) {
    let counts = Arc::new(Counts::new());
    let limits = Limits {
        connections_max: connections,
        silent_max: silent,
        silent_bytes_max: 10_000,
        ..Limits::default()
    };
    (
        Rc::new(ConnectionRoom::new(&limits, counts.clone())),
        counts,
    )
}

fn hush(room: &Rc<ConnectionRoom>, source: u64) -> Hush {
    room.enter(source)
}

/// A place, where there is one at once.
fn seat(room: &Rc<ConnectionRoom>) -> Option<Seat> {
    let mut waiting = Box::pin(room.seat());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match waiting.as_mut().poll(&mut context) {
        std::task::Poll::Ready(seat) => Some(seat),
        std::task::Poll::Pending => None,
    }
}

fn is_evicted(all: &[Hush]) -> Vec<bool> {
    all.iter().map(Hush::is_evicted).collect()
}

#[test]
fn beyond_the_limit_the_largest_source_loses_its_oldest_silent_connection() {
    let (room, counts) = room(1_000, 4);
    let all = [1, 2, 2, 3, 4].map(|source| hush(&room, source));
    assert_eq!(is_evicted(&all), [false, true, false, false, false]);
    assert_eq!(counts.get(Count::EvictedSilent), 1);
    assert_eq!(counts.get_reached(Reached::Silent), 1);
    assert_eq!(counts.get_reached(Reached::Connections), 0);
    drop(all);
    assert_eq!(room.silent.borrow().count(), 0);
}

#[test]
fn too_many_bytes_make_room_as_too_many_connections_do() {
    let (room, counts) = room(1_000, 100);
    let all = [1, 1, 2].map(|source| hush(&room, source));
    all.iter().for_each(|one| one.hold(4_096));
    assert_eq!(is_evicted(&all), [true, false, false]);
    assert_eq!(counts.get_reached(Reached::SilentBytes), 1);
}

#[test]
fn an_idle_connection_goes_for_one_that_has_asked_and_the_one_unused_longest_first() {
    let (room, counts) = room(3, 100);
    let seats = [(); 3].map(|()| seat(&room).unwrap());
    assert!(seat(&room).is_none(), "all of them work");
    seats.iter().for_each(Seat::rest);
    let [first, second, _] = &seats;
    // It has had a request, and it has one now.
    first.work();
    first.rest();
    second.work();
    let newcomer = seat(&room).unwrap();
    assert_eq!(seats.each_ref().map(Seat::is_evicted), [false, false, true]);
    assert_eq!((room.taken(), counts.get(Count::EvictedIdle)), (3, 1));
    let another = seat(&room).unwrap();
    assert_eq!(seats.each_ref().map(Seat::is_evicted), [true, false, true]);
    assert!(seat(&room).is_none(), "who serves a request stays");
    drop(seats);
    assert_eq!(room.taken(), 2);
    drop((newcomer, another));
    assert_eq!(room.taken(), 0);
}

#[test]
fn who_asks_waits_for_the_next_place() {
    let (room, _) = room(1, 100);
    let first = seat(&room).unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let [mut second, mut third] = [(); 2].map(|()| Box::pin(room.seat()));
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(third.as_mut().poll(&mut context).is_pending());
    // One of those that wait has gone.
    drop(second);
    first.rest();
    assert!(first.is_evicted());
    assert!(third.as_mut().poll(&mut context).is_ready());
    assert_eq!(room.taken(), 0, "the last one that had a place has gone");
}

#[test]
fn idle_connections_that_hold_something_go_until_enough_is_given_back() {
    let (room, counts) = room(10, 100);
    let held = [0, 300, 200, 400, 100];
    let seats = held.map(|bytes| {
        let seat = seat(&room).unwrap();
        seat.keep(bytes);
        seat.rest();
        seat
    });
    // This one has a request meanwhile.
    let [_, first, ..] = &seats;
    first.work();
    let evicted = |bytes| {
        room.relieve(bytes);
        seats.each_ref().map(Seat::is_evicted)
    };
    assert_eq!(evicted(0), [false; 5]);
    assert_eq!(evicted(201), [false, false, true, true, false]);
    assert_eq!((room.taken(), counts.get(Count::EvictedIdle)), (3, 2));
    assert_eq!(evicted(1_000), [false, false, true, true, true]);
}

#[test]
fn somebody_new_can_be_heard_while_all_places_are_taken() {
    let (room, counts) = room(2, 1_000);
    let seats = [(); 2].map(|()| seat(&room).unwrap());
    assert!(room.has_room());
    let silent: Vec<Hush> = (0..SPARE as u64 + 1).map(|it| hush(&room, it)).collect();
    assert!(silent.first().is_some_and(Hush::is_evicted));
    assert_eq!(counts.get_reached(Reached::Connections), 1);
    drop(silent);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut asking: Vec<_> = (0..SPARE).map(|_| Box::pin(room.seat())).collect();
    for one in &mut asking {
        assert!(room.has_room());
        assert!(one.as_mut().poll(&mut context).is_pending());
    }
    // The others wait with the kernel.
    assert!(!room.has_room() && !room.has_room());
    assert_eq!(counts.get_reached(Reached::Connections), 2);
    drop(seats);
    assert!(room.has_room());
}

#[test]
fn a_domain_that_has_its_share_may_exchange_an_idle_connection_of_its_own() {
    let (room, _) = room(10, 100);
    let seats = [7, 8].map(|domain| {
        let seat = seat(&room).unwrap();
        seat.belong_to(domain);
        seat.rest();
        seat
    });
    assert!(!room.exchange(9));
    assert!(room.exchange(8));
    assert!(!room.exchange(8));
    assert_eq!(seats.each_ref().map(Seat::is_evicted), [false, true]);
}
