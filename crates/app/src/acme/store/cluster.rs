//! Secrets of a cluster in which everything is kept. Orders and accounts lie in the controllers'
//! own namespace, and certificates beside the objects that ask for them.
//!
//! - Every write rests on the version that was read or written last. Whoever finds that somebody
//!   else has written an order begins anew from what is there.
//! - All replicas follow the Secrets of orders, and their proxies give the answers in them. So the
//!   answers of an order are in service a moment after it is kept.
//! - A Secret without the annotation of an issuer is somebody else's, and is left alone.
//! - The spent part of an authority's budgets is kept in the controllers' own namespace too, before
//!   an order is placed there: where others write, nothing is counted.

mod certificates;
mod kept;
mod on_demand;
mod spent;
#[cfg(test)]
mod tests;
mod turns;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::order::OrderAnswer;
use myriad_base::backoff::{Backoff, Waits, random_seed};
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_model::{ChallengeAnswer, Key, Kind};
use myriad_pki::acme::{HeldCertificate, Order, OrderKey, StepTrouble};
use myriad_source::kubernetes::{CallError, Client, Shelf, Texts};
use tokio::sync::Notify;

pub(in crate::acme) use kept::{KeptOrder, ON_DEMAND_LABEL, ORDER_LABEL, WISH_LABEL};
pub(in crate::acme) use on_demand::{KeptOnDemand, named, today};

use self::kept::{ACCOUNT_KEY, ACCOUNT_LABEL, ACCOUNT_TEXT, ORDER_TEXT, PROOF, SPENT_LABEL};
use self::spent::SpentSlot;
use self::turns::{Turns, WriteTurn};
use crate::acme::issued::{Issued, IssuedNews};
use crate::acme::token::nonce;
use crate::live::{AwaitedResource, Live};

/// How often a Secret is read again that somebody else has just written.
const ATTEMPTS_MAX: u32 = 5;

/// The waits before a Secret is removed that could not be: one that may not be stays so for long.
static REMOVAL_WAITS: Waits = Waits {
    first: seconds(1, 1),
    second: seconds(2, 4),
    max: seconds(300, 600),
};

/// How often is looked meanwhile whether it is to be written instead.
const REMOVAL_PAUSE: Duration = Duration::from_secs(1);

const fn seconds(low: u64, high: u64) -> RangeInclusive<Duration> {
    Duration::from_secs(low)..=Duration::from_secs(high)
}

/// The longest that connected proxies are waited for. One that hangs keeps nobody's certificate
/// from being obtained: the authority will ask another, or say what it misses.
const SERVED_WAIT: Duration = Duration::from_secs(2);

/// How often it is looked whether they serve an answer.
const SERVED_PAUSE: Duration = Duration::from_millis(5);

/// The parts of a controller that its store stands on.
pub(in crate::acme) struct ClusterSite {
    /// The API server.
    pub client: Client,
    /// The controllers' own namespace.
    pub namespace: String,
    /// Whether this process leads, asked before every write.
    pub leads: Box<dyn Fn() -> bool>,
    /// The certificates that the watch sees.
    pub issued: Issued,
    /// The resources that proxies serve.
    pub live: Live,
}

/// The store, for one term of leadership. Cheap to clone.
#[derive(Clone)]
pub(in crate::acme) struct ClusterStore(Rc<Inner>);

struct Inner {
    site: ClusterSite,
    orders: Shelf,
    accounts: Shelf,
    budgets: Shelf,
    on_demand: Shelf,
    turns: Turns,
    /// The Secret of each order, as it was read or written last.
    slots: RefCell<HashMap<Arc<str>, Slot>>,
    /// The Secrets of budgets by their names, as they were read or written last.
    spent: RefCell<HashMap<Arc<str>, SpentSlot>>,
    /// The certificates that the office knows of.
    known: RefCell<HashMap<Arc<str>, Arc<HeldCertificate>>>,
    /// The certificate that was known when each order began.
    begun: RefCell<HashMap<Arc<str>, Option<Arc<HeldCertificate>>>>,
    /// Namespaces by whether Secrets may be written there, and when that was asked.
    rights: RefCell<HashMap<Box<str>, (bool, Instant)>>,
    /// Whether the API server refuses that orders are removed, of which is told once.
    is_refused: Cell<bool>,
    doubt: Notify,
}

