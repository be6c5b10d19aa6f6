//! The header of the PROXY protocol that a connection begins with, versions 1 and 2: who the
//! client is, as a load balancer in front tells, or as endpoints are told.
//!
//! Read strictly: what is not whole and well-formed introduces nobody.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use myriad_model::ProxyProtocol;

/// The longest header of version 1 in bytes, its line end included.
const V1_BYTES_MAX: usize = 107;

/// The longest header of version 2 in bytes: addresses, and what a balancer says beside them.
pub const HEADER_BYTES_MAX: usize = 4_096;

/// How a header of version 2 begins.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The bytes in front of the addresses in version 2.
const V2_FIXED_BYTES: usize = 16;

/// The address of nobody.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The kind of part that has a checksum of the header (CRC32C).
const TYPE_CRC32C: u8 = 3;

/// The listeners where headers are asked for, and the senders that are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Introductions {
    /// The ports whose connections begin with a header; none for all.
    pub ports: Option<Box<[u16]>>,
    /// The addresses that headers are taken from; connections from others are closed.
    pub senders: Box<[IpNet]>,
}

impl Introductions {
    /// Whether connections of a port begin with a header.
    pub fn are_asked_at(&self, port: u16) -> bool {
        self.ports
            .as_ref()
            .is_none_or(|ports| ports.contains(&port))
    }

    /// Whether headers from an address are taken.
    pub fn are_taken_from(&self, sender: IpAddr) -> bool {
        let sender = sender.to_canonical();
        self.senders.iter().any(|block| block.contains(&sender))
    }
}

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many bytes it takes.
    pub length: usize,
    /// The addresses of the client's connection, or [`Ends::UNKNOWN`] where the balancer does not
    /// tell them; `None` where it speaks for itself.
    pub ends: Option<Ends>,
}

/// The two ends of a connection, as the next hop is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The client.
    pub client: SocketAddr,
    /// The address that it connected to.
    pub server: SocketAddr,
}

/// The first bytes of a connection are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no header of the PROXY protocol, or a broken one")]
pub struct MalformedProxyHeader;

impl Ends {
    /// The ends of a connection of which nobody has told.
    pub const UNKNOWN: Ends = Ends {
        client: NOBODY,
        server: NOBODY,
    };

    /// Whether the client is nobody whose address could be told.
    pub fn is_unknown(&self) -> bool {
        self.client.ip().to_canonical().is_unspecified()
    }

    /// The ends of a connection whose own address nobody asked the kernel for.
    pub fn of(client: SocketAddr, port: u16) -> Self {
        let ip = match client.ip().to_canonical() {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0_u16; 8]),
        };
        let server = SocketAddr::new(ip, port);
        Ends { client, server }
    }
}

/// Reads a header; `None` where more bytes are needed, all of which belong to it.
///
/// # Errors
/// Bytes that no header begins with, as soon as that is known.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, MalformedProxyHeader> {
    match bytes.first() {
        None => Ok(None),
        Some(b'P') => parse_v1(bytes),
        Some(_) => parse_v2(bytes),
    }
}

/// The header that tells of both ends, or that the client is not known.
pub fn write(version: ProxyProtocol, ends: Ends) -> Vec<u8> {
    if ends.is_unknown() {
        return match version {
            ProxyProtocol::V1 => b"PROXY UNKNOWN\r\n".to_vec(),
            ProxyProtocol::V2 => [&SIGNATURE[..], &[0x21, 0, 0, 0]].concat(),
        };
    }
    let (from, to) = (ends.client.ip(), ends.server.ip());
    let (from_port, to_port) = (ends.client.port(), ends.server.port());
    let wide = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let both = match (from.to_canonical(), to.to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok((from, to)),
        (from, to) => Err((wide(from), wide(to))),
    };
    match (version, both) {
        (ProxyProtocol::V1, Ok((from, to))) => {
            format!("PROXY TCP4 {from} {to} {from_port} {to_port}\r\n").into_bytes()
        }
        (ProxyProtocol::V1, Err((from, to))) => {
            format!("PROXY TCP6 {from} {to} {from_port} {to_port}\r\n").into_bytes()
        }
        (ProxyProtocol::V2, both) => {
            let mut out = [&SIGNATURE[..], &[0x21]].concat();
            match both {
                Ok((from, to)) => {
                    out.extend([0x11, 0, 12]);
                    out.extend(from.octets());
                    out.extend(to.octets());
                }
                Err((from, to)) => {
                    out.extend([0x21, 0, 36]);
                    out.extend(from.octets());
                    out.extend(to.octets());
                }
            }
            out.extend(from_port.to_be_bytes());
            out.extend(to_port.to_be_bytes());
            out
        }
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, MalformedProxyHeader> {
    const START: &[u8] = b"PROXY ";
    let start = bytes.get(..START.len()).unwrap_or(bytes);
    if !START.starts_with(start) {
        return Err(MalformedProxyHeader);
    }
    let looked = bytes.get(..V1_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', looked) else {
        return match looked.len() < V1_BYTES_MAX {
            true => Ok(None),
            false => Err(MalformedProxyHeader),
        };
    };
    let line = looked.get(START.len()..end).ok_or(MalformedProxyHeader)?;
    let line = line.strip_suffix(b"\r").ok_or(MalformedProxyHeader)?;
    let line = std::str::from_utf8(line).map_err(|_| MalformedProxyHeader)?;
    if line.contains('\r') {
        return Err(MalformedProxyHeader);
    }
    let length = end + 1;
    // What follows is to be ignored, whatever it is.
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        let ends = Some(Ends::UNKNOWN);
        return Ok(Some(Header { length, ends }));
    }
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or(MalformedProxyHeader);
    let family = word()?;
    let (client, server) = (ip(family, word()?)?, ip(family, word()?)?);
    let (client_port, server_port) = (port(word()?)?, port(word()?)?);
    if words.next().is_some() {
        return Err(MalformedProxyHeader);
    }
    let ends = Ends {
        client: (client, client_port).into(),
        server: (server, server_port).into(),
    };
    let ends = Some(ends);
    Ok(Some(Header { length, ends }))
}

fn ip(family: &str, text: &str) -> Result<IpAddr, MalformedProxyHeader> {
    let ip = match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::V4),
        "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::V6),
        _ => return Err(MalformedProxyHeader),
    };
    ip.map_err(|_| MalformedProxyHeader)
}

