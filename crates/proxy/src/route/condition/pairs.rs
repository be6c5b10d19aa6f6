//! Names and values of a query, or of cookies, taken apart once for all conditions.

use std::cell::RefCell;
use std::thread::LocalKey;

use super::{BYTES_A_STEP, NAMES_A_STEP, decode_into};
use crate::pattern::Budget;

/// The longest text in bytes whose memory a thread keeps.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Names and values, in their order. None is larger than the head that they are from.
#[derive(Default)]
struct Pairs {
    /// The text that they are from, by which it is known again.
    raw: Vec<u8>,
    /// Names and values, one behind another.
    text: Vec<u8>,
    /// The ends of each name and its value in the text.
    ends: Vec<(u32, u32)>,
}

/// The pairs of a request, in memory that the thread lends.
pub(super) struct Lent {
    pairs: Pairs,
    home: &'static LocalKey<RefCell<Pairs>>,
}

/// Name and value of a pair; none where it is no pair.
type Cut = fn(&[u8]) -> Option<(&[u8], &[u8])>;

/// The kind of text that pairs are in.
struct Form {
    separator: u8,
    /// Takes a pair apart.
    cut: Cut,
    /// Writes a name or a value behind others.
    put: fn(&[u8], &mut Vec<u8>),
}

thread_local! {
    static QUERY: RefCell<Pairs> = RefCell::default();
    static COOKIES: RefCell<Pairs> = RefCell::default();
}

impl Lent {
    /// The parameters of a query, with their encoding undone.
    pub(super) fn of_query(query: &str, budget: &Budget) -> Self {
        let form = Form {
            separator: b'&',
            cut: |pair| Some(cut(pair).unwrap_or((pair, Default::default()))),
            put: decode_into,
        };
        Lent::read(&QUERY, &form, std::iter::once(query.as_bytes()), budget)
    }

    /// The cookies of all fields that have any.
    pub(super) fn of_cookies<'a>(
        fields: impl Iterator<Item = &'a [u8]> + Clone,
        budget: &Budget,
    ) -> Self {
        let form = Form {
            separator: b';',
            cut: |pair| cut(pair.trim_ascii()),
            put: |text, out| out.extend_from_slice(text),
        };
        Lent::read(&COOKIES, &form, fields, budget)
    }

    /// The value of the first pair of a name.
    pub(super) fn get(&self, name: &[u8], budget: &Budget) -> Option<&[u8]> {
        let (mut looked, mut start) = (0, 0);
        let found = self.pairs.ends.iter().find_map(|(middle, end)| {
            let range = (start, *middle as usize, *end as usize);
            (looked, start) = (looked + 1, range.2);
            let known = self.pairs.text.get(range.0..range.1)?;
            (known == name).then_some(range.1..range.2)
        });
        budget.take(looked / NAMES_A_STEP);
        self.pairs.text.get(found?)
    }

    fn read<'a>(
        home: &'static LocalKey<RefCell<Pairs>>,
        form: &Form,
        parts: impl Iterator<Item = &'a [u8]> + Clone,
        budget: &Budget,
    ) -> Self {
        // It is taken, so that whoever asks meanwhile has memory of its own.
        let mut lent = Lent {
            pairs: home.take(),
            home,
        };
        if !lent.pairs.is_of(form, parts.clone()) {
            lent.pairs.read(form, parts);
        }
        // The same whether or not they were known already: nobody's budget is another's luck.
        budget.take(lent.pairs.raw.len() / BYTES_A_STEP);
        lent
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.pairs.raw.capacity() <= KEPT_BYTES_MAX {
            self.home.replace(std::mem::take(&mut self.pairs));
        }
    }
}

impl Pairs {
    /// Whether they are those of a text.
    fn is_of<'a>(&self, form: &Form, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut rest = Some(&*self.raw);
        for part in parts {
            let behind = rest.and_then(|rest| rest.strip_prefix(part));
            rest = behind.and_then(|rest| rest.strip_prefix(&[form.separator]));
        }
        rest.is_some_and(<[u8]>::is_empty)
    }

    fn read<'a>(&mut self, form: &Form, parts: impl Iterator<Item = &'a [u8]> + Clone) {
        let Pairs { raw, text, ends } = self;
        raw.clear();
        text.clear();
        ends.clear();
        let bytes = parts.clone().map(|part| part.len() + 1).sum::<usize>();
        let pairs = |part: &[u8]| memchr::memchr_iter(form.separator, part).count() + 1;
        raw.reserve_exact(bytes);
        text.reserve_exact(bytes);
        ends.reserve_exact(parts.clone().map(pairs).sum::<usize>());
        for part in parts {
            raw.extend_from_slice(part);
            raw.push(form.separator);
            for pair in part.split(|byte| *byte == form.separator) {
                let Some((name, value)) = (form.cut)(pair) else {
                    continue;
                };
                (form.put)(name, text);
                let middle = text.len() as u32;
                (form.put)(value, text);
                ends.push((middle, text.len() as u32));
            }
        }
    }
}

/// The bytes before the first equals sign, and those behind it.
fn cut(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', pair)?;
    Some((pair.get(..at)?, pair.get(at + 1..)?))
}

#[cfg(test)]
mod tests {
    use super::{KEPT_BYTES_MAX, Lent, QUERY};
    use crate::pattern::Budget;

    fn get(query: &str, name: &str) -> Option<String> {
        let budget = Budget::default();
        let lent = Lent::of_query(query, &budget);
        let value = lent.get(name.as_bytes(), &budget);
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn pairs_are_those_of_the_text_at_hand() {
        for (query, name, value) in [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&b=3", "b", Some("3")),
            ("a=1&b=3", "b", Some("3")),
            ("a=1", "b", None),
            ("a=1&", "", Some("")),
            ("a=1", "", None),
            ("", "", Some("")),
            ("%61+b=c%20d+e=f&a b=x", "a b", Some("c d e=f")),
        ] {
            assert_eq!(get(query, name).as_deref(), value, "{query:?} {name:?}");
        }
        let budget = Budget::default();
        let cookies = |fields: &[&'static [u8]], name: &[u8]| {
            let lent = Lent::of_cookies(fields.iter().copied(), &budget);
            lent.get(name, &budget).map(<[u8]>::to_vec)
        };
        let both: [&[u8]; 2] = [b"a=1; b", b" c = 3;d=4=5"];
        assert_eq!(cookies(&both, b"a"), Some(b"1".to_vec()));
        assert_eq!(cookies(&both, b"b"), None);
        assert_eq!(cookies(&both, b"c "), Some(b" 3".to_vec()));
        assert_eq!(cookies(&both, b"d"), Some(b"4=5".to_vec()));
        assert_eq!(cookies(&both[1..], b"a"), None);
        assert_eq!(cookies(&[], b"a"), None);
    }

    #[test]
    fn no_thread_keeps_the_memory_of_a_very_long_text() {
        let kept = || QUERY.with_borrow(|pairs| pairs.raw.capacity());
        get(&"a&".repeat(1_000), "b");
        assert!((2_000..KEPT_BYTES_MAX).contains(&kept()), "{}", kept());
        get(&"a&".repeat(KEPT_BYTES_MAX), "b");
        assert_eq!(kept(), 0);
    }
}
