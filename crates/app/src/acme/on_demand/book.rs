//! The names that have certificates on demand, and what is known of others. It has no clock and no
//! connection: it is told what is in demand and what was answered, and says what is to be done.
//!
//! Everything in it is bounded, whatever clients ask for and whatever the endpoint says: names with
//! a certificate, answers that are remembered, questions in a second and at a time, and new
//! certificates for one registered domain and for all of them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use myriad_model::is_demandable;
use myriad_pki::acme::{Budget, Millis, Suffixes};
use myriad_proxy::DEMANDS_UNANSWERED_MAX;

use crate::settings::OnDemandSettings;

/// How long an answer is remembered that allows a name, or refuses it, or that did not come.
pub(super) const ALLOWED_FOR: Millis = 300_000;
pub(super) const REFUSED_FOR: Millis = 30_000;
pub(super) const FAILED_FOR: Millis = 5_000;

/// The most answers that are remembered; the oldest go.
const ANSWERS_MAX: usize = 8_192;

/// The most questions at a time.
pub(super) const ASKING_MAX: usize = DEMANDS_UNANSWERED_MAX;

/// The span of the budget of questions: so many at once as are allowed in it.
const ASKS_SPAN: Millis = 10_000;

/// The spans of the budgets of new certificates: for one registered domain, and for all.
const DOMAIN_SPAN: Millis = 3_600_000;
const ALL_SPAN: Millis = 3 * 3_600_000;

/// How long after it was last asked for a name without a certificate is given up.
const PENDING_FOR: Millis = 86_400_000;

/// The thing to do about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameVerdict {
    /// Nothing.
    Nothing,
    /// Ask the endpoint about it.
    Ask,
    /// Obtain a certificate for it, or renew that one which is there.
    Want,
    /// Let nobody wait for it, for so long.
    Refuse(Millis),
}

/// The answer of the endpoint about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AskAnswer {
    /// It may have a certificate.
    Yes,
    /// It may not.
    No,
    /// Nothing in time, or nothing that can be understood.
    Silence,
}

/// The names whose time is over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SweptNames {
    /// Names that are not renewed any more.
    pub idle: Vec<Arc<str>>,
    /// Names whose certificates are over, or that never had any.
    pub over: Vec<Arc<str>>,
}

/// The book.
pub(super) struct DemandBook {
    certificates_max: usize,
    per_domain: u32,
    idle: Millis,
    names: HashMap<Arc<str>, DemandedName>,
    answers: HashMap<Arc<str>, (AskAnswer, Millis)>,
    /// The names that were answered for, in order, with the end of the answer.
    answered: VecDeque<(Arc<str>, Millis)>,
    asking: HashSet<Arc<str>>,
    asks: Budget,
    new: Budget,
    domains: HashMap<Box<str>, Budget>,
    suffixes: Suffixes,
}

/// A name that has a certificate, or for which one is obtained.
struct DemandedName {
    /// The end of its certificate; none where there is none yet.
    until: Option<Millis>,
    /// Whether one is wanted, or its renewal.
    is_wanted: bool,
    /// Whether its order has failed and waits.
    is_troubled: bool,
    /// Whether it counts in budgets, and no authority has heard of it.
    is_spent: bool,
    used_at: Millis,
}

