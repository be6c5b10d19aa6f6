//! The id of a request, by which people find it in the logs of everything that it passes.
//!
//! It is a label and decides nothing. It has only letters that neither a log, nor a page, nor a
//! field has to escape.

/// The longest id that is kept, in bytes.
pub const BYTES_MAX: usize = 128;

/// The treatment of ids that clients send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestIds {
    /// One that is well formed is kept, and made where there is none: as ingress-nginx does.
    #[default]
    Keep,
    /// One is always made: as Envoy does at the edge.
    Replace,
    /// Ids of clients pass as they are, and endpoints are sent none that is made here.
    Pass,
}

/// An id of 1 to [`BYTES_MAX`] letters, digits and `-_.:+/=@`. One that is made is kept as its
/// bytes, since every request under way has one.
pub enum RequestId {
    /// A UUID (RFC 9562).
    Made([u8; 16]),
    /// An id as a client sent it.
    Kept(Box<str>),
}

/// Room for the text of a UUID.
pub type UuidText = [u8; 36];

impl RequestId {
    /// The id of nothing that is told.
    pub const NONE: RequestId = RequestId::Made([0; 16]);

    /// An id that a client sent; none where it is not well formed.
    pub fn read(sent: &[u8]) -> Option<RequestId> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(byte);
        if !(1..=BYTES_MAX).contains(&sent.len()) || !sent.iter().all(is_plain) {
            return None;
        }
        let text = std::str::from_utf8(sent).ok()?;
        Some(RequestId::Kept(text.into()))
    }

    /// A UUID of random bytes, of which the upper half of the seventh becomes that of `version`.
    pub fn made(mut bytes: [u8; 16], version: u8) -> RequestId {
        bytes[6] = (bytes[6] & 0x0f) | (version & 0xf0);
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        RequestId::Made(bytes)
    }

    /// Its text, for which there is room.
    pub fn text<'a>(&'a self, room: &'a mut UuidText) -> &'a str {
        const DIGITS: [u8; 16] = *b"0123456789abcdef";
        // Where each byte stands between the dashes.
        const PLACES: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
        let bytes = match self {
            RequestId::Kept(text) => return text,
            RequestId::Made(bytes) => bytes,
        };
        let digit = |at: u8| DIGITS.get(usize::from(at)).copied().unwrap_or_default();
        *room = [b'-'; 36];
        for (byte, at) in bytes.iter().zip(PLACES) {
            if let Some(place) = room.get_mut(at..at + 2) {
                place.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            }
        }
        // Nothing but ASCII is put in.
        std::str::from_utf8(room).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, RequestId};

    #[test]
    fn an_id_that_would_have_to_be_escaped_is_none() {
        let longest = "a".repeat(BYTES_MAX);
        for kept in ["a", "Root=1-67891233-abcdef", "a:b/c+d_e@f.g", &longest] {
            let read = RequestId::read(kept.as_bytes());
            assert_eq!(read.unwrap().text(&mut [0; 36]), kept);
        }
        for refused in [
            "",
            "<b>",
            "a b",
            "a\"",
            "a'",
            "a&b",
            "\u{e4}",
            "a\tb",
            &(longest + "a"),
        ] {
            assert!(RequestId::read(refused.as_bytes()).is_none(), "{refused}");
        }
    }

    #[test]
    fn an_id_that_is_made_is_a_random_uuid() {
        let made = RequestId::made([0xff; 16], 0x40);
        let text = "ffffffff-ffff-4fff-bfff-ffffffffffff";
        assert_eq!(made.text(&mut [0; 36]), text);
    }
}
