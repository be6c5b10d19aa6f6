//! Tokens whose signature was verified, or refused, lately.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use crate::route::claims::Claims;
use crate::route::keys::KeySet;

/// The most verified tokens that a worker remembers, twice over.
const REMEMBERED_MAX: usize = 512;

/// The most refused tokens that a worker remembers, by 24 bytes each.
const REFUSED_MAX: usize = 4_096;

/// Tokens whose signature was verified lately: a full younger generation becomes the older one.
#[derive(Default)]
pub struct Remembered {
    younger: RefCell<HashMap<Box<str>, Kept, foldhash::fast::RandomState>>,
    older: RefCell<HashMap<Box<str>, Kept, foldhash::fast::RandomState>>,
    refused: RefCell<Vec<Option<Refused>>>,
    /// The secret of the hashes of refused tokens, so that nobody finds two that are one.
    secret: RandomState,
}

/// A token whose signature is none of these keys'. Its place goes by its hash, and the next one
/// there takes it.
struct Refused {
    hash: u64,
    keys: Arc<KeySet>,
}

/// A token, and the keys that verified it: others may not.
#[derive(Clone)]
struct Kept {
    keys: Arc<KeySet>,
    claims: Arc<Claims>,
}

impl Remembered {
    /// The claims of a token that the keys have verified.
    pub(super) fn get(&self, token: &str, keys: &Arc<KeySet>) -> Option<Arc<Claims>> {
        let is_by = |known: &&Kept| Arc::ptr_eq(&known.keys, keys);
        let younger = self.younger.borrow();
        if let Some(known) = younger.get(token).filter(is_by) {
            return Some(known.claims.clone());
        }
        drop(younger);
        let known = self.older.borrow().get(token).filter(is_by).cloned()?;
        let claims = known.claims.clone();
        self.insert(token, known);
        Some(claims)
    }

    /// Remembers a token that the keys have verified.
    pub(super) fn put(&self, token: &str, keys: Arc<KeySet>, claims: Arc<Claims>) {
        self.insert(token, Kept { keys, claims });
    }

    fn insert(&self, token: &str, known: Kept) {
        let mut younger = self.younger.borrow_mut();
        if younger.len() >= REMEMBERED_MAX {
            self.older.replace(std::mem::take(&mut younger));
        }
        younger.insert(token.into(), known);
    }

    /// Whether none of the keys has made the token's signature, as far as that is remembered.
    pub(super) fn is_refused(&self, token: &str, keys: &Arc<KeySet>) -> bool {
        let hash = self.secret.hash_one(token);
        let refused = self.refused.borrow();
        let found = refused.get(place(hash)).and_then(Option::as_ref);
        found.is_some_and(|it| it.hash == hash && Arc::ptr_eq(&it.keys, keys))
    }

    /// Remembers a token whose signature none of the keys has made.
    pub(super) fn refuse(&self, token: &str, keys: &Arc<KeySet>) {
        let hash = self.secret.hash_one(token);
        let keys = keys.clone();
        let mut refused = self.refused.borrow_mut();
        if refused.is_empty() {
            refused.resize_with(REFUSED_MAX, || None);
        }
        if let Some(place) = refused.get_mut(place(hash)) {
            *place = Some(Refused { hash, keys });
        }
    }
}

/// The place of a refused token.
fn place(hash: u64) -> usize {
    usize::try_from(hash).unwrap_or_default() % REFUSED_MAX
}
