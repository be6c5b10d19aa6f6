//! Values that were read last and stay open between units.

use std::any::Any;

use myriad_api::ObjectKind;

use super::weight::Weighed;
use crate::engine::memory::Remembered;

/// Something that a unit has read and the next one may read again: each host of a large object
/// reads it, and all of them in a row.
pub trait Kept: Any + Send {
    /// Forgets what does not hold any more.
    fn forget(&mut self, at: Moment);

    /// The value, for whoever knows its type.
    fn as_any(&self) -> &dyn Any;

    /// The same, to change it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// When something may not hold any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Another unit runs, or the same one for another view.
    Run,
    /// An object of a kind changes.
    Change(ObjectKind),
    /// The batch is over.
    End,
}

/// All that is open.
#[derive(Default)]
pub struct Open {
    kept: Vec<Box<dyn Kept>>,
    /// The weights of the subsets of one port, which stand in a row.
    pub(super) weighed: Option<Weighed>,
    /// The memory that the running unit has of its former run.
    pub memory: Option<Box<dyn Remembered>>,
}

impl Open {
    /// Forgets what does not hold any more.
    pub fn forget(&mut self, at: Moment) {
        for kept in &mut self.kept {
            kept.forget(at);
        }
        if at != Moment::Run {
            self.weighed = None;
        }
    }

    /// The open value of a type.
    pub fn get<T: Kept>(&self) -> Option<&T> {
        let mut kept = self.kept.iter();
        kept.find_map(|it| it.as_any().downcast_ref())
    }

    /// The open value of a type, made where there is none.
    pub fn get_mut<T: Kept + Default>(&mut self) -> Option<&mut T> {
        let known = self.kept.iter().position(|it| it.as_any().is::<T>());
        let at = known.unwrap_or_else(|| {
            self.kept.push(Box::new(T::default()));
            self.kept.len() - 1
        });
        self.kept.get_mut(at)?.as_any_mut().downcast_mut()
    }
}
