//! Keys of session tickets: made, replaced in time, and derived for each configuration.
//!
//! One secret is replaced every few hours; its predecessor still opens tickets. Each
//! configuration derives keys of its own from both, by what the configuration is for, so that no
//! session is resumed under other settings than those it was made under. All workers share them,
//! and the process that takes over from this one is given them.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{self, SHA256};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, KeyType, Prk};
use aws_lc_rs::rand;
use myriad_base::clock;
use rustls::server::ProducesTickets;

/// How long a secret makes tickets, in seconds. It opens them for as long again.
const ROTATION_SECONDS: i64 = 6 * 60 * 60;

/// Raised when the same settings are told by other bytes than before: processes of both forms
/// then resume no session of each other.
const FORM: u8 = 1;

const NAME_BYTES: usize = 16;
const KEY_BYTES: usize = 32;

/// A secret that tickets are made by. It cannot be printed.
#[derive(Clone)]
pub struct TicketSecret {
    /// When it came into use, in seconds since the epoch.
    pub since: i64,
    /// The secret.
    pub bytes: [u8; 32],
}

/// The secrets of a process.
pub struct TicketKeys {
    secrets: ArcSwap<Secrets>,
    replacing: Mutex<()>,
}

struct Secrets {
    current: TicketSecret,
    previous: Option<TicketSecret>,
}

/// The tickets of one configuration.
pub struct Ticketer {
    keys: Arc<TicketKeys>,
    context: [u8; 32],
    derived: ArcSwap<Derived>,
}

struct Derived {
    /// What it was derived from.
    secrets: Arc<Secrets>,
    current: Key,
    previous: Option<Key>,
}

struct Key {
    name: [u8; NAME_BYTES],
    aead: LessSafeKey,
}

/// The system gives no random numbers, or no keys can be derived.
#[derive(Debug, thiserror::Error)]
#[error("there are no keys for session tickets")]
pub struct NoKeys;

impl TicketKeys {
    /// New ones, or those that a predecessor handed over, the newest first.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn new(inherited: Vec<TicketSecret>) -> Result<Self, NoKeys> {
        let mut inherited = inherited.into_iter();
        let current = inherited.next().map_or_else(TicketSecret::new, Ok)?;
        let previous = inherited.next();
        Ok(TicketKeys {
            secrets: ArcSwap::from_pointee(Secrets { current, previous }),
            replacing: Mutex::new(()),
        })
    }

    /// For the process that takes over, the newest first.
    pub fn secrets(&self) -> Vec<TicketSecret> {
        let secrets = self.secrets.load();
        let current = std::iter::once(secrets.current.clone());
        current.chain(secrets.previous.clone()).collect()
    }

    /// Replaces a secret whose time has passed.
    fn refresh(&self) {
        let now = clock::unix_seconds();
        if !self.secrets.load().is_due(now) {
            return;
        }
        let _one = self
            .replacing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = self.secrets.load_full();
        if !before.is_due(now) {
            return;
        }
        // Without random numbers the old secret goes on, and the next ticket tries again.
        if let Ok(current) = TicketSecret::new() {
            let is_fresh = now - before.current.since < 2 * ROTATION_SECONDS;
            let previous = is_fresh.then(|| before.current.clone());
            self.secrets.store(Arc::new(Secrets { current, previous }));
        }
    }
}

impl TicketSecret {
    fn new() -> Result<Self, NoKeys> {
        let mut bytes = [0; 32];
        rand::fill(&mut bytes).map_err(|_| NoKeys)?;
        Ok(TicketSecret {
            since: clock::unix_seconds(),
            bytes,
        })
    }
}

impl Secrets {
    fn is_due(&self, now: i64) -> bool {
        // A clock that was set back must not keep a secret in use.
        !(0..ROTATION_SECONDS).contains(&(now - self.current.since))
    }
}

impl Ticketer {
    /// The tickets of configurations that are for this.
    ///
    /// # Errors
    /// No keys can be derived.
    pub fn new(keys: Arc<TicketKeys>, want: &impl Hash) -> Result<Self, NoKeys> {
        keys.refresh();
        let context = context_of(want);
        let secrets = keys.secrets.load_full();
        let derived = ArcSwap::from_pointee(Derived::new(secrets, &context)?);
        Ok(Ticketer {
            keys,
            context,
            derived,
        })
    }