/// The Secret of an order.
#[derive(Clone, Default)]
struct Slot {
    /// Its version; none where there is none.
    version: Option<Box<str>>,
    /// The token that its names are asked with.
    nonce: Box<str>,
    /// Hashes of the texts that it may have by this process: the one that was written last, and
    /// the ones that were to be written after that.
    texts: [Option<blake3::Hash>; 3],
    /// The answers that proxies give by it.
    answers: Vec<OrderAnswer>,
}

/// Answers that were kept and are on their way to proxies.
pub(in crate::acme) struct Shown(AwaitedResource);

impl ClusterStore {
    /// A store that knows nothing yet.
    pub(in crate::acme) fn new(site: ClusterSite) -> ClusterStore {
        let shelf = |label| Shelf::new(site.client.clone(), &site.namespace, label);
        let (orders, accounts) = (shelf(ORDER_LABEL), shelf(ACCOUNT_LABEL));
        let (budgets, on_demand) = (shelf(SPENT_LABEL), shelf(ON_DEMAND_LABEL));
        ClusterStore(Rc::new(Inner {
            site,
            orders,
            accounts,
            budgets,
            on_demand: on_demand.of_certificates(),
            turns: Turns::default(),
            slots: RefCell::default(),
            spent: RefCell::default(),
            known: RefCell::default(),
            begun: RefCell::default(),
            rights: RefCell::default(),
            is_refused: Cell::new(false),
            doubt: Notify::new(),
        }))
    }

    /// All orders. One that cannot be read is left where it is, with a word in the log.
    pub(super) async fn orders(&self) -> io::Result<Vec<Order>> {
        let all = self.0.orders.all().await.map_err(failed)?;
        let mut orders = Vec::with_capacity(all.len());
        for shelved in &all {
            match KeptOrder::read(&shelved.texts) {
                Ok(kept) => {
                    let text = shelved.texts.get(ORDER_TEXT);
                    let slot = Slot {
                        version: Some(shelved.version.clone()),
                        nonce: kept.nonce.clone(),
                        texts: [text.map(|text| hash(text)), None, None],
                        answers: kept.answers(),
                    };
                    let id = kept.order.id.clone();
                    self.0.slots.borrow_mut().insert(id, slot);
                    orders.push(kept.order);
                }
                Err(error) => {
                    tracing::error!(secret = %shelved.name, %error, "is not read");
                }
            }
        }
        Ok(orders)
    }

    /// Keeps an order, and what is spent with it.
    pub(super) async fn keep_order(&self, order: &Order) -> io::Result<Option<Shown>> {
        let turn = self.0.turns.take(&order.id);
        let shown = self.keep_in_turn(turn, order).await.map_err(failed)?;
        if let Some(spent) = &order.spent {
            self.keep_spent(spent).await.map_err(failed)?;
        }
        Ok(shown)
    }

    /// Keeps an order, before whatever is written of it later.
    pub(super) fn keep_soon(&self, order: &Order) {
        let turn = self.0.turns.take(&order.id);
        let (store, order) = (self.clone(), order.clone());
        task::spawn_local("acme order", async move {
            if let Err(error) = store.keep_in_turn(turn, &order).await {
                tracing::warn!(secret = %order.id, %error, "its order is not kept");
            }
        });
    }

