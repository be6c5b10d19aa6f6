//! The part of the office that tells people how it is with their certificates.

use std::sync::Arc;

use myriad_api::{Finding, ObjectKey, Severity};
use myriad_pki::acme::TroubleNotice;
use myriad_translate::FindingsChange;

use super::Office;
use crate::control::Event;

impl Office {
    /// Tells people how it is with a certificate.
    pub(super) async fn tell(&mut self, id: &Arc<str>, notice: Option<TroubleNotice>) {
        if self.tell_on_demand(id, notice.as_ref()) {
            return;
        }
        let removed = self.told.remove(id).unwrap_or_default();
        let objects = self.objects.get(id);
        let findings = notice.iter().flat_map(|notice| {
            let objects = objects.into_iter().flatten();
            objects.map(move |object| Arc::new(finding(object, id, notice)))
        });
        let added: Vec<Arc<Finding>> = findings.collect();
        if added == removed {
            if !added.is_empty() {
                self.told.insert(id.clone(), added);
            }
            return;
        }
        if !added.is_empty() {
            self.told.insert(id.clone(), added.clone());
        }
        let change = FindingsChange { added, removed };
        // A loop that has ended tells nobody anything.
        let _ = self.steps.inbox.send(Event::Found(change)).await;
    }

    /// Takes back all that people were told.
    pub(super) async fn close(&mut self) {
        let told = std::mem::take(&mut self.told).into_values();
        let change = FindingsChange {
            added: Vec::new(),
            removed: told.flatten().chain(self.take_back()).collect(),
        };
        self.counters.clear();
        self.steps.on_demand.close();
        // A loop that has ended tells nobody anything.
        let _ = self.steps.inbox.send(Event::Found(change)).await;
    }
}

fn finding(object: &ObjectKey, id: &str, notice: &TroubleNotice) -> Finding {
    let message = format!("the certificate in Secret {id} {}", notice.message);
    Finding::new(Severity::Error, object, "", message, &*notice.remedy)
}
