//! Every limit by name: what it is set by, how far, and what happens beyond. The one place that
//! settings, their help and the documentation are made from.

use std::fmt::Write as _;
use std::time::Duration;

use super::{Limits, Reached};

/// The unit of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes, written with `KiB` and `MiB` as well.
    Bytes,
    /// Milliseconds, written with `ms`, `s` and `m`.
    Time,
}

/// The counter of the times that a limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitCounter {
    /// Counted under its own name, in `myriad_limits_reached_total`.
    Own(Reached),
    /// Counted in a counter that there is for it.
    In(&'static str),
}

/// One limit.
pub struct Row {
    /// The name that it is set by.
    pub name: &'static str,
    /// The unit of its number.
    pub unit: Unit,
    /// The least that it may be set to.
    pub min: u64,
    /// The most.
    pub max: u64,
    /// The thing that it bounds, and what happens beyond.
    pub effect: &'static str,
    /// When somebody should set it.
    pub reason: &'static str,
    /// The counter of the times that it was reached.
    pub counted: LimitCounter,
    get: fn(&Limits) -> u64,
    set: fn(&mut Limits, u64),
}

/// The problem of a limit as written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// No name and value.
    #[error("{0:?} is not NAME=VALUE")]
    Shape(String),
    /// Nothing has the name.
    #[error("there is no limit {0:?}; the nearest is {1}")]
    Unknown(String, &'static str),
    /// The value is none, or out of range.
    #[error("{name} is {value:?}, not {range}")]
    Range {
        /// The limit.
        name: &'static str,
        /// The value as written.
        value: String,
        /// The range of values that it may have.
        range: String,
    },
}

