//! Requests that wait for a connection of an upstream that bears only so many: for each connection
//! one is woken, and one whose client has gone waits no longer.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use myriad_model::UpstreamOptions;
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, unconstrained, yield_now};

use super::floods::frame;
use super::held::{GET, ask, begin, id};
use super::memory::{serve_by, swallowing, worker};
use super::upstreams::{put_with, world_of};
use super::world::{PATIENCE, World};
use crate::admission::spaces::PLACES;
use crate::admission::waiting::{TICKS_MIN, give_way_of};
use crate::balance::usage::{Usage, UsageKind};
use crate::balance::{Endpoint, TransportSettings};
use crate::codec::proxy_header::Ends;
use crate::failure::Failure;
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::net::deadline::tick;
use crate::upstream::dial::{Credentials, Dial};
use crate::upstream::entry::{UpstreamEntry, hash_of};

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A request that wants a connection, or a stream, and how often it was woken.
struct Wanting<'a, T> {
    reaching: Pin<Box<dyn Future<Output = Result<T, Failure>> + 'a>>,
    woken: Arc<Woken>,
}

impl<'a, T> Wanting<'a, T> {
    /// One that waits in line.
    fn new(reaching: impl Future<Output = Result<T, Failure>> + 'a) -> Self {
        let mut wanting = Wanting {
            reaching: Box::pin(unconstrained(reaching)),
            woken: Arc::default(),
        };
        assert!(wanting.poll().is_pending());
        assert_eq!(wanting.woken(), 0);
        wanting
    }

    fn poll(&mut self) -> Poll<Result<T, Failure>> {
        let waker = Waker::from(self.woken.clone());
        self.reaching
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Relaxed)
    }
}

fn woken<T>(all: &[Wanting<'_, T>]) -> usize {
    all.iter().map(Wanting::woken).sum()
}

fn upstream(world: &World) -> Arc<UpstreamEntry> {
    let tables = world.proxy.tables();
    tables.upstream(hash_of("u"), &"u".into()).unwrap().clone()
}

/// How many requests wait in front of a place.
const WAITING: usize = 100;

/// A worker, and an endpoint that takes connections and answers nothing.
struct Crowd {
    worker: Rc<Worker>,
    upstream: Arc<UpstreamEntry>,
    target: Arc<Endpoint>,
    credentials: Credentials,
    _listener: TcpListener,
}

impl Crowd {
    /// One whose upstream bears so many connections, in its world.
    async fn bearing(connections_max: u32) -> (World, Crowd) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bear = |options: &mut UpstreamOptions| options.limits.connections_max = connections_max;
        let world = world_of(&[address], bear);
        let place = Crowd {
            worker: worker(&world, Limits::default()),
            upstream: upstream(&world),
            target: Arc::new(Endpoint::new(address, TransportSettings::shared(None))),
            credentials: Credentials::default(),
            _listener: listener,
        };
        (world, place)
    }

    fn dial(&self) -> Dial<'_> {
        Dial {
            target: &self.target,
            upstream: &self.upstream,
            host: "a.example",
            credentials: &self.credentials,
            is_stream: false,
            is_upgrade: false,
            ends: Ends::of(self.target.address, 80),
            timeout: PATIENCE,
            patience: PATIENCE,
        }
    }
}

/// Each place that was freed woke all of them.
#[tokio::test]
async fn of_streams_that_wait_for_a_connection_one_is_woken() {
    let (_world, place) = Crowd::bearing(1).await;
    let (pool, upstream, dial) = (&place.worker.h1_pool, &place.upstream, place.dial());
    let other = pool.reach(&dial, true).await.unwrap();
    let waiting = (0..WAITING).map(|_| Wanting::new(place.worker.h2_pool.take(pool, &dial)));
    let mut waiting: Vec<_> = waiting.collect();
    drop(other);
    assert_eq!((waiting[0].woken(), woken(&waiting)), (1, 1));
    // Who has gone leaves the place to the next one, who has it at once.
    drop(waiting.remove(0));
    assert_eq!((waiting[0].woken(), woken(&waiting)), (1, 1));
    let opening = waiting[0].poll();
    assert!(opening.is_pending());
    assert_eq!(upstream.usage.count(UsageKind::Connections), 1);
    assert_eq!(woken(&waiting[1..]), 0);
    drop(waiting);
    assert_eq!(upstream.usage.count(UsageKind::Pending), 0);
    assert_eq!(upstream.usage.count(UsageKind::Connections), 0);
}

#[tokio::test]
async fn for_each_connection_that_is_kept_or_freed_one_request_is_woken() {
    let (_world, place) = Crowd::bearing(2).await;
    let (pool, upstream, dial) = (&place.worker.h1_pool, &place.upstream, place.dial());
    let other = pool.reach(&dial, true).await.unwrap();
    let mut kept = pool.reach(&dial, true).await.unwrap();
    let waiting = (0..WAITING).map(|_| Wanting::new(pool.reach(&dial, true)));
    let mut waiting: Vec<_> = waiting.collect();
    for number in 0..WAITING / 2 {
        pool.keep(kept, &dial);
        assert_eq!(woken(&waiting), number + 1);
        // The first that has come has it.
        let Poll::Ready(Ok(next)) = waiting[number].poll() else {
            panic!("no connection for {number}");
        };
        assert!(next.is_reused);
        kept = next;
    }
    drop(other);
    assert_eq!(woken(&waiting), WAITING / 2 + 1);
    // Who has gone since hands it on.
    assert_eq!(waiting.remove(WAITING / 2).woken(), 1);
    assert_eq!(woken(&waiting), WAITING / 2 + 1);
    assert_eq!(waiting[WAITING / 2].woken(), 1);
    assert_eq!(upstream.usage.count(UsageKind::Connections), 1);
    // It opens one of its own, in the place that it was told of, and nobody else is told.
    let opening = waiting[WAITING / 2].poll();
    assert_eq!(upstream.usage.count(UsageKind::Connections), 2);
    let others = &waiting[WAITING / 2 + 1..];
    assert_eq!(woken(others), 0);
    drop((waiting, opening));
    assert_eq!(upstream.usage.count(UsageKind::Pending), 0);
    assert_eq!(upstream.usage.count(UsageKind::Connections), 1);
}

