//! Rules for streams: connections whose bytes are handed on as they come.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::{Host, Name, WeightedUpstream};

/// One rule for streams. Among those of the most specific host pattern that has any whose
/// addresses match, the first by (`rank`, name) is taken.
///
/// On a listener with TLS, one that does not end TLS takes a handshake before any domain of an
/// equally specific or broader pattern, and the bytes of the handshake are handed on too. One
/// that ends TLS takes what comes out of handshakes that a domain has answered, before any route.
/// One that stands behind others leaves connections to them that they name by their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRoute {
    /// The listeners, sorted; the same list is shared by all stream routes that have it.
    pub listeners: Arc<[Name]>,
    /// Names that handshakes are for; empty for every connection, whatever it speaks first.
    pub hosts: Box<[Host]>,
    /// Client addresses; empty for all.
    pub sources: Box<[IpNet]>,
    /// Addresses that clients connect to; empty for all.
    pub destinations: Box<[IpNet]>,
    /// Lower goes first. Translation computes it from the dialect's rules of precedence.
    pub rank: u64,
    /// The rank below which stream routes of its listener for all names go before it, if they say
    /// the addresses that clients connect to; 0 for none.
    pub behind: u64,
    /// Whether TLS ends here, with the certificate of the domain.
    pub terminate: bool,
    /// The upstreams that the stream is sent to, by weight; they have neither header edits nor
    /// filters. None, or only weights of 0, closes the connection.
    pub upstreams: Box<[WeightedUpstream]>,
    /// How long neither side may say anything; zero for as long as they like, and for the usual
    /// time where datagrams have no end.
    pub idle_timeout: Duration,
    /// The longest TCP and TLS handshake with an endpoint.
    pub connect_timeout: Duration,
}
