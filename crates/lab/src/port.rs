//! Ports that nobody listens on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};

/// Ports that stories are given.
const PORTS_START: u16 = 25_000;
const PORTS_END: u16 = 32_000;

/// How many were asked for.
static PORTS_ASKED: AtomicU64 = AtomicU64::new(0);

/// A port that nobody listens on now.
///
/// # Panics
/// Where there is none.
pub fn free_port() -> u16 {
    // Below those that the system chooses: one of these would be chosen again by another story
    // while nobody listens on it yet. Runs side by side begin at different places.
    let run = u64::from(std::process::id()) * 61;
    let asked = || PORTS_ASKED.fetch_add(1, Ordering::Relaxed);
    let place = || (run + asked()) % u64::from(PORTS_END - PORTS_START);
    let ports = std::iter::repeat_with(|| PORTS_START + u16::try_from(place()).unwrap_or(0));
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = ports.take(1_000).filter(is_free);
    free.next().expect("a port")
}

/// An address on this machine that nobody listens on, of the ports that the system chooses.
///
/// # Errors
/// No port is to be had.
pub fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
