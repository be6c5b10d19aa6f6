//! A commit's changes as frames of bounded size. The bytes of resources are shared, not copied.

use std::collections::VecDeque;

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

/// Writes the frames, and returns how many resources are too large. Those go without bytes, so
/// that the proxy refuses them by name.
pub(super) fn write(
    changes: &[model::Change],
    strangers: &[Stranger],
    frames: &mut VecDeque<FromServer>,
) -> u64 {
    let mut writer = Writer {
        frames,
        frame: Changes::default(),
        bytes: 0,
    };
    let mut oversized = 0;
    for change in changes {
        match &change.new {
            Some(new) => oversized += u64::from(!writer.change(new)),
            None => writer.removal(change.key.kind.number().into(), change.key.name.as_str()),
        }
    }
    for stranger in strangers {
        writer.stranger(stranger);
    }
    writer.flush();
    oversized
}

struct Writer<'a> {
    frames: &'a mut VecDeque<FromServer>,
    frame: Changes,
    bytes: usize,
}

impl Writer<'_> {
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
