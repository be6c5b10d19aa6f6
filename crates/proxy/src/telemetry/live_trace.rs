//! Requests whose way somebody asks to see, while they are served.
//!
//! Somebody orders the traces of a few requests, by their host, path and header fields. As long as
//! there is no order, a request costs one relaxed load more. Whatever an order takes is bounded:
//! how many there are, how many requests each takes and how fast, and the bytes of each record.
//! The records have no secrets, and are told at the admin address alone.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use myriad_base::clock::{self, Instant};

use crate::codec::head::Head;

mod record;
mod redact;
#[cfg(test)]
mod tests;
mod traced;

pub use record::{
    RequestTrace, StageOutcome, StageTrace, TraceReport, TracedHeader, TryTrace, WaitTrace,
};
pub use redact::is_secret_name;
pub use traced::{LiveRecord, TraceEnd, TraceSubject, TracedRequest};

/// The most orders that are kept.
const ORDERS_MAX: usize = 8;

/// The most requests of one order.
pub const REQUESTS_MAX: u32 = 50;

/// The longest time that an order takes requests.
const TIME_MAX: Duration = Duration::from_secs(600);

/// The most requests that are taken in one second, of all orders together.
const PER_SECOND_MAX: u64 = 10;

/// The most header fields of an order.
const HEADERS_MAX: usize = 8;

/// The most bytes of a host, a path, or a header field of an order.
const TEXT_BYTES_MAX: usize = 2 << 10;

/// How long the records of an order are kept once it is over.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The bits of the number of requests in [`Orders::pace`]; the second is above them.
const PACE_BITS: u32 = 8;

/// The requests that somebody wants to see. It cannot be printed, since a header may be a secret.
pub struct TraceOrder {
    /// The host in lower case, without port. `*.` in front stands for any names below.
    pub host: String,
    /// The start of the path.
    pub path: String,
    /// Header fields with their values; the request has all of them.
    pub headers: Vec<(String, String)>,
    /// How many requests are wanted.
    pub count: u32,
    /// How long they are waited for.
    pub time: Duration,
}

/// Why an order is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRefused {
    /// All places are taken by orders that are not over.
    Full,
    /// There is too much of something.
    TooLarge,
}

impl fmt::Display for OrderRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrderRefused::Full => write!(
                f,
                "{ORDERS_MAX} traces are under way already; come again when one is over"
            ),
            OrderRefused::TooLarge => write!(
                f,
                "a trace takes 1 to {REQUESTS_MAX} requests within 1 to {} seconds, by at most \
                 {HEADERS_MAX} headers, each text of at most {TEXT_BYTES_MAX} bytes",
                TIME_MAX.as_secs()
            ),
        }
    }
}

/// All orders of a process.
#[derive(Clone, Default)]
pub struct LiveTraces(Arc<Orders>);

#[derive(Default)]
struct Orders {
    /// How many of them take requests.
    open: AtomicUsize,
    all: ArcSwap<Vec<Arc<Order>>>,
    /// The number of the last one; whoever changes what there is holds it.
    last: Mutex<u64>,
    /// The second in which requests were taken last, and how many.
    pace: AtomicU64,
}

struct Order {
    id: u64,
    asked: TraceOrder,
    until: Instant,
    left: AtomicU32,
    is_closed: AtomicBool,
    passed_over: AtomicU64,
    taken: Mutex<Vec<TracedRequest>>,
}

