//! The history that the loop writes.

use std::time::Duration;

use myriad_api::{Batch, Finding, ObjectKey, ObjectKind, Report, Severity};

use super::{Event, batch, control, listed};
use crate::history::report::TimelineFilter;
use crate::history::{History, HistorySettings};

#[tokio::test]
async fn every_change_after_the_first_list_is_in_the_history_with_its_writer() {
    let history = History::new(HistorySettings {
        bytes_max: 1 << 20,
        age_max: Duration::from_secs(60),
    });
    let (control, _, _) = control(Vec::new());
    let mut control = control.with_history(Some(history.clone()));
    let report = || history.timeline(&TimelineFilter::default(), None);
    assert!(control.take(batch("a", 0..1, 1)));
    assert!(control.take(listed()));
    assert_eq!(report().kept, 0, "what is there at the start is no change");
    let Event::Changed(mut changed) = batch("a", 5..6, 2) else {
        panic!("a batch");
    };
    let key = ObjectKey::new(ObjectKind::Ingress, "a", "i5");
    changed.writers.push((key.clone(), "helm".into()));
    assert!(control.take(Event::Changed(changed)));
    control.translate_cut();
    let newest = report().entries.remove(0);
    assert_eq!(newest.objects.len(), 1);
    assert_eq!(newest.objects[0].name, "i5");
    assert_eq!(newest.objects[0].by.as_deref(), Some("helm"));
    assert!(newest.resources_total > 0, "{newest}");
    // What sources find is no commit, and part of the story all the same.
    let finding = Finding::new(Severity::Error, &key, "", "cannot be read", "mend it");
    let reports = vec![Report {
        subject: "a.yaml".into(),
        findings: vec![finding],
    }];
    let told = Batch {
        reports,
        ..Batch::default()
    };
    assert!(control.take(Event::Changed(told)));
    let newest = report().entries.remove(0);
    assert!(newest.appeared[0].contains("cannot be read"), "{newest}");
    assert_eq!(newest.resources_total, 0);
}
