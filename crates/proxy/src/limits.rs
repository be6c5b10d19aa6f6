//! The limits of what anybody outside can make grow.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

pub use path_rule::PathRule;

mod path_rule;
pub mod table;

/// The longest line that begins a chunk, extensions included, in bytes, where nobody says
/// otherwise.
pub const CHUNK_LINE_BYTES_MAX: u32 = 1_024;

/// The most bytes of trailers, where nobody says otherwise.
pub const TRAILER_BYTES_MAX: u32 = 8 << 10;

/// The silent connections beyond the limit of all, where there are descriptors for them.
pub const SPARE: usize = 64;

/// How long frames of HTTP/2 that ask for nothing are counted for.
pub const FRAMES_TIME: Duration = Duration::from_secs(10);

/// For so many bytes that a client of HTTP/2 was sent, it may send one more frame of each kind
/// that is counted: who reads much has to say so often. An answer to a frame is far shorter.
pub const FRAME_CREDIT_BYTES: u64 = 64;

/// For so many bytes that a head for an ended stream of HTTP/2 unpacks to, it counts once more.
pub const LATE_HEAD_BYTES: usize = 4 << 10;

/// DATA frames for ended streams of HTTP/2 count where they are shorter: longer ones cost the
/// client as much as the proxy.
pub const LATE_DATA_BYTES: usize = 1 << 10;

/// How many of `max` things of the process one namespace may have: a quarter.
pub const fn namespace_max(max: usize) -> usize {
    max / 4
}

/// Limits that are counted by their own name each time they are reached. What else is limited
/// has a count of its own already, which [`table::ROWS`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reached {
    /// [`Limits::response_head_bytes_max`]
    ResponseHeadBytes,
    /// [`Limits::response_fields_max`]
    ResponseFields,
    /// [`Limits::chunk_line_bytes_max`]
    ChunkLineBytes,
    /// [`Limits::trailer_bytes_max`]
    TrailerBytes,
    /// [`Limits::idle_timeout`]
    IdleTimeout,
    /// [`Limits::requests_per_connection_max`]
    RequestsPerConnection,
    /// [`Limits::discard_bytes_max`]
    DiscardBytes,
    /// [`Limits::client_hello_bytes_max`]
    ClientHelloBytes,
    /// [`Limits::connections_max`]
    Connections,
    /// [`Limits::silent_max`]
    Silent,
    /// [`Limits::silent_bytes_max`]
    SilentBytes,
    /// [`Limits::turn_timeout`]
    TurnTimeout,
    /// [`Limits::resets_max`]
    Resets,
    /// [`Limits::pings_max`]
    Pings,
    /// [`Limits::settings_max`]
    Settings,
    /// [`Limits::priorities_max`]
    Priorities,
    /// [`Limits::window_updates_max`]
    WindowUpdates,
    /// [`Limits::head_frames_max`], or a head beyond twice [`Limits::head_bytes_max`] as it is
    /// packed, or beyond eight times that once it is unpacked.
    HeadFrames,
    /// [`Limits::data_frames_max`]
    DataFrames,
    /// [`Limits::late_frames_max`]
    LateFrames,
    /// [`Limits::listeners_max`]
    Listeners,
    /// [`Limits::streams_max`]
    Streams,
    /// [`Limits::stream_window_bytes`]
    StreamWindowBytes,
    /// [`Limits::connection_window_bytes`]
    ConnectionWindowBytes,
    /// [`Limits::held_bytes_max`]
    HeldBytes,
    /// [`Limits::all_held_bytes_max`]
    AllHeldBytes,
    /// [`Limits::parked_max`]
    Parked,
    /// [`Limits::parked_per_name_max`]
    ParkedPerName,
    /// [`Limits::park_timeout`]
    ParkTimeout,
    /// [`Limits::flows_max`]
    Flows,
}

impl Reached {
    /// Every one, in the order of their numbers.
    pub const ALL: [Reached; 30] = [
        Reached::ResponseHeadBytes,
        Reached::ResponseFields,
        Reached::ChunkLineBytes,
        Reached::TrailerBytes,
        Reached::IdleTimeout,
        Reached::RequestsPerConnection,
        Reached::DiscardBytes,
        Reached::ClientHelloBytes,
        Reached::Connections,
        Reached::Silent,
        Reached::SilentBytes,
        Reached::TurnTimeout,
        Reached::Resets,
        Reached::Pings,
        Reached::Settings,
        Reached::Priorities,
        Reached::WindowUpdates,
        Reached::HeadFrames,
        Reached::DataFrames,
        Reached::LateFrames,
        Reached::Listeners,
        Reached::Streams,
        Reached::StreamWindowBytes,
        Reached::ConnectionWindowBytes,
        Reached::HeldBytes,
        Reached::AllHeldBytes,
        Reached::Parked,
        Reached::ParkedPerName,
        Reached::ParkTimeout,
        Reached::Flows,
    ];

