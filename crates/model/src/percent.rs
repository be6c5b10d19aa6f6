//! Escapes of URIs (RFC 3986, section 2.1).

/// The byte of the escape whose percent sign `behind` follows, and what follows the escape; none
/// where `behind` does not begin with two hexadecimal digits.
pub fn unescape(behind: &[u8]) -> Option<(u8, &[u8])> {
    let [high, low, after @ ..] = behind else {
        return None;
    };
    let [high, low] = [high, low].map(|digit| char::from(*digit).to_digit(16));
    let byte = u8::try_from(high? * 16 + low?).ok()?;
    Some((byte, after))
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn an_escape_has_two_hexadecimal_digits_of_either_case() {
        for (behind, expected) in [
            ("2F", Some((b'/', ""))),
            ("2f", Some((b'/', ""))),
            ("00x", Some((0, "x"))),
            ("ff%41", Some((0xff, "%41"))),
            ("fF", Some((0xff, ""))),
            ("a0é", Some((0xa0, "é"))),
            ("2525", Some((b'%', "25"))),
            ("", None),
            ("4", None),
            ("4g", None),
            ("g4", None),
            ("+4", None),
            (" 4", None),
            ("%41", None),
            ("é", None),
            ("٤١", None),
        ] {
            let expected = expected.map(|(byte, after)| (byte, after.as_bytes()));
            assert_eq!(unescape(behind.as_bytes()), expected, "%{behind}");
        }
        for byte in 0..=u8::MAX {
            let (upper, lower) = (format!("{byte:02X}"), format!("{byte:02x}"));
            for digits in [upper, lower] {
                assert_eq!(unescape(digits.as_bytes()), Some((byte, &[][..])));
            }
        }
    }
}
