use std::rc::Rc;
use std::sync::Arc;

use super::{HeldBytes, Holdings, LITTLE_BYTES, NOBODY, STEP_BYTES, TICKS_MIN, TUNNEL_BYTES};
use crate::admission::pressure::Pressure;
use crate::codec::buffer::BUFFER_BYTES;
use crate::limits::Limits;
use crate::net::deadline::{Deadline, tick};

const MAX: usize = 100 * LITTLE_BYTES;

fn holdings(pressure: &Arc<Pressure>) -> Rc<Holdings> {
    let limits = Limits {
        all_held_bytes_max: MAX,
        ..Limits::default()
    };
    Rc::new(Holdings::new(&limits, pressure))
}

fn holding(holdings: &Rc<Holdings>, deadline: &Deadline, bytes: usize) -> HeldBytes {
    let mut held = holdings.connection();
    held.watch(deadline);
    held.set(bytes);
    held
}

#[test]
fn beyond_the_bound_only_who_holds_little_gets_more_and_that_up_to_a_quarter() {
    let holdings = holdings(&Arc::default());
    let mut much = holdings.connection();
    much.set(MAX);
    assert!(much.may_grow() && !holdings.is_over());
    much.set(MAX + 1);
    assert!(!much.may_grow() && holdings.is_over());
    assert!(holdings.admits(NOBODY, LITTLE_BYTES - 1) && !holdings.admits(NOBODY, LITTLE_BYTES));
    much.set(MAX + MAX / 4);
    assert!(holdings.admits(NOBODY, 0));
    much.set(MAX + MAX / 4 + 1);
    assert!(!holdings.admits(NOBODY, 0));
    // What is no connection of HTTP/2 is not ended for it.
    assert!(!much.is_evicted());
    drop(much);
    assert_eq!((holdings.own(), holdings.is_over()), (0, false));
}

#[test]
fn who_has_held_most_for_longest_goes_first_and_no_more_of_them_than_have_to() {
    let holdings = holdings(&Arc::default());
    let deadline = Deadline::new();
    let part = MAX / 4;
    let mut all =
        [part, part, part / 8, part, part].map(|bytes| holding(&holdings, &deadline, bytes));
    let evicted = |all: &[HeldBytes]| Vec::from_iter(all.iter().map(HeldBytes::is_evicted));
    assert_eq!(evicted(&all), [false; 5]);
    all[2].set(part + part / 8);
    assert_eq!(evicted(&all), [true, false, false, false, false]);
    // It is about to give back what it holds, whatever it says meanwhile.
    all[0].set(part + 1);
    assert_eq!(evicted(&all), [true, false, false, false, false]);
    all[4].set(part * 2);
    assert_eq!(evicted(&all), [true, false, false, false, true]);
    all[4].set(0);
    all[0].set(0);
    assert_eq!(holdings.own(), 3 * part + part / 8);
    drop(all);
    assert_eq!(holdings.own(), 0);
    assert_eq!(holdings.leaving.get(), 0);
}

#[test]
fn tunnels_read_less_where_too_much_is_held_and_go_only_while_they_stand_still() {
    let holdings = holdings(&Arc::default());
    let deadline = Deadline::new();
    let part = MAX / 2;
    let mut all = [(); 3].map(|()| {
        let mut held = holdings.connection();
        held.watch_tunnel(&deadline);
        held
    });
    assert_eq!(all[0].room(), BUFFER_BYTES);
    all[0].set(part);
    all[1].set(part);
    assert_eq!(all[2].room(), BUFFER_BYTES);
    all[2].set(1);
    assert_eq!(all[2].room(), TUNNEL_BYTES);
    all[2].set(part);
    assert_eq!(all[2].room(), 0);
    assert!(
        !all.iter().any(HeldBytes::is_evicted),
        "they have just come"
    );
    (0..TICKS_MIN).for_each(|_| tick());
    all[0].get_on();
    holdings.relieve();
    let evicted = all.each_ref().map(HeldBytes::is_evicted);
    assert_eq!(evicted, [false, true, false]);
    assert_eq!(all[0].room(), BUFFER_BYTES);
    drop(all);
    assert_eq!((holdings.own(), holdings.leaving.get()), (0, 0));
}

fn half_a_head(holdings: &Rc<Holdings>, deadline: &Deadline, bytes: usize) -> HeldBytes {
    let mut held = holdings.connection();
    held.watch_head(deadline);
    held.set(bytes);
    held
}

