//! Heads of requests: found, parsed and checked.
//!
//! The checks are those on which a proxy and the server behind it must not disagree (RFC 9112,
//! sections 3, 5 and 6): what is ambiguous is refused, never repaired. Paths are matched and
//! passed on in one form, which `codec::path` tells: whoever reads them in another behind the
//! proxy would reach another route's paths.

use std::borrow::Cow;
use std::mem::MaybeUninit;
use std::net::Ipv6Addr;
use std::sync::Arc;

use myriad_model::PathReading;
use smallvec::SmallVec;

use super::body::BodyLength;
use super::field::{Field, KnownField, members, parse_length};
use super::host;
use super::path::reading::Readings;
use super::path::{check_bytes, is_plain};
use super::websocket;
use crate::failure::FailureKind;
use crate::limits::Limits;
use crate::limits::PathRule;

/// The most fields that any head may have.
pub const FIELDS_MAX: usize = 128;

/// The most members that the `Connection` fields of a head may have.
pub const CONNECTION_MEMBERS_MAX: usize = 64;

/// The longest authority: a host, a colon and a port, with some room.
const AUTHORITY_BYTES_MAX: usize = 272;

/// Fields of a head, on the stack where they are few.
pub type Fields<'a> = SmallVec<[Field<'a>; 24]>;

/// The version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2
    Http2,
}

impl Version {
    /// The version as the access log writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        }
    }
}

/// A checked head of a request, borrowed from where it was read.
#[derive(Debug)]
pub struct Head<'a> {
    /// The version.
    pub version: Version,
    /// The method, a token.
    pub method: &'a str,
    /// The path without the query, as it came but for what [`Limits::paths`] changes. `*` for
    /// `OPTIONS *`.
    pub path: Cow<'a, str>,
    /// Its readings, where it has more than one.
    pub readings: Option<Arc<Readings>>,
    /// The query as it came, without its question mark.
    pub query: Option<&'a str>,
    /// The host in lower case, without port and final dot; empty where HTTP/1.0 sent none.
    pub host: Cow<'a, str>,
    /// The authority as it came.
    pub authority: &'a str,
    /// `http` or `https`, by the connection that the request came on; `http` until whoever knows
    /// the connection says otherwise.
    pub scheme: &'static str,
    /// All fields, also those that are not passed on, but for what the client declares to belong
    /// to the connection: whoever looks for a field sees what the endpoint gets.
    pub fields: Fields<'a>,
    /// How the body is framed.
    pub body: BodyLength,
    /// Whether the client wants to go on using the connection.
    pub keep_alive: bool,
    /// The protocol that the client wants to change to, where it may.
    pub upgrade: Option<&'a [u8]>,
    /// Whether the client waits for a 100 before it sends the body.
    pub expects_continue: bool,
}

/// Looks for the end of a head, without ever looking at a byte twice.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadFinder {
    scanned: usize,
    line_start: usize,
}

impl HeadFinder {
    /// The length of the head, once it is whole. `bytes` are the same as before and more.
    ///
    /// # Errors
    /// A line that does not end in CR LF.
    pub fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, FailureKind> {
        loop {
            let rest = bytes.get(self.scanned..).unwrap_or_default();
            let Some(at) = memchr::memchr(b'\n', rest) else {
                self.scanned = bytes.len();
                return Ok(None);
            };
            let end = self.scanned + at;
            let line = bytes.get(self.line_start..end).unwrap_or_default();
            if line.last() != Some(&b'\r') {
                return Err(FailureKind::BadRequest);
            }
            self.scanned = end + 1;
            self.line_start = end + 1;
            if line.len() == 1 {
                return Ok(Some(self.scanned));
            }
        }
    }
}

