//! Keys of session tickets: taken from secrets, and derived for each configuration.
//!
//! Each configuration derives keys of its own from every secret, by what the configuration is for,
//! so that no session is resumed under other settings than those it was made under. All workers
//! share the secrets, and so do the process that takes over from this one and, where they are
//! given, the other replicas of a gateway.

mod keys;
pub mod until;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, KeyType, Prk};
use aws_lc_rs::rand;
use myriad_base::clock;
use rustls::server::ProducesTickets;

pub use keys::{TicketKeys, TicketSecret};

use keys::{ROTATION_SECONDS, Secrets};

/// How long a ticket is good for, in seconds, whatever becomes of the secret that it was made by.
const LIFETIME_SECONDS: i64 = 2 * ROTATION_SECONDS;

/// How far the clock of the replica that made a ticket may be ahead, in seconds.
const SKEW_SECONDS: i64 = 300;

/// Raised when the same settings are told by other bytes than before, or tickets have another
/// form: processes of both forms then resume no session of each other.
const FORM: u8 = 3;

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const TIME_BYTES: usize = 8;

/// The tickets of one configuration.
pub struct Ticketer {
    keys: Arc<TicketKeys>,
    context: [u8; 32],
    derived: ArcSwap<Derived>,
}

struct Derived {
    /// The secrets that it was derived from.
    secrets: Arc<Secrets>,
    /// The first one makes tickets.
    keys: Vec<Key>,
}

struct Key {
    name: [u8; NAME_BYTES],
    aead: LessSafeKey,
}

/// The system gives no random numbers, or no keys can be derived.
#[derive(Debug, thiserror::Error)]
#[error("there are no keys for session tickets")]
pub struct NoKeys;

impl Ticketer {
    /// The tickets of configurations that are for this.
    ///
    /// # Errors
    /// No keys can be derived.
    pub fn new(keys: Arc<TicketKeys>, want: &impl Hash) -> Result<Self, NoKeys> {
        let context = context_of(want);
        let derived = Derived::new(keys.secrets(), &context)?;
        let derived = ArcSwap::from_pointee(derived);
        Ok(Ticketer {
            keys,
            context,
            derived,
        })
    }

    /// The keys as they are at a time.
    fn derived(&self, now: i64) -> Option<Arc<Derived>> {
        self.keys.refresh(now);
        let derived = self.derived.load_full();
        if self.keys.are(&derived.secrets) {
            return Some(derived);
        }
        let derived = Arc::new(Derived::new(self.keys.secrets(), &self.context).ok()?);
        self.derived.store(derived.clone());
        Some(derived)
    }

    /// A ticket that is made at a time, and good until another at most, in seconds since the epoch.
    fn seal(&self, plain: &[u8], now: i64, until: i64) -> Option<Vec<u8>> {
        let derived = self.derived(now)?;
        let key = derived.keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let around = NAME_BYTES + NONCE_LEN + 2 * TIME_BYTES + AES_256_GCM.tag_len();
        let mut ticket = Vec::with_capacity(around + plain.len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        ticket.extend_from_slice(&until.to_be_bytes());
        ticket.extend_from_slice(&now.to_be_bytes());
        let sealed = ticket.get_mut(NAME_BYTES + NONCE_LEN..)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key
            .aead
            .seal_in_place_separate_tag(nonce, Aad::from(&key.name), sealed);
        ticket.extend_from_slice(tag.ok()?.as_ref());
        Some(ticket)
    }

    /// The content of a ticket that is good at a time. What is made of it ends when it does.
    fn open(&self, ticket: &[u8], now: i64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let derived = self.derived(now)?;
        let key = derived.keys.iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = sealed.to_vec();
        let opened = key
            .aead
            .open_in_place(nonce, Aad::from(&key.name), &mut plain);
        let (rest, made) = opened.ok()?.split_last_chunk::<TIME_BYTES>()?;
        let (session, until) = rest.split_last_chunk::<TIME_BYTES>()?;
        let age = now.checked_sub(i64::from_be_bytes(*made))?;
        let until = i64::from_be_bytes(*until);
        let length = session.len();
        if now > until || !(-SKEW_SECONDS..LIFETIME_SECONDS).contains(&age) {
            return None;
        }
        until::limit(until);
        plain.truncate(length);
        Some(plain)
    }
}

impl std::fmt::Debug for Ticketer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Ticketer")
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(LIFETIME_SECONDS).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, clock::unix_seconds(), until::get())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, clock::unix_seconds())
    }
}

impl Derived {
    fn new(secrets: Arc<Secrets>, context: &[u8; 32]) -> Result<Self, NoKeys> {
        let keys = secrets.all().map(|it| Key::derive(it, context));
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Derived { secrets, keys })
    }
}

impl Key {
    fn derive(secret: &TicketSecret, context: &[u8; 32]) -> Result<Self, NoKeys> {
        let root = Prk::new_less_safe(HKDF_SHA256, &secret.bytes);
        let (mut name, mut key) = ([0; NAME_BYTES], [0; KEY_BYTES]);
        expand(&root, b"name", context, &mut name)?;
        expand(&root, b"key", context, &mut key)?;
        let aead = UnboundKey::new(&AES_256_GCM, &key).map_err(|_| NoKeys)?;
        Ok(Key {
            name,
            aead: LessSafeKey::new(aead),
        })
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(root: &Prk, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), NoKeys> {
    let info = [b"myriad ticket ".as_slice(), label, context];
    let expanded: Result<hkdf::Okm<'_, _>, _> = root.expand(&info, Length(out.len()));
    expanded.and_then(|it| it.fill(out)).map_err(|_| NoKeys)
}

/// Tells what configurations are for by 32 bytes, the same in every process of one form.
fn context_of(want: &impl Hash) -> [u8; 32] {
    let mut stream = Stream(digest::Context::new(&SHA256));
    stream.write(&[FORM]);
    want.hash(&mut stream);
    let mut context = [0; 32];
    context.copy_from_slice(stream.0.finish().as_ref());
    context
}

/// Takes in all that a value tells of itself in order to be hashed.
struct Stream(digest::Context);

impl Hasher for Stream {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
