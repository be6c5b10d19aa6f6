use super::{
    HpackDecoder, Section, TABLE_BYTES_MAX, Unreadable, checked, field, forget, huffman, status,
};
use crate::codec::buffer::Buffer;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn texts(section: &Section) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields = section.iter();
    fields
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

fn decode(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Vec<(String, String)>, Unreadable> {
    let mut section = Section::default();
    section.clear(10_000);
    decoder.decode(block, &mut section)?;
    Ok(texts(&section))
}

/// Appendix C.3 and C.4 of RFC 7541: the same three requests, as they are and coded.
#[test]
fn requests_of_the_standard_are_understood() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let heads = [
        vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ],
        vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
            ("cache-control", "no-cache"),
        ],
        vec![
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ],
    ];
    for blocks in [plain, coded] {
        let mut decoder = HpackDecoder::default();
        for (block, head) in blocks.iter().zip(&heads) {
            let found = decode(&mut decoder, &bytes(block)).unwrap();
            let found: Vec<_> = found.iter().map(|(n, v)| (&**n, &**v)).collect();
            assert_eq!(&found, head);
        }
    }
}

#[test]
fn what_is_packed_is_understood() {
    let long = "x".repeat(70_000);
    let fields = [
        ("Content-Type", "text/plain"),
        ("set-cookie", "a=1"),
        ("X-Own", long.as_str()),
        ("x-empty", ""),
    ];
    for code in [200, 204, 206, 304, 400, 404, 500, 103, 418] {
        let mut out = Buffer::for_head();
        forget(&mut out);
        status(code, &mut out);
        for (name, value) in fields {
            field(name, value.as_bytes(), &mut out);
        }
        let mut section = Section::default();
        section.clear(100_000);
        let mut decoder = HpackDecoder::default();
        decoder.decode(out.filled(), &mut section).unwrap();
        let mut expected = vec![(":status".to_owned(), code.to_string())];
        let lower = |(name, value): (&str, &str)| (name.to_lowercase(), value.to_owned());
        expected.extend(fields.map(lower));
        assert_eq!(texts(&section), expected);
    }
}

#[test]
fn what_breaks_the_rules_is_refused() {
    for (block, why) in [
        ("80", "the number 0"),
        ("be", "a number that nothing has"),
        ("ff ff ff ff ff ff", "a number without end"),
        ("ff 80 80 80 80 01", "a number that is too large"),
        ("00", "no name"),
        ("00 01", "a name that is cut off"),
        ("00 01 61 02 62", "a value that is cut off"),
        ("82 20", "a size behind a field"),
        ("3f e2 1f", "a size beyond what we keep"),
        ("00 01 61 81 00", "filling that is none"),
        ("00 01 61 82 1f ff", "filling of a whole byte"),
        ("00 01 61 84 ff ff ff fc", "the end of the code"),
    ] {
        let found = decode(&mut HpackDecoder::default(), &bytes(block));
        assert_eq!(found, Err(Unreadable::Malformed), "{why}");
    }
    let most = decode(&mut HpackDecoder::default(), &bytes("3f e1 1f 82")).unwrap();
    assert_eq!((most.len(), TABLE_BYTES_MAX), (1, 4_096));
}

#[test]
fn every_byte_has_its_code() {
    // The codes of some bytes, long and short (RFC 7541, appendix B).
    for (code, byte) in [
        ("07", b'0'),
        ("1f", b'a'),
        ("f8", b'&'),
        ("ff c7", 0),
        ("ff ff ff f3", b'\n'),
        ("ff ff ff df", 220),
        ("ff ff fb bf", 255),
    ] {
        let mut out = Vec::new();
        let found = huffman::decode(&bytes(code), &mut out);
        assert_eq!((found, out), (Ok(()), vec![byte]), "{code}");
    }
}

#[test]
fn what_does_not_fit_is_left_out_but_remembered() {
    let mut section = Section::default();
    section.clear(40);
    let mut decoder = HpackDecoder::default();
    // `a: b` fits (34 bytes); `c: d` is kept in the table alone.
    let block = bytes("40 01 61 01 62 40 01 63 01 64");
    decoder.decode(&block, &mut section).unwrap();
    assert!(section.is_over());
    assert_eq!(texts(&section), [("a".to_owned(), "b".to_owned())]);
    let again = decode(&mut decoder, &bytes("be")).unwrap();
    assert_eq!(again, [("c".to_owned(), "d".to_owned())]);
}

#[test]
fn a_head_that_grows_without_end_is_given_up() {
    let mut section = Section::default();
    section.clear(8_000);
    // A field of some size, and then its number over and over.
    let mut block = bytes("40 01 61 7f c1 06");
    block.extend([b'x'; 960]);
    block.extend([0xbe; 40_000]);
    let decoded = HpackDecoder::default().decode(&block, &mut section);
    assert_eq!(decoded, Err(Unreadable::Bomb));
    assert!(section.is_over() && section.bytes.len() < 8_000);
}

#[test]
fn a_head_that_nobody_reads_is_remembered_and_written_nowhere() {
    let mut section = Section::default();
    section.clear(8_000);
    section.pass_over();
    let mut decoder = HpackDecoder::default();
    // A long field for the table, its number again and again, its name with another value, and
    // that of a field that everybody knows.
    let mut block = bytes("40 01 61 7f c1 06");
    block.extend([b'x'; 960]);
    block.extend([0xbe; 20]);
    block.extend(bytes("0f 2f 01 62 7e 01 63 82"));
    decoder.decode(&block, &mut section).unwrap();
    assert!(section.is_over() && section.size() > 20 * 960);
    assert_eq!((section.iter().count(), section.bytes.len()), (0, 0));
    assert!(section.bytes.capacity() < 4_000);
    let again = decode(&mut decoder, &bytes("be")).unwrap();
    assert_eq!(again, [("a".to_owned(), "c".to_owned())]);
    // The next head is read again.
    section.clear(8_000);
    decoder.decode(&bytes("be"), &mut section).unwrap();
    assert_eq!(texts(&section), [("a".to_owned(), "c".to_owned())]);
}

#[test]
fn what_is_too_large_is_written_no_further() {
    let mut section = Section::default();
    section.clear(8_000);
    let mut block = bytes("40 01 61 7f c1 06");
    block.extend([b'x'; 960]);
    block.extend([0xbe; 30]);
    let mut decoder = HpackDecoder::default();
    decoder.decode(&block, &mut section).unwrap();
    // 993 bytes each, as the standard counts them.
    assert_eq!((section.iter().count(), section.size()), (8, 31 * 993));
    assert!(section.is_over() && section.bytes.len() == 8 * 961);
}

#[test]
fn fields_have_lower_case_and_no_control_bytes() {
    assert!(checked(b"x-a", b"b c\td\xff").is_some());
    for (name, value) in [
        (&b"X"[..], &b"a"[..]),
        (b"", b"a"),
        (b"a:", b"a"),
        (b"a", b"a\0"),
        (b"a", b"a\n"),
        (b"a", b"\x7f"),
        (b"a", b" a"),
        (b"a", b"a\t"),
    ] {
        assert!(checked(name, value).is_none(), "{name:?} {value:?}");
    }
}
