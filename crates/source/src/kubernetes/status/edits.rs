//! Objects that somebody has written, and nothing of them that is read here: their status may be
//! another. Watches show them to whoever states it.

use std::sync::{Arc, OnceLock};

use myriad_api::ObjectKey;

/// Looks at an object as the API server has it, in JSON.
type Look = dyn Fn(&ObjectKey, &str) + Send + Sync;

/// The place where they are shown. Cheap to clone; clones are one.
#[derive(Clone, Default)]
pub(in crate::kubernetes) struct StatusEdits {
    look: Arc<OnceLock<Box<Look>>>,
}

impl StatusEdits {
    /// Shows them from now on. There is one who states statuses: a second one is not shown any.
    pub(in crate::kubernetes) fn show_to(
        &self,
        look: impl Fn(&ObjectKey, &str) + Send + Sync + 'static,
    ) {
        // Two would write against each other.
        let _ = self.look.set(Box::new(look));
    }

    /// Shows an object to whoever looks.
    pub(in crate::kubernetes) fn show(&self, key: &ObjectKey, json: &str) {
        if let Some(look) = self.look.get() {
            look(key, json);
        }
    }
}
