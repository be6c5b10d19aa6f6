//! The amounts that upstreams count for, as units read them.

use super::Reader;
use crate::engine::copies::Weight;

/// The amount that an upstream counts for, with the facts that it follows from.
pub(super) struct Weighed {
    /// The name of the upstream without its subset.
    port: Box<str>,
    weight: Option<Weight>,
    facts: Vec<u64>,
}

impl Reader<'_> {
    /// Whether an upstream has more endpoints than its namespace may. It changes before upstreams
    /// run, so no fact is noted.
    pub fn is_upstream_beyond(&self, name: &str) -> bool {
        self.around.allowances.copies.is_beyond(name)
    }

    /// Whether the hash table of an upstream is more than its namespace may have. As above.
    pub fn is_table_beyond(&self, name: &str) -> bool {
        self.around.allowances.slots.is_beyond(name)
    }

    /// Whether authorities of several objects are together more than their namespace may have. As
    /// above.
    pub fn is_joined_beyond(&self, name: &str) -> bool {
        self.around.allowances.joined.is_beyond(name)
    }

    /// The amount that a subset of a port counts for by `read`, read once for all that stand in a
    /// row. It must not look at the subset, nor at the view.
    pub fn weigh_once(
        &mut self,
        port: &str,
        read: impl FnOnce(&mut Self) -> Option<Weight>,
    ) -> Option<Weight> {
        if let Some(known) = &self.opened.weighed
            && *known.port == *port
        {
            self.facts.extend(&known.facts);
            return known.weight;
        }
        let begin = self.facts.len();
        let weight = read(self);
        let facts = self.facts.get(begin..).unwrap_or_default().to_vec();
        self.opened.weighed = Some(Weighed {
            port: port.into(),
            weight,
            facts,
        });
        weight
    }
}
