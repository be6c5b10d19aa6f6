//! Turns what was found under a path into documents, reading only those that are not known.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::document::{self, Hash, Outcome};
use super::file::{FileState, Stamp};
use super::name;
use super::problem::Problem;
use super::split::{Piece, split_json, split_yaml};
use super::{Counters, Limits};

/// The documents that need no reading: by hash, their index in the known state of the file.
pub(crate) type Known = HashMap<Hash, usize>;

/// The new state of one file.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) path: Arc<str>,
    pub(crate) stamp: Stamp,
    pub(crate) content: Content,
}

/// The content of the file.
#[derive(Debug)]
pub(crate) enum Content {
    /// There is no such file.
    Gone,
    /// There is one, but nothing can be said about its documents.
    Trouble(Box<Problem>),
    /// Its documents, in order.
    Documents(Vec<ParsedDocument>),
}

/// One document of a file.
#[derive(Debug)]
pub(crate) struct ParsedDocument {
    pub(crate) hash: Hash,
    pub(crate) line: u32,
    pub(crate) reading: Reading,
}

/// The outcome of reading a document.
#[derive(Debug)]
pub(crate) enum Reading {
    /// It is the document with this index in the known state.
    Known(usize),
    /// It was read.
    Fresh(Outcome),
}

impl Parsed {
    /// Reads the documents of a file that are not known.
    pub(crate) fn new(
        path: &Arc<str>,
        state: FileState,
        known: &Known,
        limits: &Limits,
        counters: &Counters,
    ) -> Parsed {
        let (stamp, content) = match state {
            FileState::Gone => (Stamp::default(), Content::Gone),
            FileState::Unreadable(stamp, problem) => (stamp, Content::Trouble(problem)),
            FileState::Text(stamp, text) => {
                // The parsers are the work of others and meet the input of anyone; if one of
                // them gives up, that is a problem of the file and not the end of the source.
                let read = || read_documents(path, &text, known, limits, counters);
                let content = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
                    let remedy = "report the file as one that Myriad should have understood";
                    Content::Trouble(Box::new(Problem::new("made the parser fail", remedy)))
                });
                (stamp, content)
            }
        };
        Parsed {
            path: path.clone(),
            stamp,
            content,
        }
    }
}

fn read_documents(
    path: &str,
    text: &str,
    known: &Known,
    limits: &Limits,
    counters: &Counters,
) -> Content {
    let is_json = name::is_json(path);
    let (pieces, error) = if is_json {
        split_json(text)
    } else {
        (split_yaml(text), None)
    };
    if pieces.len() > limits.documents_per_file_max {
        let message = format!("has more than {} documents", limits.documents_per_file_max);
        return Content::Trouble(Box::new(Problem::new(
            message,
            "divide it into several files",
        )));
    }
    let read = |piece: &Piece<'_>| {
        counters.documents_parsed.inc();
        let reader = if is_json {
            document::read_json
        } else {
            document::read_yaml
        };
        reader(piece, limits.document_bytes_max)
    };
    let mut documents = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        let hash = document::hash(piece.text.as_bytes());
        let reading = match known.get(&hash) {
            Some(index) => Reading::Known(*index),
            None => Reading::Fresh(read(piece)),
        };
        documents.push(ParsedDocument {
            hash,
            line: piece.line,
            reading,
        });
    }
    if let Some(error) = error {
        let problem = Problem::from_json(&error, "");
        documents.push(ParsedDocument {
            hash: document::hash(text.as_bytes()),
            line: 1,
            reading: Reading::Fresh(Outcome::Mixed(Vec::new(), vec![problem], Vec::new())),
        });
    }
    Content::Documents(documents)
}