impl DemandBook {
    /// An empty book; so many orders may be placed in three hours, of which names on demand may
    /// have half, and registered domains are those below these suffixes.
    pub(super) fn new(
        settings: &OnDemandSettings,
        (orders, suffixes): (u32, Suffixes),
    ) -> DemandBook {
        let asks = u32::try_from(ASKS_SPAN / 1_000).unwrap_or(1);
        DemandBook {
            certificates_max: settings.certificates_max,
            per_domain: settings.per_domain,
            idle: Millis::try_from(settings.idle.as_millis()).unwrap_or(Millis::MAX),
            names: HashMap::new(),
            answers: HashMap::new(),
            answered: VecDeque::new(),
            asking: HashSet::new(),
            asks: Budget::new(settings.asks_max.saturating_mul(asks), ASKS_SPAN),
            new: Budget::new(orders / 2, ALL_SPAN),
            domains: HashMap::new(),
            suffixes,
        }
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Takes in a certificate that is there. It is renewed once somebody uses it.
    pub(super) fn restore(&mut self, name: &Arc<str>, until: Millis, now: Millis) {
        let known = self.names.entry(name.clone()).or_insert(DemandedName {
            until: None,
            is_wanted: false,
            is_troubled: false,
            is_spent: false,
            used_at: now,
        });
        known.until = Some(until);
    }

    /// Takes in an order that was under way, which goes on.
    pub(super) fn resume(&mut self, name: &Arc<str>, now: Millis) {
        self.insert(name, false, now);
    }

    /// Whether there is a question about a name.
    pub(super) fn is_asking(&self, name: &str) -> bool {
        self.asking.contains(name)
    }

    /// When the next question may be asked; none where it may be now.
    pub(super) fn next_ask(&self, now: Millis) -> Option<Millis> {
        if self.asking.len() >= ASKING_MAX {
            return Some(Millis::MAX);
        }
        let free_at = self.asks.free_at();
        (free_at > now).then_some(free_at)
    }

    /// A name is asked for: a handshake waits for its certificate, or one has used it.
    pub(super) fn demand(&mut self, name: &Arc<str>, is_used: bool, now: Millis) -> NameVerdict {
        if !is_demandable(name) {
            return NameVerdict::Refuse(REFUSED_FOR);
        }
        match self.names.get_mut(name) {
            Some(known) if known.is_wanted => {
                known.used_at = now;
                match known.is_troubled && !is_used {
                    true => NameVerdict::Refuse(REFUSED_FOR),
                    false => NameVerdict::Nothing,
                }
            }
            Some(known) if known.until.is_some_and(|until| until > now) => {
                known.used_at = now;
                known.is_wanted = true;
                NameVerdict::Want
            }
            // Its certificate is not known here.
            _ if is_used => NameVerdict::Nothing,
            _ => self.judge(name, now),
        }
    }

    /// The judgement of a name that has no certificate.
    fn judge(&mut self, name: &Arc<str>, now: Millis) -> NameVerdict {
        match self.answer(name, now) {
            Some((AskAnswer::Yes, _)) => self.admit(name, now),
            Some((_, until)) => NameVerdict::Refuse(until.saturating_sub(now)),
            None if self.asking.contains(name) => NameVerdict::Nothing,
            None => {
                self.asking.insert(name.clone());
                self.asks.spend(now);
                NameVerdict::Ask
            }
        }
    }

    /// The endpoint has answered the question about a name.
    pub(super) fn end_ask(
        &mut self,
        name: &Arc<str>,
        answer: AskAnswer,
        now: Millis,
    ) -> NameVerdict {
        self.asking.remove(name);
        self.remember(name, answer, now);
        match self.names.get(name) {
            Some(known) if known.is_wanted => NameVerdict::Nothing,
            _ => self.judge(name, now),
        }
    }

    /// The answer that is remembered, and until when.
    pub(super) fn answer(&self, name: &str, now: Millis) -> Option<(AskAnswer, Millis)> {
        let answer = self.answers.get(name).copied();
        answer.filter(|(_, until)| *until > now)
    }

    /// Remembers an answer.
    pub(super) fn remember(&mut self, name: &Arc<str>, answer: AskAnswer, now: Millis) {
        let time = match answer {
            AskAnswer::Yes => ALLOWED_FOR,
            AskAnswer::No => REFUSED_FOR,
            AskAnswer::Silence => FAILED_FOR,
        };
        let until = now.saturating_add(time);
        while self.answered.len() >= ANSWERS_MAX {
            let Some((oldest, until)) = self.answered.pop_front() else {
                break;
            };
            // It may have been answered for again since.
            if self.answers.get(&oldest).is_some_and(|it| it.1 == until) {
                self.answers.remove(&oldest);
            }
        }
        self.answers.insert(name.clone(), (answer, until));
        self.answered.push_back((name.clone(), until));
    }

    /// Admits a name that is allowed, as far as there is room and budget.
    fn admit(&mut self, name: &Arc<str>, now: Millis) -> NameVerdict {
        let is_known = self.names.contains_key(name);
        if !is_known && self.names.len() >= self.certificates_max {
            return NameVerdict::Refuse(REFUSED_FOR);
        }
        let domain = self.suffixes.registered_domain(name);
        let mut budget = self.budget_of(&domain);
        let free_at = self.new.free_at().max(budget.free_at());
        if free_at > now {
            return NameVerdict::Refuse(free_at.saturating_sub(now).min(REFUSED_FOR));
        }
        self.new.spend(now);
        budget.spend(now);
        let is_new = self.domains.insert(domain.into(), budget).is_none();
        // Whoever has all of its budget needs no row; amortised over the rows that came.
        if is_new && self.domains.len().is_power_of_two() {
            self.domains.retain(|_, budget| !budget.is_whole(now));
        }
        self.insert(name, true, now);
        NameVerdict::Want
    }

    fn budget_of(&self, domain: &str) -> Budget {
        let known = self.domains.get(domain).copied();
        known.unwrap_or_else(|| Budget::new(self.per_domain, DOMAIN_SPAN))
    }

    fn insert(&mut self, name: &Arc<str>, is_spent: bool, now: Millis) {
        let until = self.names.get(name).and_then(|known| known.until);
        let known = DemandedName {
            until,
            is_wanted: true,
            is_troubled: false,
            is_spent,
            used_at: now,
        };
        self.names.insert(name.clone(), known);
    }

    /// Whether a certificate of a name is wanted, or its renewal.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|known| known.is_wanted)
    }

