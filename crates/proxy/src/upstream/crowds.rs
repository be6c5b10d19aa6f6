//! Endpoints that no port is free for.
//!
//! From each port there is one connection to an endpoint at a time, and for a minute after it was
//! closed here, unless both ends tell time by their packets, as nearly all do. So an endpoint that
//! is connected to very often may have used up all of them. Whoever connects to it then waits in
//! turn, by source, and tries once in a while; who connects elsewhere notices nothing. Whoever has
//! a port has had its turn: it waits for the endpoint in nobody's way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use foldhash::quality::RandomState;

use crate::net::deadline::TICK;
use crate::net::lane::{Lane, LaneBounds};

/// The most endpoints of a worker that connections wait for.
const CROWDS_MAX: usize = 1_024;

/// The bounds of the connections to one endpoint: one looks for a port at a time.
const CROWD: LaneBounds = LaneBounds {
    quick: 1,
    slow: 0,
    waiting: 1_024,
};

/// The crowded endpoints of one worker, by address; each is forgotten with the last that waits.
#[derive(Default)]
pub(super) struct Crowds(RefCell<HashMap<SocketAddr, Arc<Lane>, RandomState>>);

/// The place of one connection among those that wait for an endpoint.
struct Wait<'a> {
    crowds: &'a Crowds,
    address: SocketAddr,
    lane: Arc<Lane>,
}

impl Crowds {
    /// Whether somebody waits for an endpoint.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        let crowds = self.0.borrow();
        !crowds.is_empty() && crowds.contains_key(&address)
    }

    /// Begins a connection in the turn of who asks for it, as soon as a port is free. The turn is
    /// over once it has begun, and as soon as nobody waits the endpoint is forgotten here.
    ///
    /// # Errors
    /// Too many wait, or it cannot begin for another reason than that no port is free.
    pub(super) async fn begin<T>(
        &self,
        address: SocketAddr,
        asker: u64,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        let wait = self.join(address).ok_or_else(none_is_free)?;
        let turn = wait.lane.enter(asker).ok_or_else(none_is_free)?;
        // Whoever has most in line loses its youngest to others.
        let _turn = turn.await.map_err(|_| none_is_free())?;
        loop {
            match attempt() {
                Err(error) if is_taken(&error) => tokio::time::sleep(TICK).await,
                begun => return begun,
            }
        }
    }

    fn join(&self, address: SocketAddr) -> Option<Wait<'_>> {
        let mut crowds = self.0.borrow_mut();
        let has_room = crowds.len() < CROWDS_MAX || crowds.contains_key(&address);
        has_room.then(|| Wait {
            crowds: self,
            address,
            lane: crowds
                .entry(address)
                .or_insert_with(|| Arc::new(Lane::new(CROWD)))
                .clone(),
        })
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        // Its own, and that of the table: whoever else waits or has a turn has one too.
        if Arc::strong_count(&self.lane) <= 2 {
            self.crowds.0.borrow_mut().remove(&self.address);
        }
    }
}

/// Whether somebody listens at a port, or there is a connection from it to the same endpoint.
pub(super) fn is_taken(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable};
    matches!(error.kind(), AddrInUse | AddrNotAvailable)
}

/// The failure where no port is free.
pub(super) fn none_is_free() -> io::Error {
    io::ErrorKind::AddrNotAvailable.into()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::io;
    use std::net::SocketAddr;
    use std::pin::pin;
    use std::task::Poll;

    use futures_util::future::join_all;

    use super::{CROWD, CROWDS_MAX, Crowds, none_is_free};

    /// An endpoint with a number of ports that are free, and who got one.
    struct Ports {
        address: SocketAddr,
        free: Cell<usize>,
        order: RefCell<Vec<u64>>,
        tries: Cell<usize>,
    }

    impl Ports {
        fn none() -> Self {
            Ports {
                address: ([192, 0, 2, 1], 80).into(),
                free: Cell::new(0),
                order: RefCell::default(),
                tries: Cell::new(0),
            }
        }

        fn attempt(&self, asker: u64) -> io::Result<()> {
            self.tries.set(self.tries.get() + 1);
            let Some(left) = self.free.get().checked_sub(1) else {
                return Err(none_is_free());
            };
            self.free.set(left);
            self.order.borrow_mut().push(asker);
            Ok(())
        }

        async fn begin(&self, crowds: &Crowds, asker: u64) -> io::Result<()> {
            crowds
                .begin(self.address, asker, || self.attempt(asker))
                .await
        }
    }

    #[tokio::test]
    async fn whoever_connects_without_end_to_a_crowded_endpoint_waits_for_itself() {
        let (crowds, ports) = (Crowds::default(), Ports::none());
        assert!(!crowds.has(ports.address));
        let askers = (0..50).map(|_| 1).chain([2]);
        let all = askers.map(|asker| ports.begin(&crowds, asker));
        let mut all = pin!(join_all(all));
        // Nobody gets anything, and one alone tries.
        let polled = poll_fn(|context| Poll::Ready(all.as_mut().poll(context))).await;
        assert!(polled.is_pending() && crowds.has(ports.address));
        assert_eq!(ports.tries.get(), 1);
        ports.free.set(51);
        let opened = all.await;
        assert!(opened.iter().all(Result::is_ok));
        // One has the turn, one more of it is next, and then the other.
        assert_eq!(ports.order.borrow().get(..4), Some(&[1, 1, 2, 1][..]));
        assert!(!crowds.has(ports.address), "nobody waits any more");
    }

    #[tokio::test]
    async fn those_who_give_up_leave_their_turn_to_the_next() {
        let (crowds, ports) = (Crowds::default(), Ports::none());
        {
            let mut first = Box::pin(ports.begin(&crowds, 1));
            let mut second = Box::pin(ports.begin(&crowds, 2));
            for waiting in [&mut first, &mut second] {
                let polled = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
                assert!(polled.is_pending());
            }
            drop(first);
            ports.free.set(1);
            assert!(second.await.is_ok());
        }
        assert_eq!(*ports.order.borrow(), [2]);
        assert!(!crowds.has(ports.address));
    }

    #[tokio::test]
    async fn too_many_who_wait_and_too_many_endpoints_are_refused() {
        let (crowds, ports) = (Crowds::default(), Ports::none());
        // Any other failure is told as it is, and leaves nothing behind.
        let refused = || Err::<(), _>(io::ErrorKind::ConnectionRefused.into());
        let told = crowds.begin(ports.address, 1, refused).await;
        assert_eq!(told.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(!crowds.has(ports.address));
        let mut waiting = Vec::new();
        for _ in 0..=CROWD.waiting {
            let mut one = Box::pin(ports.begin(&crowds, 1));
            let polled = poll_fn(|context| Poll::Ready(one.as_mut().poll(context))).await;
            assert!(polled.is_pending());
            waiting.push(one);
        }
        assert!(ports.begin(&crowds, 1).await.is_err(), "its line is full");
        waiting.clear();
        assert!(!crowds.has(ports.address));
        let of = |number: usize| {
            let port = u16::try_from(number + 1).unwrap();
            SocketAddr::from(([192, 0, 2, 1], port))
        };
        let taken = || Err::<(), _>(none_is_free());
        let mut crowded = Vec::new();
        for number in 0..CROWDS_MAX {
            let mut one = Box::pin(crowds.begin(of(number), 1, taken));
            let polled = poll_fn(|context| Poll::Ready(one.as_mut().poll(context))).await;
            assert!(polled.is_pending());
            crowded.push(one);
        }
        assert!(crowds.begin(of(CROWDS_MAX), 1, taken).await.is_err());
    }
}
