//! Listeners without a socket, found by what a captured connection was meant for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use myriad_model::{Capture, CaptureDirection, Listener, SealedArc};

use super::leaf::Keyed;
use crate::random::hash::hash_value;

/// The class of captured listeners among hashes.
const CLASS: u8 = 13;

/// A listener without a socket.
pub struct CapturedEntry {
    hash: u64,
    aim: Aim,
    /// The resource.
    pub sealed: SealedArc,
    /// Tells its connections that they are not taken any more as they were.
    pub is_closing: Arc<AtomicBool>,
}

/// The key that a captured listener is found by; an address that is not specified and port 0 stand
/// for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    direction: CaptureDirection,
    ip: IpAddr,
    port: u16,
}

impl Aim {
    /// The key of a listener; `None` where it has a socket of its own.
    pub fn of(listener: &Listener) -> Option<Self> {
        let Capture { direction, .. } = listener.capture?;
        let (ip, port) = (listener.address.ip(), listener.address.port());
        Some(Aim::new(direction, ip, port))
    }

    /// The keys of listeners that a connection may belong to, the most specific first.
    pub fn all(direction: CaptureDirection, original: SocketAddr) -> [Aim; 3] {
        let (ip, port) = (original.ip(), original.port());
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        [(ip, port), (any, port), (any, 0)].map(|(ip, port)| Aim::new(direction, ip, port))
    }

    /// The hash of its place in the tree. Objects of others say which addresses are captured, so it
    /// is one that they cannot steer.
    pub fn hash(&self) -> u64 {
        hash_value(CLASS, &(self.direction, self.ip, self.port))
    }

    fn new(direction: CaptureDirection, ip: IpAddr, port: u16) -> Self {
        let ip = match ip.to_canonical() {
            ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ip => ip,
        };
        Aim {
            direction,
            ip,
            port,
        }
    }
}

impl CapturedEntry {
    /// A listener, unless it has a socket. Connections of the one before go on where they would
    /// be taken as they were; others end with the request they are in.
    pub fn new(sealed: SealedArc, before: Option<&CapturedEntry>) -> Option<Self> {
        let listener = sealed.listener()?;
        let aim = Aim::of(listener)?;
        let same = before.filter(|before| {
            let known = before.sealed.listener();
            known.is_some_and(|known| {
                let parts = |it: &Listener| (it.capture, it.tls, it.protocol);
                parts(known) == parts(listener)
            })
        });
        if let (Some(before), None) = (before, same) {
            before.close();
        }
        Some(CapturedEntry {
            hash: aim.hash(),
            aim,
            is_closing: same.map_or_else(Arc::default, |same| same.is_closing.clone()),
            sealed,
        })
    }

    /// The key that it is found by.
    pub fn aim(&self) -> Aim {
        self.aim
    }

    /// Ends its connections with the request they are in.
    pub fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }
}

impl Keyed for CapturedEntry {
    fn hash(&self) -> u64 {
        self.hash
    }

    fn same_key(&self, other: &Self) -> bool {
        self.aim == other.aim
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::{IpAddr, Ipv6Addr};

    use myriad_model::CaptureDirection;

    use super::Aim;

    #[test]
    fn addresses_that_are_equal_in_a_known_sum_have_places_of_their_own() {
        const LOW: u64 = 0x9e37_79b9_7f4a_7c15;
        const HIGH: u64 = 0xd6e8_feb8_6659_fd93;
        let direction = CaptureDirection::Outbound;
        let inverse = (0..5).fold(LOW, |inverse, _| {
            inverse.wrapping_mul(2_u64.wrapping_sub(LOW.wrapping_mul(inverse)))
        });
        let port = (80 << 48) | ((direction as u64) << 40);
        let places = (1..=2_000_u64).map(|high| {
            let low = 7_u64.wrapping_sub(high.wrapping_mul(HIGH));
            let low = low.wrapping_mul(inverse) ^ port;
            let ip = Ipv6Addr::from_bits((u128::from(high) << 64) | u128::from(low));
            Aim::new(direction, IpAddr::V6(ip), 80).hash()
        });
        assert_eq!(places.collect::<HashSet<u64>>().len(), 2_000);
    }
}
