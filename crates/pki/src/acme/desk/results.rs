//! The consequences of the outcome of a step.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use myriad_base::backoff::Waits;

use super::{Desk, Effect, StepOutcome, StepTrouble, Task, TaskStep, TroubleNotice, Wait, millis};
use crate::acme::directory::AuthorityState;
use crate::acme::order::PlacedOrder;
use crate::acme::turns::namespace_of;
use crate::acme::{
    Challenge, ChallengeKind, DAY, DnsRecord, HOUR, HeldCertificate, Millis, Order, OrderStage,
    SpentBudget,
};

const fn seconds(low: u64, high: u64) -> RangeInclusive<Duration> {
    Duration::from_secs(low)..=Duration::from_secs(high)
}

/// The waits of names that do not lead here: nobody else is asked, and people wait for it.
static PROOF_WAITS: Waits = Waits {
    first: seconds(5, 8),
    second: seconds(10, 15),
    max: seconds(600, 900),
};

/// The waits of orders that were refused. Authorities count failures by the hour, and bear five.
static REFUSAL_WAITS: Waits = Waits {
    first: seconds(300, 400),
    second: seconds(900, 1_200),
    max: seconds(43_200, 64_800),
};

/// The waits of authorities in trouble.
static AUTHORITY_WAITS: Waits = Waits {
    first: seconds(1, 2),
    second: seconds(2, 4),
    max: seconds(300, 600),
};

/// How often it is tried to remove records of DNS before they are left: they tell nobody anything.
const SWEEPS_MAX: u32 = 4;

/// The wait of a machine that cannot keep anything.
const LOCAL_WAIT: Duration = Duration::from_secs(10);

/// How often an authority is in trouble before an order that it has is placed elsewhere.
const TROUBLES_MAX: u32 = 4;

/// How long an order may take before it is begun anew.
const ORDER_LIFE: Millis = 6 * HOUR;

/// How often an order may have been refused that is placed again soon, since the authority may have
/// looked at it while nobody answered: with one more it is fewer times than authorities bear.
const MISSED_MAX: u32 = 3;

/// The longest time that an authority asks for is waited.
const AGAIN_MAX: Millis = 24 * HOUR;

/// The shortest and longest wait between two looks at an order.
const LOOK_MIN: Millis = 50;
const LOOK_MAX: Millis = 60_000;

/// How long until a window is looked at again that was not to be had.
const WINDOW_WAIT: Millis = 6 * HOUR;

impl Desk {
    /// Takes in what came of a step.
    pub fn done(
        &mut self,
        task: &Task,
        result: Result<StepOutcome, StepTrouble>,
        now: Millis,
    ) -> Vec<Effect> {
        // Before anything is to be waited for by the new time.
        let mut effects = self.note_time(now);
        self.give_back(task, &result, now);
        let id = &task.id;
        let Some(entry) = self.certificates.get_mut(id) else {
            return effects;
        };
        if entry.state != Wait::Running(task.ticket) {
            return effects;
        }
        entry.state = Wait::Idle;
        match result {
            Ok(outcome) => self.advance(id, outcome, now, &mut effects),
            Err(trouble) => self.fail(task, trouble, now, &mut effects),
        }
        effects.extend(self.settle(id, now));
        effects
    }

    /// Gives the place of a step back, and notes how it is with the authority.
    fn give_back(&mut self, task: &Task, result: &Result<StepOutcome, StepTrouble>, now: Millis) {
        let url = match &task.step {
            TaskStep::Prove | TaskStep::Answer | TaskStep::Clean => {
                return self.proofs.give_back(&task.id, task.has_failed);
            }
            TaskStep::Window(url, _) => Some(url.clone()),
            _ => task.order.as_ref().map(|order| order.directory.clone()),
        };
        let Some(url) = url else { return };
        let random = self.random();
        self.authorities.change(&url, now, |authority| {
            authority.steps.give_back(&task.id, task.has_failed);
            let again = match result {
                Ok(_) => {
                    authority.troubles = 0;
                    None
                }
                Err(trouble) => trouble.of_authority(&task.step),
            };
            // One trouble of many steps at a time is one.
            if let Some(again) = again.filter(|_| authority.not_before <= now) {
                let again = Duration::from_millis(again.clamp(0, AGAIN_MAX).unsigned_abs());
                let wait = AUTHORITY_WAITS.after(authority.troubles, again, random);
                authority.troubles = authority.troubles.saturating_add(1);
                authority.not_before = now.saturating_add(millis(wait));
            }
        });
    }