    /// Forgets the order of a certificate, before whatever is written of it later.
    pub(super) fn drop_soon(&self, id: &Arc<str>) {
        self.0.begun.borrow_mut().remove(id);
        if !self.0.turns.is_taken(id) && !self.0.slots.borrow().contains_key(id) {
            return;
        }
        let turn = self.0.turns.take(id);
        let (store, id) = (self.clone(), id.clone());
        task::spawn_local("acme order", async move {
            store.drop_in_turn(turn, &id).await;
        });
    }

    /// Lets proxies give a token for each name of an order, and returns it once they do. It is kept
    /// with the order, so that one which is proven again and again is written once.
    pub(in crate::acme) async fn show(&self, order: &Order) -> Result<Box<str>, StepTrouble> {
        if let Some(nonce) = self.token(&order.id) {
            return Ok(nonce);
        }
        let shown = self.keep_order(order).await;
        let shown = shown.map_err(|error| StepTrouble::Local(error.to_string()))?;
        if let Some(shown) = shown {
            shown.wait().await;
        }
        let nonce = self.token(&order.id);
        nonce.ok_or_else(|| StepTrouble::Local("its order was not kept".to_owned()))
    }

    /// The token that proxies give for the names of an order; none where they do not.
    pub(in crate::acme) fn token(&self, id: &str) -> Option<Box<str>> {
        let slots = self.0.slots.borrow();
        let slot = slots.get(id).filter(|slot| !slot.answers.is_empty())?;
        Some(slot.nonce.clone())
    }

    /// Waits until certificates have changed although no order of this process did that.
    pub(super) async fn news(&self) -> IssuedNews {
        loop {
            let mut news = self.0.site.issued.next().await;
            let mut known = self.0.known.borrow_mut();
            news.retain(|(id, held)| known.get(id) != held.as_ref());
            for (id, held) in &news {
                match held {
                    Some(held) => drop(known.insert(id.clone(), held.clone())),
                    None => drop(known.remove(id)),
                }
            }
            if !news.is_empty() {
                return news;
            }
        }
    }

    /// Waits until somebody else has written an order.
    pub(super) async fn doubted(&self) {
        self.0.doubt.notified().await;
    }

