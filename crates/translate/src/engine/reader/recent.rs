//! Values that units keep open by name, up to a bound: those that were used last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Values by name, as many as a bound of their sizes admits. Beyond it those give way that nobody
/// used for longest; the one that came last stays, however large it is.
pub(crate) struct Recent<T> {
    kept: HashMap<Arc<str>, InUse<T>>,
    /// The names by their last use.
    by_use: BTreeMap<u64, Arc<str>>,
    uses: u64,
    size: usize,
    size_max: usize,
}

struct InUse<T> {
    value: T,
    /// The number of its last use.
    used: u64,
    size: usize,
}

impl<T> Recent<T> {
    /// No values yet, for sizes up to this sum.
    pub(crate) fn new(size_max: usize) -> Self {
        Recent {
            kept: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            size: 0,
            size_max,
        }
    }

    /// The value of a name, which is used by that.
    pub(crate) fn find(&mut self, name: &str) -> Option<&T> {
        let found = self.kept.get_mut(name)?;
        if found.used < self.uses
            && let Some(name) = self.by_use.remove(&found.used)
        {
            self.uses += 1;
            found.used = self.uses;
            self.by_use.insert(self.uses, name);
        }
        Some(&found.value)
    }

    /// Keeps the value of a name.
    pub(crate) fn keep(&mut self, name: &Arc<str>, value: T, size: usize) {
        self.remove(name);
        self.uses += 1;
        let used = self.uses;
        self.size += size;
        self.by_use.insert(used, name.clone());
        self.kept.insert(name.clone(), InUse { value, used, size });
        while self.size > self.size_max && self.kept.len() > 1 {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.remove(&oldest);
        }
    }

    /// Forgets all of them, and gives their memory back.
    pub(crate) fn clear(&mut self) {
        *self = Recent::new(self.size_max);
    }

    fn remove(&mut self, name: &str) {
        if let Some(gone) = self.kept.remove(name) {
            self.by_use.remove(&gone.used);
            self.size -= gone.size;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Recent;

    fn names(recent: &mut Recent<u32>, asked: &[&str]) -> Vec<String> {
        let found = asked.iter().filter(|name| recent.find(name).is_some());
        found.map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn those_give_way_that_nobody_used_for_longest() {
        let mut recent = Recent::new(3);
        for name in ["a", "b", "c"] {
            recent.keep(&Arc::from(name), 1, 1);
        }
        assert_eq!(recent.find("a"), Some(&1));
        recent.keep(&Arc::from("d"), 2, 1);
        assert_eq!(names(&mut recent, &["a", "b", "c", "d"]), ["a", "c", "d"]);
        // The same name again counts once.
        recent.keep(&Arc::from("d"), 3, 1);
        assert_eq!(recent.find("d"), Some(&3));
        assert_eq!(names(&mut recent, &["a", "c", "d"]), ["a", "c", "d"]);
        recent.keep(&Arc::from("e"), 4, 2);
        assert_eq!(names(&mut recent, &["a", "c", "d", "e"]), ["d", "e"]);
    }

    #[test]
    fn one_that_is_larger_than_the_bound_is_kept_alone() {
        let mut recent = Recent::new(3);
        recent.keep(&Arc::from("a"), 1, 1);
        recent.keep(&Arc::from("b"), 2, 10);
        assert_eq!(names(&mut recent, &["a", "b"]), ["b"]);
        recent.keep(&Arc::from("c"), 3, 1);
        assert_eq!(names(&mut recent, &["b", "c"]), ["c"]);
        recent.clear();
        assert!(names(&mut recent, &["c"]).is_empty());
        assert!(recent.kept.is_empty() && recent.by_use.is_empty() && recent.size == 0);
    }
}