/// A number of a limit.
trait Number {
    fn of(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Number for u64 {
    fn of(number: u64) -> Self {
        number
    }
    fn number(&self) -> u64 {
        *self
    }
}

impl Number for u32 {
    fn of(number: u64) -> Self {
        u32::try_from(number).unwrap_or(u32::MAX)
    }
    fn number(&self) -> u64 {
        u64::from(*self)
    }
}

impl Number for usize {
    fn of(number: u64) -> Self {
        usize::try_from(number).unwrap_or(usize::MAX)
    }
    fn number(&self) -> u64 {
        u64::try_from(*self).unwrap_or(u64::MAX)
    }
}

impl Number for Duration {
    fn of(number: u64) -> Self {
        Duration::from_millis(number)
    }
    fn number(&self) -> u64 {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX)
    }
}

macro_rules! row {
    ($name:literal $field:ident $unit:ident $range:expr, $count:expr, $effect:expr, $why:expr) => {
        Row {
            name: $name,
            unit: Unit::$unit,
            min: *$range.start(),
            max: *$range.end(),
            effect: $effect,
            reason: $why,
            counted: $count,
            get: |limits| limits.$field.number(),
            set: |limits, number| limits.$field = Number::of(number),
        }
    };
}

const fn failure(text: &'static str) -> LimitCounter {
    LimitCounter::In(text)
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

const TOO_LARGE: LimitCounter = failure("request_failures_total{reason=\"head_too_large\"}");

macro_rules! flood {
    ($what:literal) => {
        concat!(
            $what,
            " in 10 s of an HTTP/2 connection, beyond one for every 64 bytes sent to the client; ",
            "it ends"
        )
    };
}

/// Every limit that can be set, in the order of a connection's life.
pub static ROWS: &[Row] = &[
    row!("connections" connections_max Count 16..=4_194_304,
        LimitCounter::Own(Reached::Connections),
        "Connections of a worker at a time; a silent one goes for the next, or for one that has \
         asked an idle one or a handshake under way; else the next waits",
        "fewer where memory is short: an idle TLS connection takes up to 24 KiB"),
    row!("silent" silent_max Count 16..=1_048_576, LimitCounter::Own(Reached::Silent),
        "Connections of a worker without a whole ClientHello or first head; the source that has \
         most loses its oldest",
        "more where very many clients connect at once over slow links"),
    row!("silent_bytes" silent_bytes_max Bytes 64 * KIB..=1_024 * MIB,
        LimitCounter::Own(Reached::SilentBytes),
        "Memory for what these have said so far; the same",
        "more where heads are long and links slow"),
    row!("handshakes" handshakes_max Count 1..=65_536, failure("handshakes_queued_total"),
        "TLS handshakes of a worker at a time, each for at most a second of waiting for its \
         client, and those with endpoints for as long as each step of theirs takes; further ones \
         wait, in turn by namespace, domain or upstream, and source",
        "fewer where floods of handshakes take the CPU of those who are served"),
    row!("turn_timeout" turn_timeout Time 500..=HOUR, LimitCounter::Own(Reached::TurnTimeout),
        "How long a connection that has asked waits for its turn, and then for all further ones \
         of its handshake together; it is closed. As long for all turns of a handshake with an \
         endpoint; 503",
        "shorter where clients give up sooner"),
    row!("parked" parked_max Count 1..=65_536, LimitCounter::Own(Reached::Parked),
        "TLS handshakes of a worker that wait for a certificate which is obtained on demand; the \
         network and source that has most loses its oldest, which goes on with the default \
         certificate or is refused",
        "more where very many new names come at once"),
    row!("parked_per_name" parked_per_name_max Count 1..=65_536,
        LimitCounter::Own(Reached::ParkedPerName),
        "Such handshakes for one name; the network and source that has most loses its oldest",
        "more where a name is busy before it has a certificate"),
    row!("park_timeout" park_timeout Time 500..=MINUTE * 5,
        LimitCounter::Own(Reached::ParkTimeout),
        "How long such a handshake waits for its certificate; it goes on without",
        "longer for authorities that take their time"),
    row!("requests" requests_max Count 1..=4_194_304,
        LimitCounter::In("fair_share_refused_total{of=\"requests\"}"),
        "Requests of a worker under way to endpoints, or that a provider is asked about, at a \
         time; 503 with `Retry-After`",
        "fewer where endpoints are slow and memory is short"),
    row!("handshake_timeout" handshake_timeout Time 500..=MINUTE * 5,
        failure("handshakes_total{outcome=\"timeout\"}"),
        "From an accepted connection to the end of its ClientHello, and from its turn to the end \
         of its handshake; it is closed",
        "longer for clients behind links that lose much"),
    row!("client_hello_bytes" client_hello_bytes_max Bytes KIB..=64 * KIB,
        LimitCounter::Own(Reached::ClientHelloBytes),
        "The longest ClientHello; the connection is closed",
        "longer for clients with many or large post-quantum key shares"),
    row!("head_timeout" head_timeout Time 500..=MINUTE * 10,
        failure("request_failures_total{reason=\"head_timeout\"}"),
        "From the first byte of a head to its last, and for the first frame of HTTP/2; 408",
        "shorter under slow-head floods"),
    row!("head_bytes" head_bytes_max Bytes KIB..=MIB, TOO_LARGE,
        "The longest head of a request; 431",
        "longer for clients with large tokens or cookies"),
    row!("fields" fields_max Count 8..=128, TOO_LARGE,
        "Header fields of a request; 431",
        "fewer in front of servers that take fewer"),
    row!("target_bytes" target_bytes_max Bytes 256..=64 * KIB,
        failure("request_failures_total{reason=\"target_too_long\"}"),
        "The longest path with its query; 414",
        "as the servers behind have it"),
    row!("odd_path_bytes" odd_path_bytes_max Bytes 256..=64 * KIB,
        failure("request_failures_total{reason=\"target_too_long\"}"),
        "The longest path with escapes, parameters, empty or dot segments, or backslashes: each of \
         its readings is compared; 414",
        "longer for keys of object stores beyond 1,024 characters"),
    row!("loop_hops" loop_hops_max Count 0..=64,
        failure("request_failures_total{reason=\"loop_detected\"}"),
        "Gateways that a request has passed before, by its `CDN-Loop`; 508; with 0 the field is \
         left alone",
        "more where servers behind pass on fields from one gateway to the next many times"),
    row!("body_timeout" body_timeout Time 500..=HOUR,
        failure("request_failures_total{reason=\"body_timeout\"}"),
        "Between two reads of a request body; 408",
        "longer for uploads that pause"),
    row!("min_body_rate" body_rate_min Count 0..=MIB,
        failure("request_failures_total{reason=\"body_timeout\"}"),
        "Bytes per second of a request body with a length, on average over the time that the \
         client is waited for and beyond one `body_timeout`; without a length only while nine \
         tenths of `connections` or `requests` are taken; 408 below",
        "0 for clients that keep requests open on purpose; more under slow-body floods"),
    row!("chunk_line_bytes" chunk_line_bytes_max Bytes 16..=8 * KIB,
        LimitCounter::Own(Reached::ChunkLineBytes),
        "The line that begins a chunk, extensions included; 400, or 502",
        "shorter where no client has a use for extensions"),
    row!("trailer_bytes" trailer_bytes_max Bytes 256..=64 * KIB,
        LimitCounter::Own(Reached::TrailerBytes),
        "Fields behind a chunked body; 400, or 502",
        "longer for gRPC over HTTP/1 with large error details"),
    row!("discard_bytes" discard_bytes_max Bytes 0..=16 * MIB,
        LimitCounter::Own(Reached::DiscardBytes),
        "What is read of a body that nobody wants, to keep the connection; it ends instead",
        "0 to end each of them"),
    row!("write_timeout" write_timeout Time 500..=HOUR,
        failure("request_failures_total{reason=\"client_stalled\"}"),
        "Between two writes to a client that does not read; it is cut off",
        "shorter under slow-read floods"),
    row!("idle_timeout" idle_timeout Time 500..=HOUR, LimitCounter::Own(Reached::IdleTimeout),
        "Between two requests of a connection, and before its first; it ends",
        "longer than the idle time of a load balancer in front"),
    row!("requests_per_connection" requests_per_connection_max Count 1..=u64::MAX >> 1,
        LimitCounter::Own(Reached::RequestsPerConnection),
        "Requests of a connection of HTTP/1; it ends with the last",
        "fewer to spread long-lived clients over new replicas"),
    row!("streams" streams_max Count 1..=65_536, LimitCounter::Own(Reached::Streams),
        "HTTP/2 streams of a connection at a time; clients are told, and wait; more are refused",
        "more for few clients with very many requests at a time"),
    row!("stream_window_bytes" stream_window_bytes Bytes 64 * KIB - 1..=64 * MIB,
        LimitCounter::Own(Reached::StreamWindowBytes),
        "What a client may send on one HTTP/2 stream before it is read; it waits; a stream with \
         more ends",
        "more for uploads over long fast links"),
    row!("connection_window_bytes" connection_window_bytes Bytes 64 * KIB - 1..=256 * MIB,
        LimitCounter::Own(Reached::ConnectionWindowBytes),
        "The same on a connection",
        "more for uploads over long fast links"),
    row!("http2_held_bytes" held_bytes_max Bytes 64 * KIB..=256 * MIB,
        LimitCounter::Own(Reached::HeldBytes),
        "What is held for all streams of a connection: 4 KiB for each, heads and bodies that \
         endpoints have not read yet, that providers are asked about or that may have to be sent \
         again, and responses that the client does not read, the proxy's own too; further \
         streams are refused meanwhile, and may be tried again, and bodies wait in turn",
        "more for balancers in front that upload very much by one connection"),
    row!("held_bytes" all_held_bytes_max Bytes 16 * MIB..=1_048_576 * MIB,
        LimitCounter::Own(Reached::AllHeldBytes),
        "What is held for all connections of all workers together, and at most half of the memory \
         budget; connections that hold much get no further streams, requests go that wait for \
         their own clients, half heads and idle connections of HTTP/2 where most is theirs, \
         handshakes under way for the next, and beyond a quarter more those that hold most; what \
         finds no room is answered 503",
        "more for very many requests at a time, on machines that have the memory"),
    row!("resets" resets_max Count 1..=65_536, LimitCounter::Own(Reached::Resets),
        "HTTP/2 streams of a connection that were reset, and not made up for by others; it ends",
        "more for clients that give up on most of what they ask"),
    row!("pings" pings_max Count 8..=1_048_576,
        LimitCounter::Own(Reached::Pings), flood!("PING frames"),
        "more for clients that probe their connection all the time"),
    row!("settings" settings_max Count 4..=1_048_576, LimitCounter::Own(Reached::Settings),
        flood!("SETTINGS frames"), "never, as far as is known"),
    row!("priorities" priorities_max Count 8..=1_048_576, LimitCounter::Own(Reached::Priorities),
        flood!("PRIORITY frames, and those of unknown types,"),
        "more for browsers with very many requests at a time"),
    row!("window_updates" window_updates_max Count 64..=1_048_576,
        LimitCounter::Own(Reached::WindowUpdates), flood!("WINDOW_UPDATE frames"),
        "more for clients that open their window byte by byte"),
    row!("data_frames" data_frames_max Count 8..=1_048_576, LimitCounter::Own(Reached::DataFrames),
        flood!("Empty DATA frames"), "never, as far as is known"),
    row!("late_frames" late_frames_max Count 64..=1_048_576, LimitCounter::Own(Reached::LateFrames),
        flood!("HEADERS, RST_STREAM and DATA frames below 1 KiB for streams that have ended, and \
            streams that are refused, once more for each 4 KiB of a head as it is unpacked,"),
        "more for clients that go on with very many streams for long after their end"),
    row!("head_frames" head_frames_max Count 1..=65_536, LimitCounter::Own(Reached::HeadFrames),
        "CONTINUATION frames of a head, which take twice `head_bytes` at most as they are packed; \
         the connection ends",
        "more for clients with long heads in short frames"),
    row!("response_head_bytes" response_head_bytes_max Bytes KIB..=MIB,
        LimitCounter::Own(Reached::ResponseHeadBytes),
        "The longest head of a response; 502",
        "longer for endpoints that set very many cookies"),
    row!("response_fields" response_fields_max Count 8..=128,
        LimitCounter::Own(Reached::ResponseFields),
        "Header fields of a response; 502",
        "fewer in front of clients that take fewer"),
    row!("idle_per_endpoint" idle_per_endpoint_max Count 0..=65_536,
        failure("upstream_connections_total{event=\"evicted\"}"),
        "Idle connections of a worker to one endpoint, by HTTP/1; those idle longest are closed",
        "fewer for endpoints with a thread per connection"),
    row!("idle_endpoints" idle_endpoints_max Count 0..=1_048_576,
        failure("upstream_connections_total{event=\"evicted\"}"),
        "Idle connections of a worker to all endpoints; those idle longest are closed, and first \
         those of namespaces that have more than a quarter",
        "more for very many endpoints with little traffic each"),
    row!("upstream_idle_timeout" upstream_idle_timeout Time 500..=HOUR,
        failure("upstream_connections_total{event=\"idle\"}"),
        "How long an idle connection to an endpoint is kept, where its upstream says nothing",
        "shorter than the idle time of the endpoints"),
    row!("listeners" listeners_max Count 1..=65_536, LimitCounter::Own(Reached::Listeners),
        "Listeners of all workers together, and a quarter of them of one namespace; others are \
         refused, by a finding, until there is a place",
        "more for gateways with very many ports"),
    row!("flows" flows_max Count 16..=1_048_576, LimitCounter::Own(Reached::Flows),
        "Flows of datagrams of a worker: what one client sends a listener from one port, by a \
         socket of its own; the source with most of a listener's loses its oldest one, and a \
         listener without any gets none",
        "more for very many clients at a time, where `ip_local_port_range` has a port for each"),
    row!("parsed_keys" parsed_keys_max Count 16..=4_194_304,
        failure("certificate_keys_total{event=\"evicted\"}"),
        "Parsed keys of certificates that are kept; the one unused longest is parsed again",
        "more for very many names in use at a time"),
    row!("hash_table_bytes" hash_table_bytes_max Bytes MIB..=65_536 * MIB,
        failure("hash_tables_reduced_total"),
        "Hash rings and Maglev tables of all upstreams together, and a quarter of it of one \
         namespace; further ones become rings of some 8 points per endpoint, and beyond a quarter \
         more there are none",
        "more for very many upstreams with large tables"),
];

impl Row {
    /// The value of limits.
    pub fn value(&self, limits: &Limits) -> String {
        self.unit.show((self.get)(limits))
    }

    /// The range of values that it may have.
    pub fn range(&self) -> String {
        let Row { unit, min, max, .. } = self;
        format!("{} to {}", unit.show(*min), unit.show(*max))
    }

    /// The metric that counts it; empty without one.
    pub fn metric(&self) -> String {
        match self.counted {
            LimitCounter::Own(limit) => {
                format!("limits_reached_total{{limit=\"{}\"}}", limit.label())
            }
            LimitCounter::In(name) => name.to_owned(),
        }
    }
}

impl Unit {
    fn show(self, number: u64) -> String {
        match self {
            Unit::Bytes if number > 0 && number.is_multiple_of(MIB) => {
                format!("{}MiB", number / MIB)
            }
            Unit::Bytes if number > 0 && number.is_multiple_of(KIB) => {
                format!("{}KiB", number / KIB)
            }
            Unit::Count | Unit::Bytes => number.to_string(),
            Unit::Time if number.is_multiple_of(MINUTE) => format!("{}m", number / MINUTE),
            Unit::Time if number.is_multiple_of(SECOND) => format!("{}s", number / SECOND),
            Unit::Time => format!("{number}ms"),
        }
    }

    fn read(self, text: &str) -> Option<u64> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, unit) = text.split_at_checked(digits)?;
        let factor = match (self, unit) {
            (Unit::Count | Unit::Bytes, "") => 1,
            (Unit::Bytes, "KiB") => KIB,
            (Unit::Bytes, "MiB") => MIB,
            (Unit::Time, "ms") => 1,
            (Unit::Time, "s") => SECOND,
            (Unit::Time, "m") => MINUTE,
            _ => return None,
        };
        digits.parse::<u64>().ok()?.checked_mul(factor)
    }

