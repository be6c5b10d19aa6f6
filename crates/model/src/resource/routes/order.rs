//! The order of blocks, which is known from what each says of the next.

use super::Routes;
use crate::Name;

/// A resource in its place among those of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePlace {
    /// Its number in what was put in order.
    pub at: usize,
    /// The number of the rule before its first row, where it is a block.
    pub rule: u32,
}

/// The resources of a host by their claimants, and the blocks of each as they follow each other.
/// Of routes with equal ranks those go first whose resource does.
///
/// A block that none leads to follows behind the others, with those that it leads to: the one that
/// led to it was refused, or it is about to go.
pub fn in_order(resources: &[(&Name, Option<&Routes>)]) -> Vec<ResourcePlace> {
    let key = |at: usize| -> (&str, u64) {
        match resources.get(at) {
            Some((name, Some(block))) => (Routes::prefix(name), block.id),
            Some((name, None)) => (name.as_str(), 0),
            None => ("", 0),
        }
    };
    let mut sorted: Vec<usize> = (0..resources.len()).collect();
    sorted.sort_by(|a, b| key(*a).cmp(&key(*b)));
    let mut places = Vec::with_capacity(sorted.len());
    for run in sorted.chunk_by(|a, b| key(*a).0 == key(*b).0) {
        match run {
            [at] => places.push(ResourcePlace { at: *at, rule: 0 }),
            _ => Chain::new(resources, run).follow_all(&mut places),
        }
    }
    places
}

/// The blocks of one claimant, by their ids.
struct Chain<'a> {
    /// The number of each, with what it is; none where it is a route alone.
    blocks: Vec<(usize, Option<&'a Routes>)>,
    is_done: Vec<bool>,
    /// The number of the rule that the rows have come to.
    rule: u32,
}

impl<'a> Chain<'a> {
    fn new(resources: &[(&Name, Option<&'a Routes>)], run: &[usize]) -> Self {
        let blocks = run.iter();
        let blocks = blocks.map(|at| (*at, resources.get(*at).and_then(|it| it.1)));
        Chain {
            blocks: blocks.collect(),
            is_done: vec![false; run.len()],
            rule: 0,
        }
    }

    fn follow_all(mut self, places: &mut Vec<ResourcePlace>) {
        let mut is_led_to = vec![false; self.blocks.len()];
        for (_, block) in &self.blocks {
            if let Some(led) = self.find(block.map_or(0, |block| block.next))
                && let Some(is_led_to) = is_led_to.get_mut(led)
            {
                *is_led_to = true;
            }
        }
        let heads = (0..self.blocks.len()).filter(|at| is_led_to.get(*at) == Some(&false));
        let heads: Vec<usize> = heads.collect();
        // Those that lead to each other in a circle come last.
        for at in heads.into_iter().chain(0..self.blocks.len()) {
            self.follow(at, places);
        }
    }

    /// Appends what follows from a block on, as far as that has not been done.
    fn follow(&mut self, from: usize, places: &mut Vec<ResourcePlace>) {
        let mut next = Some(from);
        while let Some(number) = next
            && let Some(is_done) = self.is_done.get_mut(number)
            && !std::mem::replace(is_done, true)
            && let Some(&(at, block)) = self.blocks.get(number)
        {
            let rule = self.rule;
            places.push(ResourcePlace { at, rule });
            let Some(block) = block else {
                return;
            };
            let steps = block.rows().iter().map(|row| u32::from(row.step));
            self.rule = steps.fold(rule, u32::saturating_add);
            next = self.find(block.next);
        }
    }

    /// The block with an id; 0 stands for none.
    fn find(&self, id: u64) -> Option<usize> {
        let id_of = |block: &(usize, Option<&Routes>)| block.1.map_or(0, |block| block.id);
        let found = self.blocks.binary_search_by_key(&id, id_of);
        found.ok().filter(|_| id != 0)
    }
}
