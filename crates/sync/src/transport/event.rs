//! The events that those who watch over proxies are told.

use std::sync::Arc;

use myriad_model::{Digest, Position};

use super::seats::Owner;
use crate::server::Receipt;
#[cfg(doc)]
use crate::server::Report;
use crate::wire::SessionError;

/// The identity of a proxy, as its token proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The subject of the token, for instance a service account.
    pub subject: Arc<str>,
    /// The view that it sees. It follows from the token alone: a proxy cannot ask for another.
    pub view: Arc<str>,
    /// The owner of its streams.
    pub owner: Owner,
}

/// Something that happened to one proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A proxy introduced itself.
    Connected {
        /// The number of the stream, unique in this process.
        stream: u64,
        /// The identity that its token proves.
        identity: Identity,
        /// The name that it gives itself; not proven.
        instance: String,
        /// The newest schema it understands.
        schema: u32,
        /// The position of what it holds.
        position: Position,
    },
    /// It has put a commit into service. Where events wait, one stands for those before it.
    Acked {
        /// The number of the stream.
        stream: u64,
        /// The position that it has reached.
        position: Position,
        /// The root that it reports; see [`Report::Acked`].
        root: Digest,
        /// Whether nothing newer is known here.
        is_in_step: bool,
    },
    /// It refused resources of a commit. Comes before the `Acked` of the same commit.
    Refused {
        /// The number of the stream.
        stream: u64,
        /// The resources that were refused, and the reasons.
        receipts: Vec<Receipt>,
        /// Refusals that were counted but not listed.
        receipts_omitted: u64,
    },
    /// The stream of a proxy that had been `Connected` has ended.
    Gone {
        /// The number of the stream.
        stream: u64,
        /// The error of the proxy that ended the stream, if that is why.
        error: Option<SessionError>,
    },
}