    /// Counts an order as one of a new certificate that was placed so after all.
    fn count_new(&mut self, id: &Arc<str>, now: Millis) {
        let entry = self.certificates.get_mut(id);
        let Some(order) = entry.and_then(|it| it.order.as_mut()) else {
            return;
        };
        order.replaces = None;
        let (names, namespace) = (&order.names, namespace_of(id));
        let count = |it: &mut AuthorityState| it.count(names, namespace, now);
        let spent = self.authorities.change(&order.directory, now, count);
        let issuer = self.issuers.get(&order.issuer);
        let is_kept = issuer.is_some_and(|issuer| !issuer.is_tenants);
        order.spent = is_kept.then(|| {
            Arc::new(SpentBudget {
                directory: order.directory.clone(),
                ..spent
            })
        });
    }

    fn advance(
        &mut self,
        id: &Arc<str>,
        outcome: StepOutcome,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        if let StepOutcome::Cleaned = outcome {
            return self.let_go(id, effects);
        }
        let outcome = match outcome {
            StepOutcome::PlacedNew(url, challenges) => {
                self.count_new(id, now);
                StepOutcome::Placed(url, challenges)
            }
            outcome => outcome,
        };
        let look_max = self.bounds.look_max;
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        if let StepOutcome::Window(window) = outcome {
            let next = window.map(|window| window.next_look(now, look_max));
            entry.window = window.or(entry.window);
            let later = now.saturating_add(WINDOW_WAIT.min(look_max));
            entry.look_at = next.unwrap_or(later);
            return;
        }
        let Some(order) = &mut entry.order else {
            return;
        };
        if let StepOutcome::Issued(held) = outcome {
            entry.held = Some(HeldCertificate {
                names: order.names.clone(),
                directory: Some(order.directory.clone()),
                placed_at: (order.placed_at > 0).then_some(order.placed_at),
                ..held
            });
            // An authority that says "now" of each new certificate is not followed round and round.
            let pause = match (order.replaces.take(), entry.window.take()) {
                (None, None) => HOUR,
                _ => DAY,
            };
            entry.look_at = now.saturating_add(pause.min(look_max));
            entry.is_told = false;
            entry.end_order(id, effects);
            effects.push(Effect::Tell(id.clone(), None));
            return;
        }
        entry.is_changed |= order.advance(outcome, now);
        if matches!(order.stage, OrderStage::Placing) {
            self.choose(id, now);
        }
    }

    /// Goes on with an order whose records are removed, or left.
    fn let_go(&mut self, id: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        (entry.sweeps, entry.sweep_at) = (0, 0);
        let Some(order) = &mut entry.order else {
            return;
        };
        for record in &mut order.records {
            record.value = None;
        }
        if order.stage == OrderStage::Leaving {
            entry.end_order(id, effects);
        } else if entry.is_kept {
            entry.is_changed = false;
            effects.push(Effect::Keep(order.clone()));
        }
    }

    /// Chooses the authority of an order that is to be placed: the first that is not in trouble,
    /// behind those that have refused it.
    fn choose(&mut self, id: &Arc<str>, now: Millis) {
        let order = self.certificates.get(id).and_then(|it| it.order.as_deref());
        let Some(order) = order else {
            return;
        };
        let Some(issuer) = self.issuers.get(&order.issuer) else {
            return;
        };
        let tried = usize::try_from(order.tried).unwrap_or(usize::MAX);
        let left = issuer.directories.get(tried..).unwrap_or_default();
        let is_well = |url: &str| {
            let authority = self.authorities.get(url);
            authority.is_none_or(|it| it.not_before <= now)
        };
        let chosen = left.iter().find(|it| is_well(&it.url)).or(left.first());
        let chosen = chosen.or(issuer.directories.first());
        let Some(url) = chosen.map(|it| it.url.clone()) else {
            return;
        };
        let entry = self.certificates.get_mut(id);
        if let Some(order) = entry.and_then(|it| it.order.as_mut()) {
            // Elsewhere it takes the place of nothing.
            if order.directory != url {
                order.replaces = None;
            }
            order.directory = url;
        }
    }

