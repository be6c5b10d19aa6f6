//! Settings of a sidecar's sockets: where a workload's network rules lead its connections.

use std::net::SocketAddr;
use std::time::Duration;

use myriad_model::CaptureDirection;

use super::address::address;
use crate::cli::RawTraffic;

/// The longest wait for first bytes, in seconds: beyond, people take a server that speaks first
/// for one that is down.
const DETECTION_SECONDS_MAX: u64 = 60;

/// The sockets of captured connections, and how long these may say nothing.
#[derive(Clone, Debug)]
pub struct Captures {
    /// The sockets; empty where nothing is captured.
    pub sockets: Vec<(CaptureDirection, SocketAddr)>,
    /// How long a connection may say nothing where what it speaks is not declared.
    pub detection_timeout: Duration,
}

/// Checks settings.
pub(super) fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> Captures {
    let mut sockets = Vec::new();
    for (name, direction, text) in [
        (
            "--capture-outbound",
            CaptureDirection::Outbound,
            &raw.capture_outbound,
        ),
        (
            "--capture-inbound",
            CaptureDirection::Inbound,
            &raw.capture_inbound,
        ),
    ] {
        if let Some(text) = text {
            sockets.push((direction, address(name, text, problems)));
        }
    }
    let seconds = raw.detection_timeout;
    if !(1..=DETECTION_SECONDS_MAX).contains(&seconds) {
        problems.push(format!(
            "--detection-timeout is {seconds}, not 1 to {DETECTION_SECONDS_MAX}"
        ));
    }
    Captures {
        sockets,
        detection_timeout: Duration::from_secs(seconds),
    }
}
