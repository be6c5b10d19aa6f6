//! The accounts that are open, by the directories of their authorities.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use myriad_pki::acme::clerk::Account;
use myriad_pki::acme::{StepTrouble, TaskStep};
use tokio::sync::OnceCell;

use super::store::AcmeStore;

/// The accounts that are open, and those that somebody opens.
#[derive(Default)]
pub(super) struct Accounts(RefCell<HashMap<Box<str>, Rc<OnceCell<Account>>>>);

/// An account that something is asked with.
pub(super) struct OpenAccount {
    pub account: Account,
    /// Its place among those that are open, by which it is told from one that is opened later.
    place: Rc<OnceCell<Account>>,
}

impl Accounts {
    /// The account at a directory, which is opened where none is, by one for all.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) async fn open<F>(
        &self,
        url: &str,
        open: impl FnOnce() -> F,
    ) -> Result<OpenAccount, StepTrouble>
    where
        F: Future<Output = Result<Account, StepTrouble>>,
    {
        let place = self.0.borrow_mut().entry(url.into()).or_default().clone();
        let account = place.get_or_try_init(open).await?.clone();
        Ok(OpenAccount { account, place })
    }

    /// Closes the account at a directory, whichever it is.
    pub(super) fn remove(&self, url: &str) {
        self.0.borrow_mut().remove(url);
    }

    /// Takes in the trouble of a step that has asked with an account. What others say late of one
    /// that is not open any more says nothing of the one that is.
    ///
    /// # Errors
    /// It cannot be forgotten.
    pub(super) async fn judge(
        &self,
        store: &AcmeStore,
        (url, account): (&str, &OpenAccount),
        (step, trouble): (&TaskStep, &StepTrouble),
    ) -> io::Result<()> {
        match trouble {
            // It is found again by its key, or another one is made.
            StepTrouble::NoAccount(_) => match self.close(url, account) {
                true => store.drop_account(&account_name(url)).await,
                false => Ok(()),
            },
            // Its directory may lead elsewhere by now, and is read anew; the account stays.
            StepTrouble::Lost(_) | StepTrouble::Unreplaced(_) | StepTrouble::Unreachable(..)
                if *step == TaskStep::Place =>
            {
                self.close(url, account);
                Ok(())
            }
            // An order that is lost is lost alone.
            _ => Ok(()),
        }
    }

    /// Closes an account, and returns whether it was the one that is open.
    fn close(&self, url: &str, account: &OpenAccount) -> bool {
        let mut places = self.0.borrow_mut();
        let open = places.get(url);
        let is_open = open.is_some_and(|place| Rc::ptr_eq(place, &account.place));
        if is_open {
            places.remove(url);
        }
        is_open
    }
}

/// The name under which an account is kept.
pub(super) fn account_name(url: &str) -> String {
    let hash = blake3::hash(url.as_bytes()).to_hex();
    hash.get(..32).unwrap_or_default().to_owned()
}