/// Parses a whole head of HTTP/1, as [`HeadFinder`] found it.
///
/// # Errors
/// The reason why the request has to be refused.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Head<'a>, FailureKind> {
    let mut slots = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut slots);
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err(FailureKind::BadRequest),
        Err(httparse::Error::TooManyHeaders) => return Err(FailureKind::HeadTooLarge),
        Err(httparse::Error::Version) if has_three_words(bytes) => {
            return Err(FailureKind::BadVersion);
        }
        Err(_) => return Err(FailureKind::BadRequest),
    }
    if request.headers.len() > limits.fields_max {
        return Err(FailureKind::HeadTooLarge);
    }
    let method = request.method.ok_or(FailureKind::BadRequest)?;
    let target = request.path.ok_or(FailureKind::BadRequest)?;
    if target.len() > limits.target_bytes_max {
        return Err(FailureKind::TargetTooLong);
    }
    let version = match request.version {
        Some(0) => Version::Http10,
        Some(1) => Version::Http11,
        _ => return Err(FailureKind::BadVersion),
    };
    let fields = request.headers.iter().map(|header| Field {
        known: KnownField::of(header.name),
        name: header.name,
        value: header.value,
    });
    let fields: Fields<'a> = fields.collect();
    let (path_and_query, target_authority) = split_target(method, target)?;
    let authority = pick_authority(version, &fields, target_authority)?;
    let mut head = assemble(version, method, path_and_query, authority, fields, limits)?;
    head.body = body_length(&head)?;
    read_connection(&mut head)?;
    Ok(head)
}

/// The pseudo fields of HTTP/2, which it tells of a request beside its fields.
#[derive(Clone, Copy, Debug)]
pub struct Pseudo<'a> {
    /// The method.
    pub method: &'a str,
    /// The path and the query.
    pub path_and_query: &'a str,
    /// The authority; `None` where only a field tells it.
    pub authority: Option<&'a str>,
    /// The protocol that the stream shall carry (RFC 8441).
    pub protocol: Option<&'a str>,
}

/// Builds the head of an HTTP/2 request. `is_body_empty` says that its stream has ended. One that
/// wants to change the protocol becomes what it would be over HTTP/1.1: a GET.
///
/// # Errors
/// The reason why the request has to be refused.
pub fn from_http2<'a>(
    pseudo: Pseudo<'a>,
    fields: Fields<'a>,
    is_body_empty: bool,
    limits: &Limits,
) -> Result<Head<'a>, FailureKind> {
    if fields.len() > limits.fields_max {
        return Err(FailureKind::HeadTooLarge);
    }
    let path_and_query = pseudo.path_and_query;
    if path_and_query.len() > limits.target_bytes_max {
        return Err(FailureKind::TargetTooLong);
    }
    let lengths = fields
        .iter()
        .map(|field| field.name.len() + field.value.len());
    if lengths.sum::<usize>() + path_and_query.len() > limits.head_bytes_max {
        return Err(FailureKind::HeadTooLarge);
    }
    let method = match pseudo.protocol {
        None => pseudo.method,
        Some(_) if pseudo.method != "CONNECT" => return Err(FailureKind::BadRequest),
        Some(protocol) if protocol.eq_ignore_ascii_case(websocket::PROTOCOL) => "GET",
        Some(_) => return Err(FailureKind::BadProtocol),
    };
    refuse_method(method)?;
    let is_asterisk = path_and_query == "*" && method == "OPTIONS";
    if !path_and_query.starts_with('/') && !is_asterisk {
        return Err(FailureKind::BadRequest);
    }
    let authority = pick_authority(Version::Http2, &fields, pseudo.authority)?;
    let version = Version::Http2;
    let mut head = assemble(version, method, path_and_query, authority, fields, limits)?;
    if pseudo.protocol.is_some() {
        // What follows is no body, so nothing can tell its length.
        if single_length(&head)?.is_some() {
            return Err(FailureKind::BadRequest);
        }
        head.upgrade = Some(websocket::PROTOCOL.as_bytes());
        return Ok(head);
    }
    head.body = if is_body_empty {
        BodyLength::None
    } else {
        single_length(&head)?.map_or(BodyLength::Chunked, BodyLength::Exact)
    };
    head.expects_continue = expects_continue(&head)?;
    Ok(head)
}

