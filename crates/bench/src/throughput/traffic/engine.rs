//! The thread of the generator.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;
use rustls::ClientConfig;

use super::beat::Beat;
use super::link::Link;
use super::talk::{Talk, breaking};
use super::{Counts, Life, Plan, tls};
use crate::load::{Failure, Seen, Trouble};
use crate::poll::{Poll, Ready};

/// Connections that are made at a time: all at once would be a queue of seconds at the proxy.
const CONNECTING_MAX: usize = 32;

/// How often it looks at whether it shall end, at least.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How long answers may take to come in at the end.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// After so many failures nothing that is measured means anything.
const ERRORS_MAX: u64 = 1_000;

/// Requests that may wait for one connection.
const DUE_MAX: usize = 1_024;

/// The number of the timer among those of connections.
const TIMER: usize = usize::MAX;

/// The most bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

struct Engine {
    plan: Plan,
    config: Option<Arc<ClientConfig>>,
    counts: Arc<Counts>,
    poll: Poll,
    seats: Vec<Seat>,
    /// Seats that wait for their turn to connect.
    waiting: VecDeque<usize>,
    connecting: usize,
    buffer: Vec<u8>,
    latency: Histogram<u64>,
    /// When requests are due, once all connections are made; none if that is at once.
    beat: Option<Beat>,
    is_measuring: bool,
    is_ending: bool,
    sent: u64,
    answered: u64,
}

/// A place for one connection after the other.
struct Seat {
    link: Option<Link>,
    /// Whether requests may be sent.
    is_open: bool,
    /// Whether it has been once.
    was_open: bool,
    /// Whether the connection before left a session.
    has_session: bool,
    host: usize,
    dice: u64,
    /// Requests that it may still send.
    left: u64,
    /// The times of requests that were due while another was under way.
    due: VecDeque<Instant>,
    talk: Talk,
}

/// Asks until it shall end; the latencies that were measured.
pub(super) fn run(plan: Plan, counts: Arc<Counts>) -> anyhow::Result<Histogram<u64>> {
    let thread = rustix::thread::gettid().as_raw_pid();
    counts.thread.store(thread, Ordering::Relaxed);
    let names = (plan.life == Life::Resumed).then_some(plan.connections);
    let config = plan
        .leaves
        .clone()
        .map(|leaves| tls::config(leaves, names, plan.protocol()));
    let seats = (0..plan.connections).map(|number| Seat::new(number, &plan));
    let mut engine = Engine {
        config: config.transpose()?,
        counts,
        poll: Poll::new()?,
        seats: seats.collect(),
        waiting: (0..plan.connections).collect(),
        connecting: 0,
        buffer: vec![0; READ_BYTES],
        latency: Seen::new()?.latency,
        beat: None,
        is_measuring: false,
        is_ending: false,
        sent: 0,
        answered: 0,
        plan,
    };
    engine.serve()?;
    Ok(engine.latency)
}

impl Engine {
    fn serve(&mut self) -> anyhow::Result<()> {
        let mut ready = Ready::new();
        let mut end = None;
        loop {
            while self.connecting < CONNECTING_MAX
                && let Some(number) = self.waiting.pop_front()
            {
                self.connecting += 1;
                let begun = self.begin(number);
                self.judge(number, begun)?;
            }
            self.poll.wait(&mut ready, Some(LOOK_INTERVAL))?;
            for (number, is_ended) in ready.all().filter(|&(number, _)| number != TIMER) {
                let moved = self.advance(number, is_ended);
                self.judge(number, moved)?;
            }
            self.keep_time()?;
            self.counts.sent.store(self.sent, Ordering::Relaxed);
            self.counts.answered.store(self.answered, Ordering::Relaxed);
            self.is_measuring = self.counts.is_measuring.load(Ordering::Relaxed);
            self.is_ending = self.counts.is_ending.load(Ordering::Relaxed);
            if self.is_ending {
                let end = *end.get_or_insert_with(|| Instant::now() + END_TIMEOUT);
                if self.under_way() == 0 {
                    break;
                }
                ensure!(
                    Instant::now() < end,
                    "{} stay without answer",
                    self.under_way()
                );
            }
        }
        let links = self.seats.iter_mut().filter_map(|seat| seat.link.take());
        links.for_each(Link::close);
        Ok(())
    }

    fn under_way(&self) -> usize {
        self.seats.iter().map(|seat| seat.talk.under_way()).sum()
    }

    /// Sends what is due by the schedule, if there is one.
    fn keep_time(&mut self) -> anyhow::Result<()> {
        let Some(schedule) = self.plan.schedule.filter(|_| !self.is_ending) else {
            return Ok(());
        };
        if self.beat.is_none() {
            if self.counts.connected.load(Ordering::Relaxed) < self.seats.len() {
                return Ok(());
            }
            let beat = Beat::begin(schedule)?;
            self.poll.add(&beat, TIMER)?;
            self.beat = Some(beat);
        }
        while let Some((due, number)) = self.beat.as_mut().and_then(Beat::next) {
            let seat = &mut self.seats[number];
            ensure!(
                seat.due.len() < DUE_MAX,
                "{} answers too late",
                self.plan.address
            );
            seat.due.push_back(due);
            if seat.is_open {
                let filled = self.fill(number);
                self.judge(number, filled)?;
            }
        }
        match &mut self.beat {
            Some(beat) => Ok(beat.arm()?),
            None => Ok(()),
        }
    }

