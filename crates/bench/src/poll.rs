//! Which of many sockets are ready, said once for each change: what answers, asks and forwards
//! here must cost less than what is measured.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

/// How many are told of at a time.
const READY_MAX: usize = 256;

/// The sockets that are watched.
pub struct Poll(OwnedFd);

/// Sockets that are ready, by the number that each was added with.
pub struct Ready(Vec<Event>);

impl Poll {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn new() -> io::Result<Poll> {
        Ok(Poll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches a socket both ways until it is closed. What is not read or written until the socket
    /// says that it would block is not told of again.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn add(&self, socket: impl AsFd, number: usize) -> io::Result<()> {
        let both = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.0,
            socket,
            EventData::new_u64(number as u64),
            both,
        )?)
    }

    /// Watches one that tells again and again while somebody waits to be accepted.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn add_listener(&self, socket: impl AsFd, number: usize) -> io::Result<()> {
        let number = EventData::new_u64(number as u64);
        Ok(epoll::add(&self.0, socket, number, EventFlags::IN)?)
    }

    /// Waits until some are ready, or so long, to the millisecond.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn wait(&self, ready: &mut Ready, timeout: Option<Duration>) -> io::Result<()> {
        ready.0.clear();
        let timeout = timeout.map(Timespec::try_from).transpose();
        let timeout = timeout.map_err(io::Error::other)?;
        match epoll::wait(&self.0, spare_capacity(&mut ready.0), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Ready {
    /// Room for some.
    pub fn new() -> Ready {
        Ready(Vec::with_capacity(READY_MAX))
    }

    /// Their numbers, and whether the other end will send no more.
    pub fn all(&self) -> impl Iterator<Item = (usize, bool)> {
        let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        self.0.iter().map(move |event| {
            let (data, flags) = (event.data, event.flags);
            (data.u64() as usize, flags.intersects(ended))
        })
    }
}

impl Default for Ready {
    fn default() -> Ready {
        Ready::new()
    }
}
