//! Tunnels through endpoints that are proxies: CONNECT over HTTP/1.1 (RFC 9110, section 9.3.6).

use std::future::poll_fn;
use std::net::Ipv6Addr;

use myriad_model::Tunnel;

use crate::codec::buffer::Buffer;
use crate::codec::response;
use crate::failure::FailureKind;
use crate::limits::Limits;
use crate::net::stream::Stream;

/// The most bytes of the head of an answer.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// The end of a head.
const END: &[u8] = b"\r\n\r\n";

/// Asks the endpoint for a connection to the target, and returns what came behind its answer.
///
/// # Errors
/// That it says no, or nothing that is an answer.
pub(super) async fn open(
    stream: &mut Stream,
    tunnel: &Tunnel,
    limits: &Limits,
) -> Result<Option<Buffer>, FailureKind> {
    let mut request = request(tunnel);
    let sent = poll_fn(|context| stream.poll_drain(context, &mut request)).await;
    sent.map_err(|_| FailureKind::ConnectFailed)?;
    let mut heard = None;
    loop {
        let read = poll_fn(|context| stream.poll_fill(context, &mut heard)).await;
        if read.map_err(|_| FailureKind::ConnectFailed)? == 0 {
            return Err(FailureKind::ConnectFailed);
        }
        let filled = heard.as_ref().map_or(&[][..], Buffer::filled);
        let end = filled.windows(END.len()).position(|part| part == END);
        if let Some(length) = end.map(|start| start + END.len()) {
            judge(filled.get(..length).unwrap_or_default(), limits)?;
            if let Some(heard) = &mut heard {
                heard.consume(length);
            }
            return Ok(heard.filter(|heard| !heard.is_empty()));
        }
        if filled.len() >= HEAD_BYTES_MAX {
            return Err(FailureKind::BadResponse);
        }
    }
}

fn request(tunnel: &Tunnel) -> Buffer {
    let mut request = Buffer::for_head();
    let is_ipv6 = tunnel.host.parse::<Ipv6Addr>().is_ok();
    let (open, close) = if is_ipv6 { ("[", "]") } else { ("", "") };
    for (before, after) in [("CONNECT ", " HTTP/1.1\r\nHost: "), ("", "\r\n\r\n")] {
        for part in [before, open, &*tunnel.host, close, ":"] {
            request.append_str(part);
        }
        request.append_decimal(tunnel.port.into());
        request.append_str(after);
    }
    request
}

/// Judges the answer's head: any success opens the tunnel.
fn judge(head: &[u8], limits: &Limits) -> Result<(), FailureKind> {
    let head = response::parse(head, limits).map_err(|_| FailureKind::BadResponse)?;
    match head.status {
        200..=299 => Ok(()),
        _ => Err(FailureKind::ConnectFailed),
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::Tunnel;

    use super::{judge, request};
    use crate::failure::FailureKind;
    use crate::limits::Limits;

    #[test]
    fn the_target_is_named_twice() {
        let text = |host: &str| {
            let host = host.into();
            let request = request(&Tunnel { host, port: 443 });
            String::from_utf8(request.filled().to_vec()).unwrap()
        };
        assert_eq!(
            text("far.example"),
            "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\r\n"
        );
        assert!(text("2001:db8::1").starts_with("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n"));
    }

    #[test]
    fn only_success_opens_it() {
        let judged = |text: &str| judge(text.as_bytes(), &Limits::default());
        assert_eq!(
            judged("HTTP/1.1 200 Connection established\r\n\r\n"),
            Ok(())
        );
        assert_eq!(judged("HTTP/1.0 204 No\r\nVia: x\r\n\r\n"), Ok(()));
        let refused = Err(FailureKind::ConnectFailed);
        assert_eq!(judged("HTTP/1.1 407 P\r\n\r\n"), refused);
        assert_eq!(judged("HTTP/1.1 302 F\r\n\r\n"), refused);
        assert_eq!(judged("SSH-2.0\r\n\r\n"), Err(FailureKind::BadResponse));
    }
}
