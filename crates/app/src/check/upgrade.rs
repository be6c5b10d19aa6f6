//! The changed defaults of this release, and the objects that each affects. The same list stands in
//! CHANGELOG.md, and a test compares the two.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use myriad_api::{Change, Finding, Object, ObjectKey};
use serde::Serialize;

mod defaults;

/// A default that is another than in the release before.
struct ChangedDefault {
    /// Words of its line in CHANGELOG.md, which no other line has.
    line: &'static str,
    /// The change, in a few words.
    change: &'static str,
    /// The setting that brings the former default back; empty where none does.
    setting: &'static str,
    sign: Sign,
}

/// How objects that a changed default affects are recognised.
enum Sign {
    /// A finding about them with one of these texts in its field, message or remedy.
    Finding(&'static [&'static str]),
    /// Their content.
    Object(fn(&Object) -> bool),
    /// Requests or the environment decide, so no object can be named; what to look for instead.
    Look(&'static str),
}

/// The objects that one changed default affects.
#[derive(Debug, Serialize)]
pub(super) struct Affected {
    /// Words of its line in CHANGELOG.md.
    line: &'static str,
    change: &'static str,
    setting: &'static str,
    objects: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    look_for: Option<&'static str>,
}

/// The objects among changes with content that some default affects, told before translation takes
/// them.
pub(super) fn signs_of(changes: &[Change]) -> Vec<(usize, ObjectKey)> {
    let mut found = Vec::new();
    for change in changes {
        let Change::Put(object) = change else {
            continue;
        };
        for (number, default) in defaults::all().enumerate() {
            if let Sign::Object(is_affected) = default.sign
                && is_affected(object)
            {
                found.push((number, object.key().clone()));
            }
        }
    }
    found
}

/// The objects that each changed default affects, by their content and by findings.
pub(super) fn judge(signs: &[(usize, ObjectKey)], findings: &[Finding]) -> Vec<Affected> {
    let of = |(number, default): (usize, &ChangedDefault)| {
        let mut objects = BTreeSet::new();
        let mut look_for = None;
        match default.sign {
            Sign::Object(_) => {
                let own = signs.iter().filter(|(of, _)| *of == number);
                objects.extend(own.map(|(_, key)| key.to_string()));
            }
            Sign::Finding(texts) => {
                let is_sign = |finding: &&Finding| {
                    let has = |text: &&str| {
                        let Finding {
                            field,
                            message,
                            remedy,
                            ..
                        } = finding;
                        [field, message, remedy].iter().any(|it| it.contains(*text))
                    };
                    texts.iter().any(has)
                };
                let keys = findings.iter().filter(is_sign);
                objects.extend(keys.filter_map(|it| Some(it.object.as_ref()?.to_string())));
            }
            Sign::Look(text) => look_for = Some(text),
        }
        Affected {
            line: default.line,
            change: default.change,
            setting: default.setting,
            objects,
            look_for,
        }
    };
    defaults::all().enumerate().map(of).collect()
}

impl Affected {
    /// The change and its objects, a line each.
    pub(super) fn text(&self) -> String {
        let change = self.change;
        let former = match self.setting {
            "" => String::new(),
            setting => format!(" (as before by {setting})"),
        };
        let mut text = match (self.look_for, self.objects.len()) {
            (Some(look_for), _) => format!("upgrade: {change}{former}; {look_for}\n"),
            (None, 0) => format!("upgrade: {change}{former}; affects no object here\n"),
            (None, 1) => format!("upgrade: {change}{former}; affects 1 object:\n"),
            (None, count) => format!("upgrade: {change}{former}; affects {count} objects:\n"),
        };
        for object in &self.objects {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {object}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::defaults;

    #[test]
    fn every_changed_default_of_the_changelog_is_told_with_its_setting_and_no_other() {
        let changelog = include_str!("../../../../CHANGELOG.md");
        let section = changelog.split("### Changed defaults\n").nth(1);
        let section = section.and_then(|text| text.split("\n#").next());
        let section = section.expect("the section");
        let section = section.replace("\n  ", " ");
        let lines: Vec<&str> = section
            .lines()
            .filter(|line| line.starts_with("- "))
            .collect();
        for line in &lines {
            let told = defaults::all().filter(|default| line.contains(default.line));
            let told: Vec<_> = told.collect();
            assert_eq!(told.len(), 1, "{line}");
            assert!(line.contains(told[0].setting), "{line}");
        }
        assert_eq!(defaults::all().count(), lines.len());
    }
}
