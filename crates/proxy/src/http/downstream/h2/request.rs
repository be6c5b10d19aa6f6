//! Heads of requests as streams begin with them (RFC 9113, section 8.3).

use std::cell::Cell;

use http::header::{HeaderName, HeaderValue};

use crate::codec::field::{Field, KnownField, parse_length};
use crate::codec::head::{Fields, Pseudo};
use crate::codec::hpack::{Section, checked};
use crate::codec::trailer::Trailers;
use crate::failure::FailureKind;

thread_local! {
    /// The section of whoever reads a head: it is used up before anybody else does.
    static SECTION: Cell<Section> = Cell::default();
}

/// A head that was unpacked, in memory of the thread.
pub struct Opening(Section);

impl Opening {
    /// An empty one, for a head of at most so many bytes once it is unpacked.
    pub fn new(size_max: usize) -> Self {
        let mut section = SECTION.take();
        section.clear(size_max);
        Opening(section)
    }

    /// The section that it is unpacked to.
    pub fn section_mut(&mut self) -> &mut Section {
        &mut self.0
    }

    /// The head.
    pub fn section(&self) -> &Section {
        &self.0
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        SECTION.set(std::mem::take(&mut self.0));
    }
}

/// A head that no request has: its stream ends at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRequest;

/// The values of pseudo fields, each at most once.
#[derive(Default)]
struct Told<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
}

/// The request that a section tells of.
#[derive(Debug)]
pub struct H2Request<'a> {
    /// The values of pseudo fields, or the failure where one is no text.
    pub pseudo: Result<Pseudo<'a>, FailureKind>,
    /// All other fields.
    pub fields: Fields<'a>,
}

impl<'a> H2Request<'a> {
    /// Reads a section.
    ///
    /// # Errors
    /// The section is no request.
    pub fn read(section: &'a Section) -> Result<Self, MalformedRequest> {
        let mut told = Told::default();
        let mut fields = Fields::new();
        for (name, value) in section.iter() {
            if name.first() == Some(&b':') {
                if !fields.is_empty() {
                    return Err(MalformedRequest);
                }
                told.take(name, value)?;
            } else {
                fields.push(field(name, value)?);
            }
        }
        let method = told.method.ok_or(MalformedRequest)?;
        let is_tunnel = method == b"CONNECT" && told.protocol.is_none();
        let is_whole = told.scheme.is_some() && told.path.is_some_and(|path| !path.is_empty());
        // What is missing of a section that is too large may have been in it.
        if !is_tunnel && !is_whole && !section.is_over() {
            return Err(MalformedRequest);
        }
        let pseudo = told.pseudo(method);
        Ok(H2Request { pseudo, fields })
    }

    /// The length that the request declares, if one is told as it should be.
    pub fn length(&self) -> Option<u64> {
        let mut fields = self.fields.iter();
        let field = fields.find(|field| field.known == KnownField::ContentLength)?;
        parse_length(field.value)
    }
}

impl<'a> Told<'a> {
    fn take(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), MalformedRequest> {
        let place = match name {
            b":method" => &mut self.method,
            b":scheme" => &mut self.scheme,
            b":path" => &mut self.path,
            b":authority" => &mut self.authority,
            b":protocol" => &mut self.protocol,
            _ => return Err(MalformedRequest),
        };
        let is_control = |byte: &u8| *byte < b' ' || *byte == 0x7f;
        match place.replace(value) {
            None if !value.iter().any(is_control) => Ok(()),
            _ => Err(MalformedRequest),
        }
    }

    fn pseudo(&self, method: &'a [u8]) -> Result<Pseudo<'a>, FailureKind> {
        let text = |value: &'a [u8]| {
            let text = std::str::from_utf8(value);
            text.map_err(|_| FailureKind::BadRequest)
        };
        let method = text(method)?;
        if method.is_empty() || !method.bytes().all(is_method_byte) {
            return Err(FailureKind::BadRequest);
        }
        // Either is taken on either kind of connection, as behind a balancer that ends TLS; what
        // holds is the connection's, and nothing reads this beyond here.
        if !self.scheme.is_none_or(is_http) {
            return Err(FailureKind::BadRequest);
        }
        Ok(Pseudo {
            method,
            path_and_query: text(self.path.unwrap_or_default())?,
            authority: self.authority.map(text).transpose()?,
            protocol: self.protocol.map(text).transpose()?,
        })
    }
}

/// Fields behind a body; none of more than so many bytes.
///
/// # Errors
/// The section is no trailers.
pub fn trailers(section: &Section, bytes_max: usize) -> Result<Option<Trailers>, MalformedRequest> {
    // Nobody has to understand trailers, and there may be too many of these.
    let is_over = section.is_over() || section.size() > bytes_max;
    let mut trailers = Trailers::default();
    for (name, value) in section.iter() {
        let Field { name, value, .. } = field(name, value)?;
        if is_over {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| MalformedRequest)?;
        let value = HeaderValue::from_bytes(value).map_err(|_| MalformedRequest)?;
        trailers
            .try_append(name, value)
            .map_err(|_| MalformedRequest)?;
    }
    Ok((!trailers.is_empty()).then_some(trailers))
}

