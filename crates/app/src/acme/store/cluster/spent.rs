//! The spent part of the budgets of authorities, in Secrets of the controllers' own namespace: one
//! for each directory of an issuer that is for all namespaces.

use std::io;
use std::sync::Arc;

use myriad_pki::acme::SpentBudget;
use myriad_source::kubernetes::{CallError, Shelved, Texts};

use super::kept::SPENT_TEXT;
use super::{ATTEMPTS_MAX, ClusterStore, failed, lost};
use crate::acme::steps::now;

/// The Secret of a directory.
#[derive(Clone)]
pub(super) struct SpentSlot {
    /// Its version; none where there is none.
    version: Option<Box<str>>,
    /// The text that it has.
    spent: SpentBudget,
}

impl ClusterStore {
    /// The spent part of all budgets. Those that are whole again are forgotten.
    pub(in crate::acme::store) async fn spent(&self) -> io::Result<Vec<SpentBudget>> {
        let all = self.0.budgets.all().await.map_err(failed)?;
        let mut budgets = Vec::with_capacity(all.len());
        for shelved in all {
            let Some(spent) = read(&shelved) else {
                continue;
            };
            if spent.is_whole(now()) {
                self.lead()?;
                let removed = self.0.budgets.remove(&shelved.name, &shelved.version);
                match removed.await {
                    // Somebody has just written it.
                    Ok(()) | Err(CallError::Conflict) => continue,
                    Err(error) => return Err(failed(error)),
                }
            }
            let slot = SpentSlot {
                version: Some(shelved.version.clone()),
                spent: spent.clone(),
            };
            let name = name_of(&spent.directory);
            self.0.spent.borrow_mut().insert(name, slot);
            budgets.push(spent);
        }
        Ok(budgets)
    }

    /// Keeps what is spent with an order, on top of what was before.
    pub(super) async fn keep_spent(&self, spent: &SpentBudget) -> Result<(), CallError> {
        let name = name_of(&spent.directory);
        let mut turn = self.0.turns.take(&name);
        turn.come().await;
        let known = self.0.spent.borrow().get(&name).cloned();
        let mut slot = known.unwrap_or_else(|| SpentSlot {
            version: None,
            spent: SpentBudget {
                directory: spent.directory.clone(),
                ..SpentBudget::default()
            },
        });
        if !slot.spent.merge(spent) && slot.version.is_some() {
            // Orders that came later have told it.
            return Ok(());
        }
        for _ in 0..ATTEMPTS_MAX {
            self.lead().map_err(|error| lost(&error.to_string()))?;
            let texts = Texts::from([(SPENT_TEXT.to_owned(), slot.spent.text())]);
            let written = self.0.budgets.put(&name, slot.version.as_deref(), &texts);
            match written.await {
                Ok(version) => {
                    slot.version = Some(version);
                    self.0.spent.borrow_mut().insert(name, slot);
                    return Ok(());
                }
                Err(CallError::NotFound | CallError::Conflict) => {
                    let there = self.0.budgets.get(&name).await?;
                    if let Some(others) = there.as_ref().and_then(read) {
                        slot.spent.merge(&others);
                    }
                    slot.version = there.map(|it| it.version);
                }
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }
}

/// The budgets that a Secret holds; none where it cannot be read, with a word in the log.
fn read(shelved: &Shelved) -> Option<SpentBudget> {
    let text = shelved.texts.get(SPENT_TEXT).map_or("", String::as_str);
    let read = SpentBudget::from_text(text);
    let told = read.inspect_err(|error| {
        tracing::error!(secret = %shelved.name, %error, "is not read");
    });
    told.ok()
}

/// The name of the Secret of a directory: a hash, since a URL is no name.
fn name_of(directory: &str) -> Arc<str> {
    let hash = blake3::hash(directory.as_bytes()).to_hex();
    format!("myriad-budget-{}", hash.get(..32).unwrap_or_default()).into()
}