    /// The account at a directory, where one is kept.
    pub(super) async fn account(&self, name: &str) -> io::Result<Option<String>> {
        let read = self.0.accounts.get(&account_name(name)).await;
        let text = read
            .map_err(failed)?
            .and_then(|mut it| it.texts.remove(ACCOUNT_TEXT));
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// Keeps an account, beside its key.
    pub(super) async fn keep_account(&self, name: &str, text: &str) -> io::Result<()> {
        let name = account_name(name);
        for _ in 0..ATTEMPTS_MAX {
            self.lead()?;
            let read = self.0.accounts.get(&name).await.map_err(failed)?;
            let version = read.map(|it| it.version);
            let texts = Texts::from([(ACCOUNT_TEXT.to_owned(), text.to_owned())]);
            let written = self.0.accounts.put(&name, version.as_deref(), &texts);
            match written.await {
                Ok(_) => return Ok(()),
                Err(CallError::Conflict | CallError::NotFound) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(CallError::Conflict))
    }

    /// Forgets an account, but not its key.
    pub(super) async fn drop_account(&self, name: &str) -> io::Result<()> {
        self.keep_account(name, "").await
    }

    /// The key of an account, which is kept before there is one.
    pub(super) async fn account_key(&self, name: &str) -> io::Result<Option<OrderKey>> {
        let read = self.0.accounts.get(&account_name(name)).await;
        let read = read.map_err(failed)?;
        let text = read.as_ref().and_then(|it| it.texts.get(ACCOUNT_KEY));
        let key = text.map(|text| STANDARD.decode(text));
        let key = key.transpose().map_err(io::Error::other)?;
        Ok(key.map(OrderKey::new))
    }

    /// Keeps the key of an account. Where another leader has kept one meanwhile, that one holds,
    /// and this is an error.
    pub(super) async fn keep_account_key(&self, name: &str, key: &OrderKey) -> io::Result<()> {
        self.lead()?;
        let text = STANDARD.encode(key.expose());
        let texts = Texts::from([(ACCOUNT_KEY.to_owned(), text)]);
        let written = self.0.accounts.put(&account_name(name), None, &texts).await;
        written.map(drop).map_err(failed)
    }

    /// Forgets accounts with their keys, but those of these names.
    pub(super) async fn retain_accounts(&self, names: &BTreeSet<String>) -> io::Result<()> {
        let kept: BTreeSet<String> = names.iter().map(|name| account_name(name)).collect();
        let all = self.0.accounts.all().await.map_err(failed)?;
        for account in all.iter().filter(|it| !kept.contains(&*it.name)) {
            self.lead()?;
            let accounts = &self.0.accounts;
            match accounts.remove(&account.name, &account.version).await {
                // Somebody has just written it, so it is in use.
                Ok(()) | Err(CallError::Conflict) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// The right to write, and to ask an authority for anything.
    ///
    /// # Errors
    /// Another process leads.
    pub(in crate::acme) fn lead(&self) -> io::Result<()> {
        match (self.0.site.leads)() {
            true => Ok(()),
            false => Err(io::Error::other("another controller leads")),
        }
    }

    async fn keep_in_turn(
        &self,
        mut turn: WriteTurn,
        order: &Order,
    ) -> Result<Option<Shown>, CallError> {
        turn.come().await;
        let id = &order.id;
        let slot = self.0.slots.borrow().get(id).cloned().unwrap_or_default();
        let nonce = match slot.nonce.is_empty() {
            true => nonce().map_err(|_| lost("the system gives no random numbers"))?,
            false => slot.nonce.clone(),
        };
        let kept = KeptOrder {
            order: order.clone(),
            nonce,
        };
        let (texts, answers) = (kept.texts(), kept.answers());
        let own = hash(&order.expose_text());
        // It is awaited before it is written, so that it cannot come unseen.
        let first = answers.first().filter(|_| answers != slot.answers);
        let shown = first.map(|answer| Shown(self.0.site.live.await_next(key_of(id, answer))));
        let [was_written, _, was_tried] = slot.texts;
        let mut next = Slot {
            nonce: kept.nonce,
            texts: [was_written, was_tried, Some(own)],
            ..slot
        };
        self.set(id, next.clone());
        let version = self
            .write(&name_of(id), next.version.clone(), &texts, &next)
            .await?;
        next.version = Some(version);
        next.texts = [Some(own), None, None];
        next.answers = answers;
        self.set(id, next);
        Ok(shown)
    }

    fn set(&self, id: &Arc<str>, slot: Slot) {
        self.0.slots.borrow_mut().insert(id.clone(), slot);
    }

    /// Writes the Secret of an order, unless somebody else has.
    async fn write(
        &self,
        name: &str,
        mut version: Option<Box<str>>,
        texts: &Texts,
        slot: &Slot,
    ) -> Result<Box<str>, CallError> {
        for _ in 0..ATTEMPTS_MAX {
            self.lead().map_err(|error| lost(&error.to_string()))?;
            match self.0.orders.put(name, version.as_deref(), texts).await {
                // Somebody has deleted it; what is known here is written anew.
                Err(CallError::NotFound) => version = None,
                Err(CallError::Conflict) => version = self.reread(name, slot).await?,
                written => return written,
            }
        }
        Err(CallError::Conflict)
    }

    async fn drop_in_turn(&self, mut turn: WriteTurn, id: &Arc<str>) {
        turn.come().await;
        let name = name_of(id);
        let slot = self.0.slots.borrow().get(id).cloned().unwrap_or_default();
        let mut version = slot.version.clone();
        let mut backoff = Backoff::new(&REMOVAL_WAITS, random_seed());
        while let Some(known) = &version {
            if self.lead().is_err() {
                return;
            }
            let removed = match self.0.orders.remove(&name, known).await {
                Ok(()) => {
                    self.0.is_refused.set(false);
                    break;
                }
                Err(CallError::Conflict) => self.reread(&name, &slot).await,
                Err(error) => Err(error),
            };
            match removed {
                Ok(newer) => version = newer,
                // Whoever begins anew sees to it.
                Err(CallError::Conflict) => return,
                Err(error) => {
                    self.tell_removal(id, &error);
                    let wait = backoff.fail_for(error.retry_after());
                    if !pause(&turn, wait).await {
                        return;
                    }
                }
            }
        }
        self.0.slots.borrow_mut().remove(id);
    }

    /// Tells that an order is not removed: once where that is for long, whosever orders they are.
    fn tell_removal(&self, id: &str, error: &CallError) {
        let is_lasting = matches!(error, CallError::Forbidden(_) | CallError::Rejected(_));
        if is_lasting && !self.0.is_refused.replace(true) {
            tracing::warn!(
                secret = id,
                %error,
                "Secrets of orders that are over stay: let the controllers delete Secrets in \
                 their own namespace"
            );
        } else {
            tracing::debug!(secret = id, %error, "its order is not forgotten yet");
        }
    }

    /// The version of the Secret of an order, where it has a text that this process has written:
    /// its answer may have been lost, or somebody has changed a label. None where it is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] where somebody else has written it.
    async fn reread(&self, name: &str, slot: &Slot) -> Result<Option<Box<str>>, CallError> {
        let Some(there) = self.0.orders.get(name).await? else {
            return Ok(None);
        };
        let text = there.texts.get(ORDER_TEXT).map(|text| hash(text));
        let nonce = there.texts.get(PROOF).map(String::as_str);
        if text.is_some() && slot.texts.contains(&text) && nonce == Some(&*slot.nonce) {
            return Ok(Some(there.version));
        }
        tracing::warn!(
            secret = name,
            "somebody else has written an order: all are read anew"
        );
        self.0.doubt.notify_one();
        Err(CallError::Conflict)
    }
}

impl Shown {
    /// Waits until the proxies that are connected here give the answers, within a bound. Those of
    /// other replicas have them at about the same time.
    pub(in crate::acme) async fn wait(self) {
        let until = clock::now() + SERVED_WAIT;
        while !self.0.is_served() && clock::now() < until {
            tokio::time::sleep(SERVED_PAUSE).await;
        }
    }
}

/// Waits before an order is removed again. Whether it is to be: where another is to be written in
/// its place, that one needs no removal.
async fn pause(turn: &WriteTurn, wait: Duration) -> bool {
    let until = clock::now() + wait;
    loop {
        if turn.is_followed() {
            return false;
        }
        let left = until.saturating_duration_since(clock::now());
        if left.is_zero() {
            return true;
        }
        tokio::time::sleep(left.min(REMOVAL_PAUSE)).await;
    }
}

/// The name of the Secret of an order: a hash, since its certificate's namespace and name together
/// may be longer than a name.
fn name_of(id: &str) -> String {
    let hash = blake3::hash(id.as_bytes()).to_hex();
    format!("myriad-order-{}", hash.get(..32).unwrap_or_default())
}

fn account_name(name: &str) -> String {
    format!("myriad-account-{name}")
}

/// The resource of an answer.
fn key_of(id: &str, answer: &OrderAnswer) -> Key {
    let question = match answer.by_tls {
        true => ChallengeAnswer::tls_question(&answer.host),
        false => ChallengeAnswer::http_question(&answer.host, &answer.token),
    };
    Key::new(Kind::ChallengeAnswer, &*format!("{id}/{question}"))
}

fn hash(text: &str) -> blake3::Hash {
    blake3::hash(text.as_bytes())
}

fn lost(text: &str) -> CallError {
    CallError::Lost(text.to_owned())
}

fn failed(error: CallError) -> io::Error {
    io::Error::other(error)
}
