//! A file that is read bit by bit: it is taken apart at once, and its new documents are read when
//! there is time for them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::document::{self, Hash};
use super::file::{FileState, Stamp};
use super::parsed::{Content, Known, Parsed, ParsedDocument, Reading, read_piece, take_apart};
use super::problem::Problem;
use super::slice::Slice;
use super::split::Piece;
use super::{Counters, Limits};

/// A file of which documents may be unread.
pub(super) struct Draft {
    path: Arc<str>,
    stamp: Stamp,
    /// The content of a file whose documents say nothing.
    whole: Option<Content>,
    documents: Vec<ParsedDocument>,
    /// The documents behind those.
    left: VecDeque<Left>,
    /// The end of a stream of JSON that is none.
    rest: Option<ParsedDocument>,
    text_bytes: usize,
}

/// A document that is still to be read, or is known.
struct Left {
    hash: Hash,
    line: u32,
    what: Unread,
}

enum Unread {
    /// It is the document with this index in the known state.
    Known(usize),
    Text(Box<str>),
}

impl Draft {
    /// Takes a file apart. Of its text only that of new documents is kept.
    pub(super) fn new(path: &Arc<str>, state: FileState, known: &Known, limits: &Limits) -> Draft {
        let (stamp, text) = match state {
            FileState::Gone => {
                return Draft::of(path.clone(), Stamp::default(), Content::Gone);
            }
            FileState::Unreadable(stamp, problem) => {
                return Draft::of(path.clone(), stamp, Content::Trouble(problem));
            }
            FileState::Text(stamp, text) => (stamp, text),
        };
        // As where documents are read: a parser that gives up is no end of the source.
        let split = || Draft::split(path, &text, known, limits);
        let (left, rest) = match catch_unwind(AssertUnwindSafe(split)) {
            Ok(Ok(split)) => split,
            Ok(Err(problem)) => return Draft::of(path.clone(), stamp, Content::Trouble(problem)),
            Err(_) => return Draft::of(path.clone(), stamp, Content::given_up()),
        };
        Draft {
            path: path.clone(),
            stamp,
            whole: None,
            documents: Vec::with_capacity(left.len() + 1),
            left,
            rest,
            text_bytes: text.len(),
        }
    }

    /// A file of which only a problem is known.
    pub(super) fn of_problem(path: Arc<str>, problem: Problem) -> Draft {
        let content = Content::Trouble(Box::new(problem));
        Draft::of(path, Stamp::default(), content)
    }

    fn of(path: Arc<str>, stamp: Stamp, content: Content) -> Draft {
        Draft {
            path,
            stamp,
            whole: Some(content),
            documents: Vec::new(),
            left: VecDeque::new(),
            rest: None,
            text_bytes: 0,
        }
    }

