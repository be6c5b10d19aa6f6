//! Certificates on demand: for names that nobody wrote, that handshakes ask for, and that an
//! endpoint allows.
//!
//! A name goes from the handshakes that wait for it to the endpoint, and if that allows it to the
//! desk, as a certificate that is wanted. What the endpoint refuses, or does not answer for, is
//! refused to handshakes as well, for a while. It is asked again before a certificate is renewed.

mod asker;
mod book;
mod demands;
mod gathering;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_base::{clock, task};
use myriad_pki::acme::{Millis, StepTrouble, Suffixes};
use myriad_proxy::{Demand, Demanded};
use tokio::sync::{Notify, Semaphore};

use self::book::{ASKING_MAX, AskAnswer, DemandBook, NameVerdict, REFUSED_FOR};
pub use self::demands::Demands;
pub use self::gathering::follow_on_demand;
pub(super) use self::gathering::{Gathering, carry};
use super::http::Client;
use crate::settings::OnDemandSettings;

/// How often is looked for names whose time is over.
const SWEEP_PAUSE: Millis = 60_000;

/// Something that the desk is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DemandNews {
    /// A name is to have a certificate, or that is to be renewed.
    Want(Arc<str>),
    /// A certificate is not renewed any more.
    Idle(Arc<str>),
    /// A certificate is over, or never came.
    Over(Arc<str>),
}

/// Numbers of names on demand, for metrics.
#[derive(Clone, Default)]
pub(super) struct DemandCounters {
    certificates: Gauge,
    asked: Counter,
    allowed: Counter,
    unanswered: Counter,
    limited: Counter,
}

/// Certificates on demand, as far as they are known here. It belongs to one thread.
pub(super) struct OnDemand {
    demand: Demand,
    /// The URL of the endpoint by the settings, and as it is; none where nothing is obtained on
    /// demand.
    of_settings: Option<Arc<str>>,
    ask: RefCell<Option<Arc<str>>>,
    client: Client,
    book: RefCell<DemandBook>,
    /// Answers of the endpoint that are yet to be taken in.
    answers: RefCell<VecDeque<(Arc<str>, AskAnswer)>>,
    /// News that are yet to be told.
    news: RefCell<VecDeque<DemandNews>>,
    wakes: Notify,
    /// The places of questions before renewals.
    renewals: Semaphore,
    sweep_at: Cell<Millis>,
    counters: DemandCounters,
}

impl DemandCounters {
    /// Counts from nothing.
    pub(super) fn new(metrics: &Metrics) -> DemandCounters {
        let counters = DemandCounters::default();
        metrics.register(
            "acme_on_demand_names",
            "Names that have certificates on demand, or for which one is obtained",
            counters.certificates.clone(),
        );
        for (name, help, counter) in [
            (
                "acme_on_demand_asked",
                "Questions whether a name may have a certificate",
                &counters.asked,
            ),
            (
                "acme_on_demand_allowed",
                "Such questions that were answered with yes",
                &counters.allowed,
            ),
            (
                "acme_on_demand_unanswered",
                "Such questions that were not answered in time, or not at all",
                &counters.unanswered,
            ),
            (
                "acme_on_demand_limited",
                "Names that were allowed, and beyond a bound or a budget",
                &counters.limited,
            ),
        ] {
            metrics.register(name, help, counter.clone());
        }
        counters
    }

    /// The same counters, for who asks beside another and has no certificates itself.
    pub(super) fn beside(&self) -> DemandCounters {
        DemandCounters {
            certificates: Gauge::default(),
            ..self.clone()
        }
    }
}

