//! The settings of what is recorded, as the tables hold them.

use std::sync::Arc;

use myriad_model::{Name, SealedArc};

use crate::pattern::BadRegex;
use crate::telemetry::recording::Recording;

/// The resources, in the order of their names. A proxy is sent one; of more it obeys the first.
#[derive(Clone, Default)]
pub struct Telemetries {
    entries: Arc<[(SealedArc, Arc<Recording>)]>,
}

impl Telemetries {
    /// The settings of what is recorded.
    pub fn recording(&self) -> Option<&Arc<Recording>> {
        self.entries.first().map(|(_, recording)| recording)
    }

    /// The sealed resources.
    pub fn iter(&self) -> impl Iterator<Item = &SealedArc> {
        self.entries.iter().map(|(sealed, _)| sealed)
    }

    /// Puts one in, replaces it, or takes it out.
    ///
    /// # Errors
    /// When a regex of it is not valid. Nothing has changed then.
    pub fn change(&mut self, name: &Name, new: Option<&SealedArc>) -> Result<(), BadRegex> {
        let others = self
            .entries
            .iter()
            .filter(|(sealed, _)| sealed.name() != name);
        let mut entries: Vec<_> = others.cloned().collect();
        if let Some((sealed, told)) = new.and_then(|sealed| Some((sealed, sealed.telemetry()?))) {
            let recording = Recording::new(told)?;
            entries.push((sealed.clone(), Arc::new(recording)));
        }
        entries.sort_by(|a, b| a.0.name().cmp(b.0.name()));
        self.entries = entries.into();
        Ok(())
    }
}
