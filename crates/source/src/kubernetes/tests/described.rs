//! Statuses that are ours in part, against the fake server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::{clock, task};
use serde_json::{Value, json};

use super::server::Server;
use super::{changed, names, settings, synced};
use crate::kubernetes::lease::Claim;
use crate::kubernetes::status::StatusCounters;
use crate::kubernetes::status::described::{
    Describe, DescribedSettings, DescribedStatuses, DescribedWriter, Description,
};
use crate::kubernetes::status::ours::{OwnCondition, OwnEntry, OwnForm, OwnStatus, StatusOwner};
use crate::kubernetes::{Access, Client, Cluster, ClusterSettings};

const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/httproutes";
const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/n/gateways";
const OURS: &str = "myriad.dev/gateway-controller";

/// How long an object waits that somebody else has edited.
const MEND_AFTER: Duration = Duration::from_millis(20);

/// The words about objects.
#[derive(Clone, Default)]
struct Words {
    /// By their names: the status of `Accepted`, and the generation.
    said: Arc<Mutex<BTreeMap<String, Word>>>,
    /// How many looks at an object there were, but for comparisons.
    looks: Arc<AtomicUsize>,
}

#[derive(Clone, Copy)]
enum Word {
    Accepted(&'static str, i64),
    Later,
}

impl Words {
    fn say(&self, name: &str, word: Word) {
        let mut said = self.said.lock().expect("no panic");
        said.insert(name.to_owned(), word);
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::Relaxed)
    }
}

impl Describe for Words {
    fn describe(&self, key: &ObjectKey) -> Description {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.peek(key)
    }

    fn peek(&self, key: &ObjectKey) -> Description {
        let word = self.said.lock().expect("no panic").get(key.name()).copied();
        let (status, generation) = match word {
            Some(Word::Accepted(status, generation)) => (status, generation),
            Some(Word::Later) => return Description::Later,
            None => return Description::Nothing,
        };
        let conditions = vec![OwnCondition {
            kind: "Accepted",
            status,
            reason: "Accepted",
            message: "".into(),
            stays: false,
        }];
        let form = match key.kind {
            ObjectKind::HttpRoute => OwnForm::Listed(vec![OwnEntry {
                subject: json!({"name": "g"}),
                conditions,
            }]),
            _ => OwnForm::Whole {
                conditions,
                fields: Vec::new(),
                sections: None,
            },
        };
        Description::Shown(OwnStatus { generation, form })
    }
}

fn claim() -> Claim {
    let (claim, now) = (Claim::new(), clock::now());
    claim.set(Some(now + Duration::from_secs(3_600)), now);
    claim
}

async fn writer(server: &Server, claim: Claim, words: &Words) -> DescribedStatuses {
    let access = Access::Plain(server.uri());
    let client = Client::new(&access, Arc::default())
        .await
        .expect("a client");
    writer_of(client, claim, words, StatusCounters::default())
}

fn writer_of(
    client: Client,
    claim: Claim,
    words: &Words,
    counters: StatusCounters,
) -> DescribedStatuses {
    let settings = DescribedSettings {
        owner: StatusOwner {
            controller: OURS.into(),
            manager: "myriad-edge".into(),
            conditions: &["Accepted", "myriad.dev/Live"],
        },
        kinds: vec![
            ObjectKind::GatewayClass,
            ObjectKind::Gateway,
            ObjectKind::HttpRoute,
        ],
        writes_per_second: 1_000.0,
        waiting_max: 10_000,
        mend_after: MEND_AFTER,
    };
    let words = Arc::new(words.clone());
    let (writer, statuses) = DescribedWriter::new(client, claim, words, settings, counters);
    task::spawn("described statuses", writer.run());
    statuses
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::HttpRoute, "n", name)
}

fn entry(controller: &str, status: &str) -> Value {
    json!({
        "controllerName": controller,
        "parentRef": {"name": "g"},
        "conditions": [{
            "type": "Accepted",
            "status": status,
            "reason": "Accepted",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "then",
        }],
    })
}

/// A route of generation 1 that shows entries.
fn route(parents: &[Value]) -> Value {
    json!({"metadata": {"generation": 1}, "spec": {}, "status": {"parents": parents}})
}

fn parents(server: &Server, name: &str) -> Vec<Value> {
    let object = server.get(ROUTES, name).expect("it is there");
    let parents = object["status"]["parents"].as_array();
    parents.cloned().unwrap_or_default()
}

/// The objects that were written, in that order.
fn written(server: &Server) -> Vec<String> {
    let log = server.log().into_iter();
    let writes = log.filter_map(|line| {
        let path = line.strip_prefix("PATCH ")?.split("/status").next()?;
        Some(path.rsplit('/').next()?.to_owned())
    });
    writes.collect()
}