    fn fail(&mut self, task: &Task, trouble: StepTrouble, now: Millis, effects: &mut Vec<Effect>) {
        let random = self.random();
        self.spare(task, &trouble, now);
        let (id, look_max) = (&task.id, self.bounds.look_max);
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        if let TaskStep::Window(..) = task.step {
            entry.look_at = now.saturating_add(WINDOW_WAIT.min(look_max));
            return;
        }
        let Some(order) = &mut entry.order else {
            return;
        };
        if task.step == TaskStep::Clean {
            self.fail_cleaning(id, random, now, effects);
            return;
        }
        let issuer = self.issuers.get(&order.issuer);
        let count = issuer.map_or(1, |it| it.directories.len());
        let authority = self.authorities.get(&order.directory);
        let is_lasting = authority.is_some_and(|it| it.troubles >= TROUBLES_MAX);
        let notice = trouble.notice(&order.directory);
        let is_missed = entry.is_found && order.may_be_missed();
        // What could not be kept is kept before the next step.
        entry.is_changed |= task.keep && matches!(trouble, StepTrouble::Local(_));
        match trouble {
            // Proxies come back one after the other once whoever told them is another.
            StepTrouble::Unproven(..) if entry.is_found && task.step == TaskStep::Answer => {
                order.put_off(0, random, now);
            }
            // One that replaces another stays so: as a new one it may have to wait for days.
            StepTrouble::Unproven(..)
            | StepTrouble::Lost(_)
            | StepTrouble::NoAccount(_)
            | StepTrouble::Unreplaced(_) => {
                let wait = PROOF_WAITS.after(order.failures, Duration::ZERO, random);
                order.fail(wait, now);
            }
            StepTrouble::Refused(_) if is_missed => order.miss(random, now),
            StepTrouble::Refused(_) => order.refuse(0, count, random, now),
            StepTrouble::Limited(_, again) => order.refuse(again, count, random, now),
            // Unlike for other steps, no authority is left alone for it.
            StepTrouble::Unreachable(_, again)
                if matches!(task.step, TaskStep::Prove | TaskStep::Answer) =>
            {
                order.put_off(again, random, now);
            }
            StepTrouble::Unheeded(_) => order.replaces = None,
            StepTrouble::Unreachable(..) => {
                if order.is_movable() && (task.step == TaskStep::Place || is_lasting && count > 1) {
                    order.stage = OrderStage::Placing;
                }
            }
            StepTrouble::Local(_) => order.not_before = now.saturating_add(millis(LOCAL_WAIT)),
        }
        // Its waits outlive a restart, and no answer stays behind.
        let is_over = matches!(order.stage, OrderStage::Proving);
        if is_over && (entry.is_kept || task.step == TaskStep::Place) {
            entry.is_kept = true;
            entry.is_changed = false;
            effects.push(Effect::Keep(order.clone()));
        }
        let is_placed_again = matches!(order.stage, OrderStage::Placing);
        entry.is_told = true;
        effects.push(Effect::Tell(id.clone(), Some(notice)));
        if is_placed_again {
            self.choose(id, now);
        }
    }

    /// Gives back the budget of a placing of which no authority has heard.
    fn spare(&mut self, task: &Task, trouble: &StepTrouble, now: Millis) {
        // Neither was the authority asked where somebody else's Secret stands in the way.
        let is_unheard = matches!(
            trouble,
            StepTrouble::Unreachable(..)
                | StepTrouble::Unreplaced(_)
                | StepTrouble::Lost(_)
                | StepTrouble::NoAccount(_)
                | StepTrouble::Local(_)
                | StepTrouble::Unproven(..)
        );
        if let (true, TaskStep::Place, Some(order)) = (is_unheard, &task.step, &task.order) {
            self.give_back_placing(order, now);
        }
    }

