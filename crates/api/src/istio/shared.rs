//! Parts that are alike in many messages, held once.
//!
//! The hundred routes of a VirtualService mostly name one host and one set of labels, go to one
//! destination and are rewritten alike, and VirtualServices of a namespace often name the same
//! ones. Each would be an allocation per route.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::Labels;
use super::note::Notes;
use super::reading::Read;
use super::virtual_service::{HttpDestination, HttpRewrite};

/// How many parts a thread remembers: as many as one object mixes.
const KEPT_MAX: usize = 8;

thread_local! {
    static TEXTS: RefCell<Kept<str>> = const { RefCell::new(Kept::new()) };
    static LABELS: RefCell<Kept<Labels>> = const { RefCell::new(Kept::new()) };
    static SHARES: RefCell<Kept<[HttpDestination]>> = const { RefCell::new(Kept::new()) };
    static REWRITES: RefCell<Kept<HttpRewrite>> = const { RefCell::new(Kept::new()) };
}

/// The last few parts that were read.
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

    /// The equal part that is kept, or else a new one, which replaces the oldest.
    fn share(&mut self, part: &T, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut known = self.parts.iter().flatten();
        if let Some(known) = known.find(|known| ***known == *part) {
            return known.clone();
        }
        let made = make();
        if let Some(oldest) = self.parts.get_mut(self.next) {
            *oldest = Some(made.clone());
        }
        self.next = (self.next + 1) % KEPT_MAX;
        made
    }
}

impl Read for Arc<str> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let text = Cow::<'_, str>::deserialize(d)?;
        notes.count(text.len())?;
        Ok(TEXTS.with_borrow_mut(|kept| kept.share(&text, || (&*text).into())))
    }
}

impl Read for Arc<Labels> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let labels = Labels::read(d, notes)?;
        Ok(LABELS.with_borrow_mut(|kept| kept.share(&labels, || Arc::new(labels.clone()))))
    }
}

impl Read for Arc<[HttpDestination]> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        let shares = Box::<[HttpDestination]>::read(d, notes)?;
        Ok(SHARES.with_borrow_mut(|kept| kept.share(&shares, || shares.to_vec().into())))
    }
}

impl Read for Arc<HttpRewrite> {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        notes.count(size_of::<HttpRewrite>())?;
        let rewrite = HttpRewrite::read(d, notes)?;
        Ok(REWRITES.with_borrow_mut(|kept| kept.share(&rewrite, || Arc::new(rewrite.clone()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_are_one_until_others_have_come() {
        let mut kept = Kept::<str>::new();
        let mut share = |text: &str| kept.share(text, || text.into());
        let first = share("a");
        for other in ["b", "a", "c", "d", "e", "f", "g"] {
            share(other);
        }
        assert!(Arc::ptr_eq(&first, &share("a")));
        // Eight others push it out.
        for other in ["h", "i"] {
            share(other);
        }
        let second = share("a");
        assert_eq!(first, second);
        assert!(!Arc::ptr_eq(&first, &second));
    }
}
