//! The turns of requests before they are planned, and what they are charged; see
//! [`crate::admission::planning`].

use crate::admission::planning::{
    Asker, CHARGED_STEPS, COSTLY_STEPS, NO_NAMESPACE, odd_path_steps, read_steps,
};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::http::worker::Worker;
use crate::limits::Limits;
use crate::pattern::Budget;
use crate::route::downstream_connection::DownstreamConnection;
use crate::route::tables::Tables;

/// Why there is no plan of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unplanned {
    /// It is refused.
    Failed(FailureKind),
    /// The namespace of this hash, which serves its host, has had its turn; or hosts that nobody
    /// serves have.
    Crowded(u64),
}

impl From<FailureKind> for Unplanned {
    fn from(kind: FailureKind) -> Self {
        Unplanned::Failed(kind)
    }
}

/// The cost of a request, in steps of matching.
#[derive(Clone, Copy)]
pub(super) struct PlanCost {
    /// Reading its head, however it is packed.
    pub read: u32,
    /// Finding out what shall become of it.
    pub planned: u32,
}

impl PlanCost {
    /// The cost so far of a request whose head has so many bytes.
    pub(super) fn of(head: &Head<'_>, bytes: usize, budget: &Budget) -> Self {
        let odd_path = match head.readings {
            Some(_) => odd_path_steps(head.path.len()),
            None => 0,
        };
        PlanCost {
            read: read_steps(bytes),
            planned: budget.taken().saturating_add(odd_path),
        }
    }

    /// The cost of a head of so many bytes that is refused: it may have been for its path.
    pub(super) fn of_refused(bytes: usize, limits: &Limits) -> Self {
        PlanCost {
            read: read_steps(bytes),
            planned: odd_path_steps(bytes.min(limits.odd_path_bytes_max)),
        }
    }

    /// The whole cost.
    pub(super) fn all(self) -> u32 {
        self.read.saturating_add(self.planned)
    }

    /// Whether the next request of the connection has to wait sooner than others.
    pub(super) fn is_costly(self) -> bool {
        self.all() >= COSTLY_STEPS
    }
}

/// Lets a request be planned.
///
/// # Errors
/// The namespace that serves its host has had its turn; so have hosts that nobody serves.
pub(super) fn admit(
    worker: &Worker,
    tables: &Tables,
    visit: &DownstreamConnection,
    host: &str,
    asker: impl FnOnce() -> Asker,
) -> Result<(), Unplanned> {
    let turns = &worker.local.fairness.plans;
    if turns.admits_any_namespace() {
        return Ok(());
    }
    let namespace = tables.namespace_of(&visit.listener, host);
    let namespace = namespace.unwrap_or(NO_NAMESPACE);
    match turns.admits(namespace, asker()) {
        true => Ok(()),
        false => Err(Unplanned::Crowded(namespace)),
    }
}

/// Charges steps to the source of a client, unless any request takes as many: that it is one counts
/// already.
pub(super) fn charge_source(worker: &Worker, source: impl FnOnce() -> u64, steps: u32) {
    if steps >= CHARGED_STEPS {
        worker.local.fairness.plans.spend(source(), steps);
    }
}

/// Charges steps to the namespace that serves a host, unless any request takes as many, and counts
/// the request where there are very many.
pub(super) fn charge_namespace(
    worker: &Worker,
    tables: &Tables,
    visit: &DownstreamConnection,
    host: &str,
    steps: u32,
) {
    let turns = &worker.local.fairness.plans;
    let (is_charged, is_counted) = (steps >= CHARGED_STEPS, turns.counts_namespaces());
    if !is_charged && !is_counted {
        return;
    }
    let namespace = tables.namespace_of(&visit.listener, host);
    if is_counted {
        turns.note_request_for(namespace.unwrap_or(NO_NAMESPACE));
    }
    if is_charged && let Some(namespace) = namespace {
        turns.spend_for(namespace, steps);
    }
}
