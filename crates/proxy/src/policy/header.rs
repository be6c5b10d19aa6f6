//! Changes to headers on their way.
//!
//! Edits never touch what frames a message or belongs to one connection, whatever they say: such
//! names are passed over here, where every edit comes by. A name is looked for by halves, since a
//! rule may change many and each field is compared with them.

use std::cmp::Ordering;

use myriad_model::HeaderEdit;

use crate::codec::field::{KnownField, is_read_as};
use crate::codec::head::split_authority;

/// The edits of one direction, in the order in which they are made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edits<'a> {
    first: Option<&'a HeaderEdit>,
    second: Option<&'a HeaderEdit>,
}

impl<'a> Edits<'a> {
    /// Edits of which either may be missing.
    pub fn new(first: Option<&'a HeaderEdit>, second: Option<&'a HeaderEdit>) -> Self {
        let mut both = first.iter().chain(&second);
        debug_assert!(both.all(|edit| edit.is_in_order()));
        Edits {
            first: first.filter(|edit| !edit.is_empty()),
            second: second.filter(|edit| !edit.is_empty()),
        }
    }

    /// These edits, of which there is one at most, and then another's first.
    pub fn then(self, other: Edits<'a>) -> Self {
        Edits {
            first: self.first,
            second: other.first,
        }
    }

    /// Whether fields of a name, in any case, stay as they came.
    #[inline]
    pub fn keeps(&self, name: &str) -> bool {
        // Hardly any route has edits, and each field of each head is asked about.
        (self.first.is_none() && self.second.is_none()) || !self.replaces(name)
    }

    fn replaces(&self, name: &str) -> bool {
        let edits = [self.first, self.second];
        let is_replaced = edits.into_iter().flatten().any(|edit| replaces(edit, name));
        is_replaced && is_editable(name)
    }

    /// Calls `visit` with the fields that are put in.
    pub fn each(&self, mut visit: impl FnMut(&'a str, &'a [u8])) {
        if let Some(first) = self.first {
            put(first, self.second, &mut visit);
        }
        if let Some(second) = self.second {
            put(second, None, &mut visit);
        }
    }

    /// The authority that the edits set, if they set one that is well-formed.
    pub fn authority(&self) -> Option<&'a str> {
        [self.second, self.first]
            .into_iter()
            .flatten()
            .flat_map(|edit| edit.set.iter())
            .find(|(name, value)| {
                matches!(&**name, "host" | ":authority") && split_authority(value).is_ok()
            })
            .map(|(_, value)| &**value)
    }
}

fn put<'a>(
    edit: &'a HeaderEdit,
    then: Option<&HeaderEdit>,
    visit: &mut impl FnMut(&'a str, &'a [u8]),
) {
    for (name, value) in edit.set.iter().chain(&edit.add) {
        let is_undone = then.is_some_and(|then| replaces(then, name));
        if !is_undone && is_editable(name) && is_value(value) {
            visit(name, value.as_bytes());
        }
    }
}

/// Whether an edit takes away what is there of a name, also where only servers behind would take
/// that for the edit's.
fn replaces(edit: &HeaderEdit, name: &str) -> bool {
    is_listed(&edit.remove, |own| own, name) || is_listed(&edit.set, |(own, _)| own, name)
}

/// Whether a name is, or may be read as, one of those in the order of edits.
fn is_listed<T>(sorted: &[T], own: impl Fn(&T) -> &str, name: &str) -> bool {
    let order = |it: &T| HeaderEdit::order(own(it), name);
    let before = sorted.partition_point(|it| order(it) == Ordering::Less);
    let rest = sorted.get(before..).unwrap_or_default().iter();
    rest.take_while(|it| order(it) == Ordering::Equal)
        .any(|it| is_read_as(name, own(it)))
}

/// Whether a name may be edited: the head of a message is more than its fields, and what frames
/// it is the proxy's alone.
fn is_editable(name: &str) -> bool {
    let known = KnownField::of(name);
    myriad_model::is_token(name)
        && !known.is_hop_by_hop()
        && !matches!(
            known,
            KnownField::Host | KnownField::ContentLength | KnownField::Expect
        )
}

