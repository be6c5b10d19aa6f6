//! The scope of a watch and what it hands on, its requests to the server, and reasons why one gets
//! no answer.

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Change, ObjectKey, ObjectKind, Report};
use myriad_base::hold::HoldLimits;

/// The kind and the namespace that a watch is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) struct Scope {
    /// The kind.
    pub(in crate::kubernetes) kind: ObjectKind,
    /// The one namespace; none means all.
    pub(in crate::kubernetes) namespace: Option<Arc<str>>,
    /// The one object, by its name; none means all.
    pub(in crate::kubernetes) name: Option<Arc<str>>,
    /// Objects of this name are left out.
    pub(in crate::kubernetes) except: Option<Arc<str>>,
    /// The selector of fields that objects have to meet; empty means all.
    pub(in crate::kubernetes) selector: &'static str,
    /// Whether the kind counts as empty while the server forbids to list it. Only for one on which
    /// no domain depends: what cannot be read is not gone.
    pub(in crate::kubernetes) is_optional: bool,
    /// The group and version in which it is asked for.
    pub(in crate::kubernetes) api_version: &'static str,
}

/// The limits of a watch.
#[derive(Clone, Copy, Debug)]
pub(in crate::kubernetes) struct Limits {
    /// The time that the removals of a kind which is suddenly empty are held back.
    pub(in crate::kubernetes) removal_hold: Duration,
    /// When the removals of many objects are held back, and for how long.
    pub(in crate::kubernetes) hold: HoldLimits,
    /// Objects per page of a list that is not streamed.
    pub(in crate::kubernetes) page_objects: u32,
}

/// Changes and findings to hand on.
#[derive(Debug, Default)]
pub(in crate::kubernetes) struct Output {
    /// Changes in the order in which they were seen; a key may occur more than once.
    pub(in crate::kubernetes) changes: Vec<Change>,
    /// The findings of this watch, if they changed.
    pub(in crate::kubernetes) report: Option<Report>,
    /// Everything up to this version is contained; 0 before the first list is complete.
    pub(in crate::kubernetes) version: u64,
    /// Whether a list has been completed.
    pub(in crate::kubernetes) is_listed: bool,
    /// Whether removals among the changes are inferred from what a list did not show.
    pub(in crate::kubernetes) infers: bool,
    /// The last writers of changed objects.
    pub(in crate::kubernetes) writers: Vec<(ObjectKey, Arc<str>)>,
}

/// The next request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) enum Request {
    /// A watch that begins with all objects.
    Stream,
    /// A page of a list.
    Page {
        /// Objects per page.
        limit: u32,
        /// The token of the page before.
        token: Option<Arc<str>>,
    },
    /// Asks where the server's history stands.
    Probe,
    /// How an object stood at a version: whether the history is still the one that was read.
    Check {
        /// The object.
        id: Arc<str>,
        /// The version.
        version: u64,
    },
    /// A watch of what came later than the version.
    Watch(u64),
}

/// Why a request did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::kubernetes) enum Failure {
    /// 410: the version or the list's continuation is older than what the server remembers.
    Gone,
    /// 400 or 422: the server does not know what was asked for.
    Unsupported(String),
    /// An answer longer than its limit.
    TooLarge,
    /// 401: the server does not know who asks, so its answer says nothing of what there is.
    Unauthorized(String),
    /// 403: the operator has to do something.
    Refused(String),
    /// 404: the server does not have the kind, or not any more.
    Missing(String),
    /// The connection, or a server in trouble.
    Lost(String),
    /// 429 or 503 of a server that says when to come back.
    Busy {
        /// How long to wait at least.
        after: Duration,
        /// The message.
        text: String,
    },
    /// Nothing came for too long.
    Idle,
}