/// A field that may stand in HTTP/2 (RFC 9113, sections 8.2.1 and 8.2.2).
fn field<'a>(name: &'a [u8], value: &'a [u8]) -> Result<Field<'a>, MalformedRequest> {
    let field = checked(name, value).ok_or(MalformedRequest)?;
    match field.known {
        KnownField::Connection
        | KnownField::KeepAlive
        | KnownField::ProxyConnection
        | KnownField::TransferEncoding
        | KnownField::Upgrade => Err(MalformedRequest),
        KnownField::Te if !field.value.eq_ignore_ascii_case(b"trailers") => Err(MalformedRequest),
        _ => Ok(field),
    }
}

/// Whether a scheme is one of HTTP, which are alike in either case (RFC 3986, section 3.1).
fn is_http(scheme: &[u8]) -> bool {
    [&b"https"[..], b"http"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
}

/// The bytes of a token.
fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_!#$%&'*+.^`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::{H2Request, MalformedRequest, trailers};
    use crate::codec::buffer::Buffer;
    use crate::codec::hpack::{HpackDecoder, Section, field};
    use crate::failure::FailureKind;

    const GET: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/a?b"),
        (":authority", "a.example"),
    ];

    fn section(fields: &[(&str, &str)]) -> Section {
        let mut out = Buffer::for_head();
        for (name, value) in fields {
            field(name, value.as_bytes(), &mut out);
        }
        let mut section = Section::default();
        section.clear(1_000);
        let decoded = HpackDecoder::default().decode(out.filled(), &mut section);
        decoded.unwrap();
        section
    }

    fn with(more: &[(&'static str, &'static str)]) -> Section {
        section(&[&GET[..], more].concat())
    }

    #[test]
    fn a_head_is_read_as_it_was_sent() {
        let section = with(&[("te", "trailers"), ("content-length", "5"), ("a", "\u{e9}")]);
        let request = H2Request::read(&section).unwrap();
        let pseudo = request.pseudo.unwrap();
        assert_eq!((pseudo.method, pseudo.path_and_query), ("GET", "/a?b"));
        assert_eq!(pseudo.authority, Some("a.example"));
        assert_eq!(request.fields.len(), 3);
        assert_eq!(
            H2Request::read(&section).unwrap().length(),
            Some(5),
            "the declared length"
        );
    }

    #[test]
    fn what_no_request_is_has_no_answer() {
        let odd: [&[(&str, &str)]; 12] = [
            &[("connection", "close")],
            &[("keep-alive", "1")],
            &[("proxy-connection", "1")],
            &[("transfer-encoding", "chunked")],
            &[("upgrade", "h2c")],
            &[("te", "gzip")],
            &[(":status", "200")],
            &[(":path", "/b")],
            &[("a", "b"), (":protocol", "websocket")],
            &[("a b", "c")],
            &[("a", " b")],
            &[("a", "b\rc")],
        ];
        for more in odd {
            let section = with(more);
            assert_eq!(
                H2Request::read(&section).unwrap_err(),
                MalformedRequest,
                "{more:?}"
            );
        }
        for missing in 0..3 {
            let mut fields = GET.to_vec();
            fields.remove(missing);
            let section = section(&fields);
            assert_eq!(
                H2Request::read(&section).unwrap_err(),
                MalformedRequest,
                "{fields:?}"
            );
        }
        let empty = section(&[(":method", "GET"), (":scheme", "https"), (":path", "")]);
        assert!(H2Request::read(&empty).is_err());
    }

    #[test]
    fn a_tunnel_has_an_authority_alone_and_a_method_is_a_token() {
        let tunnel = section(&[(":method", "CONNECT"), (":authority", "a:1")]);
        assert!(H2Request::read(&tunnel).unwrap().pseudo.is_ok());
        let odd = section(&[(":method", "G T"), (":scheme", "https"), (":path", "/")]);
        let read = H2Request::read(&odd).unwrap().pseudo;
        assert_eq!(read.unwrap_err(), FailureKind::BadRequest);
    }

    #[test]
    fn a_scheme_is_one_of_http() {
        let read = |scheme| {
            let fields = [(":method", "GET"), (":scheme", scheme), (":path", "/")];
            let section = section(&fields);
            H2Request::read(&section).unwrap().pseudo.map(|_| ())
        };
        for scheme in ["http", "https", "HTTPS"] {
            assert_eq!(read(scheme), Ok(()), "{scheme}");
        }
        for scheme in [
            "",
            "ftp",
            "ws",
            "h",
            "https:",
            "https, http",
            "http://a",
            "\u{e9}",
        ] {
            assert_eq!(read(scheme), Err(FailureKind::BadRequest), "{scheme}");
        }
    }

    #[test]
    fn trailers_have_no_pseudo_fields() {
        let read = |fields: &[(&str, &str)], max| trailers(&section(fields), max);
        let status = [("grpc-status", "0")];
        // A field counts 32 bytes beside its own.
        assert!(read(&status, 44).unwrap().is_some());
        assert!(read(&status, 43).unwrap().is_none());
        assert!(read(&[], 44).unwrap().is_none());
        for odd in [(":path", "/"), ("te", "x")] {
            for bytes_max in [100, 0] {
                assert_eq!(read(&[odd], bytes_max), Err(MalformedRequest));
            }
        }
    }
}
