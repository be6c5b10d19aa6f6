//! Parts that are alike in many resources, held once.
//!
//! Each resource is read on its own. The policy of a hundred thousand routes is mostly one of a
//! few, and each would be an allocation per route.

use std::cell::RefCell;
use std::sync::Arc;

use crate::{Name, Policy};

/// How many parts of a sort a thread remembers.
const KEPT_MAX: usize = 8;

thread_local! {
    static TEXTS: RefCell<Kept<str>> = const { RefCell::new(Kept::new()) };
    static NAMES: RefCell<Kept<[Name]>> = const { RefCell::new(Kept::new()) };
    static BODIES: RefCell<Kept<[u8]>> = const { RefCell::new(Kept::new()) };
    static POLICIES: RefCell<Kept<Policy>> = const { RefCell::new(Kept::new()) };
}

/// The last few parts that were read and not known.
struct Kept<T: ?Sized> {
    parts: [Option<Arc<T>>; KEPT_MAX],
    next: usize,
}

impl<T: ?Sized + PartialEq> Kept<T> {
    const fn new() -> Self {
        Kept {
            parts: [const { None }; KEPT_MAX],
            next: 0,
        }
    }

    /// The equal part that is kept, or else this one, which replaces the oldest.
    fn share(&mut self, part: Arc<T>) -> Arc<T> {
        let mut known = self.parts.iter().flatten();
        if let Some(known) = known.find(|known| **known == part) {
            return known.clone();
        }
        if let Some(oldest) = self.parts.get_mut(self.next) {
            *oldest = Some(part.clone());
        }
        self.next = (self.next + 1) % KEPT_MAX;
        part
    }
}

/// The one allocation of the body of an answer. Of a megabyte each, what is kept is not much.
pub(super) fn body(bytes: &[u8]) -> Arc<[u8]> {
    BODIES.with_borrow_mut(|kept| {
        let mut known = kept.parts.iter().flatten();
        let known = known.find(|known| ***known == *bytes).cloned();
        known.unwrap_or_else(|| kept.share(bytes.into()))
    })
}

/// The one allocation of a text: the id of an object, the name of an upstream.
pub(super) fn text(text: Arc<str>) -> Arc<str> {
    TEXTS.with_borrow_mut(|kept| kept.share(text))
}

/// The one allocation of a list of names.
pub(super) fn names(names: Arc<[Name]>) -> Arc<[Name]> {
    NAMES.with_borrow_mut(|kept| kept.share(names))
}

/// The one allocation of a policy.
pub(super) fn policy(policy: Policy) -> Arc<Policy> {
    POLICIES.with_borrow_mut(|kept| kept.share(Arc::new(policy)))
}
