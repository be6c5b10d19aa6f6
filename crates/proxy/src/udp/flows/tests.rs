use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::super::flow::{DatagramFlow, FlowEnding, Sent, WAITING_BYTES_MAX, WAITING_MAX};
use super::{Flows, LOOKS_MAX};
use crate::admission::share::{Owner, Shares};
use crate::route::downstream_connection::DownstreamConnection;

/// A flow that leads nowhere yet.
fn flow(client: &str) -> Rc<DatagramFlow> {
    let shares = Rc::new(Shares::new(64, Arc::default()));
    let visit = DownstreamConnection::new("dns".into(), client.parse().unwrap(), 53);
    let share = shares.take(Owner::default(), 0).unwrap();
    let timeout = Duration::from_secs(1);
    Rc::new(DatagramFlow::new(visit, share, Rc::default(), timeout))
}

/// Flows of clients.
fn flows(clients: &[&str]) -> (Flows, Vec<Rc<DatagramFlow>>) {
    let (mut flows, all): (_, Vec<_>) = (
        Flows::default(),
        clients.iter().map(|client| flow(client)).collect(),
    );
    all.iter().for_each(|flow| flows.enter(flow.clone()));
    (flows, all)
}

fn evicted(flows: &mut Flows) -> String {
    let evicted = flows.evict();
    evicted.map_or("-".into(), |flow| flow.client().to_string())
}

const OTHER: &str = "192.0.2.1:5000";
const MANY: [&str; 5] = [
    "198.51.100.7:1",
    "198.51.100.7:2",
    "198.51.100.7:3",
    "198.51.100.7:4",
    "198.51.100.7:5",
];

#[test]
fn the_oldest_of_the_source_that_has_most_goes_for_another() {
    let (mut flows, _all) = flows(&[&[OTHER][..], &MANY].concat());
    for client in &MANY[..4] {
        assert_eq!(evicted(&mut flows), *client);
    }
    // Both have one, so that the older goes.
    assert_eq!(evicted(&mut flows), OTHER);
    assert_eq!(evicted(&mut flows), MANY[4]);
    assert_eq!(evicted(&mut flows), "-");
    assert!(flows.is_empty());
}

#[test]
fn a_flow_whose_endpoint_has_answered_stays_for_once() {
    let (mut flows, all) = flows(&MANY);
    all[0].note_answer(1);
    assert_eq!(evicted(&mut flows), MANY[1]);
    assert_eq!(evicted(&mut flows), MANY[2]);
    assert_eq!(evicted(&mut flows), MANY[3]);
    assert_eq!(evicted(&mut flows), MANY[4]);
    assert_eq!(evicted(&mut flows), MANY[0]);
}

#[test]
fn where_all_were_answered_one_goes_after_a_few_looks() {
    let (mut flows, all) = flows(&MANY);
    all.iter().for_each(|flow| flow.note_answer(1));
    assert_eq!(evicted(&mut flows), MANY[LOOKS_MAX - 1]);
    assert!(flows.get(MANY[0].parse().unwrap()).is_some());
}

#[test]
fn what_a_former_flow_does_says_nothing_of_the_one_after_it() {
    let (mut flows, all) = flows(&[OTHER]);
    assert_eq!(evicted(&mut flows), OTHER);
    let next = flow(OTHER);
    flows.enter(next.clone());
    flows.leave(&all[0]);
    let found = flows.get(next.client()).unwrap();
    assert!(Rc::ptr_eq(&found, &next));
    flows.leave(&next);
    flows.leave(&next);
    assert!(flows.is_empty());
}

#[test]
fn little_waits_until_a_flow_leads_somewhere() {
    let all: Rc<Cell<usize>> = Rc::default();
    let shares = Rc::new(Shares::new(1_024, Arc::default()));
    let flow = || {
        let visit = DownstreamConnection::new("dns".into(), OTHER.parse().unwrap(), 53);
        let share = shares.take(Owner::default(), 0).unwrap();
        DatagramFlow::new(visit, share, Rc::clone(&all), Duration::from_secs(1))
    };
    let first = flow();
    for _ in 0..WAITING_MAX {
        assert_eq!(first.send(b"x"), Sent::Yes);
    }
    assert_eq!(first.send(b"x"), Sent::Dropped);
    let longest = vec![0; 65_507];
    let others: Vec<_> = (0..64).map(|_| flow()).collect();
    let sent = others.iter().filter(|it| it.send(&longest) == Sent::Yes);
    assert_eq!(sent.count(), WAITING_BYTES_MAX / longest.len());
    assert!(all.get() <= WAITING_BYTES_MAX);
    // What has ended makes room, and takes nothing any more.
    first.end(FlowEnding::Removed);
    others.iter().for_each(|it| it.end(FlowEnding::Evicted));
    assert_eq!(all.get(), 0);
    assert_eq!(first.send(b"x"), Sent::Dropped);
}
