//! Where a certificate waits, and who is next.

use std::sync::Arc;

use super::{
    Belongs, CertificateWish, Desk, Effect, Entry, LineName, Task, TaskStep, TroubleNotice,
    VISITS_MAX, Wait, share_of,
};
use crate::acme::directory::AuthorityState;
use crate::acme::turns::namespace_of;
use crate::acme::{AcmeIssuer, HeldCertificate, Millis, Order, OrderStage, SpentBudget, renewal};

impl Desk {
    /// Lets a certificate wait where it belongs now.
    pub(super) fn settle(&mut self, id: &Arc<str>, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.visits += 1;
        let entry = self.certificates.get(id);
        if entry.is_some_and(|entry| !matches!(entry.state, Wait::Running(_))) {
            self.drop_stale(id, &mut effects);
            self.begin(id, now);
            self.release(id, now);
            self.put_in_line(id, now);
        }
        self.count(id);
        effects
    }

    /// Puts a certificate into the line that it belongs into, or lets it wait for a moment. If it
    /// waits for the same as before it keeps its place, and it leaves nothing behind in another.
    fn put_in_line(&mut self, id: &Arc<str>, now: Millis) {
        let Some(entry) = self.certificates.get(id) else {
            return;
        };
        let (line, timer) = match self.belongs(entry, id, now) {
            Belongs::Nowhere => (None, None),
            Belongs::Timer(moment) => (None, Some(moment)),
            Belongs::Line(line) => (Some(line), None),
        };
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut entry.timer, timer) {
            self.timers.remove(&(before, id.clone()));
        }
        self.timers.extend(timer.map(|moment| (moment, id.clone())));
        let is_there = match &entry.state {
            Wait::Queued(_, before) => line.as_ref() == Some(before),
            _ => false,
        };
        if is_there {
            return;
        }
        self.leave_line(id, now);
        if let Some(line) = line {
            self.join_line(id, line, now);
        }
    }

    fn join_line(&mut self, id: &Arc<str>, line: LineName, now: Millis) {
        self.tickets += 1;
        let (waiting, has_failed) = ((id.clone(), self.tickets), line.has_failed);
        match &line.authority {
            None => self.proofs.push(waiting, has_failed),
            Some(url) => self
                .authorities
                .change(url, now, |it| match line.is_placing {
                    true => it.placing.push(waiting, has_failed, 0),
                    false => it.steps.push(waiting, has_failed),
                }),
        }
        if let Some(entry) = self.certificates.get_mut(id) {
            entry.state = Wait::Queued(self.tickets, line);
        }
    }

    fn leave_line(&mut self, id: &Arc<str>, now: Millis) {
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        let Wait::Queued(ticket, line) = std::mem::take(&mut entry.state) else {
            return;
        };
        let has_failed = line.has_failed;
        match &line.authority {
            None => self.proofs.remove(id, ticket, has_failed),
            Some(url) => self
                .authorities
                .change(url, now, |it| match line.is_placing {
                    true => it.placing.remove(id, ticket, has_failed),
                    false => it.steps.remove(id, ticket, has_failed),
                }),
        }
    }

    /// Drops an order that nobody wants as it is.
    fn drop_stale(&mut self, id: &Arc<str>, effects: &mut Vec<Effect>) {
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        let wish = entry.wish.as_ref();
        let is_wanted = |order: &Order| {
            let is_same =
                |wish: &CertificateWish| wish.names == order.names && wish.issuer == order.issuer;
            order.stage == OrderStage::Leaving || wish.is_some_and(is_same)
        };
        if entry.order.as_deref().is_none_or(is_wanted) {
            return;
        }
        entry.end_order(id, effects);
        if std::mem::take(&mut entry.is_told) {
            effects.push(Effect::Tell(id.clone(), None));
        }
    }

    /// Takes an order that is not open any more out of the count of its authority.
    fn release(&mut self, id: &str, now: Millis) {
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        let order = entry.order.as_ref();
        if order.is_some_and(|order| order.stage.is_open()) {
            return;
        }
        if let Some(url) = entry.counted.take() {
            let release = |it: &mut AuthorityState| it.open.remove(id);
            self.authorities.change(&url, now, release);
        }
    }

    /// Begins an order where one is needed.
    fn begin(&mut self, id: &Arc<str>, now: Millis) {
        let Some(entry) = self.certificates.get_mut(id) else {
            return;
        };
        let Some(wish) = entry.wish.as_ref().filter(|_| entry.order.is_none()) else {
            return;
        };
        let issuer = self.issuers.get(&wish.issuer);
        let Some(first) = issuer.and_then(|issuer| issuer.directories.first()) else {
            return;
        };
        let fitting = entry.held.as_ref().filter(|held| held.names == wish.names);
        let renew_at =
            |held: &HeldCertificate| renewal::moment(held, entry.window.as_ref(), share_of(id));
        if fitting.is_some_and(|held| renew_at(held) > now) {
            return;
        }
        // An authority that names a window takes a renewal for one.
        let replaced = fitting.filter(|_| entry.window.is_some());
        entry.order = Some(Box::new(Order {
            id: id.clone(),
            names: wish.names.clone(),
            issuer: wish.issuer.clone(),
            directory: first.url.clone(),
            stage: OrderStage::Proving,
            replaces: replaced.and_then(|held| held.ari.clone()),
            failures: 0,
            refusals: 0,
            tried: 0,
            not_before: Millis::MIN,
            placed_at: 0,
            records: Vec::new(),
            spent: None,
        }));
        entry.is_changed = false;
        entry.is_kept = false;
    }

    fn belongs(&self, entry: &Entry, id: &str, now: Millis) -> Belongs {
        // Whatever becomes of the wish, nothing stays behind.
        if entry.order.as_deref().is_some_and(Order::is_to_clean) {
            return match entry.sweep_at > now {
                true => Belongs::Timer(entry.sweep_at),
                false => Belongs::Line(LineName::of_names(entry)),
            };
        }
        let issuer = entry.wish.as_ref().map(|wish| &wish.issuer);
        let Some(issuer) = issuer.and_then(|name| self.issuers.get(name)) else {
            return Belongs::Nowhere;
        };
        if let Some(order) = &entry.order {
            if order.not_before > now {
                return Belongs::Timer(order.not_before);
            }
            return match &order.stage {
                // The names are asked, and no authority.
                OrderStage::Proving | OrderStage::Answering(_) => {
                    Belongs::Line(LineName::of_names(entry))
                }
                stage => {
                    let is_placing = *stage == OrderStage::Placing;
                    Belongs::Line(LineName::at(&order.directory, is_placing, entry))
                }
            };
        }
        let Some(held) = &entry.held else {
            return Belongs::Nowhere;
        };
        let renew_at = renewal::moment(held, entry.window.as_ref(), share_of(id));
        match window_directory(held, issuer) {
            None => Belongs::Timer(renew_at),
            Some(url) if entry.look_at <= now => Belongs::Line(LineName::at(&url, false, entry)),
            Some(_) => Belongs::Timer(renew_at.min(entry.look_at)),
        }
    }

    /// The next step that there is a place for, among as many that wait as one turn may look at:
    /// some cannot have theirs yet.
    pub(super) fn pop(&mut self, now: Millis, effects: &mut Vec<Effect>) -> Option<Task> {
        for _ in 0..VISITS_MAX {
            let Some((id, ticket)) = self.proofs.pop() else {
                break;
            };
            if let Some(has_failed) = self.has_turn(&id, ticket) {
                self.proofs.take(&id, has_failed);
                let order = self.certificates.get(&id);
                let step = match order.and_then(|it| it.order.as_deref()) {
                    Some(order) if order.is_to_clean() => TaskStep::Clean,
                    Some(order) if order.is_answering() => TaskStep::Answer,
                    _ => TaskStep::Prove,
                };
                return self.task(&id, step);
            }
        }
        let open_max = self.bounds.open_max;
        for _ in 0..VISITS_MAX {
            let url = self.authorities.ready(now)?;
            let pop = |it: &mut AuthorityState| it.pop(open_max, now);
            let ((id, ticket), is_placing) = self.authorities.change(&url, now, pop)?;
            let Some(has_failed) = self.has_turn(&id, ticket) else {
                continue;
            };
            if is_placing && self.place(&id, now, effects) {
                self.authorities.change(&url, now, |it| {
                    it.steps.take(&id, has_failed);
                    it.open.add(&id);
                });
                if let Some(entry) = self.certificates.get_mut(&id) {
                    entry.counted = Some(url);
                }
                let task = self.task(&id, TaskStep::Place);
                return task.map(|task| self.permit(task, now));
            }
            if !is_placing && let Some(task) = self.step(&id, &url) {
                let take = |it: &mut AuthorityState| it.steps.take(&id, has_failed);
                self.authorities.change(&url, now, take);
                return Some(task);
            }
        }
        None
    }

    /// Whether a certificate goes on that came out of its line with this number, and whether it
    /// failed before.
    fn has_turn(&mut self, id: &str, ticket: u64) -> Option<bool> {
        let entry = self.certificates.get_mut(id)?;
        if !matches!(entry.state, Wait::Queued(own, _) if own == ticket) {
            return None;
        }
        entry.state = Wait::Idle;
        let entry = self.certificates.get(id)?;
        // One whose issuer has just gone is looked at soon, like all of that issuer.
        self.can_go_on(entry).then(|| has_failed(entry))
    }

    /// Whether there is an issuer to go on by, or nothing to do but to remove records.
    fn can_go_on(&self, entry: &Entry) -> bool {
        let is_to_clean = entry.order.as_deref().is_some_and(Order::is_to_clean);
        let wish = entry.wish.as_ref();
        is_to_clean || wish.is_some_and(|wish| self.issuers.contains_key(&wish.issuer))
    }

    /// Notes that an order is placed, unless a registered domain has had its share, or it is the
    /// turn of another namespace there.
    fn place(&mut self, id: &Arc<str>, now: Millis, effects: &mut Vec<Effect>) -> bool {
        let order = self.certificates.get(id).and_then(|it| it.order.as_deref());
        let Some(order) = order else {
            return false;
        };
        let (names, url) = (order.names.clone(), order.directory.clone());
        let is_counted = order.replaces.is_none();
        // What is kept of a tenant's own authorities is no more than a tenant could ask for.
        let issuer = self.issuers.get(&order.issuer);
        let is_kept = issuer.is_some_and(|issuer| !issuer.is_tenants);
        let namespace = namespace_of(id);
        let spent = self.authorities.change(&url, now, |it| {
            let wait = is_counted.then(|| it.domains.wait(&names, namespace, now));
            match wait.flatten() {
                Some(wait) => Err(wait),
                None => Ok(it.spend((&names[..], is_counted), namespace, now)),
            }
        });
        let Some(entry) = self.certificates.get_mut(id) else {
            return false;
        };
        let Some(order) = &mut entry.order else {
            return false;
        };
        let spent = match spent {
            Ok(spent) => spent,
            Err((free_at, domain)) => {
                order.not_before = free_at;
                entry.state = Wait::Idle;
                entry.is_told = true;
                effects.push(Effect::Tell(id.clone(), Some(out_of_budget(&domain))));
                effects.extend(self.settle(id, now));
                return false;
            }
        };
        order.placed_at = now;
        order.spent = is_kept.then(|| {
            Arc::new(SpentBudget {
                directory: url,
                ..spent
            })
        });
        entry.is_changed = true;
        entry.is_found = false;
        true
    }

    /// The step that a placed order, or a certificate, is at, where it is one for this authority.
    fn step(&mut self, id: &Arc<str>, url: &str) -> Option<Task> {
        let entry = self.certificates.get(id)?;
        let step = match (&entry.order, &entry.held) {
            (Some(order), _) => match &order.stage {
                OrderStage::Leaving => TaskStep::Clean,
                OrderStage::Proving => TaskStep::Prove,
                OrderStage::Placing => TaskStep::Place,
                OrderStage::Answering(_) => TaskStep::Answer,
                OrderStage::Accepting(_) => TaskStep::Accept,
                OrderStage::Validating(_) => TaskStep::Look,
                OrderStage::Finalising(..) => TaskStep::Finalise,
                OrderStage::Fetching(..) => TaskStep::Fetch,
            },
            (None, Some(held)) => {
                let issuer = entry.wish.as_ref().map(|wish| &wish.issuer);
                let issuer = issuer.and_then(|name| self.issuers.get(name))?;
                // One whose issuer has just changed is looked at soon, like all of that issuer.
                let directory = window_directory(held, issuer).filter(|it| **it == *url)?;
                TaskStep::Window(directory, held.ari.clone()?)
            }
            (None, None) => return None,
        };
        self.task(id, step)
    }

    fn task(&mut self, id: &Arc<str>, step: TaskStep) -> Option<Task> {
        self.tickets += 1;
        let ticket = self.tickets;
        let entry = self.certificates.get_mut(id)?;
        let has_failed = has_failed(entry);
        entry.state = Wait::Running(ticket);
        let is_seen = !matches!(
            step,
            TaskStep::Prove | TaskStep::Clean | TaskStep::Window(..)
        );
        let keep = is_seen && std::mem::take(&mut entry.is_changed);
        entry.is_kept |= keep;
        let order = entry.order.clone();
        // It goes with one step.
        if let Some(order) = &mut entry.order {
            order.spent = None;
        }
        Some(Task {
            id: id.clone(),
            ticket,
            step,
            order,
            keep,
            is_renewal: entry.held.is_some(),
            may_be_new: false,
            has_failed,
        })
    }

    /// The placing of an order, with whether it may be one of a new certificate. Of those that are
    /// under way together each may, so that a domain has as many more as there are places at most.
    fn permit(&self, task: Task, now: Millis) -> Task {
        let may_be_new = task.order.as_deref().is_some_and(|order| {
            let authority = self.authorities.get(&order.directory);
            let namespace = namespace_of(&task.id);
            authority.is_some_and(|it| it.domains.admits(&order.names, namespace, now))
        });
        Task { may_be_new, ..task }
    }
}