impl Head<'_> {
    /// The path as routes of a dialect read it.
    ///
    /// # Errors
    /// A path that the dialect refuses.
    pub fn read(&self, reading: PathReading) -> Result<&str, FailureKind> {
        match &self.readings {
            None => Ok(&self.path),
            Some(readings) => {
                let read = readings.get(reading, &self.path);
                read.ok_or(FailureKind::BadRequest)
            }
        }
    }

    /// The first field of a kind.
    pub fn first(&self, known: KnownField) -> Option<&[u8]> {
        self.fields
            .iter()
            .find(|field| field.known == known)
            .map(|field| field.value)
    }
}

/// Whether sending a request again does no more than sending it once (RFC 9110, section 9.2.2).
pub fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
}

/// A host and its port, of an authority in any case.
///
/// # Errors
/// An authority with user information, with bytes that no host has, or with a bad port.
pub fn split_authority(authority: &str) -> Result<(&str, Option<u16>), FailureKind> {
    const BAD: FailureKind = FailureKind::BadRequest;
    if authority.is_empty() || authority.len() > AUTHORITY_BYTES_MAX {
        return Err(BAD);
    }
    let (host, port) = if authority.starts_with('[') {
        let end = authority.find(']').ok_or(BAD)?;
        let address = authority.get(1..end).ok_or(BAD)?;
        address.parse::<Ipv6Addr>().map_err(|_| BAD)?;
        let host = authority.get(..=end).ok_or(BAD)?;
        let rest = authority.get(end + 1..).ok_or(BAD)?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(BAD),
        }
    } else {
        let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let (host, port) = match split_at(authority, b':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        let is_name = !host.is_empty() && !host.starts_with('.') && !host.contains("..");
        if !is_name || !host.bytes().all(is_host_byte) {
            return Err(BAD);
        }
        (host, port)
    };
    let port = match port {
        // An empty port is the scheme's own (RFC 3986, section 3.2.3).
        None | Some("") => None,
        Some(digits) => Some(parse_port(digits).ok_or(BAD)?),
    };
    Ok((host, port))
}

/// Whether the request line is three words, so that what is wrong with it is the version.
fn has_three_words(head: &[u8]) -> bool {
    let mut bytes = head.iter();
    let line = bytes.by_ref().take_while(|byte| **byte != b'\r');
    line.filter(|byte| **byte == b' ').count() == 2
}

fn parse_port(digits: &str) -> Option<u16> {
    if digits.len() > 5 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

fn refuse_method(method: &str) -> Result<(), FailureKind> {
    // CONNECT asks for a tunnel, and TRACE sends back what clients must not read (cookies).
    if method == "CONNECT" || method == "TRACE" {
        return Err(FailureKind::BadMethod);
    }
    Ok(())
}

/// Path and query, and the authority where the target is in absolute form.
fn split_target<'a>(
    method: &str,
    target: &'a str,
) -> Result<(&'a str, Option<&'a str>), FailureKind> {
    refuse_method(method)?;
    if target.starts_with('/') {
        return Ok((target, None));
    }
    if target == "*" && method == "OPTIONS" {
        return Ok((target, None));
    }
    let rest = strip_scheme(target).ok_or(FailureKind::BadRequest)?;
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path_and_query) = rest.split_at(at);
    if path_and_query.is_empty() {
        return Ok(("/", Some(authority)));
    }
    if path_and_query.starts_with('?') {
        // An empty path is `/` (RFC 9110, section 4.2.3), which no slice of the target is.
        return Err(FailureKind::BadRequest);
    }
    Ok((path_and_query, Some(authority)))
}