    fn split(
        path: &str,
        text: &str,
        known: &Known,
        limits: &Limits,
    ) -> Result<(VecDeque<Left>, Option<ParsedDocument>), Box<Problem>> {
        let (pieces, error) = take_apart(path, text, limits)?;
        let left = pieces.iter().map(|piece| {
            let hash = document::hash(piece.text.as_bytes());
            let what = match known.get(&hash) {
                Some(index) => Unread::Known(*index),
                None => Unread::Text(piece.text.into()),
            };
            Left {
                hash,
                line: piece.line,
                what,
            }
        });
        let rest = error.map(|error| ParsedDocument::rest(text, &error));
        Ok((left.collect(), rest))
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// The bytes of the text that the file had.
    pub(super) fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    /// Whether all of it was read.
    pub(super) fn is_read(&self) -> bool {
        self.left.is_empty()
    }

    /// Reads documents until the slice is over, the last one whole.
    pub(super) fn read(&mut self, slice: &mut Slice<'_>, limits: &Limits, counters: &Counters) {
        while !slice.is_over()
            && let Some(Left { hash, line, what }) = self.left.pop_front()
        {
            let reading = match what {
                Unread::Known(index) => Reading::Known(index),
                Unread::Text(text) => {
                    let piece = Piece { text: &text, line };
                    let read = || read_piece(&self.path, &piece, limits, counters);
                    let read = catch_unwind(AssertUnwindSafe(read));
                    slice.take(text.len());
                    match read {
                        Ok(outcome) => Reading::Fresh(outcome),
                        Err(_) => {
                            *self = Draft::of(self.path.clone(), self.stamp, Content::given_up());
                            return;
                        }
                    }
                }
            };
            self.documents.push(ParsedDocument {
                hash,
                line,
                reading,
            });
        }
    }

    /// Whether a document that needed no reading would have to be read by what is known now.
    pub(super) fn is_stale(&self, known: &Known) -> bool {
        self.documents
            .iter()
            .any(|document| match document.reading {
                Reading::Known(index) => known.get(&document.hash) != Some(&index),
                Reading::Fresh(_) => false,
            })
    }

    /// The new state of the file. It is to be read to its end before.
    pub(super) fn into_parsed(mut self) -> Parsed {
        self.documents.extend(self.rest);
        Parsed {
            path: self.path,
            stamp: self.stamp,
            content: self.whole.unwrap_or(Content::Documents(self.documents)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::super::slice::SLICE_BYTES;
    use super::*;

    fn draft(text: &str, known: &Known) -> Draft {
        let state = FileState::Text(Stamp::default(), text.to_owned());
        Draft::new(&"a.yaml".into(), state, known, &Limits::default())
    }

    /// A slice that time does not end.
    fn slice(bytes: usize) -> Slice<'static> {
        Slice::new(bytes, &|| Duration::ZERO)
    }

    #[test]
    fn a_slice_ends_by_time_too_and_reads_a_document_at_least() {
        let (text, limits) = (services(100), Limits::default());
        let counters = Counters::default();
        let mut draft = draft(&text, &Known::new());
        // Each look at the clock is 10 ms later: of a slice it is the third document that is late.
        let looks = AtomicU64::new(0);
        let clock = || Duration::from_millis(10 * looks.fetch_add(1, Ordering::Relaxed));
        for slices in 1..=3 {
            draft.read(&mut Slice::new(SLICE_BYTES, &clock), &limits, &counters);
            assert_eq!(counters.documents_parsed.get(), 3 * slices);
        }
        let slow = || Duration::from_secs(looks.fetch_add(1, Ordering::Relaxed));
        draft.read(&mut Slice::new(SLICE_BYTES, &slow), &limits, &counters);
        assert_eq!(counters.documents_parsed.get(), 10);
    }

    /// Services, each a document.
    fn services(count: usize) -> String {
        let mut text = String::new();
        for number in 0..count {
            let name = format!("{{name: s{number:04}}}");
            let _ = writeln!(text, "---\napiVersion: v1\nkind: Service\nmetadata: {name}");
        }
        text
    }

    #[test]
    fn a_file_in_slices_is_the_file_at_once() {
        let (text, limits) = (services(100), Limits::default());
        let counters = Counters::default();
        let mut draft = draft(&text, &Known::new());
        let mut slices = 0;
        while !draft.is_read() {
            let before = counters.documents_parsed.get();
            draft.read(&mut slice(500), &limits, &counters);
            let read = counters.documents_parsed.get() - before;
            assert!(read <= 12, "{read} documents");
            slices += 1;
        }
        assert!(slices >= 10 && counters.documents_parsed.get() == 100);
        let state = FileState::Text(Stamp::default(), text);
        let path = "a.yaml".into();
        let whole = Parsed::new(&path, state, &Known::new(), &limits, &counters);
        let (sliced, whole) = (draft.into_parsed(), whole);
        assert_eq!(format!("{sliced:?}"), format!("{whole:?}"));
    }

    #[test]
    fn a_document_that_is_not_in_effect_any_more_makes_a_draft_stale() {
        let (text, limits, counters) = (services(2), Limits::default(), Counters::default());
        let mut fresh = draft(&text, &Known::new());
        fresh.read(&mut slice(usize::MAX), &limits, &counters);
        let hashes: Vec<Hash> = fresh.documents.iter().map(|it| it.hash).collect();
        let known: Known = hashes.iter().copied().zip([7, 8]).collect();
        let mut draft = draft(&text, &known);
        draft.read(&mut slice(usize::MAX), &limits, &counters);
        assert_eq!(counters.documents_parsed.get(), 2);
        assert!(draft.is_read() && !draft.is_stale(&known));
        for known in [vec![7], vec![8, 7]] {
            let known: Known = hashes.iter().copied().zip(known).collect();
            assert!(draft.is_stale(&known) && !fresh.is_stale(&known));
        }
    }
}
