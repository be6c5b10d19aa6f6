//! Frames of HTTP/2, and heads as they are packed in them.

use myriad_proxy::codec::buffer::Buffer;
use myriad_proxy::codec::frame::{
    self, FrameHead, HEAD_BYTES, PREFACE, WINDOW_BYTES_MAX, flag, kind,
};
use myriad_proxy::codec::head;
use myriad_proxy::codec::hpack::{self, HpackDecoder, Section};
use myriad_proxy::http::downstream::h2::request::{H2Request, trailers};
use myriad_proxy::limits::Limits;

use crate::heads::assert_plain;

/// The most bytes of a head once it is unpacked.
const SECTION_BYTES: usize = 4 << 10;

/// A frame is what its head says, filling is a part of it, and settings are within their range.
pub(crate) fn frames(bytes: &[u8]) -> bool {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
    let mut count = 0;
    while let Some(head) = FrameHead::read(rest) {
        let written = head.to_bytes();
        assert_eq!(FrameHead::read(&written), Some(head));
        let behind = rest.get(HEAD_BYTES..).unwrap_or_default();
        let Some((payload, after)) = behind.split_at_checked(head.length) else {
            break;
        };
        count += 1;
        if head.has(flag::PADDED)
            && let Some(inner) = frame::unpadded(payload)
        {
            assert!(inner.len() < payload.len());
        }
        if head.kind == kind::SETTINGS
            && let Ok(settings) = frame::settings(payload)
        {
            let window = settings.window_bytes.unwrap_or_default();
            let longest = settings.frame_bytes_max.unwrap_or(1 << 14);
            assert!(window <= WINDOW_BYTES_MAX && (1 << 14..1 << 24).contains(&longest));
        }
        rest = after;
    }
    count > 0
}

/// However much a head stands for, no more than its bound is kept; what is kept means the same
/// once it is packed again; and what a request is made of is one.
pub(crate) fn packed_head(bytes: &[u8]) -> bool {
    let mut section = Section::default();
    section.clear(SECTION_BYTES);
    let decoded = HpackDecoder::default().decode(bytes, &mut section);
    let kept: usize = section
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    assert!(kept <= SECTION_BYTES);
    if decoded.is_err() {
        return false;
    }
    let fields = section
        .iter()
        .map(|(name, value)| hpack::checked(name, value));
    if let Some(fields) = fields.collect::<Option<Vec<_>>>() {
        let mut packed = Buffer::for_head();
        for field in &fields {
            hpack::field(field.name, field.value, &mut packed);
        }
        let mut again = Section::default();
        again.clear(SECTION_BYTES);
        let decoded = HpackDecoder::default().decode(packed.filled(), &mut again);
        assert_eq!(decoded, Ok(()));
        assert!(again.iter().eq(section.iter()));
    }
    if let Ok(Some(trailers)) = trailers(&section, SECTION_BYTES) {
        assert!(trailers.len() <= section.iter().count());
    }
    let Ok(request) = H2Request::read(&section) else {
        return false;
    };
    if let Ok(pseudo) = request.pseudo
        && let Ok(head) = head::from_http2(pseudo, request.fields, false, &Limits::default())
    {
        assert_plain(&head);
    }
    true
}
