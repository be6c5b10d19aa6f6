//! The works.

use std::fmt;

use super::ThroughputArgs;
use super::subject::Peer;
use super::traffic::Life;
use crate::istio::Keys;
use crate::load::Schedule;

/// A work, which has a row for each of its cases and each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
pub(super) enum Work {
    /// HTTPS/1.1, saturated, at 64 and at 1,000 connections.
    #[value(name = "W1")]
    W1,
    /// HTTP/1.1 without TLS, saturated, at 64 connections.
    #[value(name = "W2")]
    W2,
    /// HTTP/2, saturated, with 8 streams on each of 32 connections.
    #[value(name = "W3")]
    W3,
    /// New HTTPS connections with a request each, of P-256 and RSA keys, whole and resumed.
    #[value(name = "W4")]
    W4,
    /// Latency that HTTPS/1.1 adds at 1,000 requests per second over 16 connections.
    #[value(name = "W5")]
    W5,
    /// Memory at boot, after load, and per idle HTTPS connection at 10,000.
    #[value(name = "W6")]
    W6,
    /// New HTTPS connections beside 2,000 in a second that say nothing, and without them.
    #[value(name = "W7")]
    W7,
}

/// One case of a work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// The work that the case belongs to.
    pub work: Work,
    /// Which one, where connections do not say it.
    pub variant: Option<&'static str>,
    /// Connections at a time.
    pub connections: usize,
    /// How long each is used.
    pub life: Life,
    /// The keys of certificates.
    pub keys: Keys,
    /// Streams at a time on each, over HTTP/2.
    pub streams: Option<usize>,
    /// When requests are due, where that is not at once.
    pub schedule: Option<Schedule>,
}

/// Requests per second where latency is measured.
pub(super) const RATE_RPS: f64 = 1_000.0;

/// Connections at a time where each has one request.
const NEW_CONNECTIONS: usize = 32;

/// Connections of the load before and after which memory is looked at.
pub(super) const LOAD_CONNECTIONS: usize = 1_000;

/// New connections per second where others say nothing.
pub(super) const NEW_RPS: f64 = 200.0;

/// Connections per second that say nothing.
pub(super) const SILENT_RPS: u32 = 2_000;

/// How many of them are held at a time.
pub(super) const SILENT_HELD: usize = 8_192;

/// Descriptors beside those of connections.
const DESCRIPTORS_SPARE: u64 = 1_024;

/// Connections where latency is measured.
const LATENCY_CONNECTIONS: usize = 16;

impl Work {
    /// Its cases.
    pub(super) fn cases(self, args: &ThroughputArgs) -> Vec<Case> {
        let case = |connections| Case {
            work: self,
            variant: None,
            connections,
            life: Life::Kept,
            keys: Keys::P256,
            streams: None,
            schedule: None,
        };
        let several = |connections: &[usize]| {
            let connections = match args.connections.is_empty() {
                true => connections,
                false => &args.connections,
            };
            connections.iter().copied().map(case).collect::<Vec<_>>()
        };
        match self {
            Work::W1 => several(&[64, 1_000]),
            Work::W2 => several(&[64]),
            Work::W3 => {
                let cases = several(&[32]);
                let streams = Some(8);
                cases
                    .into_iter()
                    .map(|case| Case { streams, ..case })
                    .collect()
            }
            Work::W5 => [("constant", false), ("jittered", true)]
                .map(|(variant, has_jitter)| Case {
                    variant: Some(variant),
                    schedule: Some(Schedule {
                        rps: RATE_RPS,
                        connections: LATENCY_CONNECTIONS,
                        requests: u64::MAX,
                        has_jitter,
                    }),
                    ..case(LATENCY_CONNECTIONS)
                })
                .to_vec(),
            Work::W6 => several(&[10_000]),
            Work::W7 => vec![Case {
                life: Life::Fresh,
                schedule: Some(Schedule {
                    rps: NEW_RPS,
                    connections: LATENCY_CONNECTIONS,
                    requests: u64::MAX,
                    has_jitter: true,
                }),
                ..case(LATENCY_CONNECTIONS)
            }],
            Work::W4 => [
                ("P-256", Keys::P256, Life::Fresh),
                ("P-256 resumed", Keys::P256, Life::Resumed),
                ("RSA-2048", Keys::Rsa, Life::Fresh),
                ("RSA-2048 resumed", Keys::Rsa, Life::Resumed),
            ]
            .map(|(variant, keys, life)| Case {
                variant: Some(variant),
                life,
                keys,
                ..case(NEW_CONNECTIONS)
            })
            .to_vec(),
        }
    }
}

impl Case {
    /// Whether it is done over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.work != Work::W2
    }

    /// Whether it is about memory and not about time.
    pub(super) fn is_memory(&self) -> bool {
        self.work == Work::W6
    }

    /// Whether it is done beside connections that say nothing as well.
    pub(super) fn has_silent(&self) -> bool {
        self.work == Work::W7
    }

    /// Descriptors that a process needs for it: a proxy and this process have one for each
    /// connection, and one for each that answers, which idle connections do not have.
    pub(super) fn descriptors(&self) -> u64 {
        let idle = if self.is_memory() {
            self.connections
        } else {
            0
        };
        let busy = match self.is_memory() {
            true => self.connections.min(LOAD_CONNECTIONS),
            false => self.connections,
        };
        let silent = if self.has_silent() { SILENT_HELD } else { 0 };
        (idle + 4 * busy + silent) as u64 + DESCRIPTORS_SPARE
    }

    /// Whether a peer can do it.
    pub(super) fn suits(&self, peer: Option<Peer>) -> bool {
        self.streams.is_none() || peer != Some(Peer::Floor)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variant = self.variant.unwrap_or("");
        write!(
            out,
            "{:?} {variant} at {} connections",
            self.work, self.connections
        )
    }
}
