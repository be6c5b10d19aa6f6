//! Steps of orders, carried out: by an authority, by the names themselves, and in the pipe that
//! brings answers into service.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use myriad_api::order::{Order as OrderObject, OrderAnswer};
use myriad_api::{Batch, Change, Meta, Object, ObjectKey, ObjectKind};
use myriad_base::{clock, task};
use myriad_model::on_demand_host;
use myriad_pki::acme::clerk::{self, Account};
use myriad_pki::acme::{
    AcmeIssuer, ChallengeKind, Directory, Millis, Order, OrderStage, PlacedOrder, StepOutcome,
    StepTrouble, Task, TaskStep, check_chain,
};
use tokio::sync::mpsc;

use super::accounts::{Accounts, OpenAccount, account_name};
use super::checked::is_url;
use super::dns::{Records, names_at_gateway, names_by};
use super::http::Client;
use super::lanes::{Lanes, issuer_of, without_issuer};
use super::on_demand::OnDemand;
use super::patience::{GivenUp, STEP_TIMEOUT, in_time, patience_of};
use super::proof::Proof;
use super::store::{AcmeStore, Shown};
use super::token::{answers, nonce, placed_nonce, text_of, token};
use crate::control::Event;
use crate::settings::ISSUER;

/// The means of all steps.
pub(super) struct Steps {
    /// The issuers, by name.
    pub issuers: RefCell<BTreeMap<Box<str>, Rc<AcmeIssuer>>>,
    pub client: Client,
    /// The clients of directories whose issuers have one of their own, by URL.
    pub clients: RefCell<HashMap<Box<str>, Client>>,
    /// The places of steps at the authorities of namespaces.
    pub lanes: Lanes,
    pub proof: Proof,
    pub records: Rc<Records>,
    pub store: AcmeStore,
    /// The control loop.
    pub inbox: mpsc::Sender<Event>,
    /// The names that have certificates on demand.
    pub on_demand: Rc<OnDemand>,
    pub accounts: Accounts,
    /// The certificates that are the second for their hosts.
    pub seconds: RefCell<HashSet<Arc<str>>>,
}

type Outcome = Result<StepOutcome, StepTrouble>;

/// Milliseconds since the epoch.
pub(super) fn now() -> Millis {
    Millis::try_from(clock::since_epoch().as_millis()).unwrap_or(Millis::MAX)
}

impl Steps {
    /// Adds an issuer, or puts it in the place of that of its name. Its directories are asked by a
    /// client of its own, where it has one.
    pub(super) fn put_issuer(&self, name: &str, issuer: AcmeIssuer, client: Option<Client>) {
        self.remove_issuer(name);
        if let Some(client) = client {
            let mut clients = self.clients.borrow_mut();
            for directory in &issuer.directories {
                clients.insert(directory.url.clone(), client.clone());
            }
        }
        let mut issuers = self.issuers.borrow_mut();
        issuers.insert(name.into(), Rc::new(issuer));
    }

    /// Notes whether a certificate is the second for its hosts.
    pub(super) fn note_second(&self, id: &Arc<str>, is_second: bool) {
        let mut seconds = self.seconds.borrow_mut();
        match is_second {
            true => drop(seconds.insert(id.clone())),
            false => drop(seconds.remove(id)),
        }
    }

    /// Forgets an issuer. What is kept of its accounts stays.
    pub(super) fn remove_issuer(&self, name: &str) {
        let removed = self.issuers.borrow_mut().remove(name);
        for directory in removed.iter().flat_map(|issuer| &issuer.directories) {
            self.clients.borrow_mut().remove(&directory.url);
            self.accounts.remove(&directory.url);
        }
    }

    /// Finds the account of an issuer at its first directory, or makes it. Returns what people are
    /// told of it. There is an outcome after a minute, whatever the authority does.
    pub(super) async fn register(&self, name: &str) -> Result<String, StepTrouble> {
        let work = Box::pin(self.find_account(name));
        let asked = in_time("acme account", STEP_TIMEOUT, work).await;
        asked.unwrap_or_else(|given_up| Err(given_up.of_authority()))
    }

