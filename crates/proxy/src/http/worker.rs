//! The state that the requests of one worker share.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use super::spans::Spans;
use crate::admission::places::Places;
use crate::local::Shared;
use crate::policy::answers::RememberedAnswers;
use crate::policy::token::Remembered;
use crate::route::tables::Tables;
use crate::upstream::h1_connection::H1Pool;
use crate::upstream::h2_connection::H2Pool;

/// How long a connection that shall end waits for another request, before a drain says so.
const LAST_CALL: Duration = Duration::from_secs(1);

/// The most copies in flight; beyond them requests are not copied.
const COPIES_MAX: usize = 256;

/// The most pages in place of errors; beyond them errors have none.
const PAGES_MAX: usize = 128;

/// The belongings of one worker, as requests see them.
pub struct Worker {
    /// Limits, counts, dice and log.
    pub local: Shared,
    /// The tables; a request loads the root once.
    pub tables: Arc<ArcSwap<Tables>>,
    /// The sender of spans.
    pub spans: Spans,
    /// Connections to endpoints.
    pub h1_pool: H1Pool,
    /// Connections to endpoints that carry many requests at a time.
    pub h2_pool: H2Pool,
    /// Connections of clients.
    pub connections: Cell<usize>,
    /// Copies of requests in flight.
    pub copies: Rc<Places>,
    /// Pages in place of errors, from the question until they are sent.
    pub pages: Rc<Places>,
    /// Tokens that were verified lately.
    pub tokens: Remembered,
    /// Answers of services that routes have asked.
    pub answers: RememberedAnswers,
    /// Whether connections shall end with the request they are in.
    is_draining: Cell<bool>,
    /// How long a connection that shall end waits for another request.
    last_call: Cell<Duration>,
}

impl Worker {
    /// A worker that has not served anything.
    pub fn new(local: Shared, tables: Arc<ArcSwap<Tables>>, spans: Spans) -> Self {
        let h1_pool = H1Pool::new(local.clone());
        Worker {
            h2_pool: H2Pool::new(local.clone(), &h1_pool),
            h1_pool,
            local,
            tables,
            spans,
            connections: Cell::new(0),
            copies: Places::new(COPIES_MAX),
            pages: Places::new(PAGES_MAX),
            tokens: Remembered::default(),
            answers: RememberedAnswers::default(),
            is_draining: Cell::new(false),
            last_call: Cell::new(LAST_CALL),
        }
    }

    /// Gives turns to handshakes, for as long as the worker runs.
    pub async fn give_turns(self: Rc<Self>) {
        self.local.turns.run(&self.local.fairness.handshakes).await;
    }

    /// Whether connections shall end with the request they are in.
    pub fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// Lets connections end with the request they are in, and idle ones with the next one,
    /// for which they wait as long as this.
    pub fn drain(&self, last_call: Duration) {
        self.is_draining.set(true);
        self.last_call.set(last_call);
        self.wake();
    }

    /// How long a connection that shall end waits for another request: its client may have sent
    /// one already.
    pub fn last_call(&self) -> Duration {
        self.last_call.get()
    }

    /// Makes idle connections look whether they shall end.
    pub fn wake(&self) {
        crate::net::deadline::wake_all();
    }
}
