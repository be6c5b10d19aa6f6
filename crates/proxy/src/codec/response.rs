//! Heads of responses from endpoints: parsed and checked.

use std::mem::MaybeUninit;

use super::body::{BodyLength, MALFORMED, MalformedMessage};
use super::field::{Field, KnownField, members, parse_length};
use super::head::{CONNECTION_MEMBERS_MAX, FIELDS_MAX, Fields};
use crate::limits::{Limits, Reached};

const TOO_MANY_FIELDS: MalformedMessage = MalformedMessage {
    reached: Some(Reached::ResponseFields),
};

/// A checked head of a response, borrowed from where it was read.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    /// 100 to 999.
    pub status: u16,
    /// The reason phrase as it came; may be empty.
    pub reason: &'a str,
    /// All fields, also those that are not passed on.
    pub fields: Fields<'a>,
    /// How the body is framed, as far as the head tells. See [`ResponseHead::body_for`].
    length: BodyLength,
    /// Whether the head tells the length in a field.
    is_declared: bool,
    /// Whether the endpoint keeps the connection.
    pub keep_alive: bool,
    /// Whether its `Connection` fields may name other fields, which few endpoints' do.
    names_fields: bool,
}

/// The meaning of all `Connection` fields of a head together.
struct ConnectionOptions {
    is_close: bool,
    is_keep_alive: bool,
    /// Whether an option is neither of them, and so the name of a field or a protocol.
    is_other: bool,
}

/// Parses a whole head of HTTP/1.
///
/// # Errors
/// It is not well-formed, or goes beyond a limit.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<ResponseHead<'a>, MalformedMessage> {
    let mut slots = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let parsed = config.parse_response_with_uninit_headers(&mut response, bytes, &mut slots);
    match parsed {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_MANY_FIELDS),
        _ => return Err(MALFORMED),
    }
    if response.headers.len() > limits.response_fields_max {
        return Err(TOO_MANY_FIELDS);
    }
    let status = response.code.filter(|code| *code >= 100).ok_or(MALFORMED)?;
    let is_old = response.version == Some(0);
    let fields = response.headers.iter().map(|header| Field {
        known: KnownField::of(header.name),
        name: header.name,
        value: header.value,
    });
    let mut head = ResponseHead {
        status,
        reason: response.reason.unwrap_or_default(),
        fields: fields.collect(),
        length: BodyLength::UntilClose,
        is_declared: false,
        keep_alive: !is_old,
        names_fields: false,
    };
    head.length = body_length(&head.fields, is_old)?;
    head.is_declared = matches!(head.length, BodyLength::Exact(_));
    let options = connection_options(&head.fields)?;
    head.names_fields = options.is_other;
    head.keep_alive = if is_old {
        options.is_keep_alive
    } else {
        !options.is_close
    };
    Ok(head)
}

/// Makes a head of what HTTP/2 told apart. `is_end` says that nothing follows it.
///
/// # Errors
/// It is not well-formed, or goes beyond a limit.
pub fn from_http2<'a>(
    status: u16,
    fields: Fields<'a>,
    is_end: bool,
    limits: &Limits,
) -> Result<ResponseHead<'a>, MalformedMessage> {
    if fields.len() > limits.response_fields_max {
        return Err(TOO_MANY_FIELDS);
    }
    if !(100..1000).contains(&status) {
        return Err(MALFORMED);
    }
    let declared = match body_length(&fields, false)? {
        BodyLength::Exact(length) => Some(length),
        BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
    };
    // A length of nothing that does not end the stream is followed by trailers.
    let length = match declared {
        Some(length) if is_end || length > 0 => BodyLength::Exact(length),
        None if is_end => BodyLength::Exact(0),
        _ => BodyLength::Chunked,
    };
    let mut known = fields.iter().map(|field| field.known);
    let names_fields = known.any(|known| known == KnownField::Connection);
    Ok(ResponseHead {
        status,
        reason: "",
        fields,
        length,
        is_declared: declared.is_some(),
        keep_alive: true,
        names_fields,
    })
}

