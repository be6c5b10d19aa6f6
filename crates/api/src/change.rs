//! A source's messages to the control loop: changed objects, and the findings that it made on the
//! way.

use std::sync::Arc;
use std::time::Instant;

use crate::{Finding, Object, ObjectKey, ObjectKind};

/// One changed object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The object appeared or has new content.
    Put(Object),
    /// The object is gone.
    Remove(ObjectKey),
}

impl Change {
    /// The key of the object that changed.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Change::Put(object) => &object.meta().key,
            Change::Remove(key) => key,
        }
    }
}

/// All findings that a source has about one subject (a file, a watched kind). A new report
/// replaces the former one of the same subject; an empty one clears it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The subject of the findings, for instance a path relative to the served directory.
    pub subject: Arc<str>,
    /// The findings, at most as many as the source's stated limit per subject.
    pub findings: Vec<Finding>,
}

/// Changes that belong together: one file, one symlink swap, one group of watch events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Changed objects; at most one change per key.
    pub changes: Vec<Change>,
    /// Findings of the source itself, by subject.
    pub reports: Vec<Report>,
    /// Set on the batch that ends the first complete list: from here on absence counts.
    pub synced: bool,
    /// Up to which revision of its source each kind is contained, sorted by kind; empty where
    /// the source counts no revisions.
    pub positions: Vec<(ObjectKind, u64)>,
    /// Whether removals among the changes are inferred: nobody was seen to remove the objects,
    /// which are only not there any more.
    pub infers: bool,
    /// The last writers of changed objects, where the objects say so.
    pub writers: Vec<(ObjectKey, Arc<str>)>,
    /// When the source noticed the first of them; `None` where it does not say.
    pub noticed: Option<Instant>,
}
