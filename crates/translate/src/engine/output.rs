//! What one run of a unit returns.

use myriad_api::Finding;
use myriad_model::{Name, Resource};

use super::unit::Unit;

/// The result of one run of a unit.
#[derive(Debug, Default)]
pub struct Output {
    /// The resources, by name.
    pub resources: Vec<(Name, Resource)>,
    /// The units that these resources refer to; they exist as long as somebody needs them.
    pub needs: Vec<Unit>,
    /// Findings for people.
    pub findings: Vec<Finding>,
    /// Findings that hold unless it is otherwise in another view: told where all views have
    /// it that the object concerns, or all where it concerns none.
    pub doubts: Vec<Finding>,
    /// Whether the object concerns the view.
    pub is_concerned: bool,
    /// What the host means to those below it, hashed: they run again when it is other than before.
    /// Zero where it means nothing.
    pub meaning: u64,
    /// When the unit has to run again though no object changed, in seconds since the epoch.
    pub deadline: Option<i64>,
}
