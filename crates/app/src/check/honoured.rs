//! The fields of each of Istio's objects that are honoured: a line for each object, and a sum.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity, one_line};
use myriad_model::Snapshot;

use crate::board;

/// The most fields that a line names; the findings name them all.
const FIELDS_MAX: usize = 8;

/// The account of one object.
#[derive(Default)]
struct Account {
    /// Resources that came from it, by the word for their kind.
    resources: BTreeMap<&'static str, usize>,
    /// Fields that are not honoured, or not as they are meant.
    fields: BTreeSet<String>,
    /// An error is about the whole object.
    is_refused: bool,
}

/// A line for each of these objects that is Istio's, in their order, and their sum.
pub(super) fn tell<'a>(
    objects: impl Iterator<Item = &'a ObjectKey>,
    snapshot: &Snapshot,
    findings: &[Finding],
) -> Vec<String> {
    let objects = objects.filter(|key| ObjectKind::ISTIO.contains(&key.kind));
    let mut accounts: BTreeMap<&ObjectKey, Account> =
        objects.map(|key| (key, Account::default())).collect();
    for sealed in snapshot.iter() {
        let origin = sealed.resource().map(|resource| &resource.origin);
        let object = origin.and_then(board::object_of);
        if let Some(account) = object.and_then(|key| accounts.get_mut(&key)) {
            let kind = sealed.key().kind.as_str();
            *account.resources.entry(kind).or_default() += sealed.routes().count().max(1);
        }
    }
    for finding in findings {
        let account = finding
            .object
            .as_ref()
            .and_then(|key| accounts.get_mut(key));
        let Some(account) = account.filter(|_| finding.severity != Severity::Info) else {
            continue;
        };
        match finding.field.is_empty() {
            true => account.is_refused |= finding.severity == Severity::Error,
            false => _ = account.fields.insert(finding.field.clone()),
        }
    }
    let mut lines: Vec<String> = accounts
        .iter()
        .map(|(key, account)| one_line(&format!("{key}: {}", account.text())))
        .collect();
    lines.extend(sum(&accounts));
    lines
}

impl Account {
    fn text(&self) -> String {
        let mut text = String::from(self.verdict());
        let (shown, rest) = (
            self.fields.iter().take(FIELDS_MAX),
            self.fields.len().saturating_sub(FIELDS_MAX),
        );
        if !self.fields.is_empty() {
            let shown: Vec<&str> = shown.map(String::as_str).collect();
            let _ = write!(text, " {}", shown.join(", "));
        }
        if rest > 0 {
            let _ = write!(text, " and {rest} more");
        }
        for (number, (kind, count)) in self.resources.iter().enumerate() {
            let lead = if number == 0 { ";" } else { "," };
            let end = if *count == 1 || kind.ends_with('s') {
                ""
            } else {
                "s"
            };
            let _ = write!(text, "{lead} {count} {kind}{end}");
        }
        text
    }

    fn verdict(&self) -> &'static str {
        match (self.is_refused, self.fields.is_empty()) {
            (true, true) => "not honoured",
            (true, false) => "not honoured, nor",
            (false, true) => "honoured",
            (false, false) => "honoured but for",
        }
    }
}

/// The sum; `None` where there are no objects.
fn sum(accounts: &BTreeMap<&ObjectKey, Account>) -> Option<String> {
    let (mut whole, mut part, mut not) = (0, 0, 0);
    for account in accounts.values() {
        match (account.is_refused, account.fields.is_empty()) {
            (true, _) => not += 1,
            (false, true) => whole += 1,
            (false, false) => part += 1,
        }
    }
    let count = accounts.len();
    (count > 0)
        .then(|| format!("{count} objects of Istio: {whole} honoured, {part} in part, {not} not"))
}
