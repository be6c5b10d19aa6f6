//! The first line of a stream, as far as it takes to tell whether it is that of a request.

/// The sign of a request line, in whatever case: a blank comes before it, and a digit behind.
const SIGN: &[u8; 5] = b"http/";

/// Looks for a request line (RFC 9112, section 3) at the beginning of a stream, as the most lenient
/// of servers would take one: behind blanks and empty lines, with any method, target and version,
/// and at any length. It keeps none of the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestLineFinder {
    /// There were blanks at most.
    #[default]
    Before,
    /// A method may have begun.
    Method,
    /// It has ended, and so many bytes of a blank and the sign were the last to come.
    Behind(usize),
    /// It is the line of a request.
    Found,
    /// It is none.
    Other,
}

impl RequestLineFinder {
    /// Goes on with the next bytes; whether the stream begins with a request.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            if matches!(self, RequestLineFinder::Found | RequestLineFinder::Other) {
                break;
            }
            *self = self.step(*byte);
        }
        *self == RequestLineFinder::Found
    }

    fn step(self, byte: u8) -> Self {
        use RequestLineFinder::{Before, Behind, Found, Method, Other};
        let is_blank = is_blank(byte);
        match self {
            Before if is_blank || byte == b'\n' => Before,
            Before | Method if is_token(byte) => Method,
            Method | Behind(_) if is_blank => Behind(1),
            Behind(count) if count > SIGN.len() && byte.is_ascii_digit() => Found,
            Behind(_) if byte.is_ascii_control() => Other,
            Behind(count) => match count.checked_sub(1).and_then(|at| SIGN.get(at)) {
                Some(sign) if sign.eq_ignore_ascii_case(&byte) => Behind(count + 1),
                _ => Behind(0),
            },
            Before | Method | Other => Other,
            Found => Found,
        }
    }
}

/// Whether a byte is a blank to some server, or part of one. Servers that split a line as a text
/// take the separators of ASCII for blanks, and by their encoding one byte or several beyond ASCII:
/// of these all are taken, since a method has none.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r' | 0x1c..=0x1f | 0x80..=0xff)
}

/// Whether a byte may stand in a method (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::RequestLineFinder;

    #[test]
    fn what_a_lenient_server_may_take_for_a_request_is_found_however_it_comes() {
        let long_method = [&[b'A'; 30][..], b" / HTTP/1.1\r\n"].concat();
        let long_target = [b"get /", &[b'a'; 3_000][..], b" HTTP/1.1\r\n"].concat();
        let far = [&[b'\n'; 3_000][..], b"GET / HTTP/1.1\r\n"].concat();
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\r\nGET / HTTP/1.1\r\n",
            b" \tGET / HTTP/1.1\r\n",
            b"get / HTTP/1.1\r\n",
            b"GET / HTTP/1.2\r\n",
            b"GET / http/3\n",
            b"GET\t/  HTTP/1.1 \r\n",
            b"GET HTTP HTTP/1.1\r\n",
            b"PRI * HTTP/2.0\n\nSM\n\n",
            b"GET /\rHTTP/1.1\r",
            b"GET\x1c/\x1dHTTP/1.1\r\n",
            b"\x1e\x1fGET / HTTP/1.1\r\n",
            b"GET\x85/\xa0HTTP/1.1\r\n",
            "\u{a0}GET\u{85}/ HTTP/1.1\r\n".as_bytes(),
            "GET\u{2028}/\u{3000}HTTP/1.1\r\n".as_bytes(),
            "GET /\u{e9}\u{2003}HTTP/1.1\r\n".as_bytes(),
            &long_method,
            &long_target,
            &far,
        ] {
            let told = bytes.escape_ascii();
            assert!(RequestLineFinder::default().find(bytes), "{told}");
            let mut in_pieces = RequestLineFinder::default();
            for byte in bytes {
                in_pieces.find(&[*byte]);
            }
            assert!(in_pieces.find(b""), "{told}");
        }
    }

    #[test]
    fn other_protocols_begin_with_none() {
        for bytes in [
            &b""[..],
            b"\r\n",
            b"GET key\r\nGET / HTTP/1.1\r\n",
            b"GET /\r\nX: HTTP/1.1\r\n",
            b"PING\r\n HTTP/1.1",
            b"*1\r\n$4\r\nPING\r\n",
            b"SSH-2.0-OpenSSH_9 HTTP/x\r\n",
            b"EHLO a.example\r\n",
            b"\xff\xd8\xff\0HTTP/1.1",
            b"\x83GET key\x85\r\n",
            "caf\u{e9} http/x\r\n".as_bytes(),
            b"SIP sip:a SIP/2.0\r\n",
            b"HTTP/1.1 200 OK\r\n",
            b"<?xml version='1.0'?> HTTP/1.1",
            b"0032git-upload-pack /p\0host=a HTTP/1.1\0",
            b"\x16\x03\x01 HTTP/1.1",
            b"\0\0\0\x08 HTTP/1.1",
            b"AMQP\0\0\x09\x01 HTTP/1.1",
        ] {
            let is_found = RequestLineFinder::default().find(bytes);
            assert!(!is_found, "{}", bytes.escape_ascii());
        }
    }
}
