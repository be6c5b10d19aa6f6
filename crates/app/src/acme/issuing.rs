//! The part of the office that is about issuers: they come, change and go, are asked for their
//! accounts, and people are told how it is with them.

use std::sync::Arc;

use myriad_api::{Finding, Severity};
use myriad_base::task;
use myriad_pki::acme::{AcmeIssuer, Effect, Millis, StepTrouble, TroubleNotice};
use myriad_translate::{FindingsChange, StatedIssuer};

use super::Office;
use super::http::Client;
use super::issuers::{Registered, acme_issuer};
use super::reports::IssuerReport;
use super::steps::now;
use crate::control::Event;
use crate::settings::ISSUER;
use crate::wishes::{ISSUERS_MAX, IssuerNews};

/// How long the account of an issuer is kept after that names its directory no more, or is gone.
const ACCOUNTS_KEPT: Millis = 600_000;

impl Office {
    /// Takes in what became of an issuer that an object makes.
    pub(super) async fn take_issuer(&mut self, name: &str, news: IssuerNews) {
        match news {
            IssuerNews::Used(issuer) => self.put_stated(&issuer).await,
            IssuerNews::Beyond(object) => {
                self.leave(name).await;
                let message = format!("is one more than the {ISSUERS_MAX} issuers that are used");
                let finding = Finding::new(
                    Severity::Error,
                    &object,
                    "",
                    format!("{message}, so nothing is obtained of it"),
                    "remove some; those for all namespaces go first, and then the oldest",
                );
                self.tell_of(name, Some(finding)).await;
                self.book.report(&object, unusable("TooMany", message));
            }
            IssuerNews::Gone => {
                if let Some(known) = self.book.known.get(name) {
                    let object = known.object.clone();
                    self.book.forget_report(&object);
                }
                self.leave(name).await;
            }
        }
    }

    async fn put_stated(&mut self, issuer: &Arc<StatedIssuer>) {
        let name = &issuer.name;
        // What is wrong with it was told where that was found.
        let made = issuer.terms.as_ref().map_err(|fault| fault.to_string());
        let made = made.and_then(|terms| {
            let client = self.book.client(issuer, terms);
            let client = client.map_err(|error| format!("its roots cannot be used: {error}"))?;
            let made = AcmeIssuer {
                is_tenants: self.book.is_tenants(issuer),
                ..acme_issuer(name, terms)
            };
            Ok((made, client))
        });
        match made {
            Ok((made, client)) => {
                self.tell_of(name, None).await;
                self.book.known.insert(name.clone(), issuer.clone());
                self.put(name, made, client).await;
                if **name == *ISSUER {
                    let terms = issuer.terms.as_ref().ok();
                    let ask = terms.and_then(|terms| terms.ask.as_deref());
                    self.steps.on_demand.ask_at(ask);
                }
                if self.book.is_shown() {
                    self.book.registrar.want(name, now());
                }
            }
            Err(fault) => {
                self.leave(name).await;
                self.book.report(&issuer.object, unusable("Invalid", fault));
            }
        }
    }

    /// Places orders by an issuer from now on.
    pub(super) async fn put(&mut self, name: &str, issuer: AcmeIssuer, client: Option<Client>) {
        self.steps.put_issuer(name, issuer.clone(), client);
        self.drop_accounts_later();
        let mut effects = self.desk.put_issuer(name, issuer, now());
        let ended = self.book.waiting.take(name).into_iter();
        effects.extend(ended.map(|id| Effect::Tell(id, None)));
        self.carry_out(effects).await;
    }

    /// Places no orders by an issuer that an object made; by the one of the settings of that name
    /// again, where there is one.
    async fn leave(&mut self, name: &str) {
        self.tell_of(name, None).await;
        self.book.registrar.forget(name);
        if self.book.known.remove(name).is_none() {
            return;
        }
        if name == ISSUER {
            self.steps.on_demand.ask_at(None);
        }
        if let (ISSUER, Some(issuer)) = (name, self.book.of_settings.clone()) {
            return self.put(name, issuer, None).await;
        }
        self.steps.remove_issuer(name);
        self.drop_accounts_later();
        let effects = self.desk.remove_issuer(name, now());
        self.carry_out(effects).await;
    }

