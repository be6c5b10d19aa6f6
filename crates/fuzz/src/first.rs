//! The first bytes of a connection.

use myriad_proxy::mesh::detect::{BYTES_MAX, Expected, KnownProtocols};
use myriad_proxy::tls::hello::{Arriving, HelloSummary};

/// The longest name of a host (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 255;

/// The verdict on the first bytes holds whatever follows them, and is reached at last when as many
/// are there as are ever looked at: how a connection is cut into packets changes nothing.
pub(crate) fn first_bytes(bytes: &[u8]) -> bool {
    let bytes = bytes.get(..BYTES_MAX).unwrap_or(bytes);
    let mut is_known = false;
    for expected in [Expected::Http, Expected::Bytes, Expected::HttpOrBytes] {
        for may_be_tls in [false, true] {
            let known = KnownProtocols {
                may_be_tls,
                expected,
            };
            let whole = known.judge(bytes);
            is_known |= whole.is_some();
            assert!(whole.is_some() || bytes.len() < BYTES_MAX);
            let lengths = (0..bytes.len().min(64)).chain((64..bytes.len()).step_by(61));
            for length in lengths {
                let part = known.judge(bytes.get(..length).unwrap_or_default());
                assert!(part.is_none() || part == whole, "{known:?} at {length}");
            }
        }
    }
    is_known
}

/// A ClientHello is for the same name however it is cut, and for one that is in it.
pub(crate) fn client_hello(bytes: &[u8]) -> bool {
    let whole = hello(bytes, bytes.len());
    for size in [1, 7, 64] {
        assert_eq!(hello(bytes, size), whole, "in pieces of {size}");
    }
    let Ok(Some(told)) = whole else {
        return false;
    };
    if let Some(sni) = &told.sni {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        assert!(
            (1..=NAME_BYTES_MAX).contains(&sni.len()) && sni.bytes().all(fits),
            "{sni}"
        );
        let mut windows = bytes.windows(sni.len());
        assert!(windows.any(|window| window.eq_ignore_ascii_case(sni.as_bytes())));
    }
    true
}

/// The name and protocols, `None` where more bytes have to come, or an error where it is no
/// ClientHello.
fn hello(bytes: &[u8], size: usize) -> Result<Option<HelloSummary>, ()> {
    let mut arriving = Arriving::default();
    for piece in bytes.chunks(size.max(1)) {
        match arriving.take(piece) {
            Ok(None) => {}
            Ok(told) => return Ok(told),
            Err(_) => return Err(()),
        }
    }
    Ok(None)
}
