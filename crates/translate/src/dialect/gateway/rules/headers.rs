//! Changes of header fields.

use std::collections::BTreeMap;

use myriad_api::gateway::{HeaderModifier, HeaderSetting};
use myriad_model::{HeaderEdit, is_token};

use super::fault::{CORRECT, RuleFaults};
use crate::resolve::sendable::has_control;

/// The most bytes that the filters of a rule and of one of its backends may bring to a request and
/// its response in all, separators of names and values included.
pub(super) const HEADER_BYTES_MAX: usize = 32 << 10;

/// The bytes that separate a field's name from its value, and end it.
const SEPARATOR_BYTES: usize = 4;

/// Reads the changes of one direction, which bring at most `left` bytes.
pub(super) fn read(
    written: &HeaderModifier,
    field: &str,
    left: &mut usize,
    faults: &mut RuleFaults,
) -> HeaderEdit {
    let mut changes = Changes {
        field,
        lists: BTreeMap::new(),
        left,
        faults,
    };
    let remove = changes.names("remove", &written.remove);
    let set = changes.settings("set", &written.set);
    let add = changes.settings("add", &written.add);
    HeaderEdit::new(remove, set, add)
}

/// The changes of one direction while they are read.
struct Changes<'a> {
    field: &'a str,
    /// The list in which each field is changed, by its name in lower case.
    lists: BTreeMap<Box<str>, &'static str>,
    left: &'a mut usize,
    faults: &'a mut RuleFaults,
}

