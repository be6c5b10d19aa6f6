//! The client of an exchange that the proxy itself began: it sends what stands in the head, and
//! keeps as much of the answer as it is told to.

use std::task::{Context, Poll};

use super::peer::{Peer, ResponseChanges};
use crate::codec::body::{BodyLength, Encoder};
use crate::codec::buffer::Buffer;
use crate::codec::response::ResponseHead;
use crate::codec::trailer::Trailers;
use crate::failure::FailureKind;
use crate::policy::check::Answered;

/// A client that keeps the answer.
pub struct Keeper {
    /// None keeps nothing.
    bytes_max: Option<usize>,
    answered: Answered,
    is_too_long: bool,
}

impl Keeper {
    /// A client that keeps answers whose body is no longer than this.
    pub fn new(bytes_max: usize) -> Self {
        Keeper {
            bytes_max: Some(bytes_max),
            answered: Answered::default(),
            is_too_long: false,
        }
    }

    /// A client that keeps nothing.
    pub fn of_nothing() -> Self {
        Keeper {
            bytes_max: None,
            ..Keeper::new(0)
        }
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
        if self.bytes_max.is_some() {
            self.answered.status = head.status;
            let fields = head.fields.iter();
            // What belongs to the connection ends with it, whoever is told the rest.
            let fields = fields
                .filter(|field| !field.known.is_hop_by_hop() && !head.is_of_connection(field.name));
            self.answered.fields = fields
                .map(|field| (field.name.to_ascii_lowercase().into(), field.value.into()))
                .collect();
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        true
    }

    fn data(&mut self, data: &[u8]) {
        let Some(bytes_max) = self.bytes_max else {
            return;
        };
        match self.answered.body.len() + data.len() <= bytes_max {
            true => self.answered.body.extend_from_slice(data),
            false => self.is_too_long = true,
        }
    }

    fn end(&mut self, _: Option<Trailers>) {}

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), FailureKind>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyLength, Keeper, Peer, ResponseChanges};
    use crate::codec::response;
    use crate::limits::Limits;

    #[test]
    fn what_belongs_to_the_connection_is_not_kept() {
        let text = "HTTP/1.1 200 OK\r\nConnection: close, x-a\r\nX-A: 1\r\n\
                    Keep-Alive: timeout=5\r\nX-B: 2\r\nContent-Length: 0\r\n\r\n";
        let head = response::parse(text.as_bytes(), &Limits::default()).unwrap();
        let mut keeper = Keeper::new(1);
        keeper
            .start(&head, BodyLength::Exact(0), &ResponseChanges::default())
            .unwrap();
        let answered = keeper.into_answered().unwrap();
        let names: Vec<&str> = answered.fields.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["x-b", "content-length"]);
    }
}