    async fn find_account(&self, name: &str) -> Result<String, StepTrouble> {
        let issuer = self.issuers.borrow().get(name).cloned();
        let first = issuer.as_ref().and_then(|it| it.directories.first());
        let first = first.ok_or_else(|| StepTrouble::Lost("it is not there any more".into()))?;
        let _place = self.lanes.come_to(&first.url).await;
        self.account(first).await?;
        Ok(format!("has an account at {}", without_issuer(&first.url)))
    }

    /// The names of all accounts that issuers may have.
    pub(super) fn account_names(&self) -> BTreeSet<String> {
        let issuers = self.issuers.borrow();
        let directories = issuers.values().flat_map(|issuer| &issuer.directories);
        directories.map(|it| account_name(&it.url)).collect()
    }

    /// Carries a step out. There is an outcome whatever comes of it: whoever waits for one holds a
    /// place until then.
    pub(super) async fn perform(&self, task: &Task) -> Outcome {
        match task::guarded("acme step", Box::pin(self.begin(task))).await {
            Some(outcome) => outcome,
            None => self.give_up(task, GivenUp::Broken).await,
        }
    }

    /// The outcome of a step that is given up, of which nothing stays in service.
    async fn give_up(&self, task: &Task, why: GivenUp) -> Outcome {
        if let (TaskStep::Prove, Some(order)) = (&task.step, &task.order) {
            self.withdraw(&order.id).await;
        }
        Err(why.trouble(&task.step))
    }

    /// Begins a step once it has a place, and goes on for so long at most.
    async fn begin(&self, task: &Task) -> Outcome {
        let order = task.order.as_deref();
        if let (TaskStep::Place, Some(order)) = (&task.step, order)
            && let Some(held) = self.store.find(order).await?
        {
            return Ok(StepOutcome::Issued(held));
        }
        let _place = self.lanes.come(task).await;
        let mut shown = None;
        if let (true, Some(order)) = (task.keep, order) {
            shown = self.store.keep_order(order).await.map_err(local)?;
        }
        if let Some(cluster) = self.store.cluster() {
            cluster.lead().map_err(local)?;
        }
        let work = Box::pin(self.carry_out(task, shown));
        match in_time("acme step", patience_of(task), work).await {
            Ok(outcome) => outcome,
            Err(why) => self.give_up(task, why).await,
        }
    }

    async fn carry_out(&self, task: &Task, shown: Option<Shown>) -> Outcome {
        let order = task.order.as_deref();
        match (&task.step, order) {
            (TaskStep::Window(url, ari), _) => self.window(url, ari).await,
            (TaskStep::Prove, Some(order)) => self.prove(order).await,
            (TaskStep::Place, Some(order)) => self.place(task, order).await,
            (TaskStep::Answer, Some(order)) => self.answer(order, shown).await,
            (TaskStep::Clean, Some(order)) => self.clean(order).await,
            (TaskStep::Accept | TaskStep::Look, Some(order)) => match order.stage.placed() {
                Some(placed) => self.validate(task, order, placed).await,
                None => misplaced(),
            },
            (TaskStep::Finalise | TaskStep::Fetch, Some(order)) => self.obtain(task, order).await,
            (_, None) => misplaced(),
        }
    }

    /// Puts the answers of an order into service that are to be there after a restart.
    pub(super) async fn resume(&self, order: &Order) {
        if let Some(placed) = order.stage.placed() {
            self.publish(&order.id, answers(placed)).await;
        }
    }

    /// Takes the answers of an order out of service.
    pub(super) async fn withdraw(&self, id: &Arc<str>) {
        let key = ObjectKey::from_id(ObjectKind::Order, id.clone());
        self.send(Change::Remove(key)).await;
    }

