//! The requests under way on a connection: one after the other, or streams.

use std::time::Instant;

use super::link::Link;
use super::streams::Streams;
use crate::backend::{BODY_BYTES, FILLING};
use crate::load::{Failure, Trouble, is_complete};

/// The body of every answer.
pub(super) const BODY: [u8; BODY_BYTES] = [FILLING; BODY_BYTES];

/// HTTP on a connection.
pub(super) enum Talk {
    /// HTTP/1.1.
    One(One),
    /// HTTP/2.
    Many(Streams),
}

/// HTTP/1.1 on a connection.
#[derive(Default)]
pub(super) struct One {
    /// When the request that is under way was due.
    due: Option<Instant>,
    /// The part of its answer that has come.
    begun: Vec<u8>,
}

impl Talk {
    /// HTTP/2 of so many streams at a time, or else HTTP/1.1.
    pub(super) fn new(streams: Option<usize>) -> Talk {
        match streams {
            Some(max) => Talk::Many(Streams::new(max)),
            None => Talk::One(One::default()),
        }
    }

    /// Whether another request may be sent.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Talk::One(one) => one.due.is_none(),
            Talk::Many(many) => many.has_room(),
        }
    }

    /// How many requests are under way.
    pub(super) fn under_way(&self) -> usize {
        match self {
            Talk::One(one) => usize::from(one.due.is_some()),
            Talk::Many(many) => many.under_way(),
        }
    }

    /// Begins a request, which is sent by [`Talk::send`].
    pub(super) fn ask(
        &mut self,
        link: &mut Link,
        request: &[u8],
        due: Instant,
    ) -> Result<(), Failure> {
        match self {
            Talk::One(one) => {
                one.due = Some(due);
                link.put(request).map_err(breaking)
            }
            Talk::Many(many) => {
                many.ask(request, due);
                Ok(())
            }
        }
    }

    /// Sends what waits.
    pub(super) fn send(&mut self, link: &mut Link) -> Result<(), Failure> {
        if let Talk::Many(many) = self {
            let out = many.out();
            if !out.is_empty() {
                link.put(out).map_err(breaking)?;
                out.clear();
            }
        }
        link.flush().map_err(breaking)
    }

    /// Takes what has come, and says of each answer that is whole when its request was due.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        answered: &mut dyn FnMut(Instant),
    ) -> Result<(), Failure> {
        match self {
            Talk::One(one) => one.take(bytes, answered),
            Talk::Many(many) => many.take(bytes, answered),
        }
    }
}

impl One {
    fn take(&mut self, bytes: &[u8], answered: &mut dyn FnMut(Instant)) -> Result<(), Failure> {
        let mut joined = std::mem::take(&mut self.begun);
        let mut all = bytes;
        if !joined.is_empty() {
            joined.extend_from_slice(bytes);
            all = &joined;
        }
        if !is_complete(all, BODY_BYTES)? {
            self.begun = all.to_vec();
            return Ok(());
        }
        if !all.ends_with(&BODY) {
            return Err((Trouble::Answer, "the body has other bytes".to_owned()));
        }
        let due = self.due.take();
        let due = due.ok_or_else(|| (Trouble::Answer, "nobody asked".to_owned()))?;
        answered(due);
        Ok(())
    }
}

/// A connection that broke within a request.
pub(super) fn breaking(error: std::io::Error) -> Failure {
    (Trouble::Connection, error.to_string())
}
