//! Which endpoint takes a request.
//!
//! The tables behind a choice are built when endpoints change, off the request path, and shared by
//! all workers; a choice is a few loads, without a lock, an allocation or a scan.

pub mod draw;
pub mod line;
pub mod locality;
pub mod maglev;
pub mod outlier;
pub mod part;
pub mod pool;
pub mod ring;
pub mod row;
pub mod tables;
pub mod turns;
pub mod usage;
pub mod warmup;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use myriad_base::clock::{self, Instant};
use myriad_model::{Name, ProxyProtocol, UpstreamTls};

pub use part::{Member, PoolPart};
pub use pool::{Choice, Pool};

use crate::random::hash::hash_stable;
use crate::random::rng::Rng;
use crate::telemetry::workloads::WorkloadId;
use outlier::Record;

/// One address that requests are sent to, and how it is spoken to. Upstreams that name the same
/// address share it, with its connections and its count of requests.
pub struct Endpoint {
    /// Unique in the process, and never used again.
    pub id: u64,
    /// The address.
    pub address: SocketAddr,
    /// How it is spoken to.
    pub manner: Arc<TransportSettings>,
    /// The outcomes of its answers, by which it may be left out.
    pub record: Record,
    /// When it came, in milliseconds of [`now_ms`].
    pub born_ms: u64,
    active: AtomicU32,
    /// The number of the workload that has shown a certificate of the mesh there.
    met: AtomicU16,
}

/// How endpoints are spoken to, as far as connections differ by it.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct TransportSettings {
    /// How TLS is done; none for plain text.
    pub tls: Option<UpstreamTls>,
    /// Whether HTTP/2 is spoken.
    pub is_http2: bool,
    /// The header that connections begin with.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The upstream that these settings are for, where it counts or spares its endpoints; `None`
    /// where they are shared with others.
    pub owner: Option<Name>,
    /// The address that connections are opened from; none for any.
    pub source: Option<IpAddr>,
}

/// A request in flight at a target; counted until it is dropped.
pub struct Flight {
    target: Arc<Endpoint>,
}

/// Milliseconds since the process began to choose; never 0.
pub fn now_ms() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(clock::now);
    let passed = clock::now().duration_since(*START);
    u64::try_from(passed.as_millis())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

impl TransportSettings {
    /// HTTP/1 over connections that are shared with other upstreams.
    pub fn shared(tls: Option<UpstreamTls>) -> Arc<Self> {
        TransportSettings {
            tls,
            ..TransportSettings::default()
        }
        .intern()
    }

    /// It, stored once where it is the one that nearly all upstreams have.
    pub fn intern(self) -> Arc<Self> {
        static PLAIN: LazyLock<Arc<TransportSettings>> = LazyLock::new(Arc::default);
        match self == **PLAIN {
            true => PLAIN.clone(),
            false => Arc::new(self),
        }
    }
}

impl Endpoint {
    /// A target without requests.
    pub fn new(address: SocketAddr, manner: Arc<TransportSettings>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Endpoint {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            address,
            manner,
            record: Record::default(),
            born_ms: now_ms(),
            active: AtomicU32::new(0),
            met: AtomicU16::new(WorkloadId::UNKNOWN.to_bits()),
        }
    }

    /// The workload of the mesh that the last handshake was with.
    pub fn met(&self) -> WorkloadId {
        WorkloadId::from_bits(self.met.load(Ordering::Relaxed))
    }

    /// A handshake was with this workload.
    pub fn set_met(&self, met: WorkloadId) {
        self.met.store(met.to_bits(), Ordering::Relaxed);
    }

    /// How TLS is done; none for plain text.
    pub fn tls(&self) -> Option<&UpstreamTls> {
        self.manner.tls.as_ref()
    }

    /// Requests in flight, of all workers.
    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }

    /// The value of an affinity cookie for it: the same in every process, and not its address.
    pub fn mark(&self) -> u64 {
        let mut bytes = [0; 18];
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        bytes[..16].copy_from_slice(&ip.octets());
        bytes[16..].copy_from_slice(&self.address.port().to_be_bytes());
        hash_stable(&bytes)
    }
}

impl Flight {
    /// Counts a request.
    pub fn start(target: Arc<Endpoint>) -> Self {
        target.active.fetch_add(1, Ordering::Relaxed);
        Flight { target }
    }

    /// The endpoint that the request is sent to.
    pub fn target(&self) -> &Arc<Endpoint> {
        &self.target
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.target.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Draws one of several shares; none where all are 0.
pub fn draw_share(shares: impl Iterator<Item = u32> + Clone, dice: &Rng) -> Option<usize> {
    let sum: u64 = shares.clone().map(u64::from).sum();
    if sum == 0 {
        return None;
    }
    let mut left = dice.roll_below(sum);
    for (index, share) in shares.enumerate() {
        match left.checked_sub(u64::from(share)) {
            Some(rest) => left = rest,
            None => return Some(index),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::draw_share;
    use crate::random::rng::Rng;

    #[test]
    fn shares_are_drawn_by_weight() {
        let dice = Rng::new(7);
        let mut taken = [0; 3];
        for _ in 0..10_000 {
            taken[draw_share([90, 0, 10].into_iter(), &dice).unwrap()] += 1;
        }
        assert_eq!(taken[1], 0);
        assert!((800..1_200).contains(&taken[2]), "{taken:?}");
        assert_eq!(draw_share([0, 0].into_iter(), &dice), None);
    }
}