    /// Counts a failure, and lets the seat begin anew.
    fn judge(&mut self, number: usize, outcome: Result<(), Failure>) -> anyhow::Result<()> {
        let Err(failure) = outcome else {
            return Ok(());
        };
        let seat = &mut self.seats[number];
        seat.link = None;
        seat.has_session = false;
        seat.talk = Talk::new(self.plan.streams);
        if !std::mem::replace(&mut seat.is_open, false) {
            self.connecting -= 1;
        }
        self.waiting.push_back(number);
        let host = self.plan.requests.name(seat.host);
        let errors = self.counts.fail(host, failure);
        ensure!(errors < ERRORS_MAX, "{errors} failures are too many");
        Ok(())
    }

    fn begin(&mut self, number: usize) -> Result<(), Failure> {
        let seat = &mut self.seats[number];
        let wrong = |text: String| (Trouble::Connect, text);
        let session = match &self.config {
            None => None,
            Some(config) => {
                let name = tls::name(self.plan.requests.name(seat.host));
                Some((
                    config.clone(),
                    name.map_err(|error| wrong(error.to_string()))?,
                ))
            }
        };
        let link = Link::begin(self.plan.address, session);
        let link = link.map_err(|error| wrong(error.to_string()))?;
        let added = self.poll.add(&link, number);
        added.map_err(|error| wrong(error.to_string()))?;
        seat.link = Some(link);
        Ok(())
    }

    /// Goes on with a connection of which something is new.
    fn advance(&mut self, number: usize, is_ended: bool) -> Result<(), Failure> {
        let seat = &mut self.seats[number];
        // Of one that was closed meanwhile.
        let Some(link) = &mut seat.link else {
            return Ok(());
        };
        if !seat.is_open {
            let wrong = |text| (Trouble::Handshake, text);
            if !link.open().map_err(|error| wrong(error.to_string()))? {
                return Ok(());
            }
            if let Some(session) = link.session() {
                let is_resumed = self.plan.life == Life::Resumed && seat.has_session;
                let protocol = self.plan.protocol();
                tls::check(session, is_resumed, protocol).map_err(wrong)?;
            }
            self.connecting -= 1;
            seat.is_open = true;
            if !std::mem::replace(&mut seat.was_open, true) {
                self.counts.connected.fetch_add(1, Ordering::Relaxed);
            }
            return self.fill(number);
        }
        link.flush().map_err(breaking)?;
        self.listen(number, is_ended)?;
        let seat = &mut self.seats[number];
        if self.plan.life == Life::Kept || seat.talk.under_way() > 0 {
            return self.fill(number);
        }
        // It has had its request.
        if let Some(link) = seat.link.take() {
            link.close();
        }
        (seat.is_open, seat.has_session) = (false, true);
        self.connecting += 1;
        match self.is_ending {
            true => Ok(()),
            false => self.begin(number),
        }
    }

    /// Reads answers until nothing is under way, or nothing more has come.
    fn listen(&mut self, number: usize, is_ended: bool) -> Result<(), Failure> {
        let seat = &mut self.seats[number];
        let Some(link) = &mut seat.link else {
            return Ok(());
        };
        loop {
            let read = match link.read(&mut self.buffer) {
                Ok(0) => return Err((Trouble::Connection, "it was closed".to_owned())),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(breaking(error)),
            };
            let (answered, latency) = (&mut self.answered, &mut self.latency);
            let is_measuring = self.is_measuring;
            seat.talk.take(&self.buffer[..read], &mut |due| {
                *answered += 1;
                if is_measuring {
                    let nanos = due.elapsed().as_nanos();
                    latency.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
                }
            })?;
            if seat.talk.under_way() == 0 && !is_ended {
                return Ok(());
            }
        }
    }

    /// Sends what may be sent.
    fn fill(&mut self, number: usize) -> Result<(), Failure> {
        let seat = &mut self.seats[number];
        let Some(link) = &mut seat.link else {
            return Ok(());
        };
        while seat.talk.has_room() && seat.left > 0 && !self.is_ending {
            let due = match self.plan.schedule {
                None => Instant::now(),
                Some(_) => match seat.due.pop_front() {
                    Some(due) => due,
                    None => break,
                },
            };
            let path = next(&mut seat.dice) as usize;
            let request = self.plan.requests.get(seat.host, path);
            seat.talk.ask(link, request, due)?;
            seat.left -= 1;
            self.sent += 1;
        }
        seat.talk.send(link)
    }
}

impl Seat {
    fn new(number: usize, plan: &Plan) -> Seat {
        Seat {
            link: None,
            is_open: false,
            was_open: false,
            has_session: false,
            host: plan.requests.host(number),
            dice: number as u64 | 1 << 32,
            left: plan.requests_max.unwrap_or(u64::MAX),
            due: VecDeque::new(),
            talk: Talk::new(plan.streams),
        }
    }
}

/// The next of a sequence that wanders over all paths: xorshift.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}