    fn derived(&self) -> Option<Arc<Derived>> {
        self.keys.refresh();
        let derived = self.derived.load_full();
        let secrets = self.keys.secrets.load();
        if Arc::ptr_eq(&derived.secrets, &secrets) {
            return Some(derived);
        }
        let derived = Arc::new(Derived::new(secrets.clone(), &self.context).ok()?);
        self.derived.store(derived.clone());
        Some(derived)
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
        u32::try_from(2 * ROTATION_SECONDS).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let derived = self.derived()?;
        let key = &derived.current;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let tag_bytes = AES_256_GCM.tag_len();
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + plain.len() + tag_bytes);
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(plain);
        let sealed = ticket.get_mut(NAME_BYTES + NONCE_LEN..)?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = key
            .aead
            .seal_in_place_separate_tag(nonce, Aad::from(&key.name), sealed);
        ticket.extend_from_slice(tag.ok()?.as_ref());
        Some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN)?;
        let derived = self.derived()?;
        let keys = std::iter::once(&derived.current).chain(&derived.previous);
        let key = keys.into_iter().find(|key| key.name == name)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut plain = sealed.to_vec();
        let opened = key
            .aead
            .open_in_place(nonce, Aad::from(&key.name), &mut plain);
        let length = opened.ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

impl Derived {
    fn new(secrets: Arc<Secrets>, context: &[u8; 32]) -> Result<Self, NoKeys> {
        let current = Key::derive(&secrets.current, context)?;
        let previous = secrets.previous.as_ref();
        let previous = previous.map(|it| Key::derive(it, context)).transpose()?;
        Ok(Derived {
            secrets,
            current,
            previous,
        })
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
mod tests {
    use std::sync::Arc;

    use rustls::server::ProducesTickets;

    use super::{ROTATION_SECONDS, TicketKeys, TicketSecret, Ticketer, context_of};
    use crate::tls::config::{Speaks, Want};

    fn want(speaks: Speaks) -> Want {
        Want {
            settings: Arc::default(),
            speaks,
            mesh: None,
            clients: None,
        }
    }

    fn ticketer(keys: &Arc<TicketKeys>, speaks: Speaks) -> Ticketer {
        Ticketer::new(keys.clone(), &want(speaks)).unwrap()
    }

    #[test]
    fn the_next_process_opens_the_tickets_of_this_one_under_the_same_settings_alone() {
        let keys = Arc::new(TicketKeys::new(Vec::new()).unwrap());
        let ticket = ticketer(&keys, Speaks::Http).encrypt(b"session").unwrap();
        let next = Arc::new(TicketKeys::new(keys.secrets()).unwrap());
        let opened = ticketer(&next, Speaks::Http).decrypt(&ticket);
        assert_eq!(opened.as_deref(), Some(b"session".as_slice()));
        assert_eq!(ticketer(&next, Speaks::Anything).decrypt(&ticket), None);
        let stranger = Arc::new(TicketKeys::new(Vec::new()).unwrap());
        assert_eq!(ticketer(&stranger, Speaks::Http).decrypt(&ticket), None);
    }

    #[test]
    fn what_is_no_ticket_opens_nothing() {
        let keys = Arc::new(TicketKeys::new(Vec::new()).unwrap());
        let ticketer = ticketer(&keys, Speaks::Http);
        let ticket = ticketer.encrypt(b"session").unwrap();
        for length in 0..ticket.len() {
            assert_eq!(ticketer.decrypt(&ticket[..length]), None);
        }
        for place in 0..ticket.len() {
            let mut broken = ticket.clone();
            broken[place] ^= 1;
            assert_eq!(ticketer.decrypt(&broken), None);
        }
    }

    #[test]
    fn a_secret_whose_time_has_passed_still_opens_and_makes_no_more() {
        let fresh = TicketSecret::new().unwrap();
        let old = TicketSecret {
            since: fresh.since - ROTATION_SECONDS,
            ..fresh
        };
        let before = Arc::new(TicketKeys::new(vec![old.clone()]).unwrap());
        // Made as if the time had not passed.
        let young = TicketSecret {
            since: fresh.since,
            ..old
        };
        let maker = Arc::new(TicketKeys::new(vec![young]).unwrap());
        let ticket = ticketer(&maker, Speaks::Http).encrypt(b"session").unwrap();
        let ticketer = ticketer(&before, Speaks::Http);
        assert_eq!(
            ticketer.decrypt(&ticket).as_deref(),
            Some(b"session".as_slice())
        );
        let secrets = before.secrets();
        assert_eq!(secrets.len(), 2);
        assert_ne!(secrets[0].bytes, secrets[1].bytes);
        let next = ticketer.encrypt(b"session").unwrap();
        assert_ne!(ticket[..16], next[..16]);
    }

    #[test]
    fn settings_are_told_by_the_bytes_of_this_form() {
        let context = context_of(&want(Speaks::Http));
        let text: String = context
            .iter()
            .take(8)
            .map(|it| format!("{it:02x}"))
            .collect();
        assert_eq!(text, "5847b57d7949a2d4", "raise FORM, and pin this");
    }
}