/// Whether a value cannot end its field.
fn is_value(value: &str) -> bool {
    let is_control = |byte: u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    !value.bytes().any(is_control)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use myriad_model::HeaderEdit;

    use super::{Edits, is_listed};

    type Pairs<'a> = &'a [(&'a str, &'a str)];

    fn edit(remove: &[&str], set: Pairs<'_>, add: Pairs<'_>) -> HeaderEdit {
        let pairs = |pairs: Pairs<'_>| {
            pairs
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect()
        };
        let remove = remove.iter().map(|name| (*name).into()).collect();
        HeaderEdit::new(remove, pairs(set), pairs(add))
    }

    fn counted<'a>(looked: &Cell<usize>, own: &'a str) -> &'a str {
        looked.set(looked.get() + 1);
        own
    }

    /// The names of these fields after the edits.
    fn edited(edits: Edits<'_>, fields: &[&str]) -> String {
        let mut text: Vec<String> = fields
            .iter()
            .filter(|name| edits.keeps(name))
            .map(|name| (*name).to_owned())
            .collect();
        edits.each(|name, value| {
            text.push(format!("{name}={}", std::str::from_utf8(value).unwrap()));
        });
        text.join(" ")
    }

    #[test]
    fn what_is_there_is_removed_replaced_and_added_to() {
        let edit = edit(&["x-a"], &[("x-b", "1")], &[("x-c", "2"), ("x-a", "3")]);
        let edits = Edits::new(Some(&edit), None);
        assert_eq!(
            edited(edits, &["X-A", "X-B", "X-C", "X-D"]),
            "X-C X-D x-b=1 x-c=2 x-a=3"
        );
        assert_eq!(edited(Edits::default(), &["X-A"]), "X-A");
        // A server behind may read these as the same names.
        assert_eq!(
            edited(edits, &["X_A", "x_b", "X_C"]),
            "X_C x-b=1 x-c=2 x-a=3"
        );
    }

    #[test]
    fn the_second_edit_sees_what_the_first_made() {
        let first = edit(&[], &[("x-a", "1"), ("x-b", "1")], &[("x-c", "1")]);
        let second = edit(&["x-a"], &[("x-c", "2")], &[("x-b", "2")]);
        let edits = Edits::new(Some(&first), Some(&second));
        assert_eq!(edited(edits, &["x-c", "x-d"]), "x-d x-b=1 x-c=2 x-b=2");
    }

    #[test]
    fn a_name_is_looked_for_by_halves_in_any_spelling() {
        let names: Vec<String> = (0..4_096).map(|it| format!("x-{it}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let edit = edit(&names, &[("y_a", "1"), ("y-b", "2")], &[]);
        let looked = Cell::new(0);
        for (name, is_there) in [
            ("x-0", true),
            ("X_4095", true),
            ("x-4096", false),
            ("a", false),
            ("z", false),
        ] {
            looked.set(0);
            let found = is_listed(&edit.remove, |own| counted(&looked, own), name);
            assert_eq!(found, is_there, "{name}");
            assert!(looked.get() <= 16, "{} for {name}", looked.get());
        }
        let edits = Edits::new(Some(&edit), None);
        let kept = ["X-17", "y-a", "y_a", "Y.B", "y-c"];
        assert_eq!(edited(edits, &kept), "y-a y-c y_a=1 y-b=2");
    }

    #[test]
    fn framing_is_out_of_reach() {
        let names = [
            "content-length",
            "transfer-encoding",
            "connection",
            "upgrade",
            "te",
            "host",
            "expect",
            ":path",
            "x y",
        ];
        for name in names {
            let edit = edit(&[name], &[(name, "1")], &[(name, "2")]);
            let edits = Edits::new(Some(&edit), None);
            assert_eq!(edited(edits, &[name]), name);
        }
        let edit = edit(&[], &[("x-a", "1\r\nx-b: 2")], &[]);
        assert_eq!(edited(Edits::new(Some(&edit), None), &[]), "");
    }

    #[test]
    fn a_host_that_is_set_is_the_authority() {
        let first = edit(&[], &[("host", "a.example")], &[]);
        let second = edit(&[], &[(":authority", "b.example:80")], &[]);
        let bad = edit(&[], &[("host", "b\r\nx: y")], &[]);
        let found = |first, second| Edits::new(first, second).authority();
        assert_eq!(found(Some(&first), Some(&second)), Some("b.example:80"));
        assert_eq!(found(Some(&first), Some(&bad)), Some("a.example"));
        assert_eq!(found(Some(&bad), None), None);
    }
}
