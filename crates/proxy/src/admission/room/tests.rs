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
    seat_of(room, 1)
}

/// The same for a client of a source.
fn seat_of(room: &Rc<ConnectionRoom>, source: u64) -> Option<Seat> {
    let mut waiting = Box::pin(room.seat(source));
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
fn the_source_with_most_idle_connections_loses_its_oldest_for_one_that_has_asked() {
    let (room, _) = room(5, 100);
    // Two that have been idle for long, and then many of one source.
    let seats = [1, 2, 9, 9, 9].map(|source| seat_of(&room, source).unwrap());
    seats.iter().for_each(Seat::rest);
    let evicted = || seats.each_ref().map(Seat::is_evicted);
    // Whoever asks may be of that source as well.
    let newcomers = [9, 3].map(|source| seat_of(&room, source).unwrap());
    assert_eq!(evicted(), [false, false, true, true, false]);
    // All have one by now, so that the one goes that has been idle for longest.
    let last = seat_of(&room, 4).unwrap();
    assert_eq!(evicted(), [true, false, true, true, false]);
    drop((seats, newcomers, last));
    assert_eq!(room.taken(), 0);
}

/// A place of a source whose handshake is under way.
fn shaking(room: &Rc<ConnectionRoom>, source: u64) -> Seat {
    let seat = seat_of(room, source).unwrap();
    seat.shake();
    seat
}

#[test]
fn handshakes_under_way_go_for_one_that_has_asked_where_a_source_has_very_many() {
    let (room, counts) = room(40, 100);
    let idle = [1, 1, 1, 2].map(|source| seat_of(&room, source).unwrap());
    idle.iter().for_each(Seat::rest);
    let honest = shaking(&room, 3);
    let flood: Vec<Seat> = (0..35).map(|_| shaking(&room, 9)).collect();
    assert_eq!((room.taken(), room.served()), (40, 4));
    let newcomers: Vec<Seat> = (0..20).map(|_| seat_of(&room, 4).unwrap()).collect();
    let gone = flood.iter().take_while(|it| it.is_evicted()).count();
    assert_eq!((gone, counts.get(Count::EvictedHandshake)), (20, 20));
    assert!(!idle.iter().any(Seat::is_evicted) && !honest.is_evicted());
    assert_eq!((room.taken(), room.served()), (40, 24));
    // Whose handshake is done is served, and does not go.
    flood[20].work();
    assert_eq!(room.served(), 25);
    let last = seat_of(&room, 4).unwrap();
    assert_eq!(
        [20, 21].map(|at: usize| flood[at].is_evicted()),
        [false, true]
    );
    drop((idle, honest, flood, newcomers, last));
    assert_eq!((room.taken(), room.served()), (0, 0));
}

#[test]
fn a_few_handshakes_of_each_source_push_nobody_out_until_they_have_half_of_the_places() {
    let (room, counts) = room(20, 100);
    let idle = [(); 12].map(|()| seat_of(&room, 1).unwrap());
    idle.iter().for_each(Seat::rest);
    let mut all: Vec<Seat> = (10..21).map(|source| shaking(&room, source)).collect();
    let evicted = |count| counts.get(count);
    // An idle one goes for each beyond the places that there are.
    assert_eq!(evicted(Count::EvictedIdle), 3);
    assert_eq!(evicted(Count::EvictedHandshake), 0);
    all.extend((21..31).map(|source| shaking(&room, source)));
    assert_eq!(evicted(Count::EvictedIdle), 3);
    assert_eq!(evicted(Count::EvictedHandshake), 10);
    assert!(all[..10].iter().all(Seat::is_evicted));
}

#[test]
fn a_handshake_for_which_something_is_held_goes_for_another_where_too_much_is() {
    let (room, counts) = room(100, 100);
    assert!(!room.exchange_handshake());
    let all = [7, 9, 9, 9].map(|source| shaking(&room, source));
    // Nothing is held yet for the first of the source that has most.
    [0, 2, 3]
        .into_iter()
        .for_each(|at: usize| all[at].keep(8_192));
    assert!(room.exchange_handshake());
    let evicted = all.each_ref().map(Seat::is_evicted);
    assert_eq!(evicted, [false, true, true, false]);
    assert_eq!(counts.get(Count::EvictedHandshake), 2);
}

#[test]
fn who_asks_waits_for_the_next_place() {
    let (room, _) = room(1, 100);
    let first = seat(&room).unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let [mut second, mut third] = [(); 2].map(|()| Box::pin(room.seat(1)));
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
    let mut asking: Vec<_> = (0..SPARE).map(|_| Box::pin(room.seat(1))).collect();
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
