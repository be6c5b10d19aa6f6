//! The client of an exchange that the proxy itself began: it sends what stands in the head, and
//! keeps as much of the answer as it is told to.

use std::task::{Context, Poll};

use super::peer::{Peer, ResponseChanges};
use crate::admission::holdings::HeldBytes;
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::buffer::Buffer;
use crate::codec::response::ResponseHead;
use crate::codec::trailer::{GRPC_STATUS, Trailers, grpc_status};
use crate::failure::FailureKind;
use crate::policy::check::Answered;

/// The bytes of memory of a field beside its text, about.
const FIELD_BYTES: usize = 64;

/// The most bytes that are read of a body that nobody wants, so that its connection may be used
/// again.
const IGNORED_BYTES_MAX: usize = 1 << 20;

/// The part of an answer that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing, of an answer whose body has at most a mebibyte.
    Nothing,
    /// Status and fields, of an answer whose body is no longer than this.
    Head(usize),
    /// The body too, if it is no longer than this.
    Whole(usize),
}

/// A client that keeps the answer.
pub struct Keeper {
    kept: Kept,
    answered: Answered,
    /// The bytes of the body so far.
    length: usize,
    is_too_long: bool,
    /// The memory that is held for the namespace on whose behalf it asks; none counts nothing.
    held: Option<HeldBytes>,
}

impl Keeper {
    /// A client that keeps so much of the answer, and counts it in `held`.
    pub fn new(kept: Kept, held: Option<HeldBytes>) -> Self {
        Keeper {
            kept,
            answered: Answered::default(),
            length: 0,
            is_too_long: false,
            held,
        }
    }

    /// A client that keeps nothing.
    pub fn of_nothing() -> Self {
        Keeper::new(Kept::Nothing, None)
    }

    /// Counts so many bytes more, or gives the answer up where there is no room for them.
    fn hold(&mut self, bytes: usize) {
        let Some(held) = &mut self.held else { return };
        held.set(held.bytes() + bytes);
        if !held.may_grow() {
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.is_too_long = true;
        self.answered = Answered::default();
        if let Some(held) = &mut self.held {
            held.set(0);
        }
    }

    /// Whether the answer was longer than it may be, and is not read on.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    /// The answer; none where it was too long.
    pub fn into_answered(self) -> Option<Answered> {
        (!self.is_too_long).then_some(self.answered)
    }
}

impl Peer for Keeper {
    fn poll_body(
        &mut self,
        _: &mut Context<'_>,
        _: Encoder,
        _: &mut Buffer,
    ) -> Poll<Result<bool, FailureKind>> {
        Poll::Ready(Ok(true))
    }

    fn interim(&mut self, _: &ResponseHead<'_>) -> Result<(), FailureKind> {
        Ok(())
    }

    fn start(
        &mut self,
        head: &ResponseHead<'_>,
        _: BodyLength,
        _: &ResponseChanges<'_>,
    ) -> Result<(), FailureKind> {
        if self.kept != Kept::Nothing {
            self.answered.status = head.status;
            let fields = head.fields.iter();
            // What belongs to the connection ends with it, whoever is told the rest.
            let fields = fields
                .filter(|field| !field.known.is_hop_by_hop() && !head.is_of_connection(field.name));
            self.answered.fields = fields
                .map(|field| (field.name.to_ascii_lowercase().into(), field.value.into()))
                .collect();
            let fields = self.answered.fields.iter();
            let bytes = fields.map(|(name, value)| name.len() + value.len() + FIELD_BYTES);
            self.hold(bytes.sum());
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        true
    }

    fn data(&mut self, data: &[u8]) {
        let (bytes_max, is_whole) = match self.kept {
            Kept::Nothing => (IGNORED_BYTES_MAX, false),
            Kept::Head(bytes_max) => (bytes_max, false),
            Kept::Whole(bytes_max) => (bytes_max, true),
        };
        self.length = self.length.saturating_add(data.len());
        if self.length > bytes_max {
            self.give_up();
        }
        if self.is_too_long || !is_whole {
            return;
        }
        let before = self.answered.body.capacity();
        self.answered.body.extend_from_slice(data);
        self.hold(self.answered.body.capacity() - before);
    }

    fn end(&mut self, trailers: Option<Trailers>) {
        let status = trailers.as_ref().and_then(|it| it.get(GRPC_STATUS));
        self.answered.grpc_status = status.map(|status| grpc_status(status.as_bytes()));
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        // Nobody reads on what is of no use.
        Poll::Ready(match self.is_too_long {
            true => Err(FailureKind::ClientGone),
            false => Ok(()),
        })
    }

    fn poll_gone(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::{BodyLength, Keeper, Kept, Peer, ResponseChanges};
    use crate::admission::holdings::Holdings;
    use crate::codec::response;
    use crate::limits::Limits;

    /// Answers of 4 KiB at a time, of one namespace.
    #[test]
    fn what_is_kept_of_answers_is_held_and_given_up_where_there_is_no_room() {
        let limits = Limits {
            all_held_bytes_max: 1 << 20,
            ..Limits::default()
        };
        let holdings = Rc::new(Holdings::new(&limits, &Arc::default()));
        let mut keepers = Vec::new();
        for _ in 0..16 {
            let mut keeper = Keeper::new(Kept::Whole(256 << 10), Some(holdings.connection()));
            for _ in 0..64 {
                keeper.data(&[b'a'; 4 << 10]);
            }
            keepers.push(keeper);
        }
        // A quarter beyond the bound, and the last that came.
        assert!(holdings.own() <= (1 << 20) * 2, "{}", holdings.own());
        let answered = keepers.into_iter().filter_map(Keeper::into_answered);
        assert!((2..=6).contains(&answered.count()));
        assert_eq!(holdings.own(), 0);

        let mut keeper = Keeper::new(Kept::Head(8 << 10), Some(holdings.connection()));
        keeper.data(&[b'a'; 4 << 10]);
        keeper.data(&[b'a'; 4 << 10]);
        assert_eq!(holdings.own(), 0, "the body is not kept");
        assert!(keeper.into_answered().is_some_and(|it| it.body.is_empty()));
        let mut keeper = Keeper::new(Kept::Head(8 << 10), None);
        keeper.data(&[b'a'; 9 << 10]);
        let ended = keeper.poll_flush(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(ended, Poll::Ready(Err(_))), "it is not read on");
        assert!(keeper.into_answered().is_none(), "it is too long");
    }

    #[test]
    fn what_belongs_to_the_connection_is_not_kept() {
        let text = "HTTP/1.1 200 OK\r\nConnection: close, x-a\r\nX-A: 1\r\n\
                    Keep-Alive: timeout=5\r\nX-B: 2\r\nContent-Length: 0\r\n\r\n";
        let head = response::parse(text.as_bytes(), &Limits::default()).unwrap();
        let mut keeper = Keeper::new(Kept::Whole(1), None);
        keeper
            .start(&head, BodyLength::Exact(0), &ResponseChanges::default())
            .unwrap();
        let answered = keeper.into_answered().unwrap();
        let names: Vec<&str> = answered.fields.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["x-b", "content-length"]);
    }
}
