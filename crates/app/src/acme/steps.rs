//! Steps of orders, carried out: by an authority, by the names themselves, and in the pipe that
//! brings answers into service.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use myriad_api::order::{Order as OrderObject, OrderAnswer};
use myriad_api::{Batch, Change, Meta, Object, ObjectKey, ObjectKind};
use myriad_base::clock;
use myriad_pki::acme::clerk::{self, Account};
use myriad_pki::acme::{
    AcmeIssuer, ChallengeKind, Directory, Millis, Order, OrderStage, PlacedOrder, StepOutcome,
    StepTrouble, Task, TaskStep, check_chain,
};
use tokio::sync::{OnceCell, mpsc};

use super::http::Client;
use super::proof::Proof;
use super::store::AcmeStore;
use crate::control::Event;
use crate::process;

/// The means of all steps.
pub(super) struct Steps {
    pub issuer: AcmeIssuer,
    pub client: Client,
    pub proof: Proof,
    pub store: AcmeStore,
    /// The control loop.
    pub inbox: mpsc::Sender<Event>,
    pub accounts: RefCell<HashMap<Box<str>, Rc<OnceCell<Account>>>>,
}

type Outcome = Result<StepOutcome, StepTrouble>;

/// Milliseconds since the epoch.
pub(super) fn now() -> Millis {
    Millis::try_from(clock::since_epoch().as_millis()).unwrap_or(Millis::MAX)
}

impl Steps {
    /// Carries a step out.
    pub(super) async fn perform(&self, task: &Task) -> Outcome {
        let order = task.order.as_deref();
        if let (true, Some(order)) = (task.keep, order) {
            self.store.keep_order(order).map_err(local)?;
        }
        let outcome = match (&task.step, order) {
            (TaskStep::Window(url, ari), _) => self.window(url, ari).await,
            (TaskStep::Prove, Some(order)) => self.prove(order).await,
            (TaskStep::Place, Some(order)) => self.place(order).await,
            (TaskStep::Answer, Some(order)) => self.answer(order).await,
            (TaskStep::Accept | TaskStep::Look, Some(order)) => match order.stage.placed() {
                Some(placed) => self.validate(task, order, placed).await,
                None => misplaced(),
            },
            (TaskStep::Finalise | TaskStep::Fetch, Some(order)) => self.obtain(task, order).await,
            (_, None) => misplaced(),
        };
        if let Err(StepTrouble::Lost(_)) = &outcome
            && let Some(order) = order
        {
            self.forget_account(&order.directory)?;
        }
        outcome
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

    /// Puts a certificate into service.
    pub(super) async fn serve(&self, object: Object) {
        self.send(Change::Put(object)).await;
    }

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
        let batch = Batch {
            changes: vec![change],
            ..Batch::default()
        };
        // A loop that has ended serves nothing more.
        let _ = self.inbox.send(Event::Changed(batch)).await;
    }

