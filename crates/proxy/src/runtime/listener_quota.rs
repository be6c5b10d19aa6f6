//! How many listeners a proxy may have, and how many of them one namespace.

use std::collections::HashMap;

use myriad_model::Name;

use crate::limits::namespace_max;

/// The places that a namespace may have, however few there are.
const SHARE_MIN: usize = 4;

/// The places of listeners, and who has them.
pub(super) struct ListenerQuota {
    max: usize,
    /// The namespaces of those that have one; empty where it is the process' own.
    owners: HashMap<Name, Box<str>>,
    /// How many each namespace has; none that has none.
    counts: HashMap<Box<str>, usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All are taken.
    All,
    /// The namespace has all that it may have.
    Namespace,
}

impl Full {
    /// The words for people.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Full::All => "there are as many listeners as there may be",
            Full::Namespace => {
                "its namespace has as many listeners as one may have, a quarter of \
                 --limit listeners"
            }
        }
    }
}

impl ListenerQuota {
    /// A number of places, all free.
    pub(super) fn new(max: usize) -> Self {
        ListenerQuota {
            max,
            owners: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// Why a further listener of a namespace has no place; none where it has one.
    pub(super) fn refusal(&self, namespace: &str) -> Option<Full> {
        let own = self.counts.get(namespace).copied().unwrap_or(0);
        let share = namespace_max(self.max).max(SHARE_MIN);
        if self.owners.len() >= self.max {
            Some(Full::All)
        } else if !namespace.is_empty() && own >= share {
            Some(Full::Namespace)
        } else {
            None
        }
    }

    /// Gives a listener a place, or lets it keep its place where another namespace has it now.
    pub(super) fn take(&mut self, name: &Name, namespace: &str) {
        if self.owners.get(name).is_some_and(|own| **own == *namespace) {
            return;
        }
        self.release(name);
        self.owners.insert(name.clone(), namespace.into());
        *self.counts.entry(namespace.into()).or_default() += 1;
    }

    /// Frees the place of a listener, if it has one.
    pub(super) fn release(&mut self, name: &Name) {
        let Some(namespace) = self.owners.remove(name) else {
            return;
        };
        if let Some(count) = self.counts.get_mut(&namespace) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_model::Name;

    use super::{Full, ListenerQuota};

    fn name(number: usize) -> Name {
        Name::new(format!("port-{number}"))
    }

    #[test]
    fn a_namespace_has_a_quarter_and_the_process_whatever_is_free() {
        let mut quota = ListenerQuota::new(20);
        for number in 0..5 {
            assert_eq!(quota.refusal("a"), None);
            quota.take(&name(number), "a");
        }
        assert_eq!(quota.refusal("a"), Some(Full::Namespace));
        assert_eq!(quota.refusal("b"), None);
        for number in 5..20 {
            assert_eq!(quota.refusal(""), None);
            quota.take(&name(number), "");
        }
        assert_eq!(quota.refusal(""), Some(Full::All));
        assert_eq!(quota.refusal("b"), Some(Full::All));
        quota.release(&name(0));
        quota.release(&name(0));
        assert_eq!((quota.refusal("a"), quota.refusal("b")), (None, None));
    }

    #[test]
    fn a_place_goes_to_another_namespace_with_its_listener() {
        let mut quota = ListenerQuota::new(16);
        for number in 0..4 {
            quota.take(&name(number), "a");
        }
        assert_eq!(quota.refusal("a"), Some(Full::Namespace));
        quota.take(&name(3), "b");
        quota.take(&name(3), "b");
        assert_eq!(quota.refusal("a"), None);
        for number in 4..7 {
            assert_eq!(quota.refusal("b"), None);
            quota.take(&name(number), "b");
        }
        assert_eq!(quota.refusal("b"), Some(Full::Namespace));
    }
}
