//! A keeper, and what its signer tells and signs, at an API server in a few lines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_base::metrics::Metrics;
use myriad_base::{clock, task};
use myriad_pki::{Authority, Request};
use myriad_source::kubernetes::Client;
use myriad_sync::{Identity, NotSigned, Owner, Sign as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{AuthorityKeeper, Problem, store};
use crate::controller::pods::KnownPods;
use crate::controller::signer::{Signer, Terms};
use crate::fake_api;

const HOME: &str = "myriad";

/// An API server that has Secrets.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    /// Texts by name, with their versions.
    secrets: BTreeMap<String, (u64, BTreeMap<String, String>)>,
    forbidden: BTreeSet<String>,
    /// Whether nobody is answered.
    is_broken: bool,
    /// The Secret that somebody else writes right before the next write, and its text.
    first: Option<(String, String)>,
    writes: usize,
}

impl Api {
    /// Begins to serve, and returns its client.
    async fn start(&self) -> Client {
        let api = self.clone();
        let answer = move |method: &str, path: &str, body: &Value| {
            let answer = api.lock().call(method, path, body);
            Some(answer)
        };
        fake_api::serve(answer).await
    }

    /// People write an authority.
    fn install(&self, authority: &Authority) {
        let texts = [
            ("tls.crt", authority.certificate_pem()),
            ("tls.key", authority.expose_key_pem()),
            ("ca.crt", authority.certificate_pem()),
        ];
        let texts = texts.map(|(key, text)| (key.to_owned(), text.to_owned()));
        self.lock().put("cacerts", BTreeMap::from(texts));
    }

    /// The roots that are kept, as text.
    fn kept(&self) -> String {
        let state = self.lock();
        let secret = state.secrets.get(store::SECRET_NAME);
        secret.map_or_else(String::new, |(_, texts)| texts["roots"].clone())
    }

    fn keep(&self, text: &str) {
        let texts = BTreeMap::from([("roots".to_owned(), text.to_owned())]);
        self.lock().put(store::SECRET_NAME, texts);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn put(&mut self, name: &str, texts: BTreeMap<String, String>) {
        self.version += 1;
        self.secrets.insert(name.to_owned(), (self.version, texts));
    }

    fn call(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let status = |code: u16| (code, json!({"kind": "Status", "code": code}));
        if self.is_broken {
            return status(500);
        }
        let name = path.strip_prefix("/api/v1/namespaces/myriad/secrets");
        let name = name.unwrap().trim_start_matches('/');
        let name = match method {
            "POST" => body["metadata"]["name"].as_str().unwrap(),
            _ => name,
        };
        if self.forbidden.contains(name) {
            return status(403);
        }
        if method != "GET"
            && let Some((name, text)) = self.first.take()
        {
            self.put(&name, BTreeMap::from([("roots".to_owned(), text)]));
        }
        let known = self.secrets.get(name).cloned();
        match (method, known) {
            ("GET", Some((version, texts))) => {
                let data = texts.iter().map(|(key, text)| (key, STANDARD.encode(text)));
                let data: BTreeMap<_, _> = data.collect();
                let metadata = json!({"resourceVersion": version.to_string()});
                (200, json!({"metadata": metadata, "data": data}))
            }
            ("POST", Some(_)) => status(409),
            ("POST", None) => {
                self.writes += 1;
                let texts = serde_json::from_value(body["stringData"].clone()).unwrap();
                self.put(name, texts);
                status(201)
            }
            ("PATCH", Some((version, mut texts))) => {
                let expected = body["metadata"]["resourceVersion"].as_str();
                if expected != Some(&*version.to_string()) {
                    return status(409);
                }
                self.writes += 1;
                for (key, text) in body["data"].as_object().unwrap() {
                    let text = STANDARD.decode(text.as_str().unwrap()).unwrap();
                    texts.insert(key.clone(), String::from_utf8(text).unwrap());
                }
                self.put(name, texts);
                status(200)
            }
            _ => status(404),
        }
    }
}

/// A controller's keeper. It overlaps by ten minutes, and half a minute for the others' looks.
struct Replica(AuthorityKeeper);

impl Replica {
    fn new(client: &Client) -> Replica {
        let terms = Terms {
            trust_domain: "cluster.local".to_owned(),
            aliases: Vec::new(),
            lifetime: Duration::from_secs(3_600),
            overlap: Duration::from_secs(600),
        };
        let (inbox, mut events) = mpsc::channel(4);
        drop(task::spawn("test control", async move {
            while events.recv().await.is_some() {}
        }));
        Replica(AuthorityKeeper {
            client: client.clone(),
            home: HOME.to_owned(),
            namespace: HOME.to_owned(),
            name: "cacerts".to_owned(),
            makes: false,
            signer: Signer::new(terms, KnownPods::default(), &Metrics::new()),
            inbox,
        })
    }

