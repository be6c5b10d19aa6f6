//! The two fields by which WebSocket says over HTTP/1.1 that both ends know it (RFC 6455, sections
//! 4.1 and 4.2.2). Over HTTP/2 a setting says so, and neither field is there (RFC 8441).

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The name of the protocol, in `Upgrade` and in `:protocol`.
pub const PROTOCOL: &str = "websocket";

/// The field with the value that the client has made up for this connection.
pub const KEY: &str = "sec-websocket-key";

/// The field with the server's answer to it.
pub const ACCEPT: &str = "sec-websocket-accept";

/// A key of random numbers, which guards nothing: it tells a server that knows the protocol from
/// one that repeats what it is sent.
pub fn key(numbers: [u64; 2]) -> String {
    let [first, second] = numbers.map(u64::to_be_bytes);
    STANDARD.encode([first, second].concat())
}

/// The answer of a server to a key.
pub fn accept(key: &[u8]) -> String {
    const SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(SUFFIX);
    STANDARD.encode(context.finish())
}

#[cfg(test)]
mod tests {
    use super::{accept, key};

    #[test]
    fn keys_are_answered_as_the_protocol_says() {
        // The example of RFC 6455, section 1.3.
        let answer = accept(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(answer, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(key([0, u64::MAX]), "AAAAAAAAAAD//////////w==");
    }
}