    /// The label in metrics, which is the name of the setting where there is one.
    pub const fn label(self) -> &'static str {
        match self {
            Reached::ResponseHeadBytes => "response_head_bytes",
            Reached::ResponseFields => "response_fields",
            Reached::ChunkLineBytes => "chunk_line_bytes",
            Reached::TrailerBytes => "trailer_bytes",
            Reached::IdleTimeout => "idle_timeout",
            Reached::RequestsPerConnection => "requests_per_connection",
            Reached::DiscardBytes => "discard_bytes",
            Reached::ClientHelloBytes => "client_hello_bytes",
            Reached::Connections => "connections",
            Reached::Silent => "silent",
            Reached::SilentBytes => "silent_bytes",
            Reached::TurnTimeout => "turn_timeout",
            Reached::Resets => "resets",
            Reached::Pings => "pings",
            Reached::Settings => "settings",
            Reached::Priorities => "priorities",
            Reached::WindowUpdates => "window_updates",
            Reached::HeadFrames => "head_frames",
            Reached::DataFrames => "data_frames",
            Reached::LateFrames => "late_frames",
            Reached::Listeners => "listeners",
            Reached::Streams => "streams",
            Reached::StreamWindowBytes => "stream_window_bytes",
            Reached::ConnectionWindowBytes => "connection_window_bytes",
            Reached::HeldBytes => "http2_held_bytes",
            Reached::AllHeldBytes => "held_bytes",
            Reached::Parked => "parked",
            Reached::ParkedPerName => "parked_per_name",
            Reached::ParkTimeout => "park_timeout",
            Reached::Flows => "flows",
        }
    }
}

