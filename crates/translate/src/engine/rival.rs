//! Rivals: the namespaces that claim a host of which one of them has nothing, for whoever asks DNS
//! whose it is.

use myriad_model::Host;

/// A namespace whose objects claim a host that objects of another one claim too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rival {
    /// The host.
    pub host: Host,
    /// The namespace.
    pub namespace: Box<str>,
    /// Whether it has the host.
    pub holds: bool,
}
