//! Passages.

use super::super::generated as wire;
use super::route::weighted;
use super::{milliseconds, names};
use crate::Passage;

/// The message of a passage.
pub fn passage(value: &Passage) -> wire::Passage {
    wire::Passage {
        listeners: names(&value.listeners),
        hosts: value.hosts.iter().map(ToString::to_string).collect(),
        sources: value.sources.iter().map(ToString::to_string).collect(),
        destinations: value.destinations.iter().map(ToString::to_string).collect(),
        rank: value.rank,
        terminate: value.terminate,
        upstreams: value.upstreams.iter().map(weighted).collect(),
        idle_timeout_ms: milliseconds(value.idle_timeout),
        connect_timeout_ms: milliseconds(value.connect_timeout),
    }
}
