//! Tokens, the keys that they are verified by, and tickets.

use std::sync::{Arc, LazyLock};

use myriad_base::clock;
use myriad_proxy::TicketSecret;
use myriad_proxy::policy::token;
use myriad_proxy::route::keys::KeySet;
use myriad_proxy::tls::tickets::{TicketKeys, Ticketer, until};
use rustls::server::ProducesTickets;

/// A set of keys is read or refused; one that is read verifies nothing that is no signature.
pub(crate) fn key_set(bytes: &[u8]) -> bool {
    let Ok(keys) = KeySet::read(bytes) else {
        return false;
    };
    assert!(token::read("eyJhbGciOiJFUzI1NiJ9.e30.", &keys).is_none());
    assert!(token::read("eyJhbGciOiJub25lIn0.e30.", &keys).is_none());
    true
}

/// The key that signed the tokens of the corpus (RFC 7515, appendix A.3).
const KEYS: &[u8] = br#"{"keys":[{"kty":"EC","crv":"P-256",
    "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;

/// The text that its signature signs, and nothing else.
const SIGNED: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6\
    Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.";

/// A token whose claims are believed is the one that was signed.
pub(crate) fn token(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let is_believed = is_believed(text);
    assert!(!is_believed || text.starts_with(SIGNED), "{text}");
    is_believed
}

/// Whether the claims of a token are believed.
pub fn is_believed(token: &str) -> bool {
    KeySet::read(KEYS).is_ok_and(|keys| token::read(token, &keys).is_some())
}

/// The content of the ticket.
const SESSION: &[u8] = b"a session";

/// The tickets of one configuration, by a secret that came into use just now, and one of them.
static TICKETS: LazyLock<Option<(Ticketer, Vec<u8>)>> = LazyLock::new(|| {
    let secret = TicketSecret {
        since: clock::unix_seconds(),
        bytes: [7; 32],
    };
    let keys = TicketKeys::new(vec![secret]).ok()?;
    let tickets = Ticketer::new(Arc::new(keys), &"a.example").ok()?;
    let (mut until, mut made) = (i64::MAX, None);
    until::around(&mut until, &mut || made = tickets.encrypt(SESSION));
    Some((tickets, made?))
});

/// A ticket that was made here is opened, and none of which a byte is another. The first byte says
/// where those behind it are put in; tickets are good for a day at most, so none is in the corpus.
pub(crate) fn ticket(bytes: &[u8]) -> bool {
    let (Some((tickets, made)), Some((at, others))) = (TICKETS.as_ref(), bytes.split_first())
    else {
        return false;
    };
    let mut changed = made.clone();
    let at = usize::from(*at).min(made.len());
    changed.resize(made.len().max(at + others.len()), 0);
    let places = changed.iter_mut().skip(at).zip(others);
    places.for_each(|(place, other)| *place = *other);
    let opened = tickets.decrypt(&changed);
    assert_eq!(opened.is_some(), changed == *made);
    assert!(opened.is_none_or(|session| session == SESSION));
    changed == *made
}