    /// Takes a certificate on demand out of service, and forgets it.
    pub(super) async fn retire(&self, id: &Arc<str>) {
        self.store.drop_certificate_soon(id);
        let key = ObjectKey::from_id(ObjectKind::OnDemand, id.clone());
        self.send(Change::Remove(key)).await;
    }

    /// Puts a certificate into service that nobody else sees.
    pub(super) async fn serve(&self, object: Option<Object>) {
        if let Some(object) = object {
            self.send(Change::Put(object)).await;
        }
    }

    /// Puts answers into service. In a cluster they are, once their order is kept.
    async fn publish(&self, id: &Arc<str>, answers: Vec<OrderAnswer>) {
        let key = ObjectKey::from_id(ObjectKind::Order, id.clone());
        let object = OrderObject {
            meta: Meta::new(key),
            answers: answers.into(),
        };
        self.send(Change::Put(Object::Order(Arc::new(object))))
            .await;
    }

    async fn send(&self, change: Change) {
        if self.store.cluster().is_some() {
            // The watch of every replica sees it.
            return;
        }
        let batch = Batch {
            changes: vec![change],
            ..Batch::default()
        };
        // A loop that has ended serves nothing more.
        let _ = self.inbox.send(Event::Changed(batch)).await;
    }

    async fn prove(&self, order: &Order) -> Outcome {
        let issuer = self.issuer(order)?;
        let names = names_at_gateway(&issuer, order);
        if let Some(name) = names.iter().find(|name| name.starts_with("*.")) {
            return Err(StepTrouble::Unproven(
                format!("is not ordered: {name} can be proven by DNS alone (dns-01)"),
                "let its issuer set records of DNS, name the hosts below it, or obtain its \
                 certificate elsewhere"
                    .to_owned(),
            ));
        }
        if let Some(name) = on_demand_host(&order.id) {
            self.on_demand.admit(name).await?;
        }
        self.store.admit(order).await?;
        let persistent = names_by(&issuer, order, ChallengeKind::DnsPersist);
        if !persistent.is_empty() {
            let _place = self.lanes.come_to(&order.directory).await;
            let opened = self.account(&self.directory(&order.directory)?).await?;
            let id = opened.account.id();
            self.records.admit(id, &persistent).await?;
        }
        let records = self.records.prove_order(&issuer, order).await?;
        self.prove_at_gateway(order, &names).await?;
        Ok(StepOutcome::Proven(records))
    }

    /// Asks names for a token.
    async fn prove_at_gateway(&self, order: &Order, names: &[Box<str>]) -> Result<(), StepTrouble> {
        if names.is_empty() {
            return Ok(());
        }
        match self.store.cluster() {
            Some(_) if self.proof.port.is_none() => Ok(()),
            Some(cluster) => {
                let nonce = cluster.show(order).await?;
                self.ask_all(names, &nonce).await
            }
            None => {
                let nonce = nonce().map_err(local)?;
                let answers = names.iter().map(|name| token(name, &nonce));
                self.publish(&order.id, answers.collect()).await;
                let proven = self.ask_all(names, &nonce).await;
                self.withdraw(&order.id).await;
                proven
            }
        }
    }

    /// Asks all names for a token, and again for a moment, until it is in service.
    async fn ask_all(&self, names: &[Box<str>], nonce: &str) -> Result<(), StepTrouble> {
        let text = text_of(nonce);
        for name in names {
            let mut tries = 0;
            while let Err(unproven) = self.proof.ask(name, nonce, &text).await {
                tries += 1;
                if tries == PROOF_TRIES || !unproven.may_come {
                    return Err(unproven.trouble);
                }
                tokio::time::sleep(PROOF_PAUSE * tries).await;
            }
        }
        Ok(())
    }

    async fn place(&self, task: &Task, order: &Order) -> Outcome {
        let (issuer, directory) = (self.issuer(order)?, self.directory(&order.directory)?);
        let opened = self.account(&directory).await?;
        let (account, profile) = (&opened.account, directory.profile.as_deref());
        let placed = match task.may_be_new {
            true => account.place_or_anew(order, &issuer, profile).await,
            false => account.place(order, &issuer, profile).await,
        };
        self.judged(task, (&directory, &opened), placed).await
    }