    async fn turn(&self) -> Vec<Problem> {
        self.0.turn().await
    }

    /// The roots that proxies are told, sorted; none if they are told nothing.
    fn told(&self) -> Option<Vec<Vec<u8>>> {
        let anchors = self.0.signer.anchors().borrow().clone()?;
        let mut roots: Vec<_> = anchors.roots.iter().map(|it| it.to_vec()).collect();
        roots.sort();
        Some(roots)
    }

    /// Whether somebody signs: with one of these roots.
    async fn sign(&self, roots: &[&Authority]) -> Result<usize, NotSigned> {
        let identity = Identity {
            subject: "shop/cart/cart-0".into(),
            view: "gateway".into(),
            owner: Owner::default(),
        };
        let request = Request::new().unwrap();
        let chain = self.0.signer.sign(&identity, &request.der).await?;
        let leaf = x509_parser::parse_x509_certificate(&chain[0]).unwrap().1;
        let signed = roots.iter().position(|root| {
            let root = x509_parser::parse_x509_certificate(root.certificate());
            let root = root.unwrap().1;
            leaf.verify_signature(Some(root.public_key())).is_ok()
        });
        Ok(signed.expect("one of them"))
    }
}

fn authorities() -> (Authority, Authority) {
    let now = clock::unix_seconds();
    let make = || Authority::new("mesh", now).unwrap();
    (make(), make())
}

fn ders(roots: &[&Authority]) -> Option<Vec<Vec<u8>>> {
    let mut ders: Vec<_> = roots.iter().map(|it| it.certificate().to_vec()).collect();
    ders.sort();
    Some(ders)
}

/// A line of what is kept: since so many seconds ago, or for ever.
fn line(root: &Authority, ago: Option<i64>) -> String {
    let since = ago.map_or(0, |ago| clock::unix_seconds() - ago);
    format!("{since} - {}\n", STANDARD.encode(root.certificate()))
}

#[tokio::test]
async fn the_first_authority_signs_once_it_is_kept_and_the_next_one_is_told_before() {
    let (api, (former, newest)) = (Api::default(), authorities());
    let client = api.start().await;
    let replica = Replica::new(&client);
    // Nothing is known of an authority that is not there.
    assert_eq!(replica.turn().await.len(), 1);
    assert_eq!((replica.told(), api.kept()), (None, String::new()));
    api.install(&former);
    assert_eq!(replica.turn().await, []);
    assert_eq!(replica.sign(&[&former]).await, Ok(0));
    assert_eq!(api.kept(), line(&former, None));
    api.install(&newest);
    assert_eq!(replica.turn().await, []);
    assert_eq!(replica.told(), ders(&[&former, &newest]));
    assert_eq!(replica.sign(&[&former, &newest]).await, Ok(0));
    assert_eq!(api.kept().lines().count(), 2);
    // Others find it so, and nobody writes again.
    let other = Replica::new(&client);
    assert_eq!(other.turn().await.len(), 1, "it cannot sign");
    let writes = api.lock().writes;
    for _ in 0..3 {
        replica.turn().await;
        other.turn().await;
    }
    assert_eq!(api.lock().writes, writes, "{}", api.kept());
    // What was deleted is written again by those who know.
    api.lock().secrets.remove(store::SECRET_NAME);
    assert_eq!(replica.turn().await, []);
    assert_eq!(api.kept().lines().count(), 2);
}

#[tokio::test]
async fn a_restart_in_the_overlap_tells_both_roots_and_signs_after_it() {
    let (api, (former, newest)) = (Api::default(), authorities());
    let client = api.start().await;
    api.install(&newest);
    api.keep(&(line(&former, None) + &line(&newest, Some(100))));
    let replica = Replica::new(&client);
    let problems = replica.turn().await;
    assert!(
        problems[0].message.contains("do not know yet"),
        "{problems:?}"
    );
    assert_eq!(replica.told(), ders(&[&former, &newest]));
    let refused = replica.sign(&[]).await.unwrap_err();
    assert!(refused.reason.contains("known everywhere"), "{refused}");
    assert!(
        refused.reason.contains(" 5"),
        "530 seconds at most: {refused}"
    );
    assert_eq!(refused.retry_after, Duration::from_secs(60));

    api.keep(&(line(&former, None) + &line(&newest, Some(631))));
    let replica = Replica::new(&client);
    assert_eq!(replica.turn().await, []);
    assert_eq!(replica.told(), ders(&[&former, &newest]));
    assert_eq!(replica.sign(&[&former, &newest]).await, Ok(1));
    let kept = api.kept();
    let ends = kept.lines().filter(|line| !line.contains(" - ")).count();
    assert_eq!(ends, 1, "the former has an end: {kept}");
}

#[tokio::test]
async fn nobody_is_told_anything_before_it_is_known_what_is_kept() {
    let (api, (former, newest)) = (Api::default(), authorities());
    let client = api.start().await;
    api.install(&newest);
    api.keep(&(line(&former, None) + &line(&newest, Some(631))));
    let replica = Replica::new(&client);
    api.lock().is_broken = true;
    replica.turn().await;
    assert!(replica.told().is_none() && replica.sign(&[]).await.is_err());
    api.lock().is_broken = false;
    api.lock().forbidden.insert(store::SECRET_NAME.to_owned());
    let problems = replica.turn().await;
    assert!(
        problems[0].message.contains("no workload is given"),
        "{problems:?}"
    );
    assert!(replica.told().is_none() && replica.sign(&[]).await.is_err());
    api.lock().forbidden.clear();
    assert_eq!(replica.turn().await, []);
    assert_eq!(replica.told(), ders(&[&former, &newest]));
    assert_eq!(replica.sign(&[&former, &newest]).await, Ok(1));
    // One that has begun goes on, and says so where it has no right.
    api.lock().is_broken = true;
    assert_eq!(replica.turn().await, []);
    assert_eq!(replica.sign(&[&former, &newest]).await, Ok(1));
    api.lock().is_broken = false;
    api.lock().forbidden.insert(store::SECRET_NAME.to_owned());
    let problems = replica.turn().await;
    assert!(
        problems[0].message.contains("that restarts"),
        "{problems:?}"
    );
    assert_eq!(replica.sign(&[&former, &newest]).await, Ok(1));
}

#[tokio::test]
async fn of_two_that_start_first_the_later_one_takes_in_what_the_other_has_kept() {
    let (api, (former, newest)) = (Api::default(), authorities());
    let client = api.start().await;
    api.install(&newest);
    let other = (store::SECRET_NAME.to_owned(), line(&former, None));
    api.lock().first = Some(other);
    let replica = Replica::new(&client);
    assert_eq!(replica.turn().await.len(), 1);
    assert_eq!(replica.told(), ders(&[&former, &newest]));
    assert!(replica.sign(&[]).await.is_err());
    assert_eq!(api.kept().lines().count(), 2);
}

#[tokio::test]
async fn what_is_no_root_is_told_of_and_taken_out_and_is_no_first_start() {
    let (api, (former, newest)) = (Api::default(), authorities());
    let client = api.start().await;
    api.install(&newest);
    api.keep(&format!("garbage\n0 - AAAA\n{}", line(&former, None)));
    let replica = Replica::new(&client);
    let problems = replica.turn().await;
    assert!(problems[0].message.contains("has 2 lines"), "{problems:?}");
    assert_eq!(replica.told(), ders(&[&former, &newest]));
    assert!(!api.kept().contains("garbage"));
    api.keep("garbage");
    let replica = Replica::new(&client);
    assert_eq!(replica.turn().await.len(), 2);
    assert_eq!(replica.told(), ders(&[&newest]));
    assert!(
        replica.sign(&[]).await.is_err(),
        "others may trust something else"
    );
}