    fn hint(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Bytes => " in bytes, KiB or MiB",
            Unit::Time => " with ms, s or m behind",
        }
    }
}

impl Limits {
    /// Sets one limit as `NAME=VALUE` says.
    ///
    /// # Errors
    /// The problem of the setting, by name.
    pub fn set(&mut self, written: &str) -> Result<(), LimitError> {
        let Some((name, value)) = written.split_once('=') else {
            return Err(LimitError::Shape(written.to_owned()));
        };
        let (name, value) = (name.trim(), value.trim());
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            return Err(LimitError::Unknown(name.to_owned(), nearest(name)));
        };
        match row.unit.read(value) {
            Some(number) if (row.min..=row.max).contains(&number) => {
                (row.set)(self, number);
                Ok(())
            }
            _ => Err(LimitError::Range {
                name: row.name,
                value: value.to_owned(),
                range: format!("{}{}", row.range(), row.unit.hint()),
            }),
        }
    }
}

/// The table of all limits as the documentation has it, in Markdown.
pub fn markdown() -> String {
    let limits = Limits::default();
    let mut text = String::from(
        "| name | default | range | what it bounds, and what happens beyond | counted in \
         `myriad_...` | when to change it |\n|---|---|---|---|---|---|\n",
    );
    for row in ROWS {
        let (value, range) = (row.value(&limits), row.range());
        let metric = match row.metric() {
            metric if metric.is_empty() => String::new(),
            metric => format!("`{metric}`"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| `{}` | {value} | {range} | {} | {metric} | {} |",
            row.name, row.effect, row.reason
        );
    }
    text
}

/// The name that is most like another, by the letters that would have to be changed.
fn nearest(name: &str) -> &'static str {
    let names = ROWS.iter().map(|row| row.name);
    // No name is long, so what is beyond cannot be meant.
    let start: String = name.chars().take(32).collect();
    names
        .min_by_key(|known| distance(known, &start))
        .unwrap_or_default()
}

fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = line;
        let mut left = line + 1;
        for (place, second) in row
            .iter_mut()
            .zip(std::iter::once('\0').chain(other.chars()))
        {
            let above = *place;
            *place = match second {
                '\0' => line + 1,
                _ => (diagonal + usize::from(letter != second))
                    .min(above + 1)
                    .min(left + 1),
            };
            diagonal = above;
            left = *place;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
