//! The order in which a difference is sent that is too long for one commit.
//!
//! A proxy serves between any two commits, so each prefix of the order has to be a world that
//! people may see: a name shows an alert, a refused connection or a 503 until it works, and never
//! a 404, another's certificate or half of its routes. What is new or changed comes first:
//!
//! 1. access policies: nothing is to be reached without them;
//! 2. trusts, endpoints, all those of one upstream together, upstreams, then providers behind
//!    them: nobody asks for them yet;
//! 3. what is recorded: where it goes is there;
//! 4. certificates: nobody shows them yet;
//! 5. routes, all those of one host together: their upstreams are there. A new host has them
//!    before its handshakes succeed, and one below a wildcard gets them all in one swap;
//! 6. stream routes: their upstreams are there, and the domains whose streams they take come next;
//! 7. domains: from now on handshakes succeed, with the right certificate, and requests find
//!    their routes. Before, the client gets an alert;
//! 8. answers to challenges: an authority asks for them once it is told that they are there;
//! 9. listeners: a new one is bound once all that it serves is there.
//!
//! Removals come after that, the opposite way: a name's handshakes end before its routes go, and
//! those before what they forward to. What replaces something is in service before that goes, so
//! a change of a route from one upstream to another has an upstream at every moment.

use myriad_model::{Change, Kind, Snapshot};

/// How many steps there are: one per kind, and again for removals.
pub(super) const STEPS: usize = 2 * ORDER.len();

const ORDER: [Kind; Kind::ALL.len()] = [
    Kind::AccessPolicy,
    Kind::Trust,
    Kind::Endpoints,
    Kind::Upstream,
    Kind::Provider,
    Kind::Telemetry,
    Kind::Certificate,
    Kind::Route,
    Kind::StreamRoute,
    Kind::Domain,
    Kind::ChallengeAnswer,
    Kind::Listener,
];

/// When a change is sent, from 0 and below [`STEPS`].
pub(super) fn step(change: &Change) -> usize {
    let at = place(change.key.kind);
    match change.new {
        Some(_) => at,
        None => STEPS - 1 - at,
    }
}

/// How many changes of this step there may be at most, so that an empty one costs no reading.
pub(super) fn count_max(step: usize, base: &Snapshot, target: &Snapshot) -> usize {
    let side = if step < ORDER.len() { target } else { base };
    kind(step).map_or(0, |kind| side.count(kind))
}

/// Whether changes of this step belong together in groups of more than one.
pub(super) fn is_grouped(step: usize) -> bool {
    matches!(kind(step), Some(Kind::Route | Kind::Endpoints))
}

fn kind(step: usize) -> Option<Kind> {
    ORDER
        .get(step.min((STEPS - 1).saturating_sub(step)))
        .copied()
}

/// Every kind has its place, and one that is added has to be given one.
const fn place(kind: Kind) -> usize {
    match kind {
        Kind::AccessPolicy => 0,
        Kind::Trust => 1,
        Kind::Endpoints => 2,
        Kind::Upstream => 3,
        Kind::Provider => 4,
        Kind::Telemetry => 5,
        Kind::Certificate => 6,
        Kind::Route => 7,
        Kind::StreamRoute => 8,
        Kind::Domain => 9,
        Kind::ChallengeAnswer => 10,
        Kind::Listener => 11,
        // No server has resources of a kind that it does not know.
        Kind::Newer(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{ORDER, STEPS, kind, place};

    #[test]
    fn removals_take_the_opposite_way() {
        for (at, it) in ORDER.into_iter().enumerate() {
            assert_eq!(place(it), at);
            assert_eq!(kind(at), Some(it));
            assert_eq!(kind(STEPS - 1 - at), Some(it));
        }
    }
}
