//! The records of TLS that have arrived as a whole.

/// The header of a record (RFC 8446, section 5.1): type, version and length.
const HEADER_BYTES: usize = 5;

/// The types of records, up to that of heartbeats (RFC 6520).
const TYPES: std::ops::RangeInclusive<u8> = 20..=24;

/// The length from which on no record is taken (RFC 5246, section 6.2.3).
const LENGTH_END: usize = 18 << 10;

/// How many of these bytes are of whole records, from the first one on. What is no record counts as
/// one: the session says what is wrong with it.
pub(super) fn whole_records(bytes: &[u8]) -> usize {
    let mut end = 0;
    loop {
        match first_record(bytes.get(end..).unwrap_or_default()) {
            0 => return end,
            length => end += length,
        }
    }
}

/// How many of these bytes are of the first record; 0 where it is not whole. What is no record
/// takes all of them.
pub(super) fn first_record(bytes: &[u8]) -> usize {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return 0;
    };
    let [kind, major, _, high, low] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !TYPES.contains(&kind) || major != 3 || length >= LENGTH_END {
        return bytes.len();
    }
    match body.len() < length {
        true => 0,
        false => HEADER_BYTES + length,
    }
}

/// The records of a message that is not whole, where so many bytes behind them are of others. A
/// session has to be shown them whatever it is asked for: it looks for them, and not in vain.
pub(super) fn unfinished(partial: &mut [u8], fresh: u32) -> &mut [u8] {
    let end = partial.len().saturating_sub(fresh as usize);
    partial.get_mut(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{first_record, whole_records};

    #[test]
    fn records_are_whole_once_their_last_byte_is_there() {
        let two = [22, 3, 1, 0, 2, 7, 7, 20, 3, 3, 0, 1, 1];
        for length in 0..=two.len() {
            let whole = match length {
                0..7 => 0,
                7..13 => 7,
                _ => 13,
            };
            assert_eq!(whole_records(&two[..length]), whole, "{length}");
            assert_eq!(first_record(&two[..length]), whole.min(7), "{length}");
        }
        assert_eq!(whole_records(&[23, 3, 3, 0, 0]), 5);
    }

    #[test]
    fn what_will_never_be_a_record_is_not_waited_for() {
        for header in [
            *b"GET /",
            [22, 2, 0, 0, 1],
            [22, 3, 3, 0x48, 0],
            [22, 3, 3, 0xff, 0xff],
        ] {
            assert_eq!(whole_records(&header), 5);
            let behind = [&[20, 3, 3, 0, 1, 1][..], &header[..]].concat();
            assert_eq!(whole_records(&behind), 11);
        }
        // The longest that is taken.
        assert_eq!(whole_records(&[23, 3, 3, 0x47, 0xff]), 0);
    }
}
