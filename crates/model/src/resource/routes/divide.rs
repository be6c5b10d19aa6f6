//! The cuts between the blocks of a claimant's routes.
//!
//! Cuts follow from the rows themselves: a block ends before a row where the hash of what it
//! matches says so, as one in so many does. A rule that is inserted changes the block that it is
//! in, and the cuts behind it stay where they are, whatever its place in the list. Nothing depends
//! on what the list was before.

use std::sync::Arc;

use super::super::cut::{Ids, hash_of};
use super::{Label, Routes, Row, Setting, Tables};
use crate::wire::{Parts, parts};
use crate::{Host, Name, Origin, Resource, Route, Value};

/// One in so many rows begins a block.
const CUT_ONE_IN: u64 = 64;

/// The rows that a block has at least, where something follows.
const ROWS_MIN: usize = 16;

/// About the most bytes of an encoded block with more than one row.
const BYTES_MAX: usize = 6 << 10;

/// About what a row takes beside its path.
const ROW_BYTES: usize = 18;

/// A route, and its name among those of its claimant and host.
#[derive(Debug)]
pub struct Draft {
    /// The object that it came from.
    pub origin: Origin,
    /// The end of its name.
    pub label: Label,
    /// The number of its rule; never lower than that of a draft before.
    pub rule: u32,
    /// The number of its match in the rule.
    pub matched: u16,
    /// The route.
    pub route: Route,
}

/// The routes of a claimant on a host, in their order, as resources: one as it is, more in blocks.
/// `prefix` begins the names of all of them and of no others, and `origin` is the claimant.
pub fn divide(prefix: &str, origin: &Origin, drafts: Vec<Draft>) -> Vec<(Name, Resource)> {
    let mut drafts = drafts;
    if drafts.len() == 1 {
        return drafts
            .pop()
            .map(|draft| alone(prefix, draft))
            .into_iter()
            .collect();
    }
    let mut blocks: Vec<Block> = Vec::new();
    let mut ids = Ids::default();
    let (mut rule, mut scratch) = (0, Vec::new());
    for draft in drafts {
        scratch.clear();
        let parts = parts(&draft.route, &mut scratch);
        // What it does may change, and the cuts stay.
        let matched = scratch.get(..parts.path + parts.conditions);
        let hash = hash_of(matched.unwrap_or_default());
        let open = blocks.last_mut();
        if open.is_none_or(|block| block.ends_before(&draft, &parts, hash)) {
            blocks.push(Block::new(ids.next(hash), draft.route.hosts.clone()));
        }
        if let Some(block) = blocks.last_mut() {
            block.add(draft, origin, &parts, &mut rule);
        }
    }
    let mut found = Vec::with_capacity(blocks.len());
    let mut next = 0;
    for block in blocks.into_iter().rev() {
        let id = block.id;
        let routes = Routes::new(block.hosts, (id, next), block.tables, block.rows);
        next = id;
        found.extend(routes.map(|routes| {
            let resource = Resource {
                origin: origin.clone(),
                value: Value::Routes(Box::new(routes)),
            };
            (Routes::name(prefix, id), resource)
        }));
    }
    found.reverse();
    found
}

fn alone(prefix: &str, draft: Draft) -> (Name, Resource) {
    let path = draft.route.path.view();
    let label = draft.label.of(path, draft.rule, draft.matched);
    let resource = Resource {
        origin: draft.origin,
        value: Value::Route(Box::new(draft.route)),
    };
    (Name::new(format!("{prefix}{label}")), resource)
}

/// A block that is being filled.
struct Block {
    id: u64,
    hosts: Arc<[Host]>,
    tables: Tables,
    rows: Vec<(Row, usize)>,
    /// About how many bytes it takes so far.
    bytes: usize,
}

impl Block {
    fn new(id: u64, hosts: Arc<[Host]>) -> Self {
        Block {
            id,
            hosts,
            tables: Tables::default(),
            rows: Vec::new(),
            bytes: 0,
        }
    }

    /// Whether a route begins the next block.
    fn ends_before(&self, draft: &Draft, parts: &Parts, hash: u64) -> bool {
        let entries = (self.rows.len() + 1).saturating_mul(self.hosts.len());
        self.rows.len() >= Routes::ROWS_MAX
            || entries > Routes::ENTRIES_MAX
            || self.rows.len() >= ROWS_MIN && hash.is_multiple_of(CUT_ONE_IN)
            || self.bytes + self.growth(draft, parts) > BYTES_MAX
            || self.hosts != draft.route.hosts
    }

    /// About how many bytes a route adds.
    fn growth(&self, draft: &Draft, parts: &Parts) -> usize {
        let (tables, route) = (&self.tables, &draft.route);
        let is_setting =
            |known: &Setting| known.listeners == route.listeners && known.label == draft.label;
        let of = |is_known: bool, bytes: usize| if is_known { 0 } else { bytes };
        ROW_BYTES
            + parts.path
            + of(tables.settings.iter().any(is_setting), parts.listeners)
            + of(tables.actions.contains(&route.action), parts.action)
            + of(tables.policies.contains(&route.policy), parts.policy)
            + of(
                tables.conditions.contains(&route.conditions),
                parts.conditions,
            )
    }

    /// Adds a route; `rule` is the number of the rule before it.
    fn add(&mut self, draft: Draft, origin: &Origin, parts: &Parts, rule: &mut u32) {
        self.bytes += self.growth(&draft, parts);
        let Draft {
            origin: own,
            label,
            rule: own_rule,
            matched,
            route,
        } = draft;
        let step = match label {
            Label::Rule(_) => own_rule.saturating_sub(std::mem::replace(rule, own_rule)),
            Label::Path(_) | Label::Whole(_) => 0,
        };
        let setting = Setting {
            listeners: route.listeners,
            label,
            origin: (own != *origin).then_some(own),
        };
        let path = route.path.view();
        let tables = &mut self.tables;
        tables.texts.push_str(path.text());
        let conditions = match route.conditions.is_empty() {
            true => 0,
            false => 1 + number_of(&mut tables.conditions, route.conditions),
        };
        let mut row = Row {
            step: u16::try_from(step).unwrap_or(u16::MAX),
            matched,
            form: path.form(),
            conditions,
            ..Row::default()
        };
        row.rank = number_of(&mut tables.ranks, route.rank);
        row.setting = number_of(&mut tables.settings, setting);
        row.action = number_of(&mut tables.actions, route.action);
        row.policy = number_of(&mut tables.policies, route.policy);
        self.rows.push((row, path.text().len()));
    }
}

/// The number of an equal entry, or else that of this one behind all others. There are no more than
/// rows, of which a block has fewer than a number may say.
fn number_of<T: PartialEq>(table: &mut Vec<T>, entry: T) -> u8 {
    // What is next to each other is mostly alike.
    let known = table.iter().rposition(|known| *known == entry);
    let at = known.unwrap_or_else(|| {
        table.push(entry);
        table.len() - 1
    });
    u8::try_from(at).unwrap_or(u8::MAX)
}
