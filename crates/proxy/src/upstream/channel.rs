//! Connections of HTTP/2 to endpoints, each of which carries many requests at a time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use h2::client::{Builder, SendRequest};
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use tokio::sync::Notify;

use super::link::{LinkKey, Links};
use crate::balance::Target;
use crate::net::count::Count;
use crate::net::failure::{Failure, FailureKind, Retry};
use crate::net::limits::Limits;
use crate::net::local::Shared;

/// The most bytes of a request that wait for the endpoint's window.
pub const WAITING_BYTES_MAX: usize = 64 << 10;

/// The most connections of one worker to one endpoint. Beyond, requests wait for a stream of one
/// of them.
const CHANNELS_MAX: usize = 16;

/// The most requests that one connection carries at a time, where its endpoint takes more.
const STREAMS_MAX: usize = 128;

/// The connections of one worker that carry many requests at a time.
pub struct Channels {
    local: Shared,
    shelves: RefCell<HashMap<LinkKey, Rc<Shelf>, RandomState>>,
}

/// The connections to one endpoint.
struct Shelf {
    /// Gone when no table and no request knows the endpoint any more.
    target: Weak<Target>,
    channels: RefCell<Vec<Rc<Channel>>>,
    /// Whether somebody opens one, which others may wait for.
    is_opening: Cell<bool>,
    opened: Notify,
}

struct Channel {
    send: SendRequest<Bytes>,
    /// Requests that it carries.
    active: Cell<usize>,
    /// When it last had nothing to carry.
    idle_since: Cell<Instant>,
    /// Whether it takes no more requests. Its task says so too, at its end.
    is_closed: Rc<Cell<bool>>,
}

/// Room for one request on a connection; given back when it is dropped.
pub struct Place {
    channel: Rc<Channel>,
    /// Takes the request.
    pub send: SendRequest<Bytes>,
    /// Whether the connection has carried a request before.
    pub is_reused: bool,
}

/// Lets others open where this one has ended, however it did.
struct Opening(Rc<Shelf>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.is_opening.set(false);
        self.0.opened.notify_waiters();
    }
}

impl Channels {
    /// No connections.
    pub fn new(local: Shared) -> Self {
        Channels {
            local,
            shelves: RefCell::default(),
        }
    }

    /// Room for a request: on a connection that has some, or else on a new one. `host` is what a
    /// TLS handshake names where the upstream names nothing.
    ///
    /// # Errors
    /// A failure that may be tried again elsewhere: nothing was sent.
    pub async fn take(
        &self,
        links: &Links,
        target: &Arc<Target>,
        host: &str,
        timeout: Duration,
    ) -> Result<Place, Failure> {
        let shelf = self.shelf(target, host);
        if let Some(place) = shelf.find() {
            self.local.counts.add(Count::UpstreamReused);
            return Ok(place);
        }
        let opened = tokio::time::timeout(timeout, self.open(&shelf, links, target, host)).await;
        let late = Failure::of(FailureKind::ConnectTimeout).retry(Retry::Yes);
        opened.unwrap_or(Err(late))
    }

    /// Drops connections that carried nothing for too long, and those to endpoints that are gone.
    /// What they still carry ends first.
    pub fn sweep(&self) {
        let now = clock::now();
        let timeout = self.local.limits.upstream_idle_timeout;
        self.shelves.borrow_mut().retain(|_, shelf| {
            let is_known = shelf.target.strong_count() > 0;
            let mut channels = shelf.channels.borrow_mut();
            channels.retain(|channel| {
                let is_idle = now.duration_since(channel.idle_since.get()) >= timeout;
                is_known && !channel.is_closed.get() && (channel.active.get() > 0 || !is_idle)
            });
            shelf.is_opening.get() || !channels.is_empty()
        });
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        let shelves = self.shelves.borrow();
        let lengths = shelves.values().map(|shelf| shelf.channels.borrow().len());
        lengths.sum()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops all connections, once they carry nothing any more.
    pub fn clear(&self) {
        self.shelves.borrow_mut().clear();
    }

    fn shelf(&self, target: &Arc<Target>, host: &str) -> Rc<Shelf> {
        let key = LinkKey::new(target, host);
        let mut shelves = self.shelves.borrow_mut();
        let shelf = shelves.entry(key).or_insert_with(|| {
            Rc::new(Shelf {
                target: Arc::downgrade(target),
                channels: RefCell::default(),
                is_opening: Cell::new(false),
                opened: Notify::new(),
            })
        });
        shelf.clone()
    }

    async fn open(
        &self,
        shelf: &Rc<Shelf>,
        links: &Links,
        target: &Target,
        host: &str,
    ) -> Result<Place, Failure> {
        loop {
            if let Some(place) = shelf.find() {
                return Ok(place);
            }
            if !shelf.is_opening.get() {
                break;
            }
            // Made before anything is awaited, so that no news is missed.
            shelf.opened.notified().await;
        }
        shelf.is_opening.set(true);
        let _opening = Opening(shelf.clone());
        let stream = links.open(target, host).await?.stream;
        let handshake = builder(&self.local.limits).handshake(stream).await;
        let failed = Failure::of(FailureKind::ConnectFailed).retry(Retry::Yes);
        let (send, connection) = handshake.map_err(|_| failed)?;
        let is_closed = Rc::new(Cell::new(false));
        let channel = Rc::new(Channel {
            send,
            active: Cell::new(0),
            idle_since: Cell::new(clock::now()),
            is_closed: is_closed.clone(),
        });
        task::spawn_local("channel", async move {
            // What it ended with is told to each of its streams.
            let _ = connection.await;
            is_closed.set(true);
        });
        shelf.channels.borrow_mut().push(channel.clone());
        Ok(channel.place(false))
    }
}

impl Shelf {
    /// Room on a connection that is there. Where all are full and no more may be opened, room on
    /// the least busy one, which the request waits for.
    fn find(&self) -> Option<Place> {
        let mut channels = self.channels.borrow_mut();
        loop {
            let free = channels.iter().position(|channel| channel.has_room());
            let index = match free {
                Some(index) => index,
                None if channels.len() < CHANNELS_MAX => return None,
                None => {
                    let load = |index: &usize| channels.get(*index).map(|c| c.active.get());
                    (0..channels.len()).min_by_key(load)?
                }
            };
            let channel = channels.get(index)?;
            if channel.is_open() {
                return Some(channel.place(true));
            }
            channels.swap_remove(index);
        }
    }
}

impl Channel {
    fn has_room(&self) -> bool {
        let bound = self.send.current_max_send_streams().min(STREAMS_MAX);
        self.active.get() < bound
    }

    /// Whether it takes requests. An endpoint that goes away says so before it closes.
    fn is_open(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let polled = self.send.clone().poll_ready(&mut context);
        !self.is_closed.get() && !matches!(polled, Poll::Ready(Err(_)))
    }

    fn place(self: &Rc<Self>, is_reused: bool) -> Place {
        self.active.set(self.active.get() + 1);
        Place {
            channel: self.clone(),
            send: self.send.clone(),
            is_reused,
        }
    }
}

impl Place {
    /// The connection takes no more requests.
    pub fn retire(&self) {
        self.channel.is_closed.set(true);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let channel = &self.channel;
        channel.active.set(channel.active.get() - 1);
        channel.idle_since.set(clock::now());
    }
}

fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_header_list_size(u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_reset_streams(limits.resets_max)
        .max_local_error_reset_streams(Some(limits.resets_max))
        .max_send_buffer_size(WAITING_BYTES_MAX);
    builder
}