    /// Tells of a certificate that its issuer is there and cannot be used, or that it can.
    pub(super) fn await_issuer(&mut self, id: &Arc<str>, issuer: &str) -> Option<Effect> {
        if self.book.has(issuer) {
            let has_waited = self.book.waiting.remove(id);
            return has_waited.then(|| Effect::Tell(id.clone(), None));
        }
        if !self.book.waiting.add(id, issuer) {
            return None;
        }
        let notice = TroubleNotice {
            message: format!("is not ordered, since issuer {issuer} cannot be used"),
            remedy: "mend the issuer; it has a finding of its own".to_owned(),
        };
        Some(Effect::Tell(id.clone(), Some(notice)))
    }

    /// Asks issuers for their accounts, as many as there are places for, and drops accounts that no
    /// issuer has any more, once it is known which issuers there are.
    pub(super) fn begin_issuers(&mut self) {
        while let Some(name) = self.book.registrar.next(now()) {
            let (steps, ended) = (self.steps.clone(), self.book.ended.clone());
            task::spawn_local("acme account", async move {
                let result = steps.register(&name).await;
                // Nobody is left to hear of it where the office has closed.
                let _ = ended.send((name, result)).await;
            });
        }
        let is_due = self.book.accounts_due.is_some_and(|due| due <= now());
        if is_due && self.is_swept {
            self.book.accounts_due = None;
            let (steps, names) = (self.steps.clone(), self.steps.account_names());
            task::spawn_local("acme accounts", async move {
                if let Err(error) = steps.store.retain_accounts(&names).await {
                    tracing::warn!(%error, "accounts that no issuer has any more stay");
                }
            });
        }
    }

    /// When there is next something to do about issuers.
    pub(super) fn due(&self) -> Option<Millis> {
        let accounts = self.book.accounts_due.filter(|_| self.is_swept);
        let of_issuers = self.book.registrar.due().into_iter().chain(accounts);
        of_issuers.chain(self.desk.due()).min()
    }

    /// Takes in what an authority said of an account.
    pub(super) fn end_registration(&mut self, (name, result): Registered) {
        self.book.registrar.done(&name, result.is_err(), now());
        let Some(issuer) = self.book.known.get(&name) else {
            return;
        };
        let report = match result {
            Ok(message) => IssuerReport {
                is_ready: true,
                reason: "AccountRegistered",
                message,
            },
            Err(trouble) => {
                let (reason, message) = words(trouble);
                unusable(reason, message)
            }
        };
        tracing::debug!(issuer = %name, reason = report.reason, words = %report.message);
        self.book.report(&issuer.object, report);
    }

    /// Takes back the findings about issuers.
    pub(super) fn take_back(&mut self) -> impl Iterator<Item = Arc<Finding>> + use<> {
        std::mem::take(&mut self.book.told).into_values()
    }

    fn drop_accounts_later(&mut self) {
        let due = now().saturating_add(ACCOUNTS_KEPT);
        self.book.accounts_due.get_or_insert(due);
    }

    /// Tells people of an issuer, in place of what they were told before.
    async fn tell_of(&mut self, name: &str, finding: Option<Finding>) {
        let finding = finding.map(Arc::new);
        let removed = self.book.told.remove(name);
        if let Some(finding) = &finding {
            self.book.told.insert(name.into(), finding.clone());
        }
        if finding == removed {
            return;
        }
        let change = FindingsChange {
            added: finding.into_iter().collect(),
            removed: removed.into_iter().collect(),
        };
        // A loop that has ended tells nobody anything.
        let _ = self.steps.inbox.send(Event::Found(change)).await;
    }
}

fn unusable(reason: &'static str, message: String) -> IssuerReport {
    IssuerReport {
        is_ready: false,
        reason,
        message,
    }
}

/// A word for a trouble, and the words of the authority.
fn words(trouble: StepTrouble) -> (&'static str, String) {
    match trouble {
        StepTrouble::Refused(words) => ("AccountRefused", words),
        StepTrouble::Limited(words, _) => ("AuthorityLimits", words),
        StepTrouble::Unreachable(words, _)
        | StepTrouble::Unreplaced(words)
        | StepTrouble::Unheeded(words) => ("AuthorityUnreachable", words),
        StepTrouble::Unproven(words, _)
        | StepTrouble::Lost(words)
        | StepTrouble::NoAccount(words) => ("AccountLost", words),
        StepTrouble::Local(words) => ("NotKept", words),
    }
}
