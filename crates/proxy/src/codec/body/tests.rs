use proptest::prelude::*;

use super::{
    BodyDecoder, BodyLength, Buffer, Encoder, LINE_WORK, MALFORMED, MalformedMessage, WORK_MAX,
};
use crate::codec::buffer::BUFFER_BYTES;
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

fn holding(bytes: &[u8]) -> Buffer {
    let mut input = Buffer::take();
    input.append(bytes);
    input
}

/// The bytes of a body that are joined at once, and their work.
fn join(decoder: &mut BodyDecoder, input: &mut Buffer, most: usize) -> (Vec<u8>, usize) {
    let joined = decoder.join(input, most).unwrap();
    let bytes = joined.bytes(input).to_vec();
    assert_eq!(bytes.len(), joined.length);
    input.consume(joined.consumed);
    (bytes, joined.work)
}

#[test]
fn chunks_that_lie_together_become_one() {
    let mut input = holding(b"1;x\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n0\r\nA: b\r\n\r\nGET");
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    let (bytes, work) = join(&mut decoder, &mut input, BUFFER_BYTES);
    assert_eq!(bytes, b"abcdef");
    // Three chunks, and the end.
    assert!((4 * LINE_WORK..5 * LINE_WORK).contains(&work), "{work}");
    assert!(decoder.is_done() && decoder.take_trailers().is_some());
    assert_eq!(input.filled(), b"GET");
    assert_eq!(join(&mut decoder, &mut input, BUFFER_BYTES), (vec![], 0));
    assert_eq!(input.filled(), b"GET");
}

#[test]
fn no_more_is_joined_than_there_is_room_for() {
    let mut input = holding(&b"2\r\nab\r\n".repeat(3));
    let mut decoder = BodyDecoder::new(BodyLength::Chunked);
    assert_eq!(join(&mut decoder, &mut input, 3).0, b"abab");
    assert_eq!(join(&mut decoder, &mut input, 3).0, b"ab");
    assert!(input.is_empty());
}

#[test]
fn what_came_before_a_fault_is_passed_on_before_that_is_told() {
    for fault in ["zz\r\n", "1;\0", "0\r\nA: b\nC"] {
        let mut input = holding(format!("3\r\nabc\r\n2\r\nde\r\n{fault}").as_bytes());
        let mut decoder = BodyDecoder::new(BodyLength::Chunked);
        assert_eq!(join(&mut decoder, &mut input, BUFFER_BYTES).0, b"abcde");
        for _ in 0..2 {
            let left = input.len();
            let failed = decoder.clone().join(&mut input, BUFFER_BYTES);
            assert_eq!((failed, input.len()), (Err(MALFORMED), left), "{fault:?}");
        }
    }
}

/// A buffer of them was decoded in one go, and a hundred more without a pause.
#[test]
fn tiny_chunks_and_long_lines_are_work_and_other_bodies_none() {
    let of_one = b"1\r\na\r\n".to_vec();
    let of_lines = [&b"1;"[..], &[b'x'; 1_000], b"\r\na\r\n"].concat();
    for (chunk, least) in [(of_one, WORK_MAX), (of_lines, BUFFER_BYTES * 3 / 4)] {
        let mut input = holding(&chunk.repeat(BUFFER_BYTES / chunk.len()));
        let mut decoder = BodyDecoder::new(BodyLength::Chunked);
        let (bytes, work) = join(&mut decoder, &mut input, BUFFER_BYTES);
        let most = WORK_MAX + 2 * LINE_WORK;
        assert!((least - bytes.len()..most).contains(&work), "{work}");
    }
    for size in [1 << 10, 8 << 10] {
        let chunk = format!("{size:x}\r\n{}\r\n", "x".repeat(size));
        let mut input = holding(&chunk.repeat(BUFFER_BYTES / chunk.len()).into_bytes());
        let mut decoder = BodyDecoder::new(BodyLength::Chunked);
        let (bytes, work) = join(&mut decoder, &mut input, BUFFER_BYTES);
        let chunks = bytes.len() / size;
        let most = 10 * chunks + LINE_WORK;
        assert!(chunks >= 1 && work <= most, "{work} for {chunks}");
    }
    for length in [BodyLength::Exact(100), BodyLength::UntilClose] {
        let mut input = holding(&[b'x'; 100]);
        let mut decoder = BodyDecoder::new(length);
        let joined = join(&mut decoder, &mut input, BUFFER_BYTES);
        assert_eq!(joined, (vec![b'x'; 100], 0));
    }
}

proptest! {
    #[test]
    fn what_is_joined_is_what_was_encoded(
        parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        size in 1_usize..99,
        most in 1_usize..99,
    ) {
        let mut encoded = Buffer::take();
        for part in &parts {
            Encoder::Chunked.write(part, &mut encoded);
        }
        Encoder::Chunked.end(&mut encoded);
        let (mut decoder, mut body) = (BodyDecoder::new(BodyLength::Chunked), Vec::new());
        for piece in encoded.filled().chunks(size) {
            let mut input = holding(piece);
            while !input.is_empty() {
                body.extend(join(&mut decoder, &mut input, most).0);
            }
        }
        prop_assert_eq!((body, decoder.is_done()), (parts.concat(), true));
    }

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
