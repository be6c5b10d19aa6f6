use std::path::Path;

use super::{LimitError, Limits, ROWS, distance, markdown};

#[test]
fn every_default_is_in_its_range_and_read_back_as_it_is_shown() {
    let defaults = Limits::default();
    for row in ROWS {
        let number = (row.get)(&defaults);
        assert!((row.min..=row.max).contains(&number), "{}", row.name);
        for number in [row.min, number, row.max] {
            assert_eq!(row.unit.read(&row.unit.show(number)), Some(number));
        }
    }
}

#[test]
fn each_limit_sets_its_own_number_and_no_other() {
    for row in ROWS {
        let mut limits = Limits::default();
        let text = format!("{}={}", row.name, row.unit.show(row.min));
        assert_eq!(limits.set(&text), Ok(()), "{text}");
        for other in ROWS {
            let expected = match other.name == row.name {
                true => row.min,
                false => (other.get)(&Limits::default()),
            };
            assert_eq!((other.get)(&limits), expected, "{text} at {}", other.name);
        }
    }
}

#[test]
fn names_are_known_once() {
    let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ROWS.len());
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    let mut limits = Limits::default();
    for (text, expected) in [
        ("head_bytes", "\"head_bytes\" is not NAME=VALUE"),
        (
            "head_byte=1",
            "there is no limit \"head_byte\"; the nearest is head_bytes",
        ),
        (
            "heads_timeout=1s",
            "there is no limit \"heads_timeout\"; the nearest is head_timeout",
        ),
        (
            "head_bytes=1",
            "head_bytes is \"1\", not 1KiB to 1MiB in bytes, KiB or MiB",
        ),
        (
            "head_bytes=2KB",
            "head_bytes is \"2KB\", not 1KiB to 1MiB in bytes, KiB or MiB",
        ),
        (
            "head_timeout=15",
            "head_timeout is \"15\", not 500ms to 10m with ms, s or m behind",
        ),
        (
            "head_timeout=99999999999999999999s",
            "head_timeout is \"99999999999999999999s\", not 500ms to 10m with ms, s or m behind",
        ),
        ("fields=+9", "fields is \"+9\", not 8 to 128"),
        ("fields=", "fields is \"\", not 8 to 128"),
    ] {
        let error = limits.set(text).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    assert!(matches!(limits.set("=1"), Err(LimitError::Unknown(..))));
}

#[test]
fn distances_are_numbers_of_letters() {
    for (one, other, expected) in [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "", 3),
        ("", "abc", 3),
        ("abc", "abd", 1),
        ("abc", "bc", 1),
        ("kitten", "sitting", 3),
    ] {
        assert_eq!(distance(one, other), expected, "{one} {other}");
    }
}

/// `UPDATE_GOLDENS=1` writes the table instead.
#[test]
fn the_documentation_has_the_table_of_the_code() {
    const START: &str = "<!-- Made by `myriad limits`. -->\n";
    let text = include_str!("../../../../../docs/tuning.md");
    let (before, rest) = text.split_once(START).unwrap();
    let end = rest.find("\n\n").unwrap() + 1;
    let table = markdown();
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        let text = format!("{before}{START}{table}{}", &rest[end..]);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tuning.md");
        std::fs::write(path, text).unwrap();
        return;
    }
    assert!(
        rest[..end] == table,
        "docs/tuning.md has another table; write it with UPDATE_GOLDENS=1"
    );
}