    /// The certificate of a name was obtained.
    pub(super) fn issue(&mut self, name: &str, until: Millis) {
        if let Some(known) = self.names.get_mut(name) {
            known.until = Some(until);
            known.is_troubled = false;
            known.is_spent = false;
        }
    }

    /// Its order has failed and waits, or does not any more.
    pub(super) fn trouble(&mut self, name: &str, is_troubled: bool) {
        if let Some(known) = self.names.get_mut(name) {
            known.is_troubled = is_troubled;
        }
    }

    /// An authority has heard of its order, whatever becomes of it.
    pub(super) fn place(&mut self, name: &str) {
        if let Some(known) = self.names.get_mut(name) {
            known.is_spent = false;
        }
    }

    /// A name could not be proven before an authority was asked for anything. Whether nothing is
    /// wanted of it any more: one without a certificate is forgotten, and one that the endpoint
    /// refuses is not renewed.
    pub(super) fn give_up(&mut self, name: &str, now: Millis) -> bool {
        let Some(known) = self.names.get_mut(name) else {
            return false;
        };
        if known.until.is_some_and(|until| until > now) {
            let refused = self.answers.get(name);
            let is_refused = refused.is_some_and(|it| it.0 == AskAnswer::No && it.1 > now);
            known.is_wanted &= !is_refused;
            return is_refused;
        }
        let removed = self.names.remove(name);
        // It has cost nothing at an authority.
        if removed.is_some_and(|known| known.is_spent) {
            self.new.give_back();
            let domain = self.suffixes.registered_domain(name);
            if let Some(budget) = self.domains.get_mut(&*domain) {
                budget.give_back();
            }
        }
        true
    }

    /// The names whose time is over: a walk over all.
    pub(super) fn sweep(&mut self, now: Millis) -> SweptNames {
        let mut swept = SweptNames::default();
        let idle = self.idle;
        self.names.retain(|name, known| {
            let unused = now.saturating_sub(known.used_at);
            let is_over = known.until.is_none_or(|until| until <= now);
            if is_over && !(known.is_wanted && unused <= PENDING_FOR) {
                swept.over.push(name.clone());
                return false;
            }
            if known.is_wanted && !is_over && unused > idle {
                known.is_wanted = false;
                swept.idle.push(name.clone());
            }
            true
        });
        swept
    }
}

#[cfg(test)]
mod tests;