#[test]
fn half_a_head_goes_for_the_next_one_and_first_of_those_that_are_longest() {
    let holdings = holdings(&Arc::default());
    let deadline = Deadline::new();
    let mut rest = holdings.connection();
    rest.set(MAX);
    let sizes = [16, 32, 16, 32].map(|size| size << 10);
    let all = sizes.map(|bytes| half_a_head(&holdings, &deadline, bytes));
    let evicted = || all.each_ref().map(HeldBytes::is_evicted);
    // Beyond the bound there is room for what is little, and nobody goes by himself.
    assert_eq!(evicted(), [false; 4]);
    let next = half_a_head(&holdings, &deadline, 16 << 10);
    assert!(next.exchange());
    assert_eq!(evicted(), [false, true, false, false]);
    assert!(next.exchange() && next.exchange());
    assert_eq!(evicted(), [true, true, false, true]);
    // It goes itself where it is the one that is longest.
    let long = half_a_head(&holdings, &deadline, 64 << 10);
    assert!(!long.exchange() && long.is_evicted());
    assert_eq!(evicted(), [true, true, false, true]);
    drop((rest, all, next, long));
    assert_eq!((holdings.own(), holdings.leaving.get()), (0, 0));
}

#[test]
fn half_heads_go_until_no_more_is_held_for_nobody_than_may_be() {
    let holdings = holdings(&Arc::default());
    let deadline = Deadline::new();
    let each = 16 << 10;
    let fit = MAX / each;
    let all = Vec::from_iter((0..fit + 3).map(|_| half_a_head(&holdings, &deadline, each)));
    assert_eq!(holdings.excess_of_nobody(), 3 * each);
    holdings.relieve_of_heads();
    let evicted = all.iter().filter(|it| it.is_evicted()).count();
    assert_eq!((evicted, holdings.excess_of_nobody()), (3, 0));
    assert!(all[..3].iter().all(HeldBytes::is_evicted));
    // What is held for a namespace is no reason to.
    let mut much = holdings.connection();
    much.belong([1, 2]);
    much.set(2 * MAX);
    holdings.relieve_of_heads();
    assert_eq!(all.iter().filter(|it| it.is_evicted()).count(), 3);
}

#[test]
fn a_head_that_is_whole_has_to_go_no_more() {
    let holdings = holdings(&Arc::default());
    let deadline = Deadline::new();
    let mut all = [(); 2].map(|()| half_a_head(&holdings, &deadline, 64 << 10));
    all[0].unwatch();
    let next = half_a_head(&holdings, &deadline, 64 << 10);
    assert!(next.exchange());
    let evicted = all.each_ref().map(HeldBytes::is_evicted);
    assert_eq!(evicted, [false, true]);
    assert_eq!(holdings.own(), 3 * (64 << 10));
    // It came whole in time, and what it holds is no longer on its way out.
    all[1].unwatch();
    assert_eq!((all[1].is_evicted(), holdings.leaving.get()), (false, 0));
    drop((all, next));
    assert_eq!((holdings.own(), holdings.leaving.get()), (0, 0));
}

#[test]
fn what_a_connection_counts_for_its_tunnel_is_counted_once() {
    let holdings = holdings(&Arc::default());
    let deadline = Deadline::new();
    let mut connection = holdings.connection();
    connection.set(MAX);
    let mut tunnel = holdings.counted();
    tunnel.watch_tunnel(&deadline);
    tunnel.set(MAX);
    assert_eq!(holdings.own(), MAX);
    connection.set(MAX + MAX / 2);
    (0..TICKS_MIN).for_each(|_| tick());
    holdings.relieve();
    assert!(tunnel.is_evicted());
    drop(tunnel);
    connection.set(0);
    assert_eq!((holdings.own(), holdings.leaving.get()), (0, 0));
}

#[test]
fn a_namespace_beyond_its_share_gets_no_more_and_gives_way_for_others() {
    const A: [u16; 2] = [1, 2];
    const B: [u16; 2] = [3, 4];
    let holdings = holdings(&Arc::default());
    let deadline = Deadline::new();
    let mut much = holding(&holdings, &deadline, MAX);
    let mut some = holding(&holdings, &deadline, MAX / 8);
    much.belong(A);
    some.belong(B);
    assert!(holdings.is_over() && !much.may_grow() && some.may_grow());
    assert_eq!(holdings.heaviest(), Some(1));
    // One that holds little gets a little even beyond the last quarter.
    much.set(MAX + MAX / 8);
    assert!(holdings.admits([5, 6], 0) && !holdings.admits(A, 0));
    some.set(MAX / 8 + LITTLE_BYTES);
    assert!(much.is_evicted() && !some.is_evicted());
    drop(much);
    assert_eq!(holdings.held(A), 0);
    assert_eq!(holdings.held(B), MAX / 8 + LITTLE_BYTES);
    drop(some);
    assert_eq!(holdings.pressure.spaces.active(), 0);
}

#[test]
fn workers_share_one_bound_and_half_of_the_budget() {
    let pressure = Arc::new(Pressure::new(Some(MAX as u64)));
    let [first, second] = [(); 2].map(|()| holdings(&pressure));
    let mut held = first.connection();
    held.set(MAX / 2 + 1);
    assert!(first.is_over() && second.is_over());
    // Less than a step is told to nobody.
    held.set(MAX / 2 + 1 - STEP_BYTES / 2);
    assert!(!first.is_over() && second.is_over());
    drop((held, first));
    assert_eq!(pressure.held(), 0);
    assert!(!second.is_over());
}
