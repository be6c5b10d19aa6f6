//! Frames of HTTP/2 (RFC 9113, section 4).

use super::buffer::Buffer;

/// The bytes that a client sends before its first frame.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The part of [`PREFACE`] that a reader of HTTP/1 takes for a head.
pub const PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// Length, type, flags and stream of a frame.
pub const HEAD_BYTES: usize = 9;

/// The most bytes in a frame that are taken, which is what everybody takes.
pub const FRAME_BYTES_MAX: usize = 16 << 10;

/// The first window of streams and connections, before anybody says otherwise.
pub const WINDOW_BYTES: u32 = 65_535;

/// The largest window.
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// The largest number of a stream.
pub const STREAM_MAX: u32 = (1 << 31) - 1;

/// Types of frames.
pub mod kind {
    /// Some of a body.
    pub const DATA: u8 = 0;
    /// A head, or what is behind a body.
    pub const HEADERS: u8 = 1;
    /// An old way to say what is more urgent.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream at once.
    pub const RST_STREAM: u8 = 3;
    /// The settings of the end that sends it.
    pub const SETTINGS: u8 = 4;
    /// A response that nobody has asked for.
    pub const PUSH_PROMISE: u8 = 5;
    /// A question whether somebody is there.
    pub const PING: u8 = 6;
    /// The end of the connection.
    pub const GOAWAY: u8 = 7;
    /// More of a window.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of a head.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// SETTINGS or PING that answer one.
    pub const ACK: u8 = 1;
    /// The last frame of its stream.
    pub const END_STREAM: u8 = 1;
    /// The last frame of a head.
    pub const END_HEADERS: u8 = 4;
    /// Has a length of filling, and filling.
    pub const PADDED: u8 = 8;
    /// Has a priority in front of the head.
    pub const PRIORITY: u8 = 0x20;
}

/// Why a stream or a connection ends (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// Nothing is wrong.
    NoError = 0,
    /// The rules are broken.
    Protocol = 1,
    /// The proxy has failed.
    Internal = 2,
    /// More came than the window allows.
    FlowControl = 3,
    /// A frame for a stream that has ended.
    StreamClosed = 5,
    /// A frame of a length that it cannot have.
    FrameSize = 6,
    /// Nothing was done about the stream.
    RefusedStream = 7,
    /// Nobody wants the rest.
    Cancel = 8,
    /// A head that cannot be unpacked.
    Compression = 9,
    /// Far too much of something.
    EnhanceYourCalm = 11,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// How many bytes follow.
    pub length: usize,
    /// One of [`kind`], or a type that nobody knows.
    pub kind: u8,
    /// Some of [`flag`].
    pub flags: u8,
    /// The stream; 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads the head at the start of some bytes, where it is whole.
    pub fn read(bytes: &[u8]) -> Option<FrameHead> {
        let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [high, middle, low, kind, flags, stream @ ..] = *head;
        Some(FrameHead {
            length: u32::from_be_bytes([0, high, middle, low]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & STREAM_MAX,
        })
    }

    /// The head as it is sent. Nothing that is sent is longer than 2^24 - 1.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let [_, high, middle, low] = (self.length as u32).to_be_bytes();
        let [first, second, third, fourth] = self.stream.to_be_bytes();
        let FrameHead { kind, flags, .. } = self;
        [high, middle, low, kind, flags, first, second, third, fourth]
    }

    /// Whether it has a flag.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The offset of the flags in the head of a frame.
pub const FLAGS_AT: usize = 4;

/// Writes a short frame.
pub fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Buffer) {
    let length = payload.len();
    let head = FrameHead {
        length,
        kind,
        flags,
        stream,
    };
    out.reserve(HEAD_BYTES + length);
    out.append(&head.to_bytes());
    out.append(payload);
}

/// Writes what opens a window.
pub fn window_update(stream: u32, more: u32, out: &mut Buffer) {
    write(kind::WINDOW_UPDATE, 0, stream, &more.to_be_bytes(), out);
}

/// Writes the end of a stream at once.
pub fn reset(stream: u32, reason: Reason, out: &mut Buffer) {
    let reason = (reason as u32).to_be_bytes();
    write(kind::RST_STREAM, 0, stream, &reason, out);
}

/// Writes the end of the connection, behind the last stream that is served.
pub fn goaway(last: u32, reason: Reason, out: &mut Buffer) {
    let mut payload = [0; 8];
    let (stream, rest) = payload.split_at_mut(4);
    stream.copy_from_slice(&last.to_be_bytes());
    rest.copy_from_slice(&(reason as u32).to_be_bytes());
    write(kind::GOAWAY, 0, 0, &payload, out);
}

