//! Replicas, and an API server that has Secrets, in a few lines. What watches would tell is told by
//! hand, so that each order of events can be.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_base::clock;
use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_pki::acme::{OrderStage, Suffixes};
use myriad_proxy::Demanded;
use myriad_source::kubernetes::{Client, ShelfNews, Shelved, Texts};
use myriad_sync::{DemandedHost, Obtain as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::LocalSet;

use super::super::tests::{endpoint, on_demand};
use super::{
    CarriedWishes, Gathering, HOST, PENDING_MAX, Served, Wished, carry, source_of, take_wish,
};
use crate::acme::on_demand::Demands;
use crate::acme::store::{KeptOnDemand, today};
use crate::acme::testing;
use crate::fake_api;

const HOME: &str = "myriad";

/// Secrets by name, and what was written.
#[derive(Clone, Default)]
struct Api(Arc<Mutex<Secrets>>);

#[derive(Default)]
struct Secrets {
    all: BTreeMap<String, Value>,
    version: u64,
    writes: Vec<String>,
}

impl Api {
    async fn start(&self) -> Client {
        let api = self.clone();
        fake_api::serve(move |method, path, body| {
            Some(api.0.lock().unwrap().call(method, path, body))
        })
        .await
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().all.keys().cloned().collect()
    }

    fn writes(&self) -> Vec<String> {
        self.0.lock().unwrap().writes.clone()
    }

    /// The news that a watch tells of a Secret as it is now.
    fn news(&self, name: &str) -> ShelfNews {
        let secrets = self.0.lock().unwrap();
        let Some(secret) = secrets.all.get(name) else {
            return ShelfNews::Gone(name.into());
        };
        let data = secret["data"].as_object().unwrap().iter();
        let texts = data.map(|(key, value)| {
            let bytes = STANDARD.decode(value.as_str().unwrap()).unwrap();
            (key.clone(), String::from_utf8(bytes).unwrap())
        });
        ShelfNews::Put(Shelved {
            name: name.into(),
            texts: texts.collect(),
            version: secret["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .into(),
        })
    }

    /// Waits until a Secret is there, or is not.
    async fn awaits(&self, name: &str, is_there: bool) {
        let settles = async {
            while self.names().iter().any(|it| it == name) != is_there {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let settled = tokio::time::timeout(Duration::from_secs(20), settles).await;
        assert!(settled.is_ok(), "{name}: {:?}", self.names());
    }
}

impl Secrets {
    fn call(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let collection = format!("/api/v1/namespaces/{HOME}/secrets");
        let name = path.strip_prefix(&collection).unwrap();
        let name = match method {
            "POST" => body["metadata"]["name"].as_str().unwrap(),
            _ => name.trim_start_matches('/'),
        };
        if method != "GET" {
            self.writes.push(format!("{method} {name}"));
        }
        match (method, self.all.get(name).cloned()) {
            ("GET", Some(secret)) => (200, secret),
            ("POST", None) => (201, self.put(name, body.clone())),
            ("PATCH", Some(mut secret)) => {
                for (key, value) in body["data"].as_object().unwrap() {
                    secret["data"][key] = value.clone();
                }
                (200, self.put(name, secret))
            }
            ("DELETE", Some(secret)) if is_other(&secret, body) => {
                (409, json!({"kind": "Status", "code": 409}))
            }
            ("DELETE", Some(secret)) => {
                self.all.remove(name);
                (200, secret)
            }
            ("POST", Some(_)) => (409, json!({"kind": "Status", "code": 409})),
            _ => (404, json!({"kind": "Status", "code": 404})),
        }
    }

    fn put(&mut self, name: &str, mut secret: Value) -> Value {
        self.version += 1;
        secret["metadata"]["name"] = name.into();
        secret["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.all.insert(name.to_owned(), secret.clone());
        secret
    }
}

/// Whether a Secret is another one than whoever removes it has read.
fn is_other(secret: &Value, body: &Value) -> bool {
    body["preconditions"]["resourceVersion"] != secret["metadata"]["resourceVersion"]
}

/// A replica that asks an endpoint.
async fn replica(api: &Api, url: &str) -> (Demands, Gathering) {
    let demands = Demands::new(&Metrics::new());
    let client = api.start().await;
    let asking = on_demand(demands.told(), url);
    let gathering = Gathering::new(asking, demands.clone(), (&client, HOME));
    (demands, gathering)
}

fn wanted(host: &str) -> DemandedHost {
    DemandedHost {
        host: host.into(),
        is_used: false,
    }
}

fn used(host: &str) -> DemandedHost {
    DemandedHost {
        host: host.into(),
        is_used: true,
    }
}

/// The values of the Secret of a certificate that was just obtained, and last used on a day.
fn certificate(host: &str, used_on: i64) -> Texts {
    let order = testing::order(&format!("on-demand:{host}"), OrderStage::Placing);
    let mut texts = KeptOnDemand::texts(&order, &testing::issued(&[host]));
    texts.append(&mut KeptOnDemand::texts_of_use(used_on));
    texts
}

/// The news that a watch tells of that Secret.
fn news_of(host: &str, texts: Texts) -> ShelfNews {
    ShelfNews::Put(Shelved {
        name: KeptOnDemand::secret_name(host).into(),
        texts,
        version: "1".into(),
    })
}

fn served(demands: &Demands) -> Served {
    Served {
        demands: demands.clone(),
        known: HashMap::new(),
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(20), future).await;
    waited.expect("it takes too long")
}

#[tokio::test]
async fn what_the_endpoint_allows_is_wished_once_and_what_it_refuses_not_at_all() {
    let (api, endpoint) = (Api::default(), endpoint().await);
    let work = async {
        let (demands, gathering) = replica(&api, &endpoint.url).await;
        let (_settings, url) = watch::channel(None);
        let mut is_open = demands.is_open();
        assert!(!*is_open.borrow());
        let running = gathering.run(url);
        let story = async {
            within(is_open.wait_for(|is_open| *is_open)).await.unwrap();
            let refused = within(demands.demand(1, wanted("no.example"))).await;
            assert!(refused > Duration::from_secs(20), "{refused:?}");
            assert_eq!(api.writes(), Vec::<String>::new());

            // Two proxies ask, and one of them twice.
            let asked = [1, 2, 1].map(|stream| demands.demand(stream, wanted("yes.example")));
            let mut asked = asked.map(|asked| task::spawn_local("asked", asked));
            api.awaits("wish.yes.example", true).await;
            take_wish(api.news("wish.yes.example"), &demands);
            assert!(asked.iter().all(|it| !it.is_finished()));
            let mut served = served(&demands);
            let news = news_of("yes.example", certificate("yes.example", today()));
            assert_eq!(served.take(vec![news]).len(), 1);
            for asked in &mut asked {
                assert_eq!(within(asked).await.unwrap(), Some(Duration::ZERO));
            }
            assert_eq!(api.writes(), ["POST wish.yes.example"]);
            assert_eq!(endpoint.asked.load(Ordering::Relaxed), 2);

            // From now on there is an answer without any question.
            let answer = demands.demand(3, wanted("yes.example"));
            assert_eq!(within(answer).await, Duration::ZERO);
            assert_eq!(endpoint.asked.load(Ordering::Relaxed), 2);
        };
        tokio::select! {
            () = running => panic!("it has ended"),
            () = story => {}
        }
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test]
async fn a_wish_that_is_gone_without_a_certificate_is_a_refusal() {
    let (api, endpoint) = (Api::default(), endpoint().await);
    let work = async {
        let (demands, mut gathering) = replica(&api, &endpoint.url).await;
        gathering.wish(&"yes.example".into());
        let asked = demands.demand(1, wanted("yes.example"));
        let asked = task::spawn_local("asked", asked);
        api.awaits("wish.yes.example", true).await;
        take_wish(api.news("wish.yes.example"), &demands);
        gathering.look(clock::now());
        assert_eq!(gathering.pending.len(), 1);
        assert!(!asked.is_finished());
        take_wish(ShelfNews::Gone("wish.yes.example".into()), &demands);
        gathering.look(clock::now());
        assert!(gathering.pending.is_empty());
        let refused = within(asked).await.unwrap().unwrap();
        assert!(refused > Duration::from_secs(20), "{refused:?}");
        // The same where nobody ever saw it.
        gathering.wish(&"yes2.example".into());
        gathering.look(clock::now() + Duration::from_secs(6));
        assert!(gathering.pending.is_empty());
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test]
async fn wishes_are_bounded_whatever_the_endpoint_allows() {
    let (api, endpoint) = (Api::default(), endpoint().await);
    let work = async {
        let (demands, mut gathering) = replica(&api, &endpoint.url).await;
        for number in 0..4 * PENDING_MAX {
            gathering.wish(&format!("yes{number}.example").into());
        }
        assert_eq!(gathering.pending.len(), PENDING_MAX);
        // The others are refused at once.
        let last = format!("yes{}.example", 4 * PENDING_MAX - 1);
        assert!(within(demands.demand(1, wanted(&last))).await > Duration::ZERO);
        let mut written = 0;
        while written < PENDING_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
            written = api.writes().len();
        }
        assert_eq!(written, PENDING_MAX);
    };
    LocalSet::new().run_until(within(work)).await;
}

#[tokio::test]
async fn for_the_leader_a_wish_is_one_who_waits_and_its_answer_removes_it() {
    let api = Api::default();
    let work = async {
        let client = api.start().await;
        let demands = Demands::new(&Metrics::new());
        let leads = Rc::new(Cell::new(true));
        let asked = leads.clone();
        let counted = (14, Suffixes::default());
        let leading = move || asked.get();
        let carried = carry(demands.clone(), (&client, HOME), leading, counted);
        let story = async {
            demands.wished().open();
            for host in ["a.example", "b.example", "not-a-host", "c.example"] {
                let name = format!("wish.{host}");
                let secret = json!({"data": {HOST: STANDARD.encode(host)}});
                api.0.lock().unwrap().put(&name, secret);
                take_wish(api.news(&name), &demands);
            }
            let mut told = Vec::new();
            for _ in 0..3 {
                let Demanded::Wanted(host) = within(demands.wished().next()).await else {
                    panic!("nothing is used")
                };
                told.push(host);
            }
            told.sort();
            let names: Vec<&str> = told.iter().map(|host| &**host).collect();
            assert_eq!(names, ["a.example", "b.example", "c.example"]);
            let next = tokio::time::timeout(Duration::from_millis(30), demands.wished().next());
            assert!(next.await.is_err(), "each is told once");

            let time = Duration::from_secs(30);
            demands.wished().refuse(&told[0], time);
            api.awaits("wish.a.example", false).await;
            take_wish(api.news("wish.a.example"), &demands);
            // Whoever does not lead any more leaves them to the next.
            leads.set(false);
            demands.wished().refuse(&told[1], time);
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(
                api.names(),
                ["wish.b.example", "wish.c.example", "wish.not-a-host"]
            );
            assert_eq!(api.writes(), ["DELETE wish.a.example"]);
        };
        tokio::select! {
            () = carried => panic!("it has ended"),
            () = story => {}
        }
    };
    LocalSet::new().run_until(work).await;
}

#[tokio::test]
async fn a_wish_that_is_made_again_before_the_first_is_at_an_end_is_carried_at_once() {
    let api = Api::default();
    let work = async {
        let client = api.start().await;
        let demands = Demands::new(&Metrics::new());
        let counted = (14, Suffixes::default());
        let carried = carry(demands.clone(), (&client, HOME), || true, counted);
        let story = async {
            demands.wished().open();
            let make = || {
                let secret = json!({"data": {HOST: STANDARD.encode("a.example")}});
                api.0.lock().unwrap().put("wish.a.example", secret);
                take_wish(api.news("wish.a.example"), &demands);
            };
            make();
            let Demanded::Wanted(host) = within(demands.wished().next()).await else {
                panic!("nothing is used")
            };
            // Nobody hears of a change after this one, which is seen before the first is at an end.
            make();
            tokio::task::yield_now().await;
            assert_eq!(api.writes(), Vec::<String>::new());
            demands.wished().refuse(&host, Duration::from_secs(30));
            api.awaits("wish.a.example", false).await;
            assert_eq!(api.writes(), ["DELETE wish.a.example"; 2]);
        };
        tokio::select! {
            // Whatever has changed when the story goes on is seen first.
            biased;
            () = carried => panic!("it has ended"),
            () = story => {}
        }
    };
    LocalSet::new().run_until(work).await;
}

#[test]
fn wishes_are_of_sources_by_the_registered_domains_that_the_list_tells() {
    let hosts = ["x.a.app.example", "y.a.app.example", "x.b.app.example"];
    let sources = |suffixes: Suffixes| hosts.map(|host| source_of(host, &suffixes));
    let [x, y, other] = sources(Suffixes::parse("app.example").unwrap());
    assert!(x == y && x != other, "customers are strangers");
    let [x, y, other] = sources(Suffixes::default());
    assert!(x == y && x == other);
}

#[test]
fn a_wish_is_carried_once_for_each_time_that_it_is_made() {
    let carried = CarriedWishes::default();
    let wish = |host: &str, version: &str| Wished {
        name: format!("wish.{host}").into(),
        version: version.into(),
        host: host.into(),
    };
    let [a, b, again] = [wish("a", "1"), wish("b", "2"), wish("a", "3")];
    let both = vec![a, b.clone()];
    assert_eq!(carried.take(both.clone()), both);
    assert!(carried.take(both.clone()).is_empty());
    // One that is at an end is not carried again until another one is there.
    carried.end("a");
    assert!(carried.take(both).is_empty());
    let next = vec![again, b.clone()];
    assert_eq!(carried.take(next.clone()), next[..1]);
    // One that is made again is, once the one before is at an end.
    let more = vec![wish("a", "4"), b];
    assert!(carried.take(more.clone()).is_empty());
    carried.forget("a");
    assert_eq!(carried.take(more.clone()), more[..1]);
    // Nothing is remembered of those that are gone.
    carried.end("a");
    carried.end("b");
    assert!(carried.take(Vec::new()).is_empty());
    assert!(carried.wishes.borrow().is_empty());
}

#[tokio::test]
async fn a_use_is_noted_once_a_day_and_told_to_who_renews() {
    let (api, endpoint) = (Api::default(), endpoint().await);
    let work = async {
        let (demands, mut gathering) = replica(&api, &endpoint.url).await;
        demands.wished().open();
        let name = "on-demand.a.example";
        let texts = certificate("a.example", today() - 1);
        let data = texts
            .iter()
            .map(|(key, text)| (key.clone(), STANDARD.encode(text).into()));
        let data: serde_json::Map<String, Value> = data.collect();
        api.0.lock().unwrap().put(name, json!({"data": data}));
        let mut served = served(&demands);
        assert_eq!(served.take(vec![api.news(name)]).len(), 1);
        let next = within(demands.wished().next()).await;
        assert_eq!(next, Demanded::Used("a.example".into()));
        assert_eq!(demands.used_since(today() - 1).len(), 1);

        for stream in 0..100 {
            let answer = demands.demand(stream, used("a.example"));
            assert_eq!(within(answer).await, Duration::ZERO);
            let answer = demands.demand(stream, used(&format!("other{stream}.example")));
            assert_eq!(within(answer).await, Duration::ZERO);
        }
        gathering.note_uses();
        within(gathering.noting.take().unwrap()).await.unwrap();
        assert_eq!(api.writes(), ["PATCH on-demand.a.example"]);
        let told = served.take(vec![api.news(name)]);
        assert!(told.is_empty(), "no proxy hears of it");
        let next = within(demands.wished().next()).await;
        assert_eq!(next, Demanded::Used("a.example".into()));

        // Nothing more is written on that day.
        within(demands.demand(1, used("a.example"))).await;
        gathering.note_uses();
        within(gathering.noting.take().unwrap()).await.unwrap();
        assert_eq!(api.writes().len(), 1);
    };
    LocalSet::new().run_until(work).await;
}

#[test]
fn a_secret_is_served_for_the_host_that_its_certificate_and_its_name_are_for() {
    let demands = Demands::new(&Metrics::new());
    let mut served = served(&demands);
    let texts = certificate("a.example", today());
    let put = |served: &mut Served, news: ShelfNews| served.take(vec![news]).len();
    assert_eq!(put(&mut served, news_of("b.example", texts.clone())), 0);
    assert!(!demands.has("a.example") && !demands.has("b.example"));
    let order = testing::order("on-demand:b.example", OrderStage::Placing);
    let other = KeptOnDemand::texts(&order, &testing::issued(&["a.example"]));
    assert_eq!(put(&mut served, news_of("b.example", other)), 0);
    assert!(!demands.has("b.example"));
    assert_eq!(put(&mut served, news_of("a.example", texts)), 1);
    assert!(demands.has("a.example"));
    // One that somebody has spoilt is taken out of service.
    assert_eq!(put(&mut served, news_of("a.example", Texts::new())), 1);
    assert!(!demands.has("a.example"));
}
