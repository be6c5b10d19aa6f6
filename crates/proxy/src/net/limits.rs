//! What anybody outside can make grow, and how far.

use std::time::Duration;

/// The limits of a proxy. Counts are per worker where nothing else is said.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest head of a request or response in bytes; 431 beyond, or 502.
    pub head_bytes_max: usize,
    /// The most header fields in a head; 431 beyond, or 502. Never above
    /// [`crate::net::head::FIELDS_MAX`].
    pub fields_max: usize,
    /// The longest request target in bytes; 414 beyond.
    pub target_bytes_max: usize,
    /// From the first byte of a head to its last; 408 beyond.
    pub head_timeout: Duration,
    /// Between two reads of a request body; 408 beyond.
    pub body_timeout: Duration,
    /// Between two writes to a client that does not read.
    pub write_timeout: Duration,
    /// Between two requests of a connection, and before its first.
    pub idle_timeout: Duration,
    /// The most requests on one connection.
    pub requests_per_connection_max: u64,
    /// The most of an unwanted request body in bytes that is read in order to keep the
    /// connection.
    pub discard_bytes_max: u64,
    /// From the accepted connection to the end of its TLS handshake.
    pub handshake_timeout: Duration,
    /// The most TLS handshakes at a time; further connections are closed.
    pub handshakes_max: usize,
    /// How long a captured connection may say nothing before its server is taken for the one who
    /// speaks first, where what it speaks is not declared.
    pub detection_timeout: Duration,
    /// The longest ClientHello in bytes, with its record headers.
    pub client_hello_bytes_max: usize,
    /// The most connections at a time; no more are accepted until one ends.
    pub connections_max: usize,
    /// The most listeners, in all workers together; others are refused.
    pub listeners_max: usize,
    /// The most HTTP/2 streams at a time on one connection.
    pub streams_max: u32,
    /// The most HTTP/2 streams of one connection that were reset and not yet forgotten; the
    /// connection ends beyond.
    pub resets_max: usize,
    /// What an HTTP/2 client may send on one stream before it is read, in bytes.
    pub stream_window_bytes: u32,
    /// The same on one HTTP/2 connection.
    pub connection_window_bytes: u32,
    /// The most idle connections to one endpoint.
    pub idle_per_endpoint_max: usize,
    /// The most idle connections to all endpoints.
    pub idle_endpoints_max: usize,
    /// How long an idle connection to an endpoint is kept.
    pub upstream_idle_timeout: Duration,
    /// The most parsed certificate keys, in all workers together.
    pub parsed_keys_max: usize,
    /// How often a stream looks whether any passage takes it still.
    pub stream_look: Duration,
    /// How long a stream that no passage takes any more has to end.
    pub stream_drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes_max: 64 << 10,
            fields_max: 128,
            target_bytes_max: 16 << 10,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            requests_per_connection_max: 1_000_000,
            discard_bytes_max: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 1_024,
            detection_timeout: Duration::from_secs(5),
            client_hello_bytes_max: 16 << 10,
            connections_max: 65_536,
            listeners_max: 1_024,
            streams_max: 128,
            resets_max: 64,
            stream_window_bytes: 256 << 10,
            connection_window_bytes: 1 << 20,
            idle_per_endpoint_max: 512,
            idle_endpoints_max: 4_096,
            upstream_idle_timeout: Duration::from_secs(60),
            parsed_keys_max: 16_384,
            stream_look: Duration::from_secs(10),
            stream_drain: Duration::from_secs(30),
        }
    }
}
