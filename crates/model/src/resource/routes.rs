//! Routes of one host and claimant in blocks: rows that point into what they share.
//!
//! A sealed resource for each of ten thousand rules of a host would cost more for its name, version
//! and pointers than for what it says; one resource for all of them would be sent whole for each
//! change. A block has some dozens of rows, and nothing in it says how many rules go before it.

mod divide;
mod order;

use std::sync::Arc;

use super::route::{Action, PathMatch, Route, Test, ValueMatch};
use crate::{Host, Name, Origin, PathRewrite, Policy};

pub use divide::{Draft, divide};
pub use order::{ResourcePlace, in_order};

/// The character between the prefix of a block's name, which all blocks of a claimant on a host
/// have, and the block's id.
const NAME_END: char = '+';

/// The number of entries of a table that are compared in order to hold equal ones once.
const SHARED_TRIES: usize = 8;

/// One block of the routes that a claimant has on a host, in their order. Where routes of several
/// claimants have the same rank, those of the claimant whose name is the lower go first.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    /// The hosts; never empty.
    pub hosts: Arc<[Host]>,
    /// The block's id among those of the claimant on the host: 0 for the first block.
    pub id: u64,
    /// The id of the block that follows; 0 for none.
    pub next: u64,
    /// The texts of the paths, in the order of the rows.
    texts: Box<str>,
    ranks: Box<[u64]>,
    settings: Box<[Setting]>,
    actions: Box<[Action]>,
    policies: Box<[Arc<Policy>]>,
    conditions: Box<[Box<[ValueMatch]>]>,
    rows: Box<[Row]>,
}

/// The tables that rows point into, before they were checked.
#[derive(Debug, Default)]
pub struct Tables {
    /// The texts of the paths, one behind the other.
    pub texts: String,
    /// See [`Route::rank`].
    pub ranks: Vec<u64>,
    /// The settings.
    pub settings: Vec<Setting>,
    /// The actions.
    pub actions: Vec<Action>,
    /// The policies.
    pub policies: Vec<Arc<Policy>>,
    /// The lists of conditions; none of them is empty.
    pub conditions: Vec<Box<[ValueMatch]>>,
}

/// The properties that rows share beside what they do.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The listeners, sorted.
    pub listeners: Arc<[Name]>,
    /// The names of the rows.
    pub label: Label,
    /// The object that the rows came from, where it is not that of the resource.
    pub origin: Option<Origin>,
}

/// The end of a row's name, behind the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Label {
    /// This word, a colon and its path.
    Path(Box<str>),
    /// The number of its rule, this text, a dot and the number of its match.
    Rule(Box<str>),
    /// This.
    Whole(Box<str>),
}

/// A route in a block. All but its path and place are numbers in the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The offset of its path in the texts; it ends where that of the next row begins.
    pub(crate) start: u32,
    /// The rules from that of the row before to its own, be that row in another block: 0 for rows
    /// of one rule.
    pub step: u16,
    /// The number of its match in its rule.
    pub matched: u16,
    /// The form of its path.
    pub form: PathForm,
    /// Its rank.
    pub rank: u8,
    /// Its setting.
    pub setting: u8,
    /// Its action.
    pub action: u8,
    /// Its policy.
    pub policy: u8,
    /// Its conditions, counted from 1; 0 for none.
    pub conditions: u8,
}

const _: () = assert!(size_of::<Row>() == 16);

/// The forms of [`PathMatch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PathForm {
    /// See [`PathMatch::Exact`].
    #[default]
    Exact = 0,
    /// See [`PathMatch::Prefix`].
    Prefix = 1,
    /// See [`PathMatch::Regex`].
    Regex = 2,
    /// See [`PathMatch::Start`].
    Start = 3,
}

