//! The parts of changes that are needed once they are translated.

use std::sync::Arc;

use myriad_api::{Change, Ingress, Object, ObjectKey, ObjectKind};

use super::beside::Beside;
use super::stating::INGRESSES_TOLD_MAX;
use crate::history::Touches;

/// The parts of changes that are remembered once the engine has them. The objects are not, so that
/// nothing of a first list stays in memory beside what the engine keeps of it.
#[derive(Default)]
pub(super) struct Touched {
    /// The Ingresses, which wait to be live, and those among them that are there.
    pub ingresses: Vec<ObjectKey>,
    pub put_ingresses: Vec<Arc<Ingress>>,
    /// The Pods whose proxies have asked.
    pub pods: Vec<Arc<str>>,
    /// The first object that was not removed.
    pub put: Option<ObjectKey>,
    /// All of them, for the history.
    pub objects: Touches,
}

impl Touched {
    /// Remembers what of a change is needed.
    pub(super) fn note(&mut self, change: &Change, beside: &Beside) {
        let key = change.key();
        self.objects.note(change);
        match key.kind {
            ObjectKind::Ingress => self.ingresses.push(key.clone()),
            ObjectKind::Pod if beside.knows(key.id()) => self.pods.push(key.id().clone()),
            _ => {}
        }
        if let Change::Put(Object::Ingress(ingress)) = change
            && self.put_ingresses.len() < INGRESSES_TOLD_MAX
        {
            self.put_ingresses.push(ingress.clone());
        }
        if self.put.is_none() && matches!(change, Change::Put(_)) {
            self.put = Some(key.clone());
        }
    }
}
