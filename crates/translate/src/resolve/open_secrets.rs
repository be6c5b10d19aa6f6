//! Secrets as units read them: the names of a certificate and the users of a Secret are read once
//! for all hosts and paths that ask in a batch.

use std::any::Any;
use std::sync::Arc;

use myriad_api::{Object, ObjectKind};

use super::certificate::{self, Names};
use super::facts::{SecretContent, SharedFact, held};
use super::lent::issuer_of;
use crate::engine::{Kept, Moment, Reader, Recent};

/// The most bytes of names that are kept, about.
const NAMES_BYTES_MAX: usize = 16 << 20;

/// The most Secrets of users that are kept.
const USERS_MAX: usize = 1 << 14;

/// The Secrets that were read last.
struct OpenSecrets {
    names: Recent<Arc<Names>>,
    users: Recent<SecretContent>,
}

impl Default for OpenSecrets {
    fn default() -> Self {
        OpenSecrets {
            names: Recent::new(NAMES_BYTES_MAX),
            users: Recent::new(USERS_MAX),
        }
    }
}

impl Kept for OpenSecrets {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            self.names.clear();
            self.users.clear();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Reader<'_> {
    /// The names that the certificate of a Secret covers; none where there is no such Secret.
    /// For who needs the unit of that Secret and so runs again when the names change.
    pub fn secret_names(&mut self, id: &str) -> Option<Arc<Names>> {
        let Object::Secret(secret) = self.visit(ObjectKind::Secret, id)? else {
            return None;
        };
        let open = self.open_mut::<OpenSecrets>();
        if let Some(known) = open.and_then(|open| open.names.find(id)) {
            return Some(known.clone());
        }
        self.count_text();
        let names = Arc::new(certificate::names(&secret));
        if let Some(open) = self.open_mut::<OpenSecrets>() {
            let id = secret.meta.key.id();
            open.names.keep(id, names.clone(), names.bytes());
        }
        Some(names)
    }

    /// Whether a certificate is wanted of an issuer in a Secret: where there is none, or one that
    /// an issuer has provided. For who needs the unit of that Secret, and so runs again when that
    /// differs.
    pub fn is_issued(&mut self, id: &str) -> bool {
        let secret = self.visit(ObjectKind::Secret, id);
        secret.is_none() || issuer_of(secret.as_ref()).is_some()
    }

    /// Whether there is a Secret of this name. For who needs the unit of that Secret.
    pub fn is_held(&self, id: &str) -> bool {
        self.stored().has(ObjectKind::Secret, id)
    }

    /// The content of a Secret that others are verified by.
    pub fn held(&mut self, id: &str) -> Option<SecretContent> {
        self.read(SharedFact::TrustThere(id));
        let secret = self.visit(ObjectKind::Secret, id)?;
        let open = self.open_mut::<OpenSecrets>();
        if let Some(known) = open.and_then(|open| open.users.find(id)) {
            return Some(*known);
        }
        let content = held(Some(&secret))?;
        // Whether there are authorities is seen at once.
        if content != SecretContent::Authorities {
            self.count_text();
            if let Some(open) = self.open_mut::<OpenSecrets>() {
                open.users.keep(secret.key().id(), content, 1);
            }
        }
        Some(content)
    }
}