    /// Puts the answers into service, and sees that they are: all of an order take effect at once,
    /// so that one more token stands for those that only a handshake shows.
    async fn answer(&self, order: &Order, shown: Option<Shown>) -> Outcome {
        let Some(placed) = order.stage.placed() else {
            return misplaced();
        };
        let challenges = placed.challenges.iter();
        let at_gateway = challenges.filter(|it| it.kind().is_some_and(|it| !it.is_in_dns()));
        let names: Vec<Box<str>> = at_gateway.map(|it| it.name.clone()).collect();
        if !names.is_empty() {
            self.answer_at_gateway(order, placed, &names, shown).await?;
        }
        let (issuer, age) = (self.issuer(order)?, now() - order.placed_at);
        self.records.answer_order(&issuer, order, age).await
    }

    async fn answer_at_gateway(
        &self,
        order: &Order,
        placed: &PlacedOrder,
        names: &[Box<str>],
        shown: Option<Shown>,
    ) -> Result<(), StepTrouble> {
        let Some(cluster) = self.store.cluster() else {
            let nonce = nonce().map_err(local)?;
            let mut answers = answers(placed);
            answers.extend(names.iter().map(|name| token(name, &nonce)));
            self.publish(&order.id, answers).await;
            return self.ask_all(names, &nonce).await;
        };
        // The proxies that are connected here have them, and each name is asked several times,
        // since several proxies answer for it, some of which follow other replicas.
        if let Some(shown) = shown {
            shown.wait().await;
        }
        if self.proof.port.is_some()
            && let Some(nonce) = cluster.token(&order.id)
        {
            let nonce = placed_nonce(&nonce, placed);
            for _ in 0..PROOF_ROUNDS {
                self.ask_all(names, &nonce).await?;
            }
        }
        Ok(())
    }

    /// Removes the records that were set for an order.
    async fn clean(&self, order: &Order) -> Outcome {
        let issuer = self.issuer(order).ok();
        let removed = self.records.remove_order(issuer.as_deref(), order);
        removed.await?;
        Ok(StepOutcome::Cleaned)
    }

    async fn validate(&self, task: &Task, order: &Order, placed: &PlacedOrder) -> Outcome {
        let (issuer, directory) = (self.issuer(order)?, self.directory(&order.directory)?);
        let opened = self.account(&directory).await?;
        let account = &opened.account;
        let outcome = match task.step {
            TaskStep::Accept => account.accept(&placed.url, &order.names, &issuer).await,
            _ => {
                let age = now() - order.placed_at;
                let is_second = self.seconds.borrow().contains(&order.id);
                let kind = issuer.key.of_certificate(is_second);
                let asked = (&*placed.url, age);
                let make = async || self.lanes.key(&order.id, kind).await;
                account.look(asked, &order.names, make).await
            }
        };
        self.judged(task, (&directory, &opened), outcome).await
    }

    async fn obtain(&self, task: &Task, order: &Order) -> Outcome {
        let (OrderStage::Finalising(url, key) | OrderStage::Fetching(url, key)) = &order.stage
        else {
            return misplaced();
        };
        let directory = self.directory(&order.directory)?;
        let opened = self.account(&directory).await?;
        let account = &opened.account;
        if task.step == TaskStep::Finalise {
            // The authority has seen the answers.
            self.withdraw(&order.id).await;
            let finalised = account.finalise(url, key, &order.names).await;
            return self.judged(task, (&directory, &opened), finalised).await;
        }
        let age = now() - order.placed_at;
        let fetched = account.fetch((url, age), key, &order.names).await;
        let chain = match self.judged(task, (&directory, &opened), fetched).await? {
            Ok(chain) => chain,
            Err(pending) => return Ok(pending),
        };
        let issued = check_chain(&chain, key, &order.names, now());
        let issued = issued.map_err(|error| StepTrouble::Refused(error.to_string()))?;
        let kept = self.store.keep_certificate(order, &issued).await;
        let kept = kept.map_err(local)?;
        self.serve(kept.object).await;
        Ok(StepOutcome::Issued(kept.held))
    }