/// A cluster whose watches have shown all that there is.
async fn watching(server: &Server) -> Cluster {
    let settings = ClusterSettings {
        kinds: ObjectKind::ALL.into(),
        ..settings(server)
    };
    synced(settings).await.0
}

/// Waits until watches have shown all routes of before, one of this name that is put now, and for
/// longer than an edit waits.
async fn seen(server: &Server, cluster: &mut Cluster, name: &str) {
    server.put(ROUTES, name, route(&[]));
    let is_name = |it: &String| it == name;
    while !names(&changed(cluster).await).0.iter().any(is_name) {}
    tokio::time::sleep(10 * MEND_AFTER).await;
}

/// Waits until nothing is to be looked at any more.
async fn settled(statuses: &DescribedStatuses) {
    while statuses.waiting() != (0, false) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn our_entry_is_written_beside_those_of_others_who_write_meanwhile() {
    let server = Server::start().await;
    server.put(ROUTES, "a", route(&[entry("other", "True")]));
    let words = Words::default();
    words.say("a", Word::Accepted("True", 1));
    let statuses = writer(&server, claim(), &words).await;
    server.conflict(2);
    statuses.look(key("a"), clock::now());
    server.asked("PATCH", 3).await;
    let found = parents(&server, "a");
    assert_eq!(found[0], entry("other", "True"));
    assert_eq!(found[1]["controllerName"], OURS);
    assert_eq!(found[1]["conditions"][0]["observedGeneration"], 1);
    // Once it is right, looking at it writes nothing.
    statuses.look(key("a"), clock::now());
    statuses.look(key("gone"), clock::now());
    server.asked("/gone", 1).await;
    settled(&statuses).await;
    assert_eq!(written(&server).len(), 3, "two of them met somebody else's");
}

#[tokio::test]
async fn our_part_that_somebody_edits_is_written_again_and_nothing_else_is() {
    let server = Server::start().await;
    server.define(
        "gateway.networking.k8s.io/v1",
        &["gatewayclasses", "httproutes"],
    );
    for name in ["ours", "theirs"] {
        server.put(ROUTES, name, route(&[entry("other", "True")]));
    }
    let (words, counters) = (Words::default(), StatusCounters::default());
    words.say("ours", Word::Accepted("True", 1));
    let cluster = watching(&server).await;
    let statuses = writer_of(cluster.client(), claim(), &words, counters.clone());
    statuses.review();
    server.asked("PATCH", 1).await;
    let reviewed = words.looks();
    // Neither our own write nor that of another controller is an edit.
    server.put(ROUTES, "theirs", route(&[entry("other", "False")]));
    let both = [entry("other", "False"), entry(OURS, "True")];
    server.put(ROUTES, "ours", route(&both));
    for times in 1..=2 {
        let edited = [entry("other", "False"), entry(OURS, "False")];
        server.put(ROUTES, "ours", route(&edited));
        server.asked("PATCH", 1 + times).await;
        let found = parents(&server, "ours");
        assert_eq!(found[0], entry("other", "False"));
        assert_eq!(found[1]["conditions"][0]["status"], "True");
    }
    // An entry in our name where we have nothing to say goes.
    let forged = [entry("other", "False"), entry(OURS, "True")];
    server.put(ROUTES, "theirs", route(&forged));
    server.asked("PATCH", 4).await;
    assert_eq!(parents(&server, "theirs"), [entry("other", "False")]);
    settled(&statuses).await;
    assert_eq!(written(&server), ["ours", "ours", "ours", "theirs"]);
    while counters.mended.get() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!((counters.written.get(), counters.mended.get()), (4, 3));
    let looks = words.looks() - reviewed;
    assert_eq!(looks, 3, "what watches show is compared alone");
}

#[tokio::test]
async fn before_the_first_review_of_a_term_nothing_that_is_shown_is_an_edit() {
    let server = Server::start().await;
    server.define(
        "gateway.networking.k8s.io/v1",
        &["gatewayclasses", "httproutes"],
    );
    server.put(ROUTES, "a", route(&[entry(OURS, "True")]));
    let mut cluster = watching(&server).await;
    // One that leads before its first list has ended knows of nothing.
    let (words, claim) = (Words::default(), claim());
    let counters = StatusCounters::default();
    let statuses = writer_of(cluster.client(), claim.clone(), &words, counters);
    let edited = [entry("other", "True"), entry(OURS, "True")];
    server.put(ROUTES, "a", route(&edited));
    seen(&server, &mut cluster, "first").await;
    assert_eq!(statuses.waiting(), (0, false));
    assert_eq!(written(&server), [""; 0]);
    statuses.review();
    server.asked("PATCH", 1).await;
    assert_eq!(parents(&server, "a"), [entry("other", "True")]);
    // The next term begins as the first did.
    claim.set(None, clock::now());
    statuses.look(key("b"), clock::now());
    settled(&statuses).await;
    let now = clock::now();
    claim.set(Some(now + Duration::from_secs(3_600)), now);
    server.put(ROUTES, "a", route(&edited));
    seen(&server, &mut cluster, "second").await;
    assert_eq!(statuses.waiting(), (0, false));
    assert_eq!(written(&server), ["a"]);
}

#[tokio::test]
async fn who_begins_to_lead_writes_what_is_wrong_and_nothing_else() {
    let server = Server::start().await;
    let words = Words::default();
    for number in 0..250 {
        let name = format!("right{number:03}");
        server.put(
            ROUTES,
            &name,
            route(&[entry("other", "True"), entry(OURS, "True")]),
        );
        words.say(&name, Word::Accepted("True", 1));
    }
    server.put(ROUTES, "new", route(&[]));
    words.say("new", Word::Accepted("True", 1));
    server.put(ROUTES, "turned", route(&[entry(OURS, "True")]));
    words.say("turned", Word::Accepted("False", 1));
    // An earlier leader had still to take this back when it died.
    server.put(
        ROUTES,
        "left",
        route(&[entry(OURS, "True"), entry("other", "True")]),
    );
    server.put(ROUTES, "theirs", route(&[entry("other", "True")]));
    server.put(ROUTES, "newer", route(&[entry(OURS, "True")]));
    words.say("newer", Word::Accepted("False", 7));
    server.put(ROUTES, "unknown", route(&[entry(OURS, "True")]));
    words.say("unknown", Word::Later);
    let seen = json!({"type": "Ready", "status": "True"});
    let gateway = json!({"metadata": {"generation": 1}, "status": {"conditions": [seen]}});
    server.put(GATEWAYS, "g", gateway.clone());
    words.say("g", Word::Accepted("True", 1));
    server.put(GATEWAYS, "foreign", gateway);
    let statuses = writer(&server, claim(), &words).await;
    statuses.review();
    settled(&statuses).await;
    server.asked("PATCH", 4).await;
    let mut names = written(&server);
    names.sort();
    assert_eq!(names, ["g", "left", "new", "turned"]);
    assert_eq!(parents(&server, "left"), [entry("other", "True")]);
    let gateway = server.get(GATEWAYS, "g").expect("it is there");
    assert_eq!(gateway["status"]["conditions"][0], seen);
    assert_eq!(gateway["status"]["conditions"][1]["type"], "Accepted");
    let pages = server.log().into_iter();
    assert_eq!(pages.filter(|it| it.contains("limit=")).count(), 1 + 1 + 3);
}

#[tokio::test]
async fn a_leader_that_dies_in_the_middle_leaves_nothing_undone() {
    let server = Server::start().await;
    for number in 0..20 {
        server.put(ROUTES, &format!("r{number}"), route(&[entry(OURS, "True")]));
    }
    let (words, first) = (Words::default(), claim());
    let dying = writer(&server, first.clone(), &words).await;
    for number in 0..20 {
        dying.look(key(&format!("r{number}")), clock::now());
    }
    server.asked("PATCH", 5).await;
    first.set(None, clock::now());
    settled(&dying).await;
    let before = written(&server).len();
    assert!(before < 20, "it had still some to write");
    let next = writer(&server, claim(), &words).await;
    next.review();
    settled(&next).await;
    server.asked("PATCH", 20).await;
    for number in 0..20 {
        assert_eq!(parents(&server, &format!("r{number}")), Vec::<Value>::new());
    }
    assert_eq!(written(&server).len(), 20, "and none twice");
}

#[tokio::test]
async fn who_does_not_lead_writes_nothing_and_kinds_that_are_not_there_keep_nobody_waiting() {
    let server = Server::start().await;
    server.put(ROUTES, "a", route(&[]));
    let words = Words::default();
    words.say("a", Word::Accepted("True", 1));
    let idle = writer(&server, Claim::new(), &words).await;
    idle.look(key("a"), clock::now());
    idle.review();
    settled(&idle).await;
    assert!(server.log().is_empty(), "{:?}", server.log());
    let gateways = "/apis/gateway.networking.k8s.io/v1/gateways";
    server.forbid(gateways);
    let statuses = writer(&server, claim(), &words).await;
    statuses.review();
    server.asked("PATCH", 1).await;
    assert_eq!(written(&server), ["a"]);
}