/// The limits of a proxy. Counts are per worker where nothing else is said.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The longest head of a request in bytes; 431 beyond.
    pub head_bytes_max: usize,
    /// The most header fields of a request; 431 beyond. Never above
    /// [`crate::codec::head::FIELDS_MAX`].
    pub fields_max: usize,
    /// The longest request target in bytes; 414 beyond.
    pub target_bytes_max: usize,
    /// The longest path that servers may read in more than one way.
    pub odd_path_bytes_max: usize,
    /// The gateways that a request has passed, by its `CDN-Loop`, from which on it gets 508. Zero
    /// neither counts them nor tells endpoints of any.
    pub loop_hops_max: usize,
    /// The treatment of paths that servers understand differently.
    pub paths: PathRule,
    /// The longest head of a response in bytes; 502 beyond.
    pub response_head_bytes_max: usize,
    /// The most header fields of a response; 502 beyond. Never above
    /// [`crate::codec::head::FIELDS_MAX`].
    pub response_fields_max: usize,
    /// The longest line that begins a chunk in bytes, extensions included.
    pub chunk_line_bytes_max: u32,
    /// The most bytes of trailers.
    pub trailer_bytes_max: u32,
    /// The longest time from the first byte of a head to its last; 408 beyond.
    pub head_timeout: Duration,
    /// Between two reads of a request body; 408 beyond.
    pub body_timeout: Duration,
    /// The fewest bytes of a body per second that a client is waited for, on average and beyond one
    /// [`Limits::body_timeout`]; 408 below. Zero is no bound. Bodies without a length are bounded
    /// only while nine tenths of the places are taken.
    pub body_rate_min: u64,
    /// Between two writes to a client that does not read.
    pub write_timeout: Duration,
    /// Between two requests of a connection, and before its first.
    pub idle_timeout: Duration,
    /// The most requests on one connection.
    pub requests_per_connection_max: u64,
    /// The most of an unwanted request body in bytes that is read in order to keep the
    /// connection.
    pub discard_bytes_max: u64,
    /// The longest time from the accepted connection to the end of its ClientHello, and from the
    /// turn of its TLS handshake to the end of that.
    pub handshake_timeout: Duration,
    /// The most TLS handshakes at a time; further ones wait for their turn.
    pub handshakes_max: usize,
    /// How long a connection that has said enough waits for its turn to be served.
    pub turn_timeout: Duration,
    /// The most handshakes that wait for a certificate which is obtained on demand; the source that
    /// has most of them loses its oldest one beyond, which goes on without.
    pub parked_max: usize,
    /// The most of them that wait for the certificate of one name; whoever has most of them loses
    /// its oldest one beyond.
    pub parked_per_name_max: usize,
    /// How long each of them waits.
    pub park_timeout: Duration,
    /// How long a captured connection may say nothing before its server is taken for the one who
    /// speaks first, where what it speaks is not declared.
    pub detection_timeout: Duration,
    /// The longest ClientHello in bytes, with its record headers.
    pub client_hello_bytes_max: usize,
    /// The most connections at a time. Silent ones go first, then idle ones for those that have
    /// said enough; where there are none of these, further ones wait.
    pub connections_max: usize,
    /// The most connections at a time that have not said enough to be served; the source that
    /// has most of them loses its oldest one beyond.
    pub silent_max: usize,
    /// The most bytes that hold what such connections have said.
    pub silent_bytes_max: usize,
    /// The silent connections that there may always be, beyond `connections_max`: somebody new has
    /// to be heard before anybody can be told to leave for him.
    pub spare_max: usize,
    /// The most requests on their way to an endpoint, or that a provider is asked about, at a time;
    /// 503 beyond. A domain with more than its share of them gets no more once a fifth is left, as
    /// with connections and handshakes.
    pub requests_max: usize,
    /// The most listeners, in all workers together, of which objects of one namespace open at most
    /// a quarter; others are refused until there is a place.
    pub listeners_max: usize,
    /// The most flows of datagrams at a time. A listener with its share of them, as with
    /// connections, loses the oldest of the source that has most of its own beyond.
    pub flows_max: usize,
    /// The most HTTP/2 streams at a time on one connection.
    pub streams_max: u32,
    /// The most HTTP/2 streams of one connection that were reset and not yet forgotten; the
    /// connection ends beyond.
    pub resets_max: usize,
    /// The most PING frames that an HTTP/2 client may send in [`FRAMES_TIME`], beyond one for
    /// every [`FRAME_CREDIT_BYTES`] that it was sent. The connection ends beyond.
    pub pings_max: u32,
    /// The most SETTINGS frames, likewise.
    pub settings_max: u32,
    /// The most PRIORITY frames and frames of unknown types, likewise.
    pub priorities_max: u32,
    /// The most WINDOW_UPDATE frames, likewise.
    pub window_updates_max: u32,
    /// The most DATA frames with nothing in them, likewise.
    pub data_frames_max: u32,
    /// The most HEADERS, RST_STREAM and short DATA frames for streams that have ended, and of
    /// streams that are refused, likewise; a head counts once more for every [`LATE_HEAD_BYTES`].
    pub late_frames_max: u32,
    /// The most CONTINUATION frames of one head. The connection ends beyond.
    pub head_frames_max: u32,
    /// The bytes that an HTTP/2 client may send on one stream before they are read.
    pub stream_window_bytes: u32,
    /// The bytes that an HTTP/2 client may send on one connection before they are read.
    pub connection_window_bytes: u32,
    /// The most bytes of requests and responses that are held for the streams of one HTTP/2
    /// connection; further streams are refused beyond, and bodies wait.
    pub held_bytes_max: usize,
    /// The most bytes that are held for all connections, in all workers together, and never more
    /// than half of the memory that the process may have. Beyond, who holds much gets no more, and
    /// who waits for its own client goes.
    pub all_held_bytes_max: usize,
    /// The most idle connections to one endpoint.
    pub idle_per_endpoint_max: usize,
    /// The most idle connections to all endpoints.
    pub idle_endpoints_max: usize,
    /// How long an idle connection to an endpoint is kept.
    pub upstream_idle_timeout: Duration,
    /// The most parsed certificate keys, in all workers together.
    pub parsed_keys_max: usize,
    /// The most bytes of hash rings and Maglev tables, in all workers together, and a quarter of
    /// them of one namespace; further ones are made small.
    pub hash_table_bytes_max: u64,
    /// How often a stream looks whether any stream route takes it still.
    pub stream_look: Duration,
    /// How long a stream that no stream route takes any more has to end.
    pub stream_drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes_max: 64 << 10,
            fields_max: 128,
            target_bytes_max: 16 << 10,
            odd_path_bytes_max: 4 << 10,
            loop_hops_max: 8,
            paths: PathRule::Dialect,
            response_head_bytes_max: 64 << 10,
            response_fields_max: 128,
            chunk_line_bytes_max: CHUNK_LINE_BYTES_MAX,
            trailer_bytes_max: TRAILER_BYTES_MAX,
            head_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(60),
            body_rate_min: 64,
            write_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(75),
            requests_per_connection_max: 1_000_000,
            discard_bytes_max: 64 << 10,
            handshake_timeout: Duration::from_secs(10),
            handshakes_max: 1_024,
            turn_timeout: Duration::from_secs(60),
            parked_max: 1_024,
            parked_per_name_max: 64,
            park_timeout: Duration::from_secs(10),
            detection_timeout: Duration::from_secs(5),
            client_hello_bytes_max: 16 << 10,
            connections_max: 65_536,
            silent_max: 16_384,
            silent_bytes_max: 32 << 20,
            spare_max: SPARE,
            requests_max: 16_384,
            listeners_max: 1_024,
            flows_max: 16_384,
            streams_max: 128,
            resets_max: 64,
            pings_max: 256,
            settings_max: 64,
            priorities_max: 2_048,
            window_updates_max: 4_096,
            data_frames_max: 1_024,
            late_frames_max: 65_536,
            head_frames_max: 64,
            stream_window_bytes: 256 << 10,
            connection_window_bytes: 1 << 20,
            held_bytes_max: 2 << 20,
            all_held_bytes_max: 1 << 30,
            idle_per_endpoint_max: 512,
            idle_endpoints_max: 4_096,
            upstream_idle_timeout: Duration::from_secs(60),
            parsed_keys_max: 16_384,
            hash_table_bytes_max: 128 << 20,
            stream_look: Duration::from_secs(10),
            stream_drain: Duration::from_secs(30),
        }
    }
}