    async fn window(&self, url: &str, ari: &str) -> Outcome {
        let directory = self.directory(url)?;
        let opened = self.account(&directory).await?;
        opened.account.window(ari).await
    }

    fn issuer(&self, order: &Order) -> Result<Rc<AcmeIssuer>, StepTrouble> {
        let issuer = self.issuers.borrow().get(&order.issuer).cloned();
        issuer.ok_or_else(|| StepTrouble::Lost("its issuer is not there any more".to_owned()))
    }

    /// The directory of a URL, of the issuer that it is of.
    fn directory(&self, url: &str) -> Result<Directory, StepTrouble> {
        let issuers = self.issuers.borrow();
        let issuer = issuers.get(issuer_of(url).unwrap_or(ISSUER));
        let mut directories = issuer.iter().flat_map(|issuer| &issuer.directories);
        let directory = directories.find(|it| *it.url == *url).cloned();
        // Settings may have changed since it was ordered there.
        directory
            .ok_or_else(|| StepTrouble::Lost("no issuer names its directory any more".to_owned()))
    }

    /// The account at a directory, which is made where there is none. Its key is kept before.
    async fn account(&self, directory: &Directory) -> Result<OpenAccount, StepTrouble> {
        let open = || self.open_account(directory);
        self.accounts.open(&directory.url, open).await
    }

    async fn open_account(&self, directory: &Directory) -> Result<Account, StepTrouble> {
        let url = without_issuer(&directory.url);
        if !is_url(url) {
            let words = format!("{url:.256} is no URL of at most 2 KiB that begins with https://");
            return Err(StepTrouble::Unreachable(words, 0));
        }
        let client = self.clients.borrow().get(&directory.url).cloned();
        let http = Box::new(client.unwrap_or_else(|| self.client.clone()));
        let name = account_name(&directory.url);
        if let Some(text) = self.store.account(&name).await.map_err(local)? {
            return clerk::reopen(http, &text).await;
        }
        let key = match self.store.account_key(&name).await.map_err(local)? {
            Some(key) => key,
            None => {
                let key = clerk::account_key()?;
                let kept = self.store.keep_account_key(&name, &key).await;
                kept.map_err(local)?;
                key
            }
        };
        let opened = clerk::open(http, directory, &key).await?;
        let kept = self.store.keep_account(&name, opened.expose_text()).await;
        kept.map_err(local)?;
        tracing::info!(directory = %directory.url, id = opened.account.id(), "has an account");
        Ok(opened.account)
    }

    /// The outcome of a step, by which its account may be open no more.
    async fn judged<T>(
        &self,
        task: &Task,
        (directory, opened): (&Directory, &OpenAccount),
        outcome: Result<T, StepTrouble>,
    ) -> Result<T, StepTrouble> {
        if let Err(trouble) = &outcome {
            let (asked, told) = ((&*directory.url, opened), (&task.step, trouble));
            let judged = self.accounts.judge(&self.store, asked, told);
            judged.await.map_err(local)?;
        }
        outcome
    }
}

/// How often a name is asked for a token that may not be in service yet.
const PROOF_TRIES: u32 = 16;

/// The wait between the first two tries; each further one is longer by that much.
const PROOF_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// How often the names of an order are asked for a token once its answers are in service in a
/// cluster.
const PROOF_ROUNDS: u32 = 3;

fn local(error: std::io::Error) -> StepTrouble {
    StepTrouble::Local(error.to_string())
}

fn misplaced() -> Outcome {
    Err(StepTrouble::Local("a step without its order".to_owned()))
}