    /// Lets records stand that could not be removed, until they are tried again.
    fn fail_cleaning(
        &mut self,
        id: &Arc<str>,
        random: u32,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        let wait = PROOF_WAITS.after(entry.sweeps, Duration::ZERO, random);
        entry.sweeps += 1;
        entry.sweep_at = now.saturating_add(millis(wait));
        if entry.sweeps == SWEEPS_MAX {
            self.let_go(id, effects);
        }
    }
}

impl Order {
    /// Goes on with a good outcome. Whether what is kept of it is another than before.
    fn advance(&mut self, outcome: StepOutcome, now: Millis) -> bool {
        let stage = std::mem::replace(&mut self.stage, OrderStage::Proving);
        let (stage, is_changed) = match (stage, outcome) {
            (OrderStage::Proving, StepOutcome::Proven(records)) => {
                self.records = records;
                (OrderStage::Placing, false)
            }
            (OrderStage::Placing, StepOutcome::Placed(url, challenges)) => {
                self.records = answered(&self.records, &challenges);
                let placed = PlacedOrder { url, challenges };
                match placed.challenges.is_empty() {
                    true => (OrderStage::Validating(placed), true),
                    false => (OrderStage::Answering(placed), true),
                }
            }
            (OrderStage::Answering(placed), StepOutcome::Answered) => {
                (OrderStage::Accepting(placed), false)
            }
            (OrderStage::Accepting(placed), StepOutcome::Accepted) => {
                (OrderStage::Validating(placed), false)
            }
            (OrderStage::Validating(placed), StepOutcome::Ready(key)) => {
                (OrderStage::Finalising(placed.url, key), true)
            }
            (OrderStage::Finalising(url, key), StepOutcome::Finalised) => {
                (OrderStage::Fetching(url, key), false)
            }
            (stage, StepOutcome::Pending(again)) => {
                self.not_before = now.saturating_add(again.clamp(LOOK_MIN, LOOK_MAX));
                // One that takes for ever is begun anew; the authority forgets it as well.
                match now.saturating_sub(self.placed_at) > ORDER_LIFE {
                    true => (OrderStage::Proving, true),
                    false => (stage, false),
                }
            }
            // Anything that does not fit leaves it where it is.
            (stage, _) => (stage, false),
        };
        self.stage = stage;
        is_changed
    }

    /// Is over, but for its records.
    pub(super) fn leave(&mut self) {
        self.stage = OrderStage::Leaving;
        self.replaces = None;
        (self.failures, self.refusals, self.tried) = (0, 0, 0);
    }

    /// Begins anew after a wait, since nobody answered as was to be.
    fn fail(&mut self, wait: Duration, now: Millis) {
        self.failures = self.failures.saturating_add(1);
        self.begin_anew(wait, now);
    }

    /// Begins anew soon, since it was refused while nobody may have answered.
    fn miss(&mut self, random: u32, now: Millis) {
        self.refusals = self.refusals.saturating_add(1);
        self.begin_anew(PROOF_WAITS.after(0, Duration::ZERO, random), now);
    }

    /// Begins anew after a wait.
    fn begin_anew(&mut self, wait: Duration, now: Millis) {
        self.not_before = now.saturating_add(millis(wait));
        self.stage = OrderStage::Proving;
    }

    /// Begins anew at the next of so many authorities, and after a wait once all have refused.
    fn refuse(&mut self, again: Millis, count: usize, random: u32, now: Millis) {
        self.replaces = None;
        self.tried = self.tried.saturating_add(1);
        let before = self.refusals;
        self.refusals = before.saturating_add(1);
        if usize::try_from(self.tried).is_ok_and(|tried| tried < count) {
            return self.begin_anew(Duration::ZERO, now);
        }
        self.tried = 0;
        let again = Duration::from_millis(again.clamp(0, AGAIN_MAX).unsigned_abs());
        self.begin_anew(REFUSAL_WAITS.after(before, again, random), now);
    }

