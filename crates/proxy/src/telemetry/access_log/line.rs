//! One request or stream, as it is told of.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use myriad_model::{Attribute, Name, Origin};

use super::super::recording::{Recording, Takers};
use crate::codec::client::ClientAddress;
use crate::failure::envoy_flag;

/// The protocol of a line that tells of a stream, which has neither request nor status.
pub const STREAM: &str = "TCP";

/// The protocol of a line that tells of a flow of datagrams, which has neither as well.
pub const DATAGRAMS: &str = "UDP";

/// A recording as its lines share it.
pub type SharedRecording = Arc<Recording>;

/// One request or stream, as the access log tells it.
#[derive(Clone)]
pub struct AccessLogLine {
    /// When the request had been read, since the Unix epoch.
    pub time: Duration,
    /// The time from then until its response was written.
    pub duration: Duration,
    /// The listener.
    pub listener: Name,
    /// The address of the client.
    pub client: ClientAddress,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The port that it connected to.
    pub port: u16,
    /// The method.
    pub method: Box<str>,
    /// The host asked for, without port; empty for none.
    pub host: Box<str>,
    /// The path and query asked for.
    pub target: Box<str>,
    /// `http` or `https`, as the client speaks it with the first proxy that is trusted; empty for
    /// a stream.
    pub scheme: &'static str,
    /// The id of the request; empty for a stream.
    pub request_id: Box<str>,
    /// The start of what the client says that it is.
    pub user_agent: Option<Box<str>>,
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, [`STREAM`], or [`DATAGRAMS`].
    pub protocol: &'static str,
    /// The status of the response.
    pub status: u16,
    /// The bytes of the response body that were handed on.
    pub bytes_sent: u64,
    /// The bytes of the request body that were handed on.
    pub bytes_received: u64,
    /// The upstream chosen.
    pub upstream: Option<Name>,
    /// The endpoint tried last.
    pub endpoint: Option<SocketAddr>,
    /// The failure; see [`crate::failure::FailureVerdict`].
    pub flag: Option<&'static str>,
    /// Whether an access policy wants the request to be marked.
    pub is_audited: bool,
    /// The object that the route came from.
    pub origin: Option<Origin>,
    /// The name sent in the TLS handshake.
    pub sni: Option<Box<str>>,
    /// The TLS version spoken.
    pub tls: Option<&'static str>,
    /// The first URI in the client's certificate, which was verified; empty for none in it.
    pub principal: Option<Box<str>>,
    /// The trace that the request belongs to.
    pub trace: Option<[u8; 16]>,
    /// The headers that [`Recording::headers`] names.
    pub headers: Box<[Option<Box<str>>]>,
    /// The outputs that take the line; `None` for the log of the proxy's setting.
    pub recording: Option<(Arc<Recording>, Takers)>,
}

impl AccessLogLine {
    /// A line that says nothing yet.
    pub fn new(listener: Name, peer: SocketAddr) -> AccessLogLine {
        AccessLogLine {
            time: Duration::ZERO,
            duration: Duration::ZERO,
            listener,
            client: peer.ip().into(),
            peer,
            port: 0,
            method: Box::default(),
            host: Box::default(),
            target: Box::default(),
            scheme: "",
            request_id: Box::default(),
            user_agent: None,
            protocol: STREAM,
            status: 0,
            bytes_sent: 0,
            bytes_received: 0,
            upstream: None,
            endpoint: None,
            flag: None,
            is_audited: false,
            origin: None,
            sni: None,
            tls: None,
            principal: None,
            trace: None,
            headers: Box::default(),
            recording: None,
        }
    }

    /// Whether it tells of a stream, or of a flow of datagrams.
    pub fn is_stream(&self) -> bool {
        self.protocol == STREAM || self.protocol == DATAGRAMS
    }

    /// How many bytes of memory it takes, about.
    pub fn memory(&self) -> usize {
        let headers = self.headers.iter().flatten();
        let headers = headers.map(|value| value.len());
        let of_request = self.method.len() + self.host.len() + self.target.len();
        let agent = self.user_agent.as_ref().map_or(0, |agent| agent.len());
        let beside = size_of::<Self>() + size_of_val(&*self.headers) + self.request_id.len();
        beside + of_request + agent + headers.sum::<usize>()
    }

    /// Finds out which logs take the line, and whether any does; `logs_all` is the proxy's
    /// setting where nothing else is said.
    pub fn find_takers(&mut self, logs_all: bool) -> bool {
        let Some((recording, _)) = &self.recording else {
            return logs_all;
        };
        if recording.has_logs().is_none() {
            self.recording = None;
            return logs_all;
        }
        let (recording, takers) = (recording.clone(), recording.takers(self));
        self.recording = Some((recording, takers));
        takers != 0
    }

