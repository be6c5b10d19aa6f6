use std::cell::Cell;
use std::rc::Rc;
use std::sync::Weak;
use std::time::Duration;

use ::h2::client::Connection;
use bytes::Bytes;
use myriad_base::clock;
use tokio::io::DuplexStream;

use super::{CONNECTIONS_MAX, H2Connection, H2Stream, LOOKS, Shelf};

/// A shelf, and its connections as the library drives them.
struct Shown {
    shelf: Rc<Shelf>,
    connections: Vec<Rc<H2Connection>>,
    driven: Vec<(Connection<DuplexStream, Bytes>, DuplexStream)>,
}

impl Shown {
    /// So many connections, each with so many streams.
    async fn new(count: usize, offered: usize) -> Self {
        let mut shown = Shown {
            shelf: Rc::new(Shelf::new(Weak::new())),
            connections: Vec::new(),
            driven: Vec::new(),
        };
        for _ in 0..count {
            shown.add(offered).await;
        }
        shown
    }

    async fn add(&mut self, offered: usize) {
        let (near, far) = tokio::io::duplex(1 << 10);
        let (send, driven) = ::h2::client::handshake(near).await.unwrap();
        let now = clock::now();
        let connection = Rc::new(H2Connection {
            send,
            state: Rc::default(),
            shelf: Rc::downgrade(&self.shelf),
            place: Cell::new(None),
            counts_streamless: Cell::new(false),
            idle_since: Cell::new(now),
            idle: Cell::new(None),
            owner: 1,
            all_idle: Rc::default(),
            opened: now,
            left: Cell::new(u32::MAX),
            streams_max: 4,
            idle_timeout: Duration::MAX,
            time_max: Duration::ZERO,
            _held: None,
        });
        connection.state.offered.set(offered);
        self.shelf.add(connection.clone());
        self.connections.push(connection);
        self.driven.push((driven, far));
    }

    fn offer(&self, index: usize, offered: usize) {
        self.connections[index].state.offered.set(offered);
        self.connections[index].note();
    }

    /// The shelf says what is so.
    fn check(&self) {
        let all = self.shelf.connections.borrow();
        for (place, connection) in all.all.iter().enumerate() {
            assert_eq!(connection.place.get(), Some(place));
            assert_eq!(connection.has_room(), place < all.roomy);
            assert!(!connection.is_spent());
        }
        let streamless = all.all.iter().filter(|it| it.is_streamless()).count();
        assert_eq!(all.streamless, streamless);
        let there = self.connections.iter();
        let there = there.filter(|it| it.place.get().is_some()).count();
        assert_eq!(all.all.len(), there);
    }
}

/// Each of them was looked at for each stream, and again for those without any.
#[tokio::test]
async fn a_stream_is_found_with_one_look_however_many_connections_are_full() {
    let shown = Shown::new(1_000, 1).await;
    let find = || shown.shelf.find();
    let mut streams: Vec<H2Stream> = (0..1_000).map_while(|_| find()).collect();
    assert_eq!((streams.len(), shown.shelf.looks()), (1_000, 1_000));
    assert!(find().is_none());
    assert_eq!(shown.shelf.looks(), 1_001);
    drop(streams.swap_remove(500));
    streams.extend(find());
    assert_eq!((streams.len(), shown.shelf.looks()), (1_000, 1_002));
    shown.check();
}

#[tokio::test]
async fn where_all_are_full_and_no_more_may_be_opened_a_few_are_looked_at() {
    let shown = Shown::new(CONNECTIONS_MAX, 1).await;
    let mut streams: Vec<H2Stream> = Vec::new();
    for _ in 0..2 * CONNECTIONS_MAX {
        streams.extend(shown.shelf.find());
    }
    assert_eq!(streams.len(), 2 * CONNECTIONS_MAX);
    // Whoever has fewer than others gets the next one.
    let active = shown.connections.iter().map(|it| it.state.active.get());
    assert_eq!(active.max(), Some(2));
    assert!(shown.shelf.looks() <= CONNECTIONS_MAX * (LOOKS + 2));
    shown.check();
}

#[tokio::test]
async fn connections_without_streams_are_counted_and_go_once_they_carry_nothing() {
    let shown = Shown::new(3, 1).await;
    let streams = [(); 3].map(|()| shown.shelf.find());
    (0..3).for_each(|index| shown.offer(index, 0));
    assert_eq!((shown.shelf.streamless(), shown.shelf.len()), (3, 3));
    shown.offer(1, 2);
    assert_eq!(shown.shelf.streamless(), 2);
    shown.connections[0].state.is_closed.set(true);
    shown.connections[0].note();
    assert_eq!((shown.shelf.streamless(), shown.shelf.len()), (1, 3));
    drop(streams);
    assert_eq!((shown.shelf.streamless(), shown.shelf.len()), (0, 1));
    shown.check();
}

/// Numbers that only look random (xorshift).
fn next(number: &mut usize) -> usize {
    *number ^= *number << 13;
    *number ^= *number >> 7;
    *number ^= *number << 17;
    *number >> 5
}

#[tokio::test]
async fn those_with_room_come_first_whatever_happens() {
    let mut shown = Shown::new(20, 2).await;
    let mut streams: Vec<H2Stream> = Vec::new();
    let mut number = 0x6d79_7269;
    for _ in 0..5_000 {
        let drawn = next(&mut number);
        let index = drawn % shown.connections.len();
        match drawn >> 20 & 7 {
            0..=2 => streams.extend(shown.shelf.find()),
            3 | 4 if !streams.is_empty() => drop(streams.swap_remove(drawn % streams.len())),
            5 => shown.offer(index, drawn >> 30 & 3),
            6 if drawn >> 30 & 15 == 0 => {
                let gone = shown.connections[index].clone();
                shown.shelf.retain(|it| !std::ptr::eq(it, &*gone));
            }
            7 if drawn >> 30 & 15 == 0 => shown.add(2).await,
            _ => {}
        }
        shown.check();
    }
    assert!(shown.connections.len() > 20);
}