fn port(text: &str) -> Result<u16, MalformedProxyHeader> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zero = text.len() > 1 && text.starts_with('0');
    match is_plain && !has_zero {
        true => text.parse().map_err(|_| MalformedProxyHeader),
        false => Err(MalformedProxyHeader),
    }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, MalformedProxyHeader> {
    let start = bytes.get(..SIGNATURE.len()).unwrap_or(bytes);
    if !SIGNATURE.starts_with(start) {
        return Err(MalformedProxyHeader);
    }
    let Some(fixed) = bytes.first_chunk::<V2_FIXED_BYTES>() else {
        return Ok(None);
    };
    let [.., command, family, high, low] = *fixed;
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(MalformedProxyHeader),
    };
    let length = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([high, low]));
    if length > HEADER_BYTES_MAX {
        return Err(MalformedProxyHeader);
    }
    let Some(whole) = bytes.get(..length) else {
        return Ok(None);
    };
    let body = whole.get(V2_FIXED_BYTES..).unwrap_or_default();
    // Of streams over IPv4 and IPv6; datagrams do not come by connections.
    let (ends, parts) = match family {
        // Whatever is there is to be ignored: nothing says how much of it is addresses.
        0x00 => (Some(Ends::UNKNOWN), &[][..]),
        0x11 => addresses::<4>(body)?,
        0x21 => addresses::<16>(body)?,
        0x31 => {
            let parts = body.get(216..).ok_or(MalformedProxyHeader)?;
            (Some(Ends::UNKNOWN), parts)
        }
        _ if is_local => (None, &[][..]),
        _ => return Err(MalformedProxyHeader),
    };
    check_parts(whole, parts)?;
    let ends = ends.filter(|_| !is_local);
    Ok(Some(Header { length, ends }))
}

/// Both ends, and what is behind them.
fn addresses<const N: usize>(body: &[u8]) -> Result<(Option<Ends>, &[u8]), MalformedProxyHeader>
where
    IpAddr: From<[u8; N]>,
{
    let (client, body) = body.split_first_chunk::<N>().ok_or(MalformedProxyHeader)?;
    let (server, body) = body.split_first_chunk::<N>().ok_or(MalformedProxyHeader)?;
    let (client_port, body) = body.split_first_chunk::<2>().ok_or(MalformedProxyHeader)?;
    let (server_port, body) = body.split_first_chunk::<2>().ok_or(MalformedProxyHeader)?;
    let ends = Ends {
        client: (IpAddr::from(*client), u16::from_be_bytes(*client_port)).into(),
        server: (IpAddr::from(*server), u16::from_be_bytes(*server_port)).into(),
    };
    Ok((Some(ends), body))
}

/// Checks that the parts behind the addresses are whole, and the checksum among them.
fn check_parts(whole: &[u8], mut parts: &[u8]) -> Result<(), MalformedProxyHeader> {
    let mut is_summed = false;
    while !parts.is_empty() {
        let (head, rest) = parts.split_first_chunk::<3>().ok_or(MalformedProxyHeader)?;
        let [kind, high, low] = *head;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, rest) = rest.split_at_checked(length).ok_or(MalformedProxyHeader)?;
        if kind == TYPE_CRC32C {
            let told = <[u8; 4]>::try_from(value).map_err(|_| MalformedProxyHeader)?;
            // A second one would have been summed as zeros by nobody.
            let end = whole.len() - rest.len();
            if is_summed || crc32c(whole, end - 4..end) != u32::from_be_bytes(told) {
                return Err(MalformedProxyHeader);
            }
            is_summed = true;
        }
        parts = rest;
    }
    Ok(())
}

/// The checksum of bytes, of which those in a range count as zeros (RFC 3720, appendix B.4).
fn crc32c(bytes: &[u8], zeros: std::ops::Range<usize>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut sum = u32::MAX;
    for (index, byte) in bytes.iter().enumerate() {
        sum ^= match zeros.contains(&index) {
            true => 0,
            false => u32::from(*byte),
        };
        for _ in 0..8 {
            sum = (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

#[cfg(test)]
mod tests;