    /// The value of an attribute as text; `None` where it is not known.
    pub fn text(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let own = |text: String| Some(Cow::Owned(text));
        let known = |text: &'static str| Some(Cow::Borrowed(text));
        match attribute {
            Attribute::StartTime => own(timestamp(self.time)),
            Attribute::Duration => own(self.duration.as_millis().to_string()),
            Attribute::Method => filled(&self.method),
            Attribute::Target => filled(&self.target),
            Attribute::Path => filled(self.target.split('?').next().unwrap_or_default()),
            Attribute::Query => self.target.split_once('?').map(|(_, query)| query.into()),
            Attribute::Authority => filled(&self.host),
            Attribute::Scheme if self.is_stream() => None,
            Attribute::Scheme => known(self.scheme),
            Attribute::Protocol if self.is_stream() => None,
            Attribute::Protocol => known(self.protocol),
            Attribute::Flags => self.flag.and_then(envoy_flag).and_then(known),
            Attribute::Details => match self.flag {
                Some(flag) => known(flag),
                None if self.upstream.is_some() && self.status > 0 => known("via_upstream"),
                None => None,
            },
            Attribute::ClientAddress => own(match self.client {
                ClientAddress::Known(ip) => SocketAddr::new(ip, self.peer.port()).to_string(),
                ClientAddress::Unknown => self.client.to_string(),
            }),
            Attribute::ClientIp => own(self.client.to_string()),
            Attribute::ServerName => self.sni.as_deref().map(Into::into),
            Attribute::TlsVersion => self.tls.map(|version| format!("TLSv{version}").into()),
            Attribute::IsMutual => known(if self.principal.is_some() {
                "true"
            } else {
                "false"
            }),
            Attribute::Principal => self.principal.as_deref().and_then(filled),
            Attribute::Upstream => self.upstream.as_ref().map(|name| name.as_str().into()),
            Attribute::Endpoint => self.endpoint.and_then(|address| own(address.to_string())),
            Attribute::Route => self.origin.as_ref().and_then(|it| own(it.to_string())),
            Attribute::Hostname => filled(&HOSTNAME),
            Attribute::TraceId => self.trace.and_then(|id| own(hex(&id))),
            Attribute::RequestHeader(name, otherwise) => self
                .header(name)
                .or_else(|| self.header(otherwise.as_deref()?))
                .map(Into::into),
            Attribute::Status
            | Attribute::BytesReceived
            | Attribute::BytesSent
            | Attribute::ClientPort
            | Attribute::ListenerPort => own(self.number(attribute)?.to_string()),
        }
    }

    /// The value of an attribute as a number; `None` where it is not known or no number. Durations
    /// are in microseconds.
    pub fn number(&self, attribute: &Attribute) -> Option<i64> {
        let number = |number: u64| i64::try_from(number).ok();
        match attribute {
            Attribute::Duration => i64::try_from(self.duration.as_micros()).ok(),
            Attribute::Status => Some(self.status.into()),
            Attribute::BytesReceived => number(self.bytes_received),
            Attribute::BytesSent => number(self.bytes_sent),
            Attribute::ClientPort => Some(self.peer.port().into()),
            Attribute::ListenerPort => Some(self.port.into()),
            _ => None,
        }
    }

    /// The value of an attribute as a truth; `None` where it is no truth.
    pub fn flag_of(&self, attribute: &Attribute) -> Option<bool> {
        (*attribute == Attribute::IsMutual).then_some(self.principal.is_some())
    }

    /// Whether it is known at all.
    pub fn has(&self, attribute: &Attribute) -> bool {
        match attribute {
            Attribute::Status => self.status > 0,
            Attribute::RequestHeader(name, otherwise) => {
                let mut names = [Some(name), otherwise.as_ref()].into_iter().flatten();
                names.any(|name| self.header(name).is_some())
            }
            attribute => self.text(attribute).is_some(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let (recording, _) = self.recording.as_ref()?;
        let at = recording
            .headers()
            .binary_search_by(|known| (**known).cmp(name));
        self.headers.get(at.ok()?)?.as_deref()
    }
}

fn filled(text: &str) -> Option<Cow<'_, str>> {
    (!text.is_empty()).then_some(Cow::Borrowed(text))
}

/// The name of the machine, which a Pod has of itself.
static HOSTNAME: LazyLock<String> = LazyLock::new(|| std::env::var("HOSTNAME").unwrap_or_default());

/// Bytes as lower-case digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A time as RFC 3339 has it, in milliseconds and UTC.
fn timestamp(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0 (Howard Hinnant's civil_from_days).
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = match month_shifted {
        0..=9 => month_shifted + 3,
        _ => month_shifted - 9,
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    let millis = time.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}
