//! The history that the control loop writes of what it does.

use myriad_api::Batch;
use myriad_model::Delta;
use myriad_translate::{FindingsChange, MAIN, Outcome};

use super::Control;
use super::outlet::Outlet;
use crate::history::{History, NewCommit, Touches, ViewChange, moment};

impl<O: Outlet> Control<O> {
    /// The same, which writes a history where there is one.
    pub fn with_history(self, history: Option<History>) -> Self {
        Control { history, ..self }
    }

    /// Notes who wrote the objects of a batch.
    pub(super) fn note_writers(&self, batch: &mut Batch) {
        let writers = std::mem::take(&mut batch.writers);
        if let Some(history) = &self.history {
            history.note_writers(writers);
        }
    }

    /// The part of an outcome that the history gets, before it is handed on. `is_commit` says
    /// whether it changed a view.
    pub(super) fn for_history(
        &self,
        outcome: &Outcome,
        touches: Touches,
        is_commit: bool,
    ) -> Option<NewCommit> {
        let has_begun = self.history.as_ref()?.has_begun();
        let kept = |delta: &Delta| match has_begun {
            true => delta.clone(),
            false => Delta::default(),
        };
        let mut views = vec![ViewChange {
            view: MAIN.into(),
            delta: kept(&outcome.delta),
            snapshot: self.engine.snapshot().clone(),
        }];
        let others = outcome.others.iter().filter_map(|(view, delta)| {
            Some(ViewChange {
                view: view.clone(),
                delta: kept(delta),
                snapshot: self.engine.snapshot_of(view)?,
            })
        });
        views.extend(others);
        Some(NewCommit {
            touches,
            findings: outcome.findings.clone(),
            views,
            gone: outcome.gone.clone(),
            commit: is_commit.then(|| self.live.newest_commit()),
        })
    }

    /// Hands a commit to the history, once it is handed on to all others.
    pub(super) fn remember(&self, commit: Option<NewCommit>) {
        if let (Some(history), Some(commit)) = (&self.history, commit) {
            history.committed(commit, moment::now(), &self.live);
        }
    }

    /// Hands findings to the history that no translation has made.
    pub(super) fn remember_findings(&self, findings: &FindingsChange) {
        if self.history.is_some() && !findings.is_empty() {
            self.remember(Some(NewCommit {
                findings: findings.clone(),
                ..NewCommit::default()
            }));
        }
    }

    /// The first list is over, and so is what is no change.
    pub(super) fn begin_history(&self) {
        if let Some(history) = &self.history {
            history.begin(moment::now());
        }
    }
}