/// A condition on a path, wherever it is held; see [`PathMatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathView<'a> {
    /// See [`PathMatch::Exact`].
    Exact(&'a str),
    /// See [`PathMatch::Prefix`].
    Prefix(&'a str),
    /// See [`PathMatch::Regex`].
    Regex(&'a str),
    /// See [`PathMatch::Start`].
    Start(&'a str),
}

/// A route, wherever it is held; see [`Route`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RouteView<'a> {
    /// See [`Route::listeners`].
    pub listeners: &'a Arc<[Name]>,
    /// See [`Route::hosts`].
    pub hosts: &'a Arc<[Host]>,
    /// See [`Route::path`].
    pub path: PathView<'a>,
    /// See [`Route::conditions`].
    pub conditions: &'a [ValueMatch],
    /// See [`Route::rank`].
    pub rank: u64,
    /// See [`Route::action`].
    pub action: &'a Action,
    /// See [`Route::policy`].
    pub policy: &'a Arc<Policy>,
}

impl<'a> RouteView<'a> {
    /// The regexes that a proxy compiles for it: of its path, its conditions, its rewrite, origins
    /// of CORS and the subjects of clients.
    pub fn regexes(self) -> impl Iterator<Item = &'a str> {
        let of_path = match self.path {
            PathView::Regex(text) => Some(text),
            _ => None,
        };
        let of_values = self.conditions.iter().filter_map(|it| match &it.test {
            Test::Regex(text) => Some(&**text),
            _ => None,
        });
        let policy: &'a Policy = self.policy;
        let rewrite = policy.rewrite.as_ref();
        let of_rewrite = rewrite.and_then(|rewrite| match rewrite.path.as_ref()? {
            PathRewrite::Substitution { regex, .. } => Some(&**regex),
            PathRewrite::Template(_) | PathRewrite::Matched(_) => None,
        });
        let cors = policy.cors.iter();
        let of_origins = cors.flat_map(|cors| cors.origin_patterns.iter().map(|text| &**text));
        let demand = policy.client_certificate.iter();
        let of_subjects = demand.map(|demand| &*demand.subject);
        let of_subjects = of_subjects.filter(|text| !text.is_empty());
        let texts = of_path.into_iter().chain(of_values).chain(of_rewrite);
        texts.chain(of_origins).chain(of_subjects)
    }
}

impl Routes {
    /// The most rows of a block.
    pub const ROWS_MAX: usize = 128;

    /// The most rows of a block of several, once for each of its hosts: each has a table of them.
    pub const ENTRIES_MAX: usize = Self::ROWS_MAX * 4_096;

    /// A block of rows with their paths' lengths. `None` where there is no row or host, where there
    /// are too many, or where one points at nothing.
    pub fn new(
        hosts: Arc<[Host]>,
        (id, next): (u64, u64),
        tables: Tables,
        rows: Vec<(Row, usize)>,
    ) -> Option<Self> {
        let is_full = rows.len() > Self::ROWS_MAX
            || rows.len() > 1 && rows.len().saturating_mul(hosts.len()) > Self::ENTRIES_MAX;
        if hosts.is_empty() || rows.is_empty() || is_full {
            return None;
        }
        let mut end = 0_usize;
        let mut placed = Vec::with_capacity(rows.len());
        for (mut row, length) in rows {
            row.start = u32::try_from(end).ok()?;
            end = end.checked_add(length)?;
            let has_all = usize::from(row.rank) < tables.ranks.len()
                && usize::from(row.setting) < tables.settings.len()
                && usize::from(row.action) < tables.actions.len()
                && usize::from(row.policy) < tables.policies.len()
                && usize::from(row.conditions) <= tables.conditions.len();
            if !has_all || !tables.texts.is_char_boundary(end) {
                return None;
            }
            placed.push(row);
        }
        (end == tables.texts.len()).then(|| Routes {
            hosts,
            id,
            next,
            texts: tables.texts.into(),
            ranks: tables.ranks.into(),
            settings: tables.settings.into(),
            actions: tables.actions.into(),
            policies: tables.policies.into(),
            conditions: tables.conditions.into(),
            rows: placed.into(),
        })
    }

    /// The name of the resource, of its prefix and its id.
    pub fn name(prefix: &str, id: u64) -> Name {
        Name::new(match id {
            0 => format!("{prefix}{NAME_END}"),
            id => format!("{prefix}{NAME_END}{id:x}"),
        })
    }

    /// The part of a name that all blocks of a claimant on a host have.
    pub fn prefix(name: &str) -> &str {
        name.rsplit_once(NAME_END)
            .map_or(name, |(prefix, _)| prefix)
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no route, which is never so.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The texts of the paths, one behind the other.
    pub fn texts(&self) -> &str {
        &self.texts
    }

    /// The ranks.
    pub fn ranks(&self) -> &[u64] {
        &self.ranks
    }

    /// The settings.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The actions.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// The policies.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// The lists of conditions.
    pub fn conditions(&self) -> &[Box<[ValueMatch]>] {
        &self.conditions
    }

    /// The policies and actions, so that each can be put in the place of an equal one.
    pub fn parts_mut(&mut self) -> (&mut [Arc<Policy>], &mut [Action]) {
        (&mut self.policies, &mut self.actions)
    }

    /// Takes over parts of another block that are equal, so that they are held once, as far as they
    /// are soon found.
    pub fn share_with(&mut self, other: &Routes) {
        super::route::share(&mut self.hosts, &other.hosts);
        for setting in &mut self.settings {
            for known in other.settings.iter().rev().take(SHARED_TRIES) {
                super::route::share(&mut setting.listeners, &known.listeners);
            }
        }
        for action in &mut self.actions {
            for known in other.actions.iter().rev().take(SHARED_TRIES) {
                if let (Action::Forward(own), Action::Forward(known)) = (&mut *action, known) {
                    super::route::share(own, known);
                }
            }
        }
    }

    /// The length of the path of a route.
    pub fn path_bytes(&self, at: usize) -> usize {
        self.path_text(at).len()
    }

    /// A route, by its number.
    pub fn get(&self, at: usize) -> Option<RouteView<'_>> {
        let row = self.rows.get(at)?;
        let text = self.path_text(at);
        let conditions = usize::from(row.conditions).checked_sub(1);
        Some(RouteView {
            listeners: &self.setting(row)?.listeners,
            hosts: &self.hosts,
            path: match row.form {
                PathForm::Exact => PathView::Exact(text),
                PathForm::Prefix => PathView::Prefix(text),
                PathForm::Regex => PathView::Regex(text),
                PathForm::Start => PathView::Start(text),
            },
            conditions: match conditions {
                Some(number) => self.conditions.get(number)?,
                None => &[],
            },
            rank: *self.ranks.get(usize::from(row.rank))?,
            action: self.actions.get(usize::from(row.action))?,
            policy: self.policies.get(usize::from(row.policy))?,
        })
    }

    /// The object that a route came from, where it is not that of the resource.
    pub fn origin(&self, at: usize) -> Option<&Origin> {
        self.setting(self.rows.get(at)?)?.origin.as_ref()
    }

    /// The end of a route's name, behind the prefix. Its rule is known to who has the blocks before
    /// it; see [`ResourcePlace::rule`].
    pub fn label(&self, at: usize, rule: u32) -> String {
        let row = self.rows.get(at);
        let label = row.and_then(|row| Some((row, &self.setting(row)?.label)));
        label
            .zip(self.get(at))
            .map_or_else(String::new, |((row, label), route)| {
                label.of(route.path, rule, row.matched)
            })
    }

    fn setting(&self, row: &Row) -> Option<&Setting> {
        self.settings.get(usize::from(row.setting))
    }

    fn path_text(&self, at: usize) -> &str {
        let start = self.rows.get(at).map_or(0, |row| row.start as usize);
        let end = self.rows.get(at + 1);
        let end = end.map_or(self.texts.len(), |row| row.start as usize);
        self.texts.get(start..end).unwrap_or_default()
    }
}

impl Label {
    /// The end of a name, by the path, the rule and the match of the route.
    pub fn of(&self, path: PathView<'_>, rule: u32, matched: u16) -> String {
        match self {
            Label::Path(word) => format!("{word}:{}", path.text()),
            Label::Rule(text) => format!("{rule}{text}.{matched}"),
            Label::Whole(text) => text.to_string(),
        }
    }
}

impl<'a> PathView<'a> {
    /// The text.
    pub fn text(self) -> &'a str {
        match self {
            PathView::Exact(text)
            | PathView::Prefix(text)
            | PathView::Regex(text)
            | PathView::Start(text) => text,
        }
    }

    /// The form.
    pub fn form(self) -> PathForm {
        match self {
            PathView::Exact(_) => PathForm::Exact,
            PathView::Prefix(_) => PathForm::Prefix,
            PathView::Regex(_) => PathForm::Regex,
            PathView::Start(_) => PathForm::Start,
        }
    }
}

impl PathMatch {
    /// The condition, wherever it is held.
    pub fn view(&self) -> PathView<'_> {
        match self {
            PathMatch::Exact(text) => PathView::Exact(text),
            PathMatch::Prefix(text) => PathView::Prefix(text),
            PathMatch::Regex(text) => PathView::Regex(text),
            PathMatch::Start(text) => PathView::Start(text),
        }
    }
}

impl Route {
    /// The route, wherever it is held.
    pub fn view(&self) -> RouteView<'_> {
        RouteView {
            listeners: &self.listeners,
            hosts: &self.hosts,
            path: self.path.view(),
            conditions: &self.conditions,
            rank: self.rank,
            action: &self.action,
            policy: &self.policy,
        }
    }
}

#[cfg(test)]
mod tests;