impl LineName {
    /// The line of certificates whose names are asked, for one of them.
    fn of_names(entry: &Entry) -> LineName {
        LineName {
            authority: None,
            is_placing: false,
            has_failed: has_failed(entry),
        }
    }

    /// That of those that wait for an authority, to be placed or for another step.
    fn at(directory: &str, is_placing: bool, entry: &Entry) -> LineName {
        LineName {
            authority: Some(directory.into()),
            is_placing,
            has_failed: has_failed(entry),
        }
    }
}

impl Entry {
    /// Ends the order. One with records of DNS stays until they are removed.
    pub(super) fn end_order(&mut self, id: &Arc<str>, effects: &mut Vec<Effect>) {
        self.is_changed = false;
        self.is_kept = self.order.as_deref().is_some_and(Order::is_set);
        match &mut self.order {
            Some(order) if self.is_kept => {
                order.leave();
                effects.push(Effect::Keep(order.clone()));
            }
            _ => {
                self.order = None;
                effects.push(Effect::Drop(id.clone()));
            }
        }
    }
}

/// Whether the last tries of a certificate failed. Looks at windows give way like those.
fn has_failed(entry: &Entry) -> bool {
    entry.order.as_ref().is_none_or(|order| order.has_failed())
}

/// The directory that is asked when a certificate is to be renewed, where it can be.
fn window_directory(held: &HeldCertificate, issuer: &AcmeIssuer) -> Option<Box<str>> {
    held.ari.as_ref()?;
    let mut directories = issuer.directories.iter();
    match &held.directory {
        Some(url) => directories.any(|it| it.url == *url).then(|| url.clone()),
        None => directories.next().map(|it| it.url.clone()),
    }
}

fn out_of_budget(domain: &str) -> TroubleNotice {
    TroubleNotice {
        message: format!(
            "is not ordered yet: {domain} has had as many certificates as it may have in a week, \
             or others wait for it too"
        ),
        remedy: "wait, use fewer certificates of more names, or raise --acme-orders-per-domain \
                 where the authority allows more"
            .to_owned(),
    }
}
