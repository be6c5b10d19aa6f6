//! Where copies of requests go.

use myriad_model::{Host, Protocol};

use super::sheet::Sheet;
use super::{Options, values};

/// The name of the annotation that says where.
pub(crate) const TARGET: &str = "mirror-target";

/// The variable of nginx for the path and the query, which copies keep.
const KEPT: &str = "$request_uri";

/// Where copies of requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCopies {
    /// The host of the target.
    pub host: Box<str>,
    /// Its port.
    pub port: u16,
    /// The protocol that is spoken there.
    pub protocol: Protocol,
    /// The host that copies name.
    pub authority: Box<str>,
    /// Whether copies come without a body.
    pub omits_body: bool,
}

/// Reads all of it.
pub(super) fn read(sheet: &mut Sheet<'_>, options: &mut Options) {
    let expected = "write such as http://copy.shop.svc:8080$request_uri";
    let target = sheet.read(TARGET, expected, target);
    let expected = "write a host, with a port where it has one";
    let host = sheet.read("mirror-host", expected, values::authority);
    let expected = "write \"on\" or \"off\"";
    let body = sheet.read("mirror-request-body", expected, |value| match value {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    });
    options.copies = target.map(|target| {
        Box::new(RequestCopies {
            authority: host.unwrap_or_else(|| target.host.clone()),
            omits_body: body == Some(false),
            ..target
        })
    });
}

/// A URL that ends with the variable.
fn target(text: &str) -> Option<RequestCopies> {
    let (scheme, rest) = text.split_once("://")?;
    let (protocol, port) = match scheme {
        "http" => (Protocol::Http1, 80),
        "https" => (Protocol::Https1, 443),
        _ => return None,
    };
    let authority = rest.strip_suffix(KEPT)?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)?),
        None => (authority, port),
    };
    let host = host.to_ascii_lowercase();
    let is_name = Host::parse(&host).is_ok() && !host.contains('*');
    is_name.then(|| RequestCopies {
        host: host.into(),
        port,
        protocol,
        authority: Box::default(),
        omits_body: false,
    })
}

#[cfg(test)]
mod tests {
    use myriad_model::Protocol;

    use super::target;

    #[test]
    fn targets_are_urls_that_keep_what_was_asked_for() {
        let read = |text| target(text).map(|it| (it.host.to_string(), it.port, it.protocol));
        let copy = |port, protocol| Some(("copy.shop.svc".to_owned(), port, protocol));
        for (text, known) in [
            (
                "http://copy.shop.svc$request_uri",
                copy(80, Protocol::Http1),
            ),
            (
                "https://Copy.shop.svc/$request_uri",
                copy(443, Protocol::Https1),
            ),
            (
                "http://copy.shop.svc:81$request_uri",
                copy(81, Protocol::Http1),
            ),
            ("http://copy.shop.svc/", None),
            ("http://copy.shop.svc/a$request_uri", None),
            ("http://copy.shop.svc:0$request_uri", None),
            ("http://$host$request_uri", None),
            ("ftp://copy$request_uri", None),
            ("$request_uri", None),
        ] {
            assert_eq!(read(text), known, "{text}");
        }
    }
}