/// The content of a frame without its padding, where that fits.
pub fn unpadded(payload: &[u8]) -> Option<&[u8]> {
    let (filling, rest) = payload.split_first()?;
    let length = rest.len().checked_sub(usize::from(*filling))?;
    rest.get(..length)
}

/// A number of 4 bytes, where there are just so many.
pub fn number(payload: &[u8]) -> Option<u32> {
    payload.try_into().ok().map(u32::from_be_bytes)
}

/// The settings of a client (RFC 9113, section 6.5.2), as far as anybody here has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct H2Settings {
    /// The first window of each stream.
    pub window_bytes: Option<u32>,
    /// The most bytes in a frame.
    pub frame_bytes_max: Option<u32>,
}

/// Reads SETTINGS; of what comes more than once the last holds.
///
/// # Errors
/// The fault of the settings.
pub fn settings(payload: &[u8]) -> Result<H2Settings, Reason> {
    let mut settings = H2Settings::default();
    let (all, rest) = payload.as_chunks::<6>();
    if !rest.is_empty() {
        return Err(Reason::FrameSize);
    }
    for [high, low, value @ ..] in all {
        let value = u32::from_be_bytes(*value);
        match u16::from_be_bytes([*high, *low]) {
            // Whether we may push.
            2 if value > 1 => return Err(Reason::Protocol),
            4 if value > WINDOW_BYTES_MAX => return Err(Reason::FlowControl),
            4 => settings.window_bytes = Some(value),
            5 if !(1 << 14..1 << 24).contains(&value) => return Err(Reason::Protocol),
            5 => settings.frame_bytes_max = Some(value),
            _ => {}
        }
    }
    Ok(settings)
}

/// Writes what we take: how many streams, how much on each, and how long a head. Protocols other
/// than HTTP may be asked for (RFC 8441).
pub fn write_settings(streams_max: u32, window_bytes: u32, head_bytes_max: u32, out: &mut Buffer) {
    let mut payload = [0; 24];
    let all = [
        (3_u16, streams_max),
        (4, window_bytes),
        (6, head_bytes_max),
        (8, 1),
    ];
    for (place, (id, value)) in payload.as_chunks_mut::<6>().0.iter_mut().zip(all) {
        let (first, rest) = place.split_at_mut(2);
        first.copy_from_slice(&id.to_be_bytes());
        rest.copy_from_slice(&value.to_be_bytes());
    }
    write(kind::SETTINGS, 0, 0, &payload, out);
}

#[cfg(test)]
mod tests {
    use super::{FrameHead, H2Settings, Reason, kind, settings, unpadded, write, write_settings};
    use crate::codec::buffer::Buffer;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Buffer::for_head();
        write(kind::PING, 1, 0x7fff_fffe, &[7; 8], &mut out);
        let head = FrameHead::read(out.filled()).unwrap();
        assert_eq!((head.length, head.kind, head.flags), (8, kind::PING, 1));
        assert_eq!(head.stream, 0x7fff_fffe);
        assert_eq!(FrameHead::read(&out.filled()[..8]), None);
        out = Buffer::for_head();
        write_settings(128, 1 << 20, 9, &mut out);
        let read = settings(&out.filled()[9..]).unwrap();
        assert_eq!(read.window_bytes, Some(1 << 20));
    }

    #[test]
    fn settings_out_of_range_have_their_reason() {
        for (id, value, reason) in [
            (2, 2, Reason::Protocol),
            (4, 1 << 31, Reason::FlowControl),
            (5, (1 << 14) - 1, Reason::Protocol),
            (5, 1 << 24, Reason::Protocol),
        ] {
            let mut payload = vec![0, id];
            payload.extend(u32::to_be_bytes(value));
            assert_eq!(settings(&payload), Err(reason), "{id} {value}");
        }
        assert_eq!(settings(&[0; 5]), Err(Reason::FrameSize));
        assert_eq!(settings(&[0, 99, 1, 1, 1, 1]), Ok(H2Settings::default()));
    }

    #[test]
    fn filling_is_no_longer_than_its_frame() {
        assert_eq!(unpadded(&[2, b'a', 0, 0]), Some(&b"a"[..]));
        assert_eq!(unpadded(&[3, 0, 0, 0]), Some(&b""[..]));
        assert_eq!(unpadded(&[4, 0, 0, 0]), None);
        assert_eq!(unpadded(&[]), None);
    }
}
