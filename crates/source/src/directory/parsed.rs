//! Turns what was found under a path into documents, reading only those that are not known.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::document::{self, Hash, Outcome, Problems};
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
                let content = catch_unwind(AssertUnwindSafe(read));
                (stamp, content.unwrap_or_else(|_| Content::given_up()))
            }
        };
        Parsed {
            path: path.clone(),
            stamp,
            content,
        }
    }
}

impl Content {
    /// The content of a file that made a parser fail.
    pub(crate) fn given_up() -> Content {
        let remedy = "report the file as one that Myriad should have understood";
        Content::Trouble(Box::new(Problem::new("made the parser fail", remedy)))
    }
}

impl ParsedDocument {
    /// The rest of a stream of JSON, which is none.
    pub(crate) fn rest(text: &str, error: &serde_json::Error) -> ParsedDocument {
        let problem = Problem::from_json(error, "");
        ParsedDocument {
            hash: document::hash(text.as_bytes()),
            line: 1,
            reading: Reading::Fresh(Outcome::Mixed(
                Vec::new(),
                Problems::one(problem),
                Vec::new(),
            )),
        }
    }
}

/// The documents of a text, and where it stops being JSON; or why none of them is used.
pub(crate) fn take_apart<'a>(path: &str, text: &'a str, limits: &Limits) -> Apart<'a> {
    let (pieces, error) = match name::is_json(path) {
        true => split_json(text),
        false => (split_yaml(text), None),
    };
    if pieces.len() > limits.documents_per_file_max {
        let message = format!("has more than {} documents", limits.documents_per_file_max);
        let remedy = "divide it into several files";
        return Err(Box::new(Problem::new(message, remedy)));
    }
    Ok((pieces, error))
}

/// The documents of a text.
type Apart<'a> = Result<(Vec<Piece<'a>>, Option<serde_json::Error>), Box<Problem>>;

/// Reads one document of a file.
pub(crate) fn read_piece(
    path: &str,
    piece: &Piece<'_>,
    limits: &Limits,
    counters: &Counters,
) -> Outcome {
    counters.documents_parsed.inc();
    match name::is_json(path) {
        true => document::read_json(piece, limits.document_bytes_max),
        false => document::read_yaml(piece, limits.document_bytes_max),
    }
}

fn read_documents(
    path: &str,
    text: &str,
    known: &Known,
    limits: &Limits,
    counters: &Counters,
) -> Content {
    let (pieces, error) = match take_apart(path, text, limits) {
        Ok(apart) => apart,
        Err(problem) => return Content::Trouble(problem),
    };
    let mut documents = Vec::with_capacity(pieces.len());
    for piece in &pieces {
        let hash = document::hash(piece.text.as_bytes());
        let reading = match known.get(&hash) {
            Some(index) => Reading::Known(*index),
            None => Reading::Fresh(read_piece(path, piece, limits, counters)),
        };
        documents.push(ParsedDocument {
            hash,
            line: piece.line,
            reading,
        });
    }
    documents.extend(error.map(|error| ParsedDocument::rest(text, &error)));
    Content::Documents(documents)
}
