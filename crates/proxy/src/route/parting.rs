//! The rows of a host in parts, by the lists of listeners that they are on.
//!
//! Objects of many namespaces may have rows for one host, each at listeners of its own. Who looks
//! for a row at a listener visits the parts with that listener among theirs, and pays for no other
//! row. Each row is in one part, so that parts take no more memory than the lists that rows bring.

use std::collections::HashMap;

use myriad_model::Name;

/// The parts of rows with equal lists of listeners.
pub struct Parting<P> {
    /// The listeners, sorted, each with the number of a part that is on it.
    places: Box<[(Name, u32)]>,
    /// The parts, in the order of their first rows.
    parts: Box<[P]>,
}

impl<P> Parting<P> {
    /// Takes rows apart that are numbered from 0 on, and makes something of the numbers of each
    /// part, which are in their order.
    pub fn new<'a>(
        lists: impl Iterator<Item = &'a [Name]>,
        make: impl Fn(Box<[u32]>) -> P,
    ) -> Self {
        // Most rows share their lists, which then need not be compared.
        let mut shared: HashMap<(*const Name, usize), usize> = HashMap::new();
        let mut equal: HashMap<&'a [Name], usize> = HashMap::new();
        let mut parts: Vec<(&'a [Name], Vec<u32>)> = Vec::new();
        for (list, number) in lists.zip(0..) {
            let at = *shared
                .entry((list.as_ptr(), list.len()))
                .or_insert_with(|| *equal.entry(list).or_insert(parts.len()));
            match parts.get_mut(at) {
                Some((_, numbers)) => numbers.push(number),
                None => parts.push((list, vec![number])),
            }
        }
        let mut places: Vec<(Name, u32)> = Vec::new();
        for ((list, _), part) in parts.iter().zip(0..) {
            places.extend(list.iter().map(|name| (name.clone(), part)));
        }
        places.sort_unstable();
        places.dedup();
        let parts = parts.into_iter();
        Parting {
            places: places.into(),
            parts: parts.map(|(_, numbers)| make(numbers.into())).collect(),
        }
    }

    /// The parts that are on a listener, in the order of their first rows.
    pub fn on(&self, listener: &Name) -> impl Iterator<Item = &P> {
        let from = self.places.partition_point(|(name, _)| name < listener);
        let rest = self.places.get(from..).unwrap_or_default().iter();
        let own = rest.take_while(move |(name, _)| name == listener);
        own.filter_map(move |(_, part)| self.parts.get(*part as usize))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_model::Name;

    use super::Parting;

    fn list(names: &str) -> Arc<[Name]> {
        names.split_whitespace().map(Name::from).collect()
    }

    #[test]
    fn each_row_is_in_one_part_and_is_found_at_each_of_its_listeners() {
        let both = list("http https");
        let lists = [
            both.clone(),
            list("x"),
            list("http https"),
            list("https x"),
            both,
            list(""),
        ];
        let parting = Parting::new(lists.iter().map(|list| &**list), Vec::from);
        let on = |name: &str| {
            let name = Name::from(name);
            let parts = parting.on(&name);
            parts.cloned().collect::<Vec<Vec<u32>>>()
        };
        assert_eq!(on("http"), [vec![0, 2, 4]]);
        assert_eq!(on("https"), [vec![0, 2, 4], vec![3]]);
        assert_eq!(on("x"), [vec![1], vec![3]]);
        for other in ["", "a", "htt", "httpx", "y"] {
            assert!(on(other).is_empty(), "{other}");
        }
    }
}
