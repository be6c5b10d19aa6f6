//! Notes: fields of an object that were seen and not understood.

use serde::de::Error;

use crate::finding::cut;

/// The most notes that are kept of one object; the last says how many more there were.
pub const NOTES_MAX: usize = 64;

/// The most memory that one object may take, in bytes as [`Notes::count`] counts them. The API
/// server takes objects of 1.5 MiB, which honest ones multiply by less than fourteen, and lists of
/// empty messages by sixty.
pub const OBJECT_BYTES_MAX: usize = 32 << 20;

/// The bytes that an allocation takes beside what is written to it.
const ALLOCATION_BYTES: usize = 8;

/// A field that was written and is not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Note {
    /// Path of the field, such as `spec.http[0].match[1].statPrefix`; empty for the whole object.
    /// A path beyond 1 KiB is cut, as findings cut their texts.
    pub field: Box<str>,
    /// Why it is not read.
    pub kind: NoteKind,
}

/// Why a field is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoteKind {
    /// Istio knows it, and it cannot be honoured here.
    Refused,
    /// Istio does not know it: most likely it is misspelt.
    Unknown,
    /// The number of further fields that were noted and left off this list.
    More(u32),
}

/// One step of a path.
pub(crate) enum Step {
    Field(&'static str),
    Index(usize),
    /// See [`Step::key`].
    Key(Box<str>),
}

impl Step {
    /// The step to the value of a key. A long key is cut: paths are made of it again and again.
    pub(crate) fn key(key: &str) -> Step {
        Step::Key(cut(key).into())
    }
}

/// The notes of an object that is being read, and the path of the field under way.
///
/// After an error the path is that of the field with the error, because only values that were
/// read leave it.
#[derive(Default)]
pub(crate) struct Notes {
    path: Vec<Step>,
    list: Vec<Note>,
    left_off: u32,
    /// The memory of the values that were read so far, in bytes.
    bytes: usize,
    /// The memory of the notes, and of problems in place of values, in bytes.
    note_bytes: usize,
}

impl Notes {
    pub(crate) fn enter(&mut self, step: Step) {
        self.path.push(step);
    }

    pub(crate) fn leave(&mut self) {
        self.path.pop();
    }

    pub(crate) fn depth(&self) -> usize {
        self.path.len()
    }

    pub(crate) fn leave_to(&mut self, depth: usize) {
        self.path.truncate(depth);
    }

    /// The path of the field under way, cut where it is long.
    pub(crate) fn path(&self) -> String {
        cut(self.whole_path())
    }

    fn whole_path(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            match step {
                Step::Field(name) => push_name(&mut text, name),
                Step::Index(index) => text.push_str(&format!("[{index}]")),
                Step::Key(key) => text.push_str(&format!("[{key}]")),
            }
        }
        text
    }

    /// Notes a field of the message under way that is not read, and counts the note.
    ///
    /// # Errors
    /// See [`Notes::count`].
    pub(crate) fn add_field<E: Error>(&mut self, name: &str, is_refused: bool) -> Result<(), E> {
        let kind = match is_refused {
            true => NoteKind::Refused,
            false => NoteKind::Unknown,
        };
        if self.list.len() + 1 >= NOTES_MAX {
            self.left_off = self.left_off.saturating_add(1);
            return Ok(());
        }
        let mut field = self.whole_path();
        push_name(&mut field, name);
        let field: Box<str> = cut(field).into();
        self.note_bytes += size_of::<Note>() + field.len() + ALLOCATION_BYTES;
        self.list.push(Note { field, kind });
        self.check()
    }

    /// Notes that the whole object is not read.
    pub(crate) fn add_object(&mut self) {
        self.note_bytes += size_of::<Note>();
        self.list.push(Note {
            field: Box::default(),
            kind: NoteKind::Refused,
        });
    }

    /// Counts an allocation of these bytes. Parts that objects share count for each of them.
    ///
    /// # Errors
    /// Where the object takes more than [`OBJECT_BYTES_MAX`].
    pub(crate) fn count<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.bytes = self.bytes.saturating_add(bytes + ALLOCATION_BYTES);
        self.check()
    }

    fn check<E: Error>(&self) -> Result<(), E> {
        if self.bytes() <= OBJECT_BYTES_MAX {
            return Ok(());
        }
        let mib = OBJECT_BYTES_MAX >> 20;
        Err(E::custom(format_args!(
            "the object takes more than {mib} MiB of memory; divide it into several"
        )))
    }

    /// The memory of what was read so far, in bytes; at most [`OBJECT_BYTES_MAX`].
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.saturating_add(self.note_bytes)
    }

    /// The memory of the values alone, to go back to where one of them is not kept.
    pub(crate) fn value_bytes(&self) -> usize {
        self.bytes
    }

    /// Goes back to this memory of values, where a problem stands in place of what was counted
    /// since. Its two texts count, and notes that were made meanwhile stay.
    pub(crate) fn replace_since(&mut self, value_bytes: usize, problem: [&str; 2]) {
        self.bytes = value_bytes;
        let texts = problem.iter().map(|text| text.len() + ALLOCATION_BYTES);
        self.note_bytes += texts.sum::<usize>();
    }

    /// The notes, in the order of their fields.
    pub(crate) fn finish(mut self) -> Box<[Note]> {
        self.list.sort();
        if self.left_off > 0 {
            self.list.push(Note {
                field: Box::default(),
                kind: NoteKind::More(self.left_off),
            });
        }
        self.list.into()
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}
