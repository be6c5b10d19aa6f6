//! The meanings of wildcards, as the hosts below them read them.

use std::any::Any;
use std::sync::Arc;

use super::Reader;
use crate::engine::unit::Unit;

/// The answer to what a wildcard means.
pub(crate) enum Told<T> {
    /// It means nothing in any view, or its unit has not run yet.
    Nothing,
    /// It means something, and its unit did not run for the view that is translated for.
    Elsewhere,
    /// Its meaning in the view.
    Here(Arc<T>),
}

impl Reader<'_> {
    /// The meaning of a wildcard. The caller noted that it reads it.
    pub(crate) fn meaning<T: Any + Send + Sync>(&self, wildcard: &Unit) -> Told<T> {
        let known = self.find(wildcard);
        let Some(known) = known.and_then(|id| self.around.meanings.get(&id)) else {
            return Told::Nothing;
        };
        let here = known.at(self.view.slot());
        let value = here.and_then(|meaning| meaning.value.clone().downcast().ok());
        value.map_or(Told::Elsewhere, Told::Here)
    }
}
