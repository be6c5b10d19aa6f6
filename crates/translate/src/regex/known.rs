//! All that is known of texts, within bounds.

use std::collections::HashMap;
use std::mem;
use std::rc::Rc;

/// The most texts of one generation, of which there are two.
const TEXTS_MAX: usize = 8_192;

/// The most bytes of the texts of one generation.
const BYTES_MAX: usize = 2 << 20;

/// The answers of late, by their texts. What nobody asks while a generation fills is forgotten.
pub(super) struct Known<T> {
    young: HashMap<Box<str>, Rc<T>>,
    old: HashMap<Box<str>, Rc<T>>,
    /// The bytes of the young texts.
    bytes: usize,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Known {
            young: HashMap::new(),
            old: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<T> Known<T> {
    /// The answer for a text.
    pub(super) fn get(&mut self, text: &str) -> Option<Rc<T>> {
        if let Some(found) = self.young.get(text) {
            return Some(Rc::clone(found));
        }
        let (text, found) = self.old.remove_entry(text)?;
        self.insert(text, Rc::clone(&found));
        Some(found)
    }

    /// Remembers what is known of a text.
    pub(super) fn insert(&mut self, text: Box<str>, found: Rc<T>) {
        let bytes = self.bytes + text.len();
        if self.young.len() >= TEXTS_MAX || bytes > BYTES_MAX {
            self.old = mem::take(&mut self.young);
            self.bytes = 0;
        }
        self.bytes += text.len();
        self.young.insert(text, found);
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::{BYTES_MAX, Known, TEXTS_MAX};

    #[test]
    fn what_nobody_asks_is_forgotten() {
        let mut known = Known::default();
        known.insert("asked".into(), Rc::new(0));
        known.insert("left".into(), Rc::new(0));
        for number in 0..TEXTS_MAX * 3 {
            known.insert(number.to_string().into(), Rc::new(number));
            assert!(known.get("asked").is_some());
        }
        assert!(known.get("left").is_none());
        assert!(known.young.len() + known.old.len() <= 2 * TEXTS_MAX);
    }

    #[test]
    fn long_texts_are_few() {
        let mut known = Known::default();
        let text = "a".repeat(BYTES_MAX / 4);
        for number in 0..100 {
            known.insert(format!("{text}{number}").into(), Rc::new(()));
            assert!(known.young.len() + known.old.len() <= 8);
        }
    }
}