/// They waited until their patience ended, or a connection was freed.
#[tokio::test]
async fn as_many_requests_are_woken_as_a_greater_bound_has_room_for() {
    let (mut world, place) = Crowd::bearing(1).await;
    // Requests go on with the upstream as it was when they came.
    let (pool, upstream, dial) = (&place.worker.h1_pool, &place.upstream, place.dial());
    let _held = pool.reach(&dial, true).await.unwrap();
    let waiting = (0..WAITING).map(|_| Wanting::new(pool.reach(&dial, true)));
    let mut waiting: Vec<_> = waiting.collect();
    let address = place.target.address;
    let mut bear = |max| put_with(&mut world, &[address], |it| it.limits.connections_max = max);
    bear(1);
    assert_eq!(woken(&waiting), 0);
    bear(4);
    assert_eq!((woken(&waiting[..3]), woken(&waiting)), (3, 3));
    let opening: Vec<_> = waiting.iter_mut().take(3).map(Wanting::poll).collect();
    assert_eq!(upstream.usage.count(UsageKind::Connections), 4);
    bear(2);
    // There is no more room than there was: four are in use.
    bear(4);
    assert_eq!(woken(&waiting[3..]), 0);
    bear(5);
    assert_eq!((waiting[3].woken(), woken(&waiting[3..])), (1, 1));
    let last = waiting[3].poll();
    assert_eq!(upstream.usage.count(UsageKind::Connections), 5);
    // Without a bound nobody waits.
    bear(0);
    assert_eq!(woken(&waiting[4..]), WAITING - 4);
    drop((waiting, opening, last));
    assert_eq!(upstream.usage.count(UsageKind::Pending), 0);
    assert_eq!(upstream.usage.count(UsageKind::Connections), 1);
}

/// A worker whose only connection to an endpoint is taken by a request that is never answered.
struct Taken {
    worker: Rc<Worker>,
    upstream: Arc<UpstreamEntry>,
    _world: World,
    _holder: TcpStream,
}

impl Taken {
    async fn new() -> Self {
        let (endpoint, read): (SocketAddr, _) = swallowing().await;
        let world = world_of(&[endpoint], |options| options.limits.connections_max = 1);
        let worker = worker(&world, Limits::default());
        let mut holder = begin(&worker, 255).await;
        ask(&mut holder, 1, 5, GET).await;
        until(|| read.get() > 0).await;
        Taken {
            worker,
            upstream: upstream(&world),
            _world: world,
            _holder: holder,
        }
    }

    fn usage(&self) -> &Usage {
        &self.upstream.usage
    }

    /// Waits until so many requests wait for a connection, and beside them the one is served.
    async fn until_waiting(&self, count: usize) {
        let requests = &self.worker.local.fairness.requests;
        let waiting = || self.usage().count(UsageKind::Pending) as usize;
        until(|| (waiting(), requests.held()) == (count, count + 1)).await;
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let reached = async {
        while !is_so() {
            yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap();
}

#[tokio::test]
async fn a_request_that_waits_for_a_connection_ends_with_its_client() {
    const STREAMS: usize = 64;
    let story = async {
        let taken = Taken::new().await;
        let mut client = begin(&taken.worker, 255).await;
        ask(&mut client, STREAMS, 5, GET).await;
        taken.until_waiting(STREAMS).await;
        let reset = frame(3, 0, id(0), &[0, 0, 0, 8]);
        client.write_all(&reset).await.unwrap();
        taken.until_waiting(STREAMS - 1).await;
        drop(client);
        taken.until_waiting(0).await;
        // So it is with HTTP/1.
        let mut client = serve_by(&taken.worker).await;
        let get = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        client.write_all(get).await.unwrap();
        taken.until_waiting(1).await;
        let linger = Some(Duration::ZERO);
        SockRef::from(&client).set_linger(linger).unwrap();
        drop(client);
        taken.until_waiting(0).await;
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}

#[tokio::test]
async fn requests_that_wait_for_a_connection_make_room_as_others_do() {
    const STREAMS: usize = 8;
    let story = async {
        let taken = Taken::new().await;
        let mut client = begin(&taken.worker, 255).await;
        ask(&mut client, STREAMS, 5, GET).await;
        taken.until_waiting(STREAMS).await;
        (0..TICKS_MIN).for_each(|_| tick());
        let spaces = u16::try_from(PLACES).unwrap();
        let evict = || (0..spaces).find_map(give_way_of);
        // Those that wait, and the one that is served.
        assert_eq!(std::iter::from_fn(evict).count(), STREAMS + 1);
        until(|| taken.worker.local.fairness.requests.held() == 0).await;
        assert_eq!(taken.usage().count(UsageKind::Pending), 0);
    };
    Box::pin(LocalSet::new().run_until(story)).await;
}