fn strip_scheme(target: &str) -> Option<&str> {
    ["http://", "https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// The one authority of a request: of its target and of its Host field, which must agree.
fn pick_authority<'a>(
    version: Version,
    fields: &[Field<'a>],
    of_target: Option<&'a str>,
) -> Result<&'a str, FailureKind> {
    let mut of_host = None;
    for field in fields
        .iter()
        .filter(|field| field.known == KnownField::Host)
    {
        if of_host.is_some() {
            return Err(FailureKind::BadRequest);
        }
        let value = std::str::from_utf8(field.value).map_err(|_| FailureKind::BadRequest)?;
        of_host = Some(value);
    }
    match (of_target, of_host) {
        (Some(target), Some(host)) if !target.eq_ignore_ascii_case(host) => {
            Err(FailureKind::BadRequest)
        }
        // HTTP/1.1 must send Host even beside an absolute target (RFC 9112, section 3.2).
        (_, None) if version == Version::Http11 => Err(FailureKind::BadRequest),
        (Some(authority), _) | (None, Some(authority)) => Ok(authority),
        (None, None) if version == Version::Http10 => Ok(""),
        (None, None) => Err(FailureKind::BadRequest),
    }
}

fn assemble<'a>(
    version: Version,
    method: &'a str,
    path_and_query: &'a str,
    authority: &'a str,
    fields: Fields<'a>,
    limits: &Limits,
) -> Result<Head<'a>, FailureKind> {
    let host = match authority {
        "" if version == Version::Http10 => Cow::Borrowed(""),
        _ => {
            let (host, _) = split_authority(authority)?;
            host::common_form(host)
        }
    };
    let (came, query) = match split_at(path_and_query, b'?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let rule = limits.paths;
    // Nearly all paths are plain: those are looked at once, and read in one way.
    let (path, readings) = match is_plain(came) {
        true => {
            check_bytes(came, query)?;
            (Cow::Borrowed(came), None)
        }
        false if came.len() > limits.odd_path_bytes_max => return Err(FailureKind::TargetTooLong),
        false => {
            let path = check_path(came, query, rule)?;
            let readings = Readings::of(came, &path, rule).map(Arc::new);
            (path, readings)
        }
    };
    Ok(Head {
        version,
        method,
        path,
        readings,
        query,
        host,
        authority,
        scheme: "http",
        fields,
        body: BodyLength::None,
        keep_alive: version != Version::Http10,
        upgrade: None,
        expects_continue: false,
    })
}

/// Refuses bytes that no target has, and brings the path into the form that the rule wants.
///
/// # Errors
/// Always [`FailureKind::BadRequest`].
pub fn check_path<'a>(
    path: &'a str,
    query: Option<&str>,
    rule: PathRule,
) -> Result<Cow<'a, str>, FailureKind> {
    check_bytes(path, query)?;
    match path {
        "*" => Ok(Cow::Borrowed(path)),
        path => rule.follow(path),
    }
}