impl LiveTraces {
    /// Whether any request is wanted.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) != 0
    }

    /// Takes requests from now on.
    ///
    /// # Errors
    /// There is no room, or too much is wanted.
    pub fn start(&self, asked: TraceOrder) -> Result<TraceReport, OrderRefused> {
        self.start_at(asked, clock::now())
    }

    fn start_at(&self, asked: TraceOrder, now: Instant) -> Result<TraceReport, OrderRefused> {
        asked.check()?;
        let mut last = held(&self.0.last);
        let mut all = self.rest(now);
        if all.len() >= ORDERS_MAX {
            let over = all.iter().position(|order| order.is_closed());
            all.remove(over.ok_or(OrderRefused::Full)?);
        }
        *last += 1;
        let order = Arc::new(Order {
            id: *last,
            until: now + asked.time,
            left: AtomicU32::new(asked.count),
            asked,
            is_closed: AtomicBool::new(false),
            passed_over: AtomicU64::new(0),
            taken: Mutex::default(),
        });
        all.push(order.clone());
        self.0.all.store(Arc::new(all));
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Ok(order.report(now))
    }

    /// The findings of an order, while they are kept.
    pub fn report(&self, id: u64) -> Option<TraceReport> {
        self.report_at(id, clock::now())
    }

    fn report_at(&self, id: u64, now: Instant) -> Option<TraceReport> {
        let all = self.kept(now);
        let order = all.iter().find(|order| order.id == id)?;
        self.look_at(order, now);
        Some(order.report(now))
    }

    /// The findings of all orders that are kept, the newest first.
    pub fn reports(&self) -> Vec<TraceReport> {
        let now = clock::now();
        let all = self.kept(now);
        let newest_first = all.iter().rev();
        newest_first
            .map(|order| {
                self.look_at(order, now);
                order.report(now)
            })
            .collect()
    }

    /// Takes no more requests for an order.
    pub fn stop(&self, id: u64) -> Option<TraceReport> {
        let all = self.0.all.load();
        let order = all.iter().find(|order| order.id == id)?;
        self.close(order);
        Some(order.report(clock::now()))
    }

    /// The record of a request that just began, where somebody wants it.
    pub fn begin(&self, head: &Head<'_>, subject: &TraceSubject<'_>) -> Option<TracedRequest> {
        self.begin_at(head, subject, clock::now())
    }

    fn begin_at(
        &self,
        head: &Head<'_>,
        subject: &TraceSubject<'_>,
        now: Instant,
    ) -> Option<TracedRequest> {
        let all = self.0.all.load();
        for order in all.iter() {
            self.look_at(order, now);
            if order.is_closed() || !order.asked.wants(head) {
                continue;
            }
            if !self.has_room() {
                order.passed_over.fetch_add(1, Ordering::Relaxed);
                return None;
            }
            if !order.take() {
                continue;
            }
            let traced = TracedRequest::begin(head, subject);
            held(&order.taken).push(traced.clone());
            self.look_at(order, now);
            return Some(traced);
        }
        None
    }

    /// Closes an order that has waited for long enough, or has all that it wanted.
    fn look_at(&self, order: &Order, now: Instant) {
        if now >= order.until || order.left.load(Ordering::Relaxed) == 0 {
            self.close(order);
        }
    }

    fn close(&self, order: &Order) {
        if !order.is_closed.swap(true, Ordering::Relaxed) {
            self.0.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The orders that are still kept; lets go of the others.
    fn kept(&self, now: Instant) -> Vec<Arc<Order>> {
        let all = self.0.all.load();
        if all.iter().all(|order| now < order.until + KEPT_FOR) {
            return all.to_vec();
        }
        let _held = held(&self.0.last);
        let rest = self.rest(now);
        self.0.all.store(Arc::new(rest.clone()));
        rest
    }

    /// The orders that are still kept.
    fn rest(&self, now: Instant) -> Vec<Arc<Order>> {
        let all = self.0.all.load();
        all.iter().for_each(|order| self.look_at(order, now));
        let kept = all.iter().filter(|order| now < order.until + KEPT_FOR);
        kept.cloned().collect()
    }

    /// Takes one of the requests that there may be in this second.
    fn has_room(&self) -> bool {
        let second = clock::since_epoch().as_secs() << PACE_BITS;
        let seen = self.0.pace.load(Ordering::Relaxed);
        let next = match seen >> PACE_BITS == second >> PACE_BITS {
            true if seen - second >= PER_SECOND_MAX => return false,
            true => seen + 1,
            false => second + 1,
        };
        // Where another worker was faster, this is one too many at the same moment.
        let swapped =
            self.0
                .pace
                .compare_exchange(seen, next, Ordering::Relaxed, Ordering::Relaxed);
        swapped.is_ok()
    }
}

impl Order {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Takes one of the requests that are wanted.
    fn take(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.is_ok()
    }

    fn report(&self, now: Instant) -> TraceReport {
        let asked = &self.asked;
        let seconds = self.until.saturating_duration_since(now).as_secs();
        let is_over = self.is_closed();
        // Looked at behind the lock, which the next request that is taken wants.
        let taken = held(&self.taken).clone();
        TraceReport {
            id: self.id,
            host: asked.host.clone(),
            path: asked.path.clone(),
            headers: asked.headers.iter().map(|(name, _)| name.clone()).collect(),
            is_over,
            left: self.left.load(Ordering::Relaxed),
            seconds_left: if is_over { 0 } else { seconds },
            passed_over: self.passed_over.load(Ordering::Relaxed),
            requests: taken.iter().map(TracedRequest::record).collect(),
        }
    }
}

impl TraceOrder {
    /// Whether it is within all bounds.
    fn check(&self) -> Result<(), OrderRefused> {
        let is_long = |text: &String| text.len() > TEXT_BYTES_MAX;
        let mut texts = self.headers.iter().flat_map(|(name, value)| [name, value]);
        let is_large = self.count == 0
            || self.count > REQUESTS_MAX
            || self.time < Duration::from_secs(1)
            || self.time > TIME_MAX
            || self.headers.len() > HEADERS_MAX
            || is_long(&self.host)
            || is_long(&self.path)
            || texts.any(is_long);
        match is_large {
            true => Err(OrderRefused::TooLarge),
            false => Ok(()),
        }
    }

    /// Whether a request is one of those that are wanted.
    fn wants(&self, head: &Head<'_>) -> bool {
        let is_host = match self.host.strip_prefix('*') {
            Some(below) => head.host.len() > below.len() && head.host.ends_with(below),
            None => *head.host == *self.host,
        };
        is_host
            && head.path.starts_with(&*self.path)
            && self.headers.iter().all(|(name, value)| {
                let mut fields = head.fields.iter();
                fields.any(|field| {
                    field.name.eq_ignore_ascii_case(name) && field.value == value.as_bytes()
                })
            })
    }
}

/// A lock on what no panic leaves half changed.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
