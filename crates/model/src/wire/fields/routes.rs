//! Blocks of routes.

use std::sync::Arc;

use super::route::is_path;
use super::*;
use crate::resource::Tables;
use crate::{Action, Label, PathForm, PathMatch, Policy, Row, Setting, ValueMatch};

const ENTRIES: &str = "number of entries in a table of routes";

message! {
    /// Routes of one host and claimant, in their order: rows of numbers in the tables before them.
    Routes, routes {
        1 hosts: list(host_pattern());
        /// 0 for the first block of the claimant on the host.
        2 id: uint64();
        /// That of the block that follows; 0 for none.
        3 next: uint64();
        /// The paths of the rows, one behind the other.
        4 texts: string(), of *routes.texts();
        /// Lower goes first among the routes of a host.
        5 ranks: list_of(Routes::ROWS_MAX, ENTRIES, uint64()), of *routes.ranks();
        6 settings: list_of(Routes::ROWS_MAX, ENTRIES, each::<Setting>()), of *routes.settings();
        7 actions: list_of(Routes::ROWS_MAX, ENTRIES, each::<RowAction>()), of *routes.actions();
        8 policies: list_of(Routes::ROWS_MAX, ENTRIES, SharedPolicy), of *routes.policies();
        9 conditions: list_of(Routes::ROWS_MAX, ENTRIES, each::<Conditions>()),
            of *routes.conditions();
        10 rows: list_of(Routes::ROWS_MAX, ENTRIES, each::<MeasuredRow>()), of *measured(routes);
    } => {
        let tables = Tables { texts: texts.into(), ranks, settings, actions, policies, conditions };
        let block = Routes::new(hosts.into(), (id, next), tables, rows);
        let block = block.ok_or(WireError::Invalid("row of a route"))?;
        let mut routes = (0..block.len()).filter_map(|at| block.get(at));
        if !routes.all(|route| is_path(route.path)) {
            return Err(WireError::Invalid("path"));
        }
        block
    }
}

/// The rows, with the lengths of their paths.
fn measured(routes: &Routes) -> Vec<(Row, usize)> {
    let rows = routes.rows().iter().enumerate();
    rows.map(|(at, row)| (*row, routes.path_bytes(at)))
        .collect()
}

message! {
    /// The properties that rows share beside what they do.
    Setting, setting {
        1 listeners: list(resource_name("name"));
        /// The end of their names.
        2 label: one_of::<Label>("label");
        /// The object they came from, where it is not that of the resource.
        5 origin: some::<Origin>();
    } => Setting { listeners: shared::names(listeners.into()), label, origin }
}

forms! {
    Label {
        /// A word, before a colon and the path.
        2 path: string() => Path;
        /// The text between the numbers of the rule and the match.
        3 rule: string() => Rule;
        4 whole: string() => Whole;
    }
}

message! {
    /// The action of rows.
    RowAction for Action, action {
        10 action: one_of::<Action>("action"), of *action;
    } => action
}

message! {
    /// Conditions, all of which have to hold.
    Conditions for Box<[ValueMatch]>, all {
        1 conditions: list(each::<ValueMatch>()), of **all;
    } => {
        if conditions.is_empty() {
            return Err(WireError::Missing("condition"));
        }
        conditions.into()
    }
}

message! {
    /// One route: numbers in the tables.
    MeasuredRow for (Row, usize), row {
        /// The bytes of its path, which follows that of the row before.
        1 length: uint32(), of row.1 as u32;
        /// 0 exact, 1 prefix, 2 regex, 3 start.
        2 form: choice::<PathForm>("form of a path"), of row.0.form;
        /// The rules from that of the row before to its own.
        3 step: at_most(u16::MAX, "rule of a route"), of row.0.step;
        4 matched: at_most(u16::MAX, "match of a route"), of row.0.matched;
        5 rank: at_most(u8::MAX, ENTRIES), of row.0.rank;
        6 setting: at_most(u8::MAX, ENTRIES), of row.0.setting;
        7 action: at_most(u8::MAX, ENTRIES), of row.0.action;
        8 policy: at_most(u8::MAX, ENTRIES), of row.0.policy;
        /// From 1; 0 for none.
        9 conditions: at_most(u8::MAX, ENTRIES), of row.0.conditions;
    } => {
        let row = Row { step, matched, form, rank, setting, action, policy, conditions,
            ..Row::default() };
        (row, length as usize)
    }
}

choices! {
    PathForm { Exact, Prefix, Regex, Start }
}

/// A policy that many rows, of many resources, have.
struct SharedPolicy;

impl Item for SharedPolicy {
    type Value = Policy;
    type Out = Arc<Policy>;

    fn write(&self, field: u32, value: &Policy, out: &mut Encoder<'_>) {
        each::<Policy>().write(field, value, out);
    }

    fn read(&self, raw: Raw<'_>) -> Result<Arc<Policy>, WireError> {
        each::<Policy>().read(raw).map(shared::policy)
    }

    fn is_default(&self, _: &Policy) -> bool {
        false
    }

    fn absent(&self) -> Result<Arc<Policy>, WireError> {
        Err(WireError::Missing("policy"))
    }

    fn kind(&self, proto: &mut Proto) -> &'static str {
        Policy::describe(proto)
    }
}

/// The lengths of the encoded parts of a route, in bytes.
pub(crate) struct Parts {
    /// The path.
    pub(crate) path: usize,
    /// The conditions.
    pub(crate) conditions: usize,
    /// The action.
    pub(crate) action: usize,
    /// The policy.
    pub(crate) policy: usize,
    /// The listeners.
    pub(crate) listeners: usize,
}

/// Appends what a route matches and does, without its host and its place.
pub(crate) fn parts(route: &Route, buffer: &mut Vec<u8>) -> Parts {
    let mut out = Encoder::new(buffer);
    let mut before = out.written();
    let mut since = |out: &Encoder<'_>| {
        let now = out.written();
        now - std::mem::replace(&mut before, now)
    };
    <PathMatch as Message>::write(&route.path, &mut out);
    let path = since(&out);
    each::<Conditions>().write(9, &route.conditions, &mut out);
    let conditions = since(&out);
    each::<RowAction>().write(7, &route.action, &mut out);
    let action = since(&out);
    SharedPolicy.write(8, &route.policy, &mut out);
    let policy = since(&out);
    list(resource_name("name")).put(6, &route.listeners, &mut out);
    let listeners = since(&out);
    Parts {
        path,
        conditions,
        action,
        policy,
        listeners,
    }
}