/// The parts of a text before and behind the first of a byte of ASCII. Texts here are short, and
/// the search of the library is made for long ones.
fn split_at(text: &str, byte: u8) -> Option<(&str, &str)> {
    let at = text.bytes().position(|it| it == byte)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The framing of an HTTP/1 request (RFC 9112, section 6.3).
fn body_length(head: &Head<'_>) -> Result<BodyLength, FailureKind> {
    let mut codings = head
        .fields
        .iter()
        .filter(|field| field.known == KnownField::TransferEncoding);
    let length = single_length(head)?;
    match (codings.next(), length) {
        (None, None | Some(0)) => Ok(BodyLength::None),
        (None, Some(length)) => Ok(BodyLength::Exact(length)),
        (Some(_), Some(_)) => Err(FailureKind::BadRequest),
        (Some(coding), None) => {
            let is_chunked = coding.value.eq_ignore_ascii_case(b"chunked");
            if !is_chunked || codings.next().is_some() || head.version == Version::Http10 {
                return Err(FailureKind::BadRequest);
            }
            Ok(BodyLength::Chunked)
        }
    }
}

/// The one Content-Length. More than one, even of equal value, is refused.
fn single_length(head: &Head<'_>) -> Result<Option<u64>, FailureKind> {
    let mut lengths = head
        .fields
        .iter()
        .filter(|field| field.known == KnownField::ContentLength);
    let Some(length) = lengths.next() else {
        return Ok(None);
    };
    if lengths.next().is_some() {
        return Err(FailureKind::BadRequest);
    }
    parse_length(length.value)
        .map(Some)
        .ok_or(FailureKind::BadRequest)
}

/// Reads the fields that govern an HTTP/1 connection, and takes out those that end with it (RFC
/// 9110, section 7.6.1).
fn read_connection(head: &mut Head<'_>) -> Result<(), FailureKind> {
    // Those that are there, each once.
    let mut ending: SmallVec<[&str; 4]> = SmallVec::new();
    let mut wants_upgrade = false;
    let mut keep_alive = head.keep_alive;
    let mut left = CONNECTION_MEMBERS_MAX;
    for field in &head.fields {
        if field.known != KnownField::Connection {
            continue;
        }
        if !field.value.is_ascii() {
            return Err(FailureKind::BadRequest);
        }
        for option in members(field.value) {
            left = left.checked_sub(1).ok_or(FailureKind::BadRequest)?;
            if option.eq_ignore_ascii_case("close") {
                keep_alive = false;
            } else if option.eq_ignore_ascii_case("keep-alive") {
                // Only HTTP/1.0 has to ask, and `close` wins.
                keep_alive |= head.version == Version::Http10;
            } else if option.eq_ignore_ascii_case("upgrade") {
                wants_upgrade = true;
            } else if KnownField::of(option).is_for_all(option) {
                // Whoever is asked to take it away would hide it from those whom it is for.
                return Err(FailureKind::BadRequest);
            } else if !KnownField::of(option).is_hop_by_hop()
                && !is_among(option, ending.iter().copied())
                && is_among(option, head.fields.iter().map(|field| field.name))
            {
                ending.push(option);
            }
        }
    }
    let closes = head.fields.iter().any(|field| {
        field.known == KnownField::Connection
            && members(field.value).any(|option| option.eq_ignore_ascii_case("close"))
    });
    head.keep_alive = keep_alive && !closes;
    if wants_upgrade && head.version == Version::Http11 && head.body == BodyLength::None {
        head.upgrade = upgrade(&head.fields);
    }
    head.expects_continue = expects_continue(head)?;
    if !ending.is_empty() {
        head.fields
            .retain(|field| !is_among(field.name, ending.iter().copied()));
    }
    Ok(())
}

/// Whether a name is among others, in any case.
fn is_among<'a>(name: &str, mut others: impl Iterator<Item = &'a str>) -> bool {
    others.any(|other| other.eq_ignore_ascii_case(name))
}

/// The one protocol that a client wants to change to. Another version of HTTP, or TLS, is not
/// changed to: what came in it would be seen by no route and no policy. They are known by how they
/// begin, since drafts have names of their own (`h2c-14`).
fn upgrade<'a>(fields: &[Field<'a>]) -> Option<&'a [u8]> {
    let mut wanted = fields
        .iter()
        .filter(|field| field.known == KnownField::Upgrade);
    let (Some(field), None) = (wanted.next(), wanted.next()) else {
        return None;
    };
    let is_http = |protocol: &str| {
        ["h2", "http", "tls"].iter().any(|it| {
            let start = protocol.get(..it.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(it))
        })
    };
    let mut protocols = members(field.value);
    let first = protocols.next()?;
    (protocols.next().is_none() && !is_http(first)).then_some(field.value)
}

/// Whether a client waits for a 100. One expectation is understood, and it is told once: servers do
/// not agree on what several fields mean, and nginx refuses them.
fn expects_continue(head: &Head<'_>) -> Result<bool, FailureKind> {
    let mut fields = head.fields.iter().filter(|f| f.known == KnownField::Expect);
    match (fields.next(), fields.next()) {
        (None, _) => Ok(false),
        (Some(field), None) if field.value.eq_ignore_ascii_case(b"100-continue") => {
            Ok(head.version != Version::Http10 && head.body != BodyLength::None)
        }
        (Some(_), _) => Err(FailureKind::BadRequest),
    }
}

#[cfg(test)]
mod tests;