    /// Waits since something cannot be reached that is asked before the authority is. One that is
    /// placed stays so, but not for ever.
    fn put_off(&mut self, again: Millis, random: u32, now: Millis) {
        let again = Duration::from_millis(again.clamp(0, AGAIN_MAX).unsigned_abs());
        let wait = PROOF_WAITS.after(self.failures, again, random);
        let is_young = now.saturating_sub(self.placed_at) <= ORDER_LIFE;
        match self.is_answering() && is_young {
            true => self.not_before = now.saturating_add(millis(wait.max(LOCAL_WAIT))),
            false => self.fail(wait, now),
        }
    }

    /// Whether a refusal may say no more than that nobody answered for a moment.
    fn may_be_missed(&self) -> bool {
        self.stage.placed().is_some() && self.refusals < MISSED_MAX
    }

    /// Whether nothing is lost where another authority has it.
    fn is_movable(&self) -> bool {
        !matches!(
            self.stage,
            OrderStage::Finalising(..) | OrderStage::Fetching(..)
        )
    }
}

/// The records that answer challenges, where those of their names are found to be.
fn answered(found: &[DnsRecord], challenges: &[Challenge]) -> Vec<DnsRecord> {
    let in_dns = challenges
        .iter()
        .filter(|challenge| challenge.kind() == Some(ChallengeKind::Dns));
    let records = in_dns.filter_map(|challenge| {
        let name = DnsRecord::base(&challenge.name);
        let record = found.iter().find(|record| *record.name == *name)?;
        Some(DnsRecord {
            value: Some(challenge.answer.clone()),
            ..record.clone()
        })
    });
    records.collect()
}

impl StepTrouble {
    /// How long the authority wants to be left alone, where it is left alone for it at all.
    fn of_authority(&self, step: &TaskStep) -> Option<Millis> {
        match self {
            StepTrouble::Unreachable(_, again) => Some(*again),
            StepTrouble::Unreplaced(_) => Some(0),
            // Its directory leads elsewhere by now, or its account is to be made anew: for all.
            StepTrouble::Lost(_) | StepTrouble::NoAccount(_) if *step == TaskStep::Place => Some(0),
            _ => None,
        }
    }

    fn notice(&self, directory: &str) -> TroubleNotice {
        let (message, remedy) = match self {
            StepTrouble::Unproven(words, remedy) => {
                return TroubleNotice {
                    message: words.clone(),
                    remedy: remedy.clone(),
                };
            }
            StepTrouble::Refused(words) => (
                format!("is refused by {directory}: {words}"),
                "mend what the authority names; it is tried again after a while",
            ),
            StepTrouble::Limited(words, _) => (
                format!("is not ordered now, since {directory} has had too many orders: {words}"),
                "wait, or name a second directory in --acme-directory",
            ),
            StepTrouble::Unreachable(words, _) => (
                format!("waits, since {directory} does not answer as it should: {words}"),
                "see whether the directory can be reached from here, and that --acme-ca has its \
                 root where that is not public",
            ),
            StepTrouble::Unreplaced(words) => (
                format!(
                    "waits, since {directory} fails by what it replaces, and it may be no new one \
                     now: a domain has had as many as it may have in a week: {words}"
                ),
                "wait, or raise --acme-orders-per-domain where the authority allows more",
            ),
            StepTrouble::Unheeded(words) => (
                format!("is ordered as a new one, since {directory} does not replace it: {words}"),
                "nothing is to be done; it is so with each renewal there",
            ),
            StepTrouble::Lost(words) => (
                format!("is ordered anew, since {directory} does not know the order: {words}"),
                "nothing is to be done, unless it happens again",
            ),
            StepTrouble::NoAccount(words) => (
                format!("is ordered anew, since {directory} does not know the account: {words}"),
                "nothing is to be done, unless it happens again; where the account is bound to one \
                 elsewhere, its authority may want another key of that",
            ),
            StepTrouble::Local(words) => (
                format!("waits, since it cannot be kept: {words}"),
                "see whether the state directory can be written",
            ),
        };
        TroubleNotice {
            message,
            remedy: remedy.to_owned(),
        }
    }
}
