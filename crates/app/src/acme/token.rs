//! Tokens of our own, by which names are asked whether they lead here, and the answers that proxies
//! give.

use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use myriad_api::order::OrderAnswer;
use myriad_pki::acme::{ChallengeKind, PlacedOrder};

use crate::process;

/// The number of random bytes of a token.
const NONCE_BYTES: usize = 16;

/// A token that nobody can guess.
///
/// # Errors
/// The system gives no random numbers.
pub(super) fn nonce() -> io::Result<Box<str>> {
    let random = process::random_key().map_err(io::Error::other)?;
    let first = random.get(..NONCE_BYTES).unwrap_or_default();
    Ok(URL_SAFE_NO_PAD.encode(first).into())
}

/// The token that the names of a placed order are asked with. Proxies are told it with the answers
/// to its challenges, so that one which follows a replica that lags does not pass by another one.
pub(super) fn placed_nonce(nonce: &str, placed: &PlacedOrder) -> Box<str> {
    let mut hasher = blake3::Hasher::new();
    for part in [nonce, &placed.url] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    let hash = hasher.finalize();
    let first = hash.as_bytes().get(..NONCE_BYTES).unwrap_or_default();
    URL_SAFE_NO_PAD.encode(first).into()
}

/// The text that is said to a token of ours; it could be no key authorization.
pub(super) fn text_of(nonce: &str) -> String {
    format!("myriad-{nonce}")
}

/// The answer of a name to a token of ours.
pub(super) fn token(name: &str, nonce: &str) -> OrderAnswer {
    OrderAnswer {
        host: name.into(),
        by_tls: false,
        token: nonce.into(),
        text: text_of(nonce).into(),
    }
}

/// The answers to the challenges of an order that an authority looks for at a gateway.
pub(super) fn answers(placed: &PlacedOrder) -> Vec<OrderAnswer> {
    let challenges = placed.challenges.iter().filter_map(|challenge| {
        let by_tls = match challenge.kind()? {
            ChallengeKind::Http => false,
            ChallengeKind::TlsAlpn => true,
            _ => return None,
        };
        Some(OrderAnswer {
            host: match by_tls {
                true => handshake_name(&challenge.name),
                false => challenge.name.clone(),
            },
            by_tls,
            token: challenge.token.clone(),
            text: challenge.answer.clone(),
        })
    });
    challenges.collect()
}

/// The name that a handshake asks for: for an address the one that it has in the reverse zones
/// (RFC 8738, section 6).
fn handshake_name(name: &str) -> Box<str> {
    match name.parse() {
        Ok(IpAddr::V4(ip)) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa").into()
        }
        Ok(IpAddr::V6(ip)) => {
            let octets = ip.octets().into_iter().rev();
            let digits = octets.map(|octet| format!("{:x}.{:x}.", octet & 0x0f, octet >> 4));
            format!("{}ip6.arpa", digits.collect::<String>()).into()
        }
        Err(_) => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use myriad_pki::acme::{Challenge, PlacedOrder};

    use super::{answers, handshake_name};

    #[test]
    fn a_gateway_answers_what_is_looked_for_there_and_addresses_by_their_reverse_names() {
        let challenge = |name: &str, kind: &str| Challenge {
            name: name.into(),
            kind: kind.into(),
            token: "t".into(),
            answer: "t.k".into(),
        };
        let placed = PlacedOrder {
            url: "u".into(),
            challenges: vec![
                challenge("a.example", "http-01"),
                challenge("*.a.example", "dns-01"),
                challenge("b.example", "dns-persist-01"),
                challenge("192.0.2.7", "tls-alpn-01"),
                challenge("192.0.2.8", "http-01"),
                challenge("2001:db8::1", "http-01"),
            ],
        };
        let given = answers(&placed);
        let hosts: Vec<(&str, bool)> = given.iter().map(|it| (&*it.host, it.by_tls)).collect();
        assert_eq!(
            hosts,
            [
                ("a.example", false),
                ("7.2.0.192.in-addr.arpa", true),
                ("192.0.2.8", false),
                ("2001:db8::1", false),
            ]
        );
        assert_eq!(&*handshake_name("a.example"), "a.example");
        assert_eq!(
            &*handshake_name("2001:db8::1"),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
    }
}
