//! Lines of the log about proxies: few in a time for each namespace, so that whoever may run Pods
//! does not bury what others need. Each says how many were left out before it.

use std::collections::BTreeMap;

use myriad_base::log::suppressed::Topic;

use crate::live::Speaker;

/// The most lines of an interval about proxies of the operator.
const OPERATOR_LINES_MAX: usize = 200;

/// The most lines of an interval about sidecars, all together and of one namespace.
const SIDECAR_LINES_MAX: usize = 200;
const NAMESPACE_LINES_MAX: usize = 20;

/// The interval in seconds.
const INTERVAL: i64 = 10;

/// The lines that were told of late, by those that they are about.
#[derive(Default)]
pub(super) struct ProxyLines {
    interval: i64,
    /// There are no more of these than lines.
    told: BTreeMap<Speaker, usize>,
    left_out: u64,
}

impl ProxyLines {
    /// Makes room for one line at a time in Unix seconds; gives how many were left out before it,
    /// or nothing where it is left out as well.
    pub(super) fn admit(&mut self, speaker: &Speaker, now: i64) -> Option<u64> {
        let interval = now.div_euclid(INTERVAL);
        if self.interval != interval {
            self.interval = interval;
            self.told.clear();
        }
        let operator = self.told.get(&Speaker::Operator).copied();
        let own = self.told.get(speaker).copied().unwrap_or_default();
        let has_room = match speaker {
            Speaker::Operator => own < OPERATOR_LINES_MAX,
            Speaker::Namespace(_) => {
                let sidecars = self.told.values().sum::<usize>() - operator.unwrap_or_default();
                own < NAMESPACE_LINES_MAX && sidecars < SIDECAR_LINES_MAX
            }
        };
        if !has_room {
            self.left_out += 1;
            Topic::Peer.suppress();
            return None;
        }
        self.told.insert(speaker.clone(), own + 1);
        Some(std::mem::take(&mut self.left_out))
    }

    /// How many lines were told of late, and how many were left out since.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, u64) {
        (self.told.values().sum(), self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMESPACE_LINES_MAX, OPERATOR_LINES_MAX, ProxyLines, SIDECAR_LINES_MAX, Speaker};

    #[test]
    fn lines_about_the_sidecars_of_a_namespace_take_no_room_from_others() {
        let mut lines = ProxyLines::default();
        let mut told = |speaker: &Speaker, now| {
            let admitted = (0..1_000).filter_map(|_| lines.admit(speaker, now));
            admitted.fold((0, 0), |(count, before), more| (count + 1, before + more))
        };
        let of = |number: usize| Speaker::Namespace(format!("ns{number}").into());
        let first = told(&of(0), 1_000);
        assert_eq!(first, (NAMESPACE_LINES_MAX, 0));
        let left_out = 1_000 - NAMESPACE_LINES_MAX as u64;
        assert_eq!(told(&of(1), 1_000), (NAMESPACE_LINES_MAX, left_out));
        let others = (2..40).map(|number| told(&of(number), 1_009).0);
        let others = others.sum::<usize>();
        assert_eq!(others, SIDECAR_LINES_MAX - 2 * NAMESPACE_LINES_MAX);
        assert_eq!(told(&Speaker::Operator, 1_009).0, OPERATOR_LINES_MAX);
        assert_eq!(told(&of(0), 1_010).0, NAMESPACE_LINES_MAX);
    }
}
