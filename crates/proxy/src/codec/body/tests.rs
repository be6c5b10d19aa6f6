use proptest::prelude::*;

use super::{BodyDecoder, BodyLength, Buffer, Encoder, MALFORMED, MalformedMessage};
use crate::limits::Reached;

fn decode(length: BodyLength, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), MalformedMessage> {
    let mut decoder = BodyDecoder::new(length);
    let mut body = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() && !decoder.is_done() {
            let step = decoder.step(rest)?;
            body.extend_from_slice(step.data);
            rest = &rest[step.consumed..];
        }
    }
    Ok((body, decoder.is_done()))
}

#[test]
fn chunks_are_read_strictly() {
    for (text, body) in [
        ("0\r\n\r\n", ""),
        ("3\r\nabc\r\n0\r\n\r\n", "abc"),
        ("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", "abc0123456789"),
        ("3;x=\"y\"\r\nabc\r\n00\r\n\r\n", "abc"),
        ("0\r\nA: b\r\nC: d\r\n\r\n", ""),
    ] {
        let read = decode(BodyLength::Chunked, &[text.as_bytes()]);
        assert_eq!(read, Ok((body.into(), true)), "{text:?}");
    }
    for text in [
        "\r\n",
        ";x\r\n",
        " 3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "0x3\r\nabc\r\n",
        "-3\r\nabc\r\n",
        "3\nabc\r\n",
        "3\r\nabc\n",
        "3\r\nabcd\r\n",
        "3\r\r\nabc\r\n",
        "3;x\ny\r\nabc\r\n",
        "3;\0\r\nabc\r\n",
        "1000000000000000\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\n\rX",
    ] {
        let read = decode(BodyLength::Chunked, &[text.as_bytes()]);
        assert_eq!(read, Err(MALFORMED), "{text:?}");
    }
}

fn beyond(limit: Reached) -> Result<(Vec<u8>, bool), MalformedMessage> {
    Err(MalformedMessage {
        reached: Some(limit),
    })
}

#[test]
fn what_cannot_end_is_bounded() {
    let extension = format!("1;{}", "x".repeat(2_000));
    assert_eq!(
        decode(BodyLength::Chunked, &[extension.as_bytes()]),
        beyond(Reached::ChunkLineBytes)
    );
    let trailers = format!("0\r\n{}", "A: b\r\n".repeat(3_000));
    assert_eq!(
        decode(BodyLength::Chunked, &[trailers.as_bytes()]),
        beyond(Reached::TrailerBytes)
    );
}

#[test]
fn an_exact_body_ends_where_its_length_says() {
    let read = decode(BodyLength::Exact(4), &[b"ab", b"cdef"]);
    assert_eq!(read, Ok((b"abcd".to_vec(), true)));
    let read = decode(BodyLength::Exact(4), &[b"ab"]);
    assert_eq!(read, Ok((b"ab".to_vec(), false)));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_in_whatever_pieces(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        size in 1_usize..9,
    ) {
        let mut encoded = Buffer::take();
        for part in &parts {
            Encoder::Chunked.write(part, &mut encoded);
        }
        Encoder::Chunked.end(&mut encoded);
        let pieces: Vec<&[u8]> = encoded.filled().chunks(size).collect();
        let read = decode(BodyLength::Chunked, &pieces);
        prop_assert_eq!(read, Ok((parts.concat(), true)));
    }

    #[test]
    fn no_input_panics_or_stalls(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(BodyLength::Chunked, &[&bytes]);
    }
}