    async fn prove(&self, order: &Order) -> Outcome {
        if let Some(name) = order.names.iter().find(|name| name.starts_with("*.")) {
            return Err(StepTrouble::Unproven(
                format!("is not ordered: {name} can be proven by DNS alone (dns-01)"),
                "name the hosts below it, or obtain its certificate elsewhere".to_owned(),
            ));
        }
        let nonce = nonce()?;
        let answers = order.names.iter().map(|name| token(name, &nonce));
        self.publish(&order.id, answers.collect()).await;
        let proven = self.ask_all(&order.names, &nonce).await;
        self.withdraw(&order.id).await;
        proven.map(|()| StepOutcome::Proven)
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

    async fn place(&self, order: &Order) -> Outcome {
        let directory = self.directory(&order.directory)?;
        let account = self.account(directory).await?;
        let profile = directory.profile.as_deref();
        account.place(order, self.issuer.challenge, profile).await
    }

    /// Puts the answers into service, and sees that they are: all of an order take effect at once,
    /// so that one more token stands for those that only a handshake shows.
    async fn answer(&self, order: &Order) -> Outcome {
        let Some(placed) = order.stage.placed() else {
            return misplaced();
        };
        let nonce = nonce()?;
        let names: Vec<Box<str>> = placed.challenges.iter().map(|it| it.name.clone()).collect();
        let mut answers = answers(placed);
        answers.extend(names.iter().map(|name| token(name, &nonce)));
        self.publish(&order.id, answers).await;
        self.ask_all(&names, &nonce).await?;
        Ok(StepOutcome::Answered)
    }

    async fn validate(&self, task: &Task, order: &Order, placed: &PlacedOrder) -> Outcome {
        let account = self.account(self.directory(&order.directory)?).await?;
        match task.step {
            TaskStep::Accept => account.accept(&placed.url, self.issuer.challenge).await,
            _ => account.look(&placed.url, now() - order.placed_at).await,
        }
    }

    async fn obtain(&self, task: &Task, order: &Order) -> Outcome {
        let (OrderStage::Finalising(url, key) | OrderStage::Fetching(url, key)) = &order.stage
        else {
            return misplaced();
        };
        let account = self.account(self.directory(&order.directory)?).await?;
        if task.step == TaskStep::Finalise {
            // The authority has seen the answers.
            self.withdraw(&order.id).await;
            return account.finalise(url, key, &order.names).await;
        }
        let age = now() - order.placed_at;
        let chain = match account.fetch((url, age), key, &order.names).await? {
            Ok(chain) => chain,
            Err(pending) => return Ok(pending),
        };
        let issued = check_chain(&chain, key, &order.names, now());
        let issued = issued.map_err(|error| StepTrouble::Refused(error.to_string()))?;
        let kept = self.store.keep_certificate(order, &issued).map_err(local)?;
        self.serve(kept.object).await;
        Ok(StepOutcome::Issued(kept.held))
    }

    async fn window(&self, url: &str, ari: &str) -> Outcome {
        let account = self.account(self.directory(url)?).await?;
        account.window(ari).await
    }

    fn directory(&self, url: &str) -> Result<&Directory, StepTrouble> {
        let mut directories = self.issuer.directories.iter();
        let directory = directories.find(|it| *it.url == *url);
        // Settings may have changed since it was ordered there.
        directory.ok_or_else(|| {
            StepTrouble::Lost("its directory is not named in --acme-directory any more".to_owned())
        })
    }

    /// The account at a directory, which is made where there is none. Its key is kept before.
    async fn account(&self, directory: &Directory) -> Result<Account, StepTrouble> {
        let cell = {
            let mut accounts = self.accounts.borrow_mut();
            accounts.entry(directory.url.clone()).or_default().clone()
        };
        let account = cell.get_or_try_init(|| async {
            let (name, http) = (account_name(&directory.url), Box::new(self.client.clone()));
            if let Some(text) = self.store.account(&name) {
                return clerk::reopen(http, &text).await;
            }
            let key = match self.store.account_key(&name) {
                Some(key) => key,
                None => {
                    let key = clerk::account_key()?;
                    self.store.keep_account_key(&name, &key).map_err(local)?;
                    key
                }
            };
            let opened = clerk::open(http, directory, &key).await?;
            let kept = self.store.keep_account(&name, opened.expose_text());
            kept.map_err(local)?;
            tracing::info!(directory = %directory.url, id = opened.account.id(), "has an account");
            Ok(opened.account)
        });
        Ok(account.await?.clone())
    }

    /// Forgets the account at a directory, which finds it again by its key, or makes another.
    fn forget_account(&self, url: &str) -> Result<(), StepTrouble> {
        self.accounts.borrow_mut().remove(url);
        self.store.drop_account(&account_name(url)).map_err(local)
    }
}

/// How often a name is asked for a token that may not be in service yet.
const PROOF_TRIES: u32 = 10;

/// The wait between the first two tries; each further one is longer by that much.
const PROOF_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);

/// The number of random bytes of a token.
const NONCE_BYTES: usize = 16;

fn nonce() -> Result<String, StepTrouble> {
    let random = process::random_key().map_err(|error| StepTrouble::Local(error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(random.get(..NONCE_BYTES).unwrap_or_default()))
}

/// The text that is said to a token of ours; it could be no key authorization.
fn text_of(nonce: &str) -> String {
    format!("myriad-{nonce}")
}

fn token(name: &str, nonce: &str) -> OrderAnswer {
    OrderAnswer {
        host: name.into(),
        by_tls: false,
        token: nonce.into(),
        text: text_of(nonce).into(),
    }
}

fn answers(placed: &PlacedOrder) -> Vec<OrderAnswer> {
    let challenges = placed.challenges.iter();
    let answers = challenges.map(|challenge| OrderAnswer {
        host: challenge.name.clone(),
        by_tls: challenge.kind() == Some(ChallengeKind::TlsAlpn),
        token: challenge.token.clone(),
        text: challenge.answer.clone(),
    });
    answers.collect()
}

/// The name of the files of an account.
fn account_name(url: &str) -> String {
    let hash = blake3::hash(url.as_bytes()).to_hex();
    hash.get(..32).unwrap_or_default().to_owned()
}

fn local(error: std::io::Error) -> StepTrouble {
    StepTrouble::Local(error.to_string())
}

fn misplaced() -> Outcome {
    Err(StepTrouble::Local("a step without its order".to_owned()))
}
