//! Findings on the rules of a route, whoever its parents are.

use myriad_api::Finding;

use super::backend_problem::BackendProblem;

/// The faults of the rules of a route.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// The findings about them.
    pub findings: Vec<Finding>,
    /// The first reference that leads nowhere, and the whole sentence about it.
    pub unresolved: Option<(BackendProblem, String)>,
    /// Why nothing of the route has an effect, as reason and message of a condition.
    pub refused: Option<(&'static str, String)>,
    /// The rules that are left out, a sentence each.
    pub dropped: Vec<String>,
}