impl ResponseHead<'_> {
    /// How the body of the answer to a request of a method is framed (RFC 9112, section 6.3).
    pub fn body_for(&self, is_head_request: bool) -> BodyLength {
        let is_bodyless = matches!(self.status, 100..200 | 204 | 304);
        if is_head_request || is_bodyless {
            return BodyLength::None;
        }
        self.length
    }

    /// Whether the endpoint declares a field to belong to its connection.
    pub fn is_of_connection(&self, name: &str) -> bool {
        self.names_fields && options(&self.fields).any(|option| option.eq_ignore_ascii_case(name))
    }

    /// The length that the head declares, for answers that have no body but tell its length.
    pub fn declared_length(&self) -> Option<u64> {
        match self.length {
            BodyLength::Exact(length) => self.is_declared.then_some(length),
            BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
        }
    }
}

fn body_length(fields: &[Field<'_>], is_old: bool) -> Result<BodyLength, MalformedMessage> {
    let mut length = None;
    let mut is_chunked = false;
    for field in fields {
        match field.known {
            KnownField::ContentLength => {
                let value = parse_length(field.value).ok_or(MALFORMED)?;
                if length.is_some_and(|known| known != value) {
                    return Err(MALFORMED);
                }
                length = Some(value);
            }
            KnownField::TransferEncoding => {
                if is_chunked || is_old || !field.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(MALFORMED);
                }
                is_chunked = true;
            }
            _ => {}
        }
    }
    match (is_chunked, length) {
        // Two framings at once are what response splitting looks like.
        (true, Some(_)) => Err(MALFORMED),
        (true, None) => Ok(BodyLength::Chunked),
        (false, Some(length)) => Ok(BodyLength::Exact(length)),
        (false, None) => Ok(BodyLength::UntilClose),
    }
}

/// The members of the `Connection` fields.
fn options<'a>(fields: &'a [Field<'_>]) -> impl Iterator<Item = &'a str> {
    fields
        .iter()
        .filter(|field| field.known == KnownField::Connection)
        .flat_map(|field| members(field.value))
}

/// Reads the options once, for the three that ask.
fn connection_options(fields: &[Field<'_>]) -> Result<ConnectionOptions, MalformedMessage> {
    let mut read = ConnectionOptions {
        is_close: false,
        is_keep_alive: false,
        is_other: false,
    };
    for (index, option) in options(fields).enumerate() {
        if index >= CONNECTION_MEMBERS_MAX {
            return Err(MALFORMED);
        }
        if option.eq_ignore_ascii_case("close") {
            read.is_close = true;
        } else if option.eq_ignore_ascii_case("keep-alive") {
            read.is_keep_alive = true;
        } else {
            read.is_other = true;
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::{BodyLength, CONNECTION_MEMBERS_MAX, Limits, parse};

    #[test]
    fn a_connection_has_so_many_members() {
        let read = |count: usize| {
            let first = "x-a,".repeat(count - 1);
            let text = format!("HTTP/1.1 200 OK\r\nConnection: {first}\r\nConnection: x-b\r\n\r\n");
            parse(text.as_bytes(), &Limits::default()).map(|head| head.is_of_connection("X-B"))
        };
        assert!(read(CONNECTION_MEMBERS_MAX).unwrap());
        assert!(read(CONNECTION_MEMBERS_MAX + 1).is_err());
    }

    fn length_of(head: &str) -> Option<BodyLength> {
        let head = parse(head.as_bytes(), &Limits::default()).ok()?;
        Some(head.body_for(false))
    }

    #[test]
    fn the_head_tells_how_the_body_ends() {
        for (head, length) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
                Some(BodyLength::Exact(3)),
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                Some(BodyLength::Chunked),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", Some(BodyLength::UntilClose)),
            (
                "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n",
                Some(BodyLength::None),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
                Some(BodyLength::Exact(3)),
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
                None,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                None,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                None,
            ),
            (
                "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                None,
            ),
            ("HTTP/1.1 99 Low\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", None),
        ] {
            assert_eq!(length_of(head), length, "{head:?}");
        }
    }

    #[test]
    fn the_answer_to_head_has_no_body() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
        let head = parse(head.as_bytes(), &Limits::default()).unwrap();
        assert_eq!(head.body_for(true), BodyLength::None);
        assert_eq!(head.declared_length(), Some(3));
    }

    #[test]
    fn connections_are_kept_by_version_and_option() {
        for (head, keep_alive) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            let parsed = parse(head.as_bytes(), &Limits::default()).unwrap();
            assert_eq!(parsed.keep_alive, keep_alive, "{head:?}");
        }
    }
}
