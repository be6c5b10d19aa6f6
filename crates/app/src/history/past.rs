//! A former state, made by undoing what came after it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use myriad_api::{Finding, one_line};
use myriad_model::Snapshot;

use super::History;
use super::entry::HistoryEntry;
use super::moment;
use crate::board::Board;

/// The most changes of resources that are undone for one answer.
pub const UNDONE_MAX: usize = 1_000_000;

/// The most namespaces that are named of those whose changes are not kept.
const LOST_SHOWN_MAX: usize = 8;

/// The state of a view at a moment, and the commits around it.
pub struct Past {
    view: Arc<str>,
    at: i64,
    snapshot: Snapshot,
    /// The commits until then, the newest first.
    earlier: VecDeque<Arc<HistoryEntry>>,
    /// The commits after it, the newest first.
    later: Vec<Arc<HistoryEntry>>,
    /// Since when the state is known.
    known_since: i64,
    /// The namespaces of which some is not kept, and until when.
    lost: Vec<(Arc<str>, i64)>,
    bytes_max: usize,
    /// The commit that the view came with.
    came_with: u64,
    /// How many more changes may be undone.
    left: usize,
}

impl History {
    /// The state of a view at a moment.
    ///
    /// # Errors
    /// A text for people: there is no such view, it is not kept for so long, or too much has
    /// changed since.
    pub fn past(&self, view: &str, at: i64) -> Result<Past, String> {
        let at = at.min(moment::now());
        let state = self.lock();
        if !state.has_begun {
            return Err("nothing has been served yet, and so there is no history".to_owned());
        }
        if at < state.known_since {
            return Err(not_known_before(state.known_since));
        }
        let Some((view, newest)) = state.views.get_key_value(view) else {
            return Err(format!("there is no gateway {view}; --gateways lists them"));
        };
        let came_with = newest.came_with;
        let (view, snapshot) = (view.clone(), newest.snapshot.clone());
        let (mut before, known_since) = (state.number + 1, state.known_since);
        drop(state);
        let (mut later, mut earlier) = (Vec::new(), VecDeque::new());
        loop {
            let entries = self.entries_before(before);
            let Some(last) = entries.last() else {
                break;
            };
            before = last.number;
            for entry in entries {
                match entry.at > at {
                    true => later.push(entry),
                    false => earlier.push_back(entry),
                }
            }
        }
        // One of them may have gone meanwhile.
        let state = self.lock();
        let (known_now, lost) = (state.known_since, state.shares.lost());
        drop(state);
        if at < known_now {
            return Err(not_known_before(known_now));
        }
        if later.iter().any(|entry| entry.number <= came_with) {
            return Err(format!("there was no gateway {view} then"));
        }
        let mut past = Past {
            view,
            at,
            snapshot,
            earlier,
            later: Vec::new(),
            known_since,
            lost,
            bytes_max: self.0.settings.bytes_max,
            came_with,
            left: UNDONE_MAX,
        };
        for entry in later {
            past.undo(entry)?;
        }
        Ok(past)
    }
}

fn not_known_before(known_since: i64) -> String {
    format!(
        "the history reaches back to {}; --history-bytes and --history-hours say how much is kept, \
         from the start of the process on",
        moment::text(known_since)
    )
}

impl Past {
    /// The moment, in milliseconds since the epoch.
    pub fn at(&self) -> i64 {
        self.at
    }

    /// The resources.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The name of the view.
    pub fn view(&self) -> &str {
        &self.view
    }

    /// Since when the state is known, in milliseconds since the epoch.
    pub fn known_since(&self) -> i64 {
        self.known_since
    }

    /// The parts that came after the moment and are not kept, in words.
    pub fn not_kept(&self) -> Vec<String> {
        let lost = self.lost.iter().filter(|(_, until)| *until > self.at);
        let count = lost.clone().count();
        let shown = lost.take(LOST_SHOWN_MAX).map(|(namespace, until)| {
            let (namespace, until) = (one_line(namespace), moment::text(*until));
            format!(
                "not kept: changes in namespace {namespace} until {until}, since it has written \
                 most of the {} bytes of the history",
                self.bytes_max
            )
        });
        let more = count.saturating_sub(LOST_SHOWN_MAX);
        let more = (more > 0).then(|| format!("not kept: changes in {more} more namespaces"));
        shown.chain(more).collect()
    }

    /// The commits until then, the newest first.
    pub fn earlier(&self) -> impl Iterator<Item = &Arc<HistoryEntry>> {
        self.earlier.iter()
    }

    /// Undoes the newest commit until then, and returns it; none where no more can be undone.
    pub fn step_back(&mut self) -> Option<Arc<HistoryEntry>> {
        let next = self.earlier.front()?;
        if !next.is_undoable || next.at < self.known_since || next.number <= self.came_with {
            return None;
        }
        let entry = self.earlier.pop_front()?;
        self.undo(entry.clone()).ok()?;
        self.at = entry.at.saturating_sub(1);
        Some(entry)
    }

    fn undo(&mut self, entry: Arc<HistoryEntry>) -> Result<(), String> {
        let undos = entry.changes_of(&self.view);
        self.left = self.left.checked_sub(undos.len()).ok_or_else(|| {
            format!("more than {UNDONE_MAX} changes came after that moment: ask about a later one")
        })?;
        for undo in undos.iter().rev() {
            undo.apply(&mut self.snapshot);
        }
        self.later.push(entry);
        Ok(())
    }

    /// The findings that stood then and are wanted, at most so many.
    pub fn findings(
        &self,
        board: &Board,
        count_max: usize,
        is_wanted: &dyn Fn(&Finding) -> bool,
    ) -> Vec<Finding> {
        // What appeared since was not there yet; what went since was.
        let mut since: HashSet<&Finding> = HashSet::new();
        let mut gone: HashSet<&Finding> = HashSet::new();
        for entry in &self.later {
            for finding in entry.appeared.iter().map(|it| &**it) {
                if !gone.remove(finding) {
                    since.insert(finding);
                }
            }
            for finding in entry.gone.iter().map(|it| &**it) {
                if !since.remove(finding) {
                    gone.insert(finding);
                }
            }
        }
        let stood = |finding: &Finding| is_wanted(finding) && !since.contains(finding);
        let mut found = board.findings_where(count_max, stood);
        let room = count_max.saturating_sub(found.len());
        let gone = gone.into_iter().filter(|finding| is_wanted(finding));
        let mut gone: Vec<&Finding> = gone.collect();
        gone.sort();
        found.extend(gone.into_iter().take(room).cloned());
        found
    }
}
