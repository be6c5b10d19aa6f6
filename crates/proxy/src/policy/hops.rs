//! The gateways that a request has passed, as its `CDN-Loop` tells (RFC 8586): a route may lead
//! back to the gateway by the address of a balancer, which nobody sees from here.
//!
//! All gateways have one entry. So it tells of no installation, and a request that is led in a
//! circle ends as soon through many replicas as through one. Whoever sends the field itself has
//! fewer hops left for its own request, and nobody else has.

use smallvec::SmallVec;

use crate::codec::field::{Field, KnownField};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::route::downstream_connection::DownstreamConnection;

/// The field. No route's edits have a say in it: who leads requests in a circle writes those too.
pub const FIELD: &str = "cdn-loop";

/// The entry of a gateway.
const PASSED: &[u8] = b"myriad";

/// The entry of a copy, which is not copied again.
pub const COPY: &str = "myriad;copy=1";

/// The status of the answer to a request that was led in a circle.
pub const LOOP_STATUS: u16 = 508;

/// The parameter in the entry of a copy.
const IS_COPY: &[u8] = b"copy=1";

/// Whether the gateway puts its entry into the request. What a workload sends or is sent passes no
/// gateway, and a limit of none turns all of it off.
///
/// # Errors
/// That the request has passed as many gateways as it may.
pub fn admit(
    head: &Head<'_>,
    visit: &DownstreamConnection,
    hops_max: usize,
) -> Result<bool, FailureKind> {
    if hops_max == 0 || visit.is_captured {
        return Ok(false);
    }
    match entries(head).count() < hops_max {
        true => Ok(true),
        false => Err(FailureKind::LoopDetected),
    }
}

/// Whether a request is a copy of another.
pub fn is_copy(head: &Head<'_>) -> bool {
    let mut parameters = entries(head).flat_map(|entry| parts(entry, b';').skip(1));
    parameters.any(|parameter| parameter.eq_ignore_ascii_case(IS_COPY))
}

/// The value of the field as the gateway passes it on, in parts: what came, and its own entry.
pub fn told<'a>(head: &'a Head<'_>) -> SmallVec<[&'a [u8]; 8]> {
    let mut told: SmallVec<[&[u8]; 8]> = SmallVec::new();
    for field in fields(head) {
        told.extend([field.value, b", "]);
    }
    told.push(PASSED);
    told
}

/// The entries of gateways. A comma in a parameter divides as well, which may only count more.
fn entries<'a>(head: &'a Head<'_>) -> impl Iterator<Item = &'a [u8]> {
    let entries = fields(head).flat_map(|field| parts(field.value, b','));
    entries.filter(|entry| {
        let name = parts(entry, b';').next();
        name.is_some_and(|name| name.eq_ignore_ascii_case(PASSED))
    })
}

fn fields<'a, 'h>(head: &'a Head<'h>) -> impl Iterator<Item = &'a Field<'h>> {
    let fields = head.fields.iter();
    fields.filter(|field| field.known == KnownField::CdnLoop)
}

fn parts(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let parts = text.split(move |byte| *byte == separator);
    parts.map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::{admit, is_copy, told};
    use crate::codec::head;
    use crate::failure::FailureKind;
    use crate::limits::Limits;
    use crate::route::downstream_connection::DownstreamConnection;

    #[test]
    fn gateways_are_counted_in_every_spelling() {
        let mut visit = DownstreamConnection::new("l".into(), ([192, 0, 2, 1], 4711).into(), 80);
        for (fields, passed, copy) in [
            (&b""[..], 0, false),
            (b"CDN-Loop: other, another;myriad\r\n", 0, false),
            (b"cdn-loop: myriad\r\n", 1, false),
            (
                b"CDN-Loop: \xff, Myriad ;a=b,myriad\r\nCDN-Loop: x, myriad\r\n",
                3,
                false,
            ),
            (b"CDN-Loop: myriad ; Copy=1\r\n", 1, true),
            (b"CDN-Loop: other;copy=1\r\n", 0, false),
        ] {
            let text = [b"GET / HTTP/1.1\r\nHost: h\r\n", fields, b"\r\n"].concat();
            let head = head::parse(&text, &Limits::default()).unwrap();
            let shown = fields.escape_ascii();
            assert_eq!(is_copy(&head), copy, "{shown}");
            visit.is_captured = false;
            assert_eq!(admit(&head, &visit, passed + 1), Ok(true), "{shown}");
            assert_eq!(admit(&head, &visit, 0), Ok(false), "{shown}");
            if passed > 0 {
                let refused = admit(&head, &visit, passed);
                assert_eq!(refused, Err(FailureKind::LoopDetected), "{shown}");
            }
            visit.is_captured = true;
            assert_eq!(admit(&head, &visit, 1), Ok(false), "{shown}");
        }
    }

    #[test]
    fn what_came_is_passed_on_in_front_of_the_own_entry() {
        for (fields, value) in [
            ("", "myriad"),
            ("CDN-Loop: a\r\nX: y\r\nCDN-Loop: b;c\r\n", "a, b;c, myriad"),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
            assert_eq!(told(&head).concat(), value.as_bytes());
        }
    }
}
