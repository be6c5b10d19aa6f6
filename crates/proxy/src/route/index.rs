//! The index of a host with many routes: exact paths and prefixes in one table of hashes.
//!
//! A prefix is a way through a trie whose edges are path elements. The table holds the edges, by
//! the hash of the node above and the element, so that a walk costs the length of the path and
//! ends where no route goes on. A start, which ends within an element, is a single edge; the table
//! is asked once for each of the lengths that starts have. All lists of routes are in the order of
//! precedence.

use crate::random::hash::hash_below;

/// No node, route or slot.
const NONE: u32 = u32::MAX;

/// The node above all exact paths, which are single edges below it.
const EXACT: u32 = u32::MAX - 1;

/// The node above all starts, which are single edges below it.
const START: u32 = u32::MAX - 2;

/// The node of the prefix `/`.
const ROOT: u32 = 0;

/// An index over routes by their numbers.
pub struct Index {
    /// Numbers of edges by hash, open addressing; a power of two, at most half full.
    slots: Box<[u32]>,
    edges: Vec<Edge>,
    /// The texts of all edges, one behind the other: each a piece of its own would take more
    /// memory than the text itself.
    texts: String,
    /// The first route of each node. The first node is [`ROOT`], and each other one is below the
    /// edge in front of it.
    nodes: Vec<u32>,
    /// The last route of each node, until all are added.
    lasts: Vec<u32>,
    /// The route behind each route in its list.
    next: Box<[u32]>,
    /// The lengths that starts have in bytes, from the shortest.
    start_lengths: Vec<u32>,
    /// Whether any prefix is longer than `/`: where none is, no path is walked along.
    has_prefixes: bool,
}

struct Edge {
    above: u32,
    /// The offset of its text, which ends where the next one begins.
    start: u32,
}

/// The routes of a list, in the order of precedence.
pub struct Routes<'a> {
    next: &'a [u32],
    at: u32,
}

impl Index {
    /// An empty index for routes below a number, of which paths have this many elements.
    pub fn new(routes: usize, elements: usize) -> Self {
        let slots = (elements.max(4) * 2).next_power_of_two();
        let mut index = Index {
            slots: vec![NONE; slots].into(),
            edges: Vec::with_capacity(elements),
            texts: String::new(),
            nodes: Vec::with_capacity(elements + 1),
            lasts: Vec::with_capacity(elements + 1),
            next: vec![NONE; routes].into(),
            start_lengths: Vec::new(),
            has_prefixes: false,
        };
        index.nodes.push(NONE);
        index.lasts.push(NONE);
        index
    }

    /// Gives back what it has room for and does not need, once all is added.
    pub fn shrink(&mut self) {
        self.lasts = Vec::new();
        self.edges.shrink_to_fit();
        self.texts.shrink_to_fit();
        self.nodes.shrink_to_fit();
    }

    /// Adds an exact path. Routes are added in the order of precedence.
    pub fn add_exact(&mut self, path: &str, route: u32) {
        let node = self.grow(EXACT, path);
        self.append(node, route);
    }

    /// Adds a prefix. Routes are added in the order of precedence.
    pub fn add_prefix(&mut self, prefix: &str, route: u32) {
        let mut node = ROOT;
        for element in elements(prefix) {
            node = self.grow(node, element);
            self.has_prefixes = true;
        }
        self.append(node, route);
    }

    /// Adds a start. Routes are added in the order of precedence.
    pub fn add_start(&mut self, start: &str, route: u32) {
        let node = self.grow(START, start);
        self.append(node, route);
        let length = start.len() as u32;
        if let Err(place) = self.start_lengths.binary_search(&length) {
            self.start_lengths.insert(place, length);
        }
    }

    /// The routes of an exact path.
    pub fn exact(&self, path: &str) -> Routes<'_> {
        let node = self.follow(EXACT, path);
        self.routes(node.unwrap_or(NONE))
    }

    /// Calls `visit` with the routes of every prefix of a path, from the shortest.
    pub fn prefixes(&self, path: &str, mut visit: impl FnMut(Routes<'_>)) {
        visit(self.routes(ROOT));
        let mut node = ROOT;
        if !self.has_prefixes || !path.starts_with('/') {
            return;
        }
        for element in path.get(1..).unwrap_or_default().split('/') {
            match self.follow(node, element) {
                Some(below) => node = below,
                None => return,
            }
            visit(self.routes(node));
        }
    }

    /// Calls `visit` with the routes of every start of a path, from the shortest.
    pub fn starts(&self, path: &str, mut visit: impl FnMut(Routes<'_>)) {
        for length in &self.start_lengths {
            let length = *length as usize;
            if length > path.len() {
                return;
            }
            let start = path.get(..length);
            if let Some(node) = start.and_then(|start| self.follow(START, start)) {
                visit(self.routes(node));
            }
        }
    }

    fn routes(&self, node: u32) -> Routes<'_> {
        let first = self.nodes.get(node as usize);
        Routes {
            next: &self.next,
            at: first.copied().unwrap_or(NONE),
        }
    }

    fn append(&mut self, node: u32, route: u32) {
        let last = std::mem::replace(&mut self.lasts[node as usize], route);
        match last {
            NONE => self.nodes[node as usize] = route,
            last => self.next[last as usize] = route,
        }
    }

    fn follow(&self, above: u32, text: &str) -> Option<u32> {
        let edge = self.slots[self.slot(above, text)];
        (edge != NONE).then(|| edge + 1)
    }

    fn grow(&mut self, above: u32, text: &str) -> u32 {
        let slot = self.slot(above, text);
        let known = self.slots[slot];
        if known != NONE {
            return known + 1;
        }
        let edge = self.edges.len() as u32;
        self.nodes.push(NONE);
        self.lasts.push(NONE);
        self.slots[slot] = edge;
        let start = self.texts.len() as u32;
        self.texts.push_str(text);
        self.edges.push(Edge { above, start });
        edge + 1
    }

    fn is_edge(&self, number: usize, above: u32, text: &str) -> bool {
        let Some(edge) = self.edges.get(number) else {
            return false;
        };
        let end = self.edges.get(number + 1);
        let end = end.map_or(self.texts.len(), |next| next.start as usize);
        edge.above == above && self.texts.get(edge.start as usize..end) == Some(text)
    }

    /// The slot of an edge, or the free one where it would be.
    fn slot(&self, above: u32, text: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash_below(above, text) as usize & mask;
        loop {
            let edge = self.slots[slot];
            if edge == NONE || self.is_edge(edge as usize, above, text) {
                return slot;
            }
            slot = (slot + 1) & mask;
        }
    }
}

impl Iterator for Routes<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let at = self.at;
        self.at = *self.next.get(at as usize)?;
        Some(at)
    }
}

/// The elements of a prefix: none for `/`.
pub fn elements(prefix: &str) -> impl Iterator<Item = &str> {
    let rest = prefix.strip_prefix('/').unwrap_or(prefix);
    let mut parts = rest.split('/');
    if rest.is_empty() {
        parts.next();
    }
    parts
}
