//! Hosts that the proxies of gateways tell, since clients ask for them and no object names them.
//! Their meaning is others' business.

use std::sync::Arc;
use std::time::Duration;

/// The most hosts of a stream that are without an answer.
pub const DEMANDS_OPEN_MAX: usize = 64;
/// The most hosts of a stream that are handed on at once.
pub const DEMAND_BURST: u32 = 64;
/// Then one in this time; further ones wait.
pub const DEMAND_INTERVAL: Duration = Duration::from_millis(10);
/// The longest time for which a host is refused.
pub const REFUSED_FOR_MAX: Duration = Duration::from_secs(600);

/// A host that no object names, and that clients of a proxy ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandedHost {
    /// The host, in lower case.
    pub host: Arc<str>,
    /// Whether its certificate is there, and is used; else handshakes wait for it.
    pub is_used: bool,
}

/// The time of an answer, in milliseconds.
pub(crate) fn millis(refused_for: Duration) -> u32 {
    let millis = refused_for.min(REFUSED_FOR_MAX).as_millis();
    u32::try_from(millis).unwrap_or(u32::MAX)
}

/// The time that an answer tells.
pub(crate) fn refused_for(millis: u32) -> Duration {
    Duration::from_millis(millis.into()).min(REFUSED_FOR_MAX)
}
