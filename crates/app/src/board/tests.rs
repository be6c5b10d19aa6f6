//! The board as pages read it while the control loop writes.

use std::cell::Cell;
use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, ObjectKind, Report, Severity};
use myriad_base::metrics::Metrics;
use myriad_translate::FindingsChange;

use super::standing::PAGE_MAX;
use super::{Board, FINDINGS_SHOWN_MAX};

/// More than two pages.
const MANY: usize = 3 * PAGE_MAX + 7;

fn finding(number: usize) -> Finding {
    let key = ObjectKey::new(ObjectKind::Ingress, "evil", "web");
    let severity = match number % 2 {
        0 => Severity::Error,
        _ => Severity::Warning,
    };
    Finding::new(
        severity,
        &key,
        format!("field {number:05}"),
        "is wrong",
        "mend it",
    )
}

fn report(subject: &str, count: usize) -> Report {
    Report {
        subject: subject.into(),
        findings: (0..count).map(finding).collect(),
    }
}

/// A board with so many findings of translation, and some of others.
fn board() -> Board {
    let board = Board::new(&Metrics::new());
    let added = (0..MANY).map(|number| Arc::new(finding(number))).collect();
    let removed = Vec::new();
    board.change_findings(FindingsChange { added, removed });
    for subject in 0..PAGE_MAX {
        board.set_report(report(&format!("{subject:04}.yaml"), 2));
    }
    board
}

#[test]
fn whoever_searches_findings_keeps_nobody_from_writing() {
    let board = board();
    let looked = Cell::new(0);
    let all = board.findings_where(usize::MAX, |_| {
        assert!(
            board.state.try_lock().is_ok(),
            "it is searched under the lock"
        );
        looked.set(looked.get() + 1);
        true
    });
    assert_eq!(all.len(), MANY + 2 * PAGE_MAX);
    assert_eq!(looked.get(), all.len(), "each is looked at once");
    assert_eq!(
        board.findings_count(),
        (MANY.div_ceil(2) + PAGE_MAX, all.len())
    );
}

#[test]
fn a_search_ends_with_as_many_as_are_wanted_and_goes_on_where_it_was() {
    let board = board();
    let last = format!("field {:05}", MANY - 1);
    let looked = Cell::new(0);
    let found = board.findings_where(1, |it| {
        looked.set(looked.get() + 1);
        it.field == last
    });
    assert_eq!(found.len(), 1);
    assert!(looked.get() <= MANY + 2 * PAGE_MAX);
    looked.set(0);
    let first = board.findings_where(3, |_| {
        looked.set(looked.get() + 1);
        true
    });
    assert_eq!((first.len(), looked.get()), (3, 3));
}

#[test]
fn a_dump_shows_the_first_findings_and_counts_all() {
    let board = board();
    let dump: serde_json::Value = serde_json::from_str(&board.dump()).unwrap();
    let shown = dump["findings"].as_array().unwrap();
    assert_eq!(shown.len(), FINDINGS_SHOWN_MAX);
    assert_eq!(dump["findings_total"], MANY + 2 * PAGE_MAX);
    for subject in 0..PAGE_MAX {
        board.set_report(report(&format!("{subject:04}.yaml"), 0));
    }
    let removed = (0..MANY).map(|number| Arc::new(finding(number))).collect();
    let added = Vec::new();
    board.change_findings(FindingsChange { added, removed });
    assert_eq!(board.findings_count(), (0, 0));
    assert!(board.findings_where(usize::MAX, |_| true).is_empty());
}

#[test]
fn the_findings_about_an_object_are_its_own_and_the_worst_come_first() {
    let board = board();
    let key = ObjectKey::new(ObjectKind::Ingress, "evil", "web");
    let other = ObjectKey::new(ObjectKind::Ingress, "evil", "web2");
    let own = Finding::new(Severity::Info, &other, "spec", "is told", "read it");
    board.change_findings(FindingsChange {
        added: vec![Arc::new(own.clone())],
        removed: Vec::new(),
    });
    assert_eq!(board.findings_of(&other, 10), [own]);
    let found = board.findings_of(&key, MANY);
    assert!(found.len() > 1);
    assert!(found.iter().all(|it| it.object.as_ref() == Some(&key)));
    assert!(found.is_sorted());
    assert_eq!(board.findings_of(&key, 3).len(), 3);
}
