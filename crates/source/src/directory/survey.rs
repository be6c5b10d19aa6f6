//! Surveys of all owners: what is gone counts once all of them have been looked at, since its
//! objects may be with another owner now.

use std::sync::Arc;

/// The survey under way.
#[derive(Default)]
pub(super) struct Survey {
    number: u64,
    /// The owners that have not been looked at.
    left: usize,
    /// Files that are gone.
    gone: Vec<Arc<str>>,
}

impl Survey {
    /// Begins another survey, of so many owners. Returns its number. `gone` has the files of the
    /// root that are gone, and keeps them where there are no owners to wait for.
    pub(super) fn begin(&mut self, owners: usize, gone: &mut Vec<Arc<str>>) -> u64 {
        self.number += 1;
        self.left = owners;
        self.gone = match owners {
            0 => Vec::new(),
            _ => std::mem::take(gone),
        };
        self.number
    }

    /// An owner was looked at, of whom `gone` has the files that are gone: none from now on, but
    /// for the last owner, with whom they are those of all.
    pub(super) fn end(&mut self, number: u64, gone: &mut Vec<Arc<str>>) {
        let found = std::mem::take(gone);
        if number != self.number {
            // The survey after it finds them again.
            return;
        }
        self.gone.extend(found);
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            *gone = std::mem::take(&mut self.gone);
        }
    }
}