impl Changes<'_> {
    fn names(&mut self, list: &'static str, written: &[Box<str>]) -> Vec<Box<str>> {
        let mut kept = Vec::with_capacity(written.len());
        for (at, name) in written.iter().enumerate() {
            if !is_token(name) {
                let field = format!("{}.{list}[{at}]", self.field);
                let message = "is no name of a header field, so it has no effect";
                self.faults.omit(field, message, CORRECT);
                continue;
            }
            let name: Box<str> = name.to_ascii_lowercase().into();
            if self.lists.insert(name.clone(), list).is_none() {
                kept.push(name);
            }
        }
        kept
    }

    fn settings(
        &mut self,
        list: &'static str,
        written: &[HeaderSetting],
    ) -> Vec<(Box<str>, Box<str>)> {
        let mut kept = Vec::with_capacity(written.len());
        for (at, setting) in written.iter().enumerate() {
            let field = format!("{}.{list}[{at}]", self.field);
            // A tab is as good as a space, and hardly any server takes it.
            let value = setting.value.replace('\t', " ");
            if !is_token(&setting.name) || has_control(&value) {
                let message = "is no header field that can be sent";
                let remedy = "write a header name, and a value without control characters";
                self.faults.drop(field, message, remedy);
                continue;
            }
            let name: Box<str> = setting.name.to_ascii_lowercase().into();
            if !self.is_first(&name, list, &field) {
                continue;
            }
            let bytes = name.len() + value.len() + SEPARATOR_BYTES;
            let Some(left) = self.left.checked_sub(bytes) else {
                self.faults.drop(
                    field,
                    format!(
                        "brings what a rule and one of its backends add beyond {HEADER_BYTES_MAX} \
                         bytes"
                    ),
                    "write fewer or shorter header fields",
                );
                break;
            };
            *self.left = left;
            kept.push((name, value.into()));
        }
        kept
    }

    /// Whether a field is not changed so far. Of two in one list the first holds, and two in
    /// different lists are none.
    fn is_first(&mut self, name: &str, list: &'static str, field: &str) -> bool {
        let Some(known) = self.lists.insert(name.into(), list) else {
            return true;
        };
        match known == list {
            true => self.faults.omit(
                field,
                "is changed before in the list, so this entry has no effect",
                "write one entry, with several values separated by commas",
            ),
            false => self.faults.drop(
                field,
                format!("is a field that stands in {known} as well"),
                "change each field in one way",
            ),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{HeaderModifier, HeaderSetting};
    use myriad_model::HeaderEdit;

    use super::{HEADER_BYTES_MAX, RuleFaults, read};

    fn settings(pairs: &[(&str, &str)]) -> Box<[HeaderSetting]> {
        let setting = |(name, value): &(&str, &str)| HeaderSetting {
            name: (*name).into(),
            value: (*value).into(),
        };
        pairs.iter().map(setting).collect()
    }

    fn edit(written: &HeaderModifier) -> (HeaderEdit, RuleFaults, usize) {
        let (mut left, mut faults) = (HEADER_BYTES_MAX, RuleFaults::default());
        let edit = read(written, "f", &mut left, &mut faults);
        (edit, faults, left)
    }

    fn fields(faults: &RuleFaults) -> Vec<&str> {
        faults.told().iter().map(|fault| &*fault.field).collect()
    }

    #[test]
    fn fields_are_removed_set_and_added_by_names_in_lower_case() {
        let (edit, faults, left) = edit(&HeaderModifier {
            set: settings(&[("X-Set", "one\ttwo"), ("x-set", "later")]),
            add: settings(&[("X-Add", "1"), ("X-More", "2")]),
            remove: ["X-Gone", "x-gone", "no name"].map(Into::into).into(),
        });
        let pair =
            |name: &str, value: &str| -> (Box<str>, Box<str>) { (name.into(), value.into()) };
        assert_eq!(*edit.remove, [Box::<str>::from("x-gone")]);
        assert_eq!(*edit.set, [pair("x-set", "one two")]);
        assert_eq!(*edit.add, [pair("x-add", "1"), pair("x-more", "2")]);
        assert_eq!(fields(&faults), ["f.remove[2]", "f.set[1]"]);
        assert!(faults.dropping().is_none());
        assert_eq!(
            left,
            HEADER_BYTES_MAX - (5 + 7 + 4) - (5 + 1 + 4) - (6 + 1 + 4)
        );
    }

    #[test]
    fn a_field_that_is_changed_in_two_ways_drops_the_rule() {
        for (written, field) in [
            (
                HeaderModifier {
                    set: settings(&[("A", "1")]),
                    add: settings(&[("a", "2")]),
                    remove: Box::default(),
                },
                "f.add[0]",
            ),
            (
                HeaderModifier {
                    set: settings(&[("b", "1"), ("A", "1")]),
                    add: Box::default(),
                    remove: ["a".into()].into(),
                },
                "f.set[1]",
            ),
        ] {
            let (_, faults, _) = edit(&written);
            assert_eq!(fields(&faults), [field]);
            assert!(faults.dropping().is_some());
        }
    }

    #[test]
    fn what_would_end_its_field_drops_the_rule() {
        for (name, value) in [("a b", "1"), ("", "1"), ("a", "1\r\nb: 2"), ("a", "\0")] {
            let (edit, faults, _) = edit(&HeaderModifier {
                add: settings(&[(name, value)]),
                ..HeaderModifier::default()
            });
            assert!(edit.is_empty() && faults.dropping().is_some(), "{name:?}");
        }
    }

    #[test]
    fn the_bytes_of_what_is_added_are_bounded() {
        let long = "x".repeat(4_096);
        let names: Vec<String> = (0..8).map(|at| format!("n{at}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*long)).collect();
        let (edit, faults, left) = edit(&HeaderModifier {
            set: settings(&pairs),
            ..HeaderModifier::default()
        });
        // Seven of them, with their names, are within it.
        assert_eq!(edit.set.len(), 7);
        assert_eq!(left, HEADER_BYTES_MAX - 7 * (4_096 + 2 + 4));
        assert_eq!(fields(&faults), ["f.set[7]"]);
        let fault = faults.dropping().expect("a fault");
        assert!(fault.message.contains("beyond 32768 bytes"));
    }
}