impl OnDemand {
    /// Obtains nothing until it is opened. So many orders may be placed in three hours, and are
    /// counted by domains that are registered below these suffixes.
    pub(super) fn new(
        demand: &Demand,
        settings: &OnDemandSettings,
        counted: (u32, Suffixes),
        (client, counters): (Client, DemandCounters),
    ) -> OnDemand {
        OnDemand {
            demand: demand.clone(),
            of_settings: settings.ask.as_deref().map(Arc::from),
            ask: RefCell::default(),
            client,
            book: RefCell::new(DemandBook::new(settings, counted)),
            answers: RefCell::default(),
            news: RefCell::default(),
            wakes: Notify::new(),
            renewals: Semaphore::new(ASKING_MAX),
            sweep_at: Cell::new(Millis::MIN),
            counters,
        }
    }

    /// Obtains certificates from now on, of names that this URL allows, or that of the settings
    /// without one; none where there is neither.
    pub(super) fn ask_at(&self, url: Option<&str>) {
        let url = url.map(Arc::from).or_else(|| self.of_settings.clone());
        match &url {
            Some(_) => self.demand.open(),
            None => self.demand.close(),
        }
        self.ask.replace(url);
        self.wakes.notify_one();
    }

    /// Takes in a certificate that is kept.
    pub(super) fn restore(&self, name: &str, until: Millis) {
        self.book.borrow_mut().restore(&name.into(), until, now());
    }

    /// Takes in an order that is under way, which goes on.
    pub(super) fn resume(&self, name: &str) {
        self.book.borrow_mut().resume(&name.into(), now());
    }

    /// Waits for something that the desk is to be told. Dropping the future loses nothing. For one
    /// task at a time.
    pub(super) async fn next(self: &Rc<Self>) -> DemandNews {
        loop {
            if let Some(news) = self.take() {
                return news;
            }
            let url = self.ask.borrow().clone();
            let wait = self.book.borrow().next_ask(now());
            let sweep = self.sweep_at.get();
            tokio::select! {
                () = self.wakes.notified() => {}
                demanded = self.demand.next(), if url.is_some() && wait.is_none() => {
                    self.meet(demanded, url);
                }
                () = until(wait.map_or(sweep, |wait| wait.min(sweep))) => self.sweep(),
            }
        }
    }

    /// The next news, once all answers are taken in.
    fn take(&self) -> Option<DemandNews> {
        while let Some((name, answer)) = self.pop_answer() {
            let verdict = self.book.borrow_mut().end_ask(&name, answer, now());
            self.obey(&name, verdict);
        }
        self.news.borrow_mut().pop_front()
    }

    fn pop_answer(&self) -> Option<(Arc<str>, AskAnswer)> {
        self.answers.borrow_mut().pop_front()
    }

    /// Takes in a name that is in demand.
    fn meet(self: &Rc<Self>, demanded: Demanded, url: Option<Arc<str>>) {
        let (name, is_used) = match demanded {
            Demanded::Wanted(name) => (name, false),
            Demanded::Used(name) => (name, true),
        };
        let verdict = self.book.borrow_mut().demand(&name, is_used, now());
        let (NameVerdict::Ask, Some(url)) = (verdict, url) else {
            return self.obey(&name, verdict);
        };
        let this = self.clone();
        task::spawn_local("on demand", async move {
            let answer = this.ask(&url, &name).await;
            this.answers.borrow_mut().push_back((name, answer));
            this.wakes.notify_one();
        });
    }

    fn obey(&self, name: &Arc<str>, verdict: NameVerdict) {
        match verdict {
            NameVerdict::Ask => {}
            NameVerdict::Nothing => {
                // A place is held for as long as there is a question.
                if !self.book.borrow().is_asking(name) {
                    self.demand.release(name);
                }
            }
            NameVerdict::Want => {
                self.demand.allow(name);
                let news = DemandNews::Want(name.clone());
                self.news.borrow_mut().push_back(news);
            }
            NameVerdict::Refuse(time) => {
                let answer = self.book.borrow().answer(name, now());
                if matches!(answer, Some((AskAnswer::Yes, _))) {
                    self.counters.limited.inc();
                }
                self.refuse(name, time);
            }
        }
        self.count();
    }

