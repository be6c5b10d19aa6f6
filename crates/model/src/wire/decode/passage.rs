//! Passages.

use ipnet::IpNet;

use super::super::{WireError, generated as wire};
use super::policy::milliseconds;
use super::route::weighted;
use super::{host, names};
use crate::Passage;

/// The most of any list in one passage.
const LIST_MAX: usize = 4_096;

/// Reads a passage.
pub fn passage(message: wire::Passage) -> Result<Passage, WireError> {
    let lengths = [
        message.hosts.len(),
        message.sources.len(),
        message.destinations.len(),
        message.upstreams.len(),
    ];
    if lengths.into_iter().any(|length| length > LIST_MAX) {
        return Err(WireError::Invalid("length of a list"));
    }
    let hosts = message.hosts.iter().map(|text| host(text));
    let upstreams = message.upstreams.into_iter().map(weighted);
    let upstreams = upstreams.collect::<Result<Box<[_]>, _>>()?;
    if upstreams.iter().any(|share| share.headers.is_some()) {
        return Err(WireError::Invalid("change of headers"));
    }
    if message.connect_timeout_ms == 0 {
        return Err(WireError::Invalid("connect timeout"));
    }
    Ok(Passage {
        listeners: names(message.listeners)?,
        hosts: hosts.collect::<Result<_, _>>()?,
        sources: ranges(&message.sources)?,
        destinations: ranges(&message.destinations)?,
        rank: message.rank,
        terminate: message.terminate,
        upstreams,
        idle_timeout: milliseconds(message.idle_timeout_ms),
        connect_timeout: milliseconds(message.connect_timeout_ms),
    })
}

fn ranges(texts: &[String]) -> Result<Box<[IpNet]>, WireError> {
    let range = |text: &String| {
        text.parse()
            .map_err(|_| WireError::Invalid("address range"))
    };
    texts.iter().map(range).collect()
}
