//! How the endpoints of an upstream are chosen, limited and spared.

use std::time::Duration;

use super::{LocalityRule, Share};

/// The settings of an upstream's endpoints. The default is what holds without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// The rule that picks an endpoint for each request.
    pub balancer: Balancer,
    /// The growth of the share of new endpoints; `None` for none.
    pub warmup: Option<Warmup>,
    /// The limits beyond which requests are refused and connections closed.
    pub limits: Limits,
    /// When an endpoint is left out for a while; none for never.
    pub outlier: Option<Box<Outlier>>,
    /// The header that connections begin with.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// How many repetitions may be in flight; none for what the process is set to.
    pub retry_budget: Option<RetryBudget>,
    /// Which endpoints are preferred by where they are; none for all alike.
    pub locality: Option<Box<LocalityRule>>,
    /// Whether requests of clients that speak HTTP/2 go out in HTTP/2, whatever the protocol of
    /// the upstream.
    pub follows_client: bool,
    /// The target that endpoints, being proxies, are asked to connect a stream to; `None` where
    /// they are the target themselves. Requests of HTTP have no tunnel.
    pub tunnel: Option<Box<Tunnel>>,
}

/// The target that an endpoint, being a proxy, connects to (CONNECT over HTTP/1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// A host name or an IP address.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

/// The rule that picks an endpoint for each request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balancer {
    /// The one with fewer requests in flight, of two that are drawn by weight.
    #[default]
    LeastRequest,
    /// One after the other, by weight.
    RoundRobin,
    /// Drawn by weight.
    Random,
    /// Equal requests to the same endpoint.
    Hash(Box<HashBalancer>),
}

/// Equal requests to the same endpoint, with few moves where endpoints come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashBalancer {
    /// The property by which requests are equal. A request without it is spread like any other.
    pub source: HashSource,
    /// The parts that make requests equal in place of the source: all of these together, of which a
    /// request has one at least. At most [`HashPart::COUNT_MAX`]; none leaves it to the source, as
    /// proxies do that do not know of parts.
    pub parts: Box<[HashPart]>,
    /// How hashes lead to endpoints.
    pub table: HashTable,
}

/// A property by which requests are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashSource {
    /// The value of a header, by its name in lower case.
    Header(Box<str>),
    /// The value of a cookie.
    Cookie(Box<HashCookie>),
    /// The address of the client.
    SourceIp,
    /// The value of a query parameter.
    Query(Box<str>),
}

/// A part of what makes requests equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashPart {
    /// The path and the query, as they were sent.
    Target,
    /// The host that is asked for, without a port.
    Host,
    /// The address of the client.
    SourceIp,
    /// The value of a header, by its name in lower case.
    Header(Box<str>),
    /// The value of a cookie.
    Cookie(Box<str>),
    /// The value of a query parameter.
    Query(Box<str>),
}

impl HashPart {
    /// The most parts together.
    pub const COUNT_MAX: usize = 8;
}

/// A cookie that makes requests equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashCookie {
    /// Its name.
    pub name: Box<str>,
    /// The path that it is made for; empty for none.
    pub path: Box<str>,
    /// How long one lives that is made for a request without; zero for as long as the browser
    /// does; none makes none.
    pub age: Option<Duration>,
    /// Further attributes, with values that may be empty.
    pub attributes: Box<[(Box<str>, Box<str>)]>,
}

/// How hashes lead to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashTable {
    /// A ring with at least so many points, 1 to [`HashTable::SIZE_MAX`].
    Ring(u32),
    /// A table of Maglev with so many places, a prime of 2 to [`HashTable::SIZE_MAX`].
    Maglev(u32),
}

impl HashTable {
    /// The largest table: 4 MiB of places.
    pub const SIZE_MAX: u32 = 1 << 20;
}

/// How new endpoints begin: with less of their weight, that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warmup {
    /// Until they have it all; not zero.
    pub duration: Duration,
    /// The percentage that they begin with, 0 to 100.
    pub percent_min: u8,
    /// The aggression, in thousandths: 1,000 grows in proportion to time, more grows faster at
    /// first; not zero.
    pub aggression: u32,
}

/// Limits beyond which requests are refused and connections closed. Zero stands for no limit,
/// except where said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Connections to all endpoints together.
    pub connections_max: u32,
    /// Requests that wait for a connection; beyond it they get 503.
    pub pending_max: u32,
    /// Requests in flight; beyond it they get 503.
    pub requests_max: u32,
    /// Requests that one connection carries.
    pub connection_requests_max: u32,
    /// Repetitions in flight; zero for what the process is set to.
    pub retries_max: u32,
    /// Requests at a time on one connection of HTTP/2; zero for what the endpoint allows.
    pub streams_max: u32,
    /// The longest to connect; zero for what the route says.
    pub connect_timeout: Duration,
    /// The longest that a connection waits for its next request; zero for what the process is set
    /// to.
    pub idle_timeout: Duration,
    /// The longest that a connection is used.
    pub connection_time_max: Duration,
    /// Probes of the kernel on idle connections; none for what the process is set to.
    pub keepalive: Option<Keepalive>,
    /// Pings on connections of HTTP/2; none for none.
    pub ping: Option<Ping>,
}

/// Probes of the kernel. Zero stands for what the system is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Unanswered ones until the connection is given up.
    pub probes: u32,
    /// Idle time before the first.
    pub time: Duration,
    /// Time between them.
    pub interval: Duration,
}

/// Pings on connections of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Time between them; not zero.
    pub interval: Duration,
    /// The longest wait for the answer, after which the connection is given up; not zero.
    pub timeout: Duration,
}

/// When an endpoint is left out for a while. A count of zero stands for never.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlier {
    /// Responses of 500 to 599 in a row; failures before a response count too, unless split.
    pub server_errors: u32,
    /// 502, 503 or 504 in a row; failures before a response count too, unless split.
    pub gateway_errors: u32,
    /// Failures before a response in a row; counted only where split.
    pub local_errors: u32,
    /// Whether failures before a response are counted apart from responses.
    pub is_split: bool,
    /// The time between two looks at who may come back; not zero.
    pub interval: Duration,
    /// How long the first absence is; each later one in a row is longer by as much. Not zero.
    pub ejection_time: Duration,
    /// The most endpoints left out at a time, 1 to 100 percent, but at least one.
    pub ejection_percent_max: u8,
    /// The least share of endpoints in service, 0 to 100 percent; below it nobody is left out.
    pub health_percent_min: u8,
    /// The statuses that are errors of the server, instead of 500 to 599 and for all others to be
    /// none; empty for those. At most [`Outlier::STATUSES_MAX`], sorted.
    pub error_statuses: Box<[u16]>,
}

impl Outlier {
    /// The most statuses that may be errors.
    pub const STATUSES_MAX: usize = 500;
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProxyProtocol {
    /// A line of text.
    V1 = 1,
    /// Binary.
    V2 = 2,
}

/// How many repetitions may be in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    /// The share of the requests in flight.
    pub share: Share,
    /// The number that is always allowed.
    pub retries_min: u32,
    /// The time that requests count for after they began, where there are more of them than in
    /// flight; zero for those in flight alone.
    pub interval: Duration,
}