    async fn ask(&self, url: &str, name: &str) -> AskAnswer {
        self.counters.asked.inc();
        let answer = asker::ask(&self.client, url, name).await;
        match answer {
            AskAnswer::Yes => {
                self.counters.allowed.inc();
            }
            AskAnswer::No => {}
            AskAnswer::Silence => {
                self.counters.unanswered.inc();
            }
        }
        tracing::debug!(name, ?answer, "was asked for on demand");
        answer
    }

    /// Whether a name may have a certificate still, before an order of it is placed.
    ///
    /// # Errors
    /// It may not, or nobody says so.
    pub(super) async fn admit(&self, name: &str) -> Result<(), StepTrouble> {
        let name: Arc<str> = name.into();
        let known = self.book.borrow().answer(&name, now());
        let answer = match known {
            Some((answer, _)) => answer,
            None => {
                let _place = self.renewals.acquire().await;
                let url = self.ask.borrow().clone();
                let answer = match url {
                    Some(url) => self.ask(&url, &name).await,
                    None => AskAnswer::No,
                };
                self.book.borrow_mut().remember(&name, answer, now());
                answer
            }
        };
        let words = match answer {
            AskAnswer::Yes => return Ok(()),
            AskAnswer::No => "does not allow",
            AskAnswer::Silence => "does not answer for",
        };
        Err(StepTrouble::Unproven(
            format!("is not ordered: the endpoint for names on demand {words} {name}"),
            "see what --acme-on-demand-ask answers".to_owned(),
        ))
    }

    /// Lets no handshake wait for a name for a while.
    fn refuse(&self, name: &Arc<str>, time: Millis) {
        let time = Duration::from_millis(time.max(0).unsigned_abs());
        self.demand.refuse(name, time);
    }

    /// Whether a certificate of a name is wanted, or its renewal.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.book.borrow().wants(name)
    }

    /// The certificate of a name was obtained.
    pub(super) fn issue(&self, name: &str, until: Millis) {
        self.book.borrow_mut().issue(name, until);
    }

    /// An authority has heard of the order of a name.
    pub(super) fn place(&self, name: &str) {
        self.book.borrow_mut().place(name);
    }

    /// The order of a name has failed and waits, or does not any more.
    pub(super) fn trouble(&self, name: &str, is_troubled: bool) {
        self.book.borrow_mut().trouble(name, is_troubled);
        if is_troubled {
            self.refuse(&name.into(), REFUSED_FOR);
        }
    }

    /// A name could not be proven before an authority was asked for anything. Whether nothing is
    /// wanted of it any more.
    pub(super) fn give_up(&self, name: &str) -> bool {
        let is_over = self.book.borrow_mut().give_up(name, now());
        self.count();
        is_over
    }

    /// Looks for names whose time is over, where it is time for that.
    fn sweep(&self) {
        let now = now();
        if self.sweep_at.get() > now {
            return;
        }
        self.sweep_at.set(now.saturating_add(SWEEP_PAUSE));
        let swept = self.book.borrow_mut().sweep(now);
        let mut news = self.news.borrow_mut();
        news.extend(swept.idle.into_iter().map(DemandNews::Idle));
        news.extend(swept.over.into_iter().map(DemandNews::Over));
        drop(news);
        self.count();
    }

    fn count(&self) {
        let count = self.book.borrow().len();
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.counters.certificates.set(count);
    }

    /// Nothing is obtained any more.
    pub(super) fn close(&self) {
        self.demand.close();
        self.counters.certificates.set(0);
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.close();
    }
}

/// Waits for a moment.
async fn until(due: Millis) {
    let wait = due.saturating_sub(now()).max(0).unsigned_abs();
    // A clock that jumps is noticed within a minute.
    tokio::time::sleep(Duration::from_millis(wait.min(60_000))).await;
}

/// Milliseconds since the epoch.
fn now() -> Millis {
    Millis::try_from(clock::since_epoch().as_millis()).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests;
