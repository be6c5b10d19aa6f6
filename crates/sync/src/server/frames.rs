//! A commit's changes as frames of bounded size. The bytes of resources are shared, not copied.

use std::collections::VecDeque;
use std::vec;

use bytes::Bytes;
use myriad_model as model;
use myriad_model::{Sealed, wire::encode};

use super::strangers::Stranger;
use crate::wire::{
    self, Change, Changes, FRAME_BYTES_MAX, FromServer, Leaf, RESOURCE_BYTES_MAX, Removal,
    from_server,
};

/// The most bytes that a change takes beside its name and value.
const OVERHEAD_BYTES: usize = 48;

/// Changes that are written frame by frame, so that what waits to be sent is what it is shared
/// with, and not a copy of it.
pub(super) struct Draft {
    changes: vec::IntoIter<model::Change>,
    strangers: vec::IntoIter<Stranger>,
    writer: Writer,
    oversized: u64,
}

impl Draft {
    /// These changes, and then these removals.
    pub(super) fn new(changes: Vec<model::Change>, strangers: Vec<Stranger>) -> Self {
        Draft {
            changes: changes.into_iter(),
            strangers: strangers.into_iter(),
            writer: Writer::default(),
            oversized: 0,
        }
    }

    /// The next frame; none once everything is written.
    pub(super) fn next_frame(&mut self) -> Option<FromServer> {
        while self.writer.frames.is_empty() {
            if let Some(change) = self.changes.next() {
                match &change.new {
                    Some(new) => self.oversized += u64::from(!self.writer.change(new)),
                    None => {
                        let kind = change.key.kind.number().into();
                        self.writer.removal(kind, change.key.name.as_str());
                    }
                }
            } else if let Some(stranger) = self.strangers.next() {
                self.writer.stranger(&stranger);
            } else {
                self.writer.flush();
                break;
            }
        }
        self.writer.frames.pop_front()
    }

    /// How many resources were too large so far. Those go without bytes, so that the proxy refuses
    /// them by name.
    pub(super) fn oversized(&self) -> u64 {
        self.oversized
    }
}

#[derive(Default)]
struct Writer {
    /// The frames that are full: one, or all that one resource takes.
    frames: VecDeque<FromServer>,
    frame: Changes,
    bytes: usize,
}

impl Writer {
    fn change(&mut self, sealed: &Sealed) -> bool {
        let bytes = encoded(sealed);
        let fits = bytes.len() <= RESOURCE_BYTES_MAX;
        let bytes = if fits { bytes } else { Bytes::new() };
        let name = sealed.name().as_str();
        let mut change = Change {
            kind: sealed.key().kind.number().into(),
            name: name.to_owned(),
            version: wire::version_bytes(sealed.version()),
            bytes,
            unfinished: false,
        };
        self.reserve(name.len() + change.bytes.len());
        // Only what is larger than a frame goes in pieces, each in a frame of its own.
        while change.bytes.len() > FRAME_BYTES_MAX {
            let bytes = change.bytes.split_off(FRAME_BYTES_MAX);
            change.unfinished = true;
            self.frame.changes.push(change);
            self.flush();
            change = Change {
                bytes,
                ..Change::default()
            };
            self.bytes = change.bytes.len();
        }
        let is_continued = change.version.is_empty();
        self.frame.changes.push(change);
        if is_continued {
            self.flush();
        }
        fits
    }

    fn removal(&mut self, kind: u32, name: &str) {
        self.reserve(name.len());
        let name = name.to_owned();
        self.frame.removals.push(Removal { kind, name });
    }

    fn stranger(&mut self, stranger: &Stranger) {
        self.reserve(0);
        self.frame.strangers.push(Leaf {
            index: 0,
            slot: stranger.slot,
            version: wire::version_bytes(stranger.version),
            kind: stranger.kind,
        });
    }

    /// Makes room, in a new frame if there is none left in this one.
    fn reserve(&mut self, bytes: usize) {
        let bytes = bytes + OVERHEAD_BYTES;
        if self.bytes + bytes > FRAME_BYTES_MAX {
            self.flush();
        }
        self.bytes += bytes;
    }

    fn flush(&mut self) {
        self.bytes = 0;
        let frame = std::mem::take(&mut self.frame);
        if frame != Changes::default() {
            let body = from_server::Body::Changes(frame);
            self.frames.push_back(wire::from_server(body));
        }
    }
}

/// The bytes of a resource, which are there already where the server keeps nothing else.
fn encoded(sealed: &Sealed) -> Bytes {
    match (sealed.encoded(), sealed.resource()) {
        (Some(bytes), _) => bytes.clone(),
        (None, Some(resource)) => {
            let mut bytes = Vec::with_capacity(sealed.bytes_encoded());
            encode(resource, &mut bytes);
            bytes.into()
        }
        (None, None) => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::{COMMIT_RESOURCES_MAX, Form, Snapshot};

    use super::Draft;
    use crate::tests::pair::World;

    #[test]
    fn a_frame_is_written_when_it_is_taken() {
        let mut world = World::new(Form::Encoded);
        for number in 0..COMMIT_RESOURCES_MAX {
            world.put(&format!("e{number}"), 1);
        }
        let changes: Vec<_> = Snapshot::new().diff(world.snapshot()).collect();
        let mut draft = Draft::new(changes, Vec::new());
        assert!(draft.next_frame().is_some());
        assert!(draft.writer.frames.is_empty(), "no other is written");
        let left = draft.changes.len();
        assert!(left > COMMIT_RESOURCES_MAX / 4, "{left} changes are left");
        assert!(draft.next_frame().is_some());
        assert!(draft.changes.len() < left);
        while draft.next_frame().is_some() {}
        assert_eq!(draft.changes.len(), 0);
    }
}
