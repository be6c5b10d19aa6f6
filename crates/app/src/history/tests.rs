use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_api::{Change, Finding, Object, ObjectKey, ObjectKind, Severity};
use myriad_base::clock;
use myriad_base::metrics::Metrics;
use myriad_model::wire::SCHEMA;
use myriad_model::{
    AccessCheck, AccessPolicy, Authenticate, Certificate, ChallengeAnswer, ChallengeForm, Delta,
    Digest, Endpoint, Endpoints, Form, Host, Key, KeyEncoding, Kind, Name, Origin, Position,
    PrivateKey, Resource, Sealer, TokenIssuer, TokenKeys, Trust, Users, Value, Writer,
};
use myriad_translate::{FindingsChange, MAIN};
use proptest::prelude::*;
use serde_json::json;

use super::entry::OBJECTS_NAMED_MAX;
use super::former::read;
use super::report::TimelineFilter;
use super::{History, HistorySettings, NewCommit, Touches, ViewChange};
use crate::board::Board;
use crate::live::{Live, Newcomer, Speaker};

mod tenants;

const CANARY: &str = "c4n4ry-c4n4ry-c4n4ry";

/// When the first list of each history is over.
const BEGUN: i64 = 1_000;

/// A history of resources that are written here.
struct World {
    history: History,
    live: Live,
    writer: Writer,
    /// Numbers that stand for milliseconds.
    now: i64,
}

impl World {
    fn new(bytes_max: usize, form: Form) -> World {
        let settings = HistorySettings {
            bytes_max,
            age_max: Duration::from_secs(3_600),
        };
        let mut world = World {
            history: History::new(settings),
            live: Live::new(&Metrics::new()),
            writer: Writer::new(Sealer::new([7; 32], form)),
            now: BEGUN,
        };
        world.commit(NewCommit::default(), Delta::default());
        world.history.begin(BEGUN);
        world
    }

    fn commit(&mut self, commit: NewCommit, delta: Delta) {
        let view = ViewChange {
            view: MAIN.into(),
            delta,
            snapshot: self.writer.snapshot().clone(),
        };
        let commit = NewCommit {
            views: vec![view],
            ..commit
        };
        self.history.committed(commit, self.now, &self.live);
    }

    /// Puts resources, and takes those away that have no value, in one commit a second later.
    fn put(&mut self, resources: Vec<(Key, Option<Value>)>) -> Digest {
        let mut delta = Delta::default();
        for (key, value) in resources {
            let resource = value.map(|value| Resource {
                origin: Origin::settings(),
                value,
            });
            let outputs = resource.map(|resource| (key.name.clone(), resource));
            let outputs = outputs.into_iter().collect();
            self.writer.replace(&[key], outputs, &mut delta);
        }
        self.now += 1_000;
        self.commit(NewCommit::default(), delta);
        self.writer.snapshot().digest()
    }

    fn past_digest(&self, at: i64) -> Result<Digest, String> {
        let past = self.history.past(MAIN, at)?;
        Ok(past.snapshot().digest())
    }
}

fn key(kind: Kind, name: &str) -> Key {
    Key::new(kind, Name::from(name))
}

fn endpoints(port: u16) -> Value {
    let address = ([10, 0, 0, 1], port).into();
    Value::Endpoints(Box::new(Endpoints::new([Endpoint::even(address)].into())))
}

/// Endpoints that take some KiB.
fn large(port: u16) -> Value {
    let addresses = (0..=255_u8).map(|last| Endpoint::even(([10, 0, 0, last], port).into()));
    Value::Endpoints(Box::new(Endpoints::new(addresses.collect())))
}

fn finding(name: &str) -> Arc<Finding> {
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", name);
    let finding = Finding::new(Severity::Error, &key, "spec", "is wrong", "mend it");
    Arc::new(finding)
}

fn touches(name: &str) -> Touches {
    let value = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"ports": [{"port": 80}]}
    });
    let object = Object::deserialize(ObjectKind::Service, value).unwrap();
    let mut touches = Touches::default();
    touches.note(&Change::Put(object));
    touches
}

/// One commit: the resources that are put or, without a port, taken away.
fn commits() -> impl Strategy<Value = Vec<Vec<(u8, Option<u16>)>>> {
    let change = (0..12_u8, prop::option::of(1..4_u16));
    prop::collection::vec(prop::collection::vec(change, 0..5), 1..20)
}

/// The ports of a snapshot's endpoints, by name.
fn ports(snapshot: &myriad_model::Snapshot) -> BTreeMap<String, u16> {
    let resources = snapshot.iter().map(|sealed| {
        let resource = read(sealed).expect("it can be read");
        let Value::Endpoints(endpoints) = &resource.value else {
            panic!("{resource:?}");
        };
        (
            sealed.name().to_string(),
            endpoints.endpoints[0].address.port(),
        )
    });
    resources.collect()
}

proptest! {
    #[test]
    fn undoing_what_came_after_makes_each_former_snapshot_again(
        commits in commits(),
        is_encoded: bool,
    ) {
        let form = if is_encoded { Form::Encoded } else { Form::Value };
        let mut world = World::new(16 << 20, form);
        let mut known = vec![(world.now, world.writer.snapshot().clone())];
        for commit in commits {
            let resources = commit.into_iter().map(|(number, port)| {
                (key(Kind::Endpoints, &format!("e{number}")), port.map(endpoints))
            });
            // A key that comes twice in a commit is two changes of it.
            world.put(resources.collect());
            known.push((world.now, world.writer.snapshot().clone()));
        }
        for (at, snapshot) in &known {
            for at in [*at, at + 999] {
                let past = world.history.past(MAIN, at).unwrap();
                prop_assert_eq!(past.snapshot().digest(), snapshot.digest());
                prop_assert_eq!(past.snapshot().len(), snapshot.len());
                prop_assert_eq!(ports(past.snapshot()), ports(snapshot));
            }
        }
        // The same, one step at a time.
        let mut past = world.history.past(MAIN, world.now).unwrap();
        while let Some(entry) = past.step_back() {
            let before = known.iter().rev().find(|(at, _)| *at < entry.at);
            let before = before.map(|(_, snapshot)| snapshot.digest());
            prop_assert_eq!(Some(past.snapshot().digest()), before);
        }
    }
}

#[test]
fn the_oldest_commits_go_when_the_bytes_are_used_up() {
    let bytes_max = 64 << 10;
    let mut world = World::new(bytes_max, Form::Encoded);
    let mut digests = vec![(world.now, world.writer.snapshot().digest())];
    for port in 1..200 {
        let digest = world.put(vec![(key(Kind::Endpoints, "large"), Some(large(port)))]);
        digests.push((world.now, digest));
        let report = world.history.timeline(&TimelineFilter::default(), None);
        assert!(report.bytes <= bytes_max, "{report:?}");
    }
    let report = world.history.timeline(&TimelineFilter::default(), None);
    assert!(report.kept > 3 && report.kept < 60, "{}", report.kept);
    assert!(report.bytes > bytes_max / 2, "{}", report.bytes);
    let problem = world.past_digest(BEGUN).unwrap_err();
    assert!(problem.contains("--history-bytes"), "{problem}");
    // All that is said to be known is known as it was.
    let mut known = 0;
    for (at, digest) in &digests {
        if let Ok(past) = world.past_digest(*at) {
            assert_eq!(past, *digest);
            known += 1;
        }
    }
    assert_eq!(known, report.kept + 1);
}

#[test]
fn a_commit_that_is_too_large_is_listed_and_what_was_before_it_is_not_known() {
    let mut world = World::new(32 << 10, Form::Value);
    let all = |port| (0..50).map(move |it| (key(Kind::Endpoints, &format!("e{it}")), port));
    let put = |port: u16| {
        all(port)
            .map(|(key, port)| (key, Some(large(port))))
            .collect()
    };
    world.put(put(1));
    world.put(put(2));
    let digest = world.writer.snapshot().digest();
    let report = world.history.timeline(&TimelineFilter::default(), None);
    let newest = &report.entries[0];
    assert!(!newest.is_whole && newest.resources_total == 50);
    assert!(newest.resources.is_empty());
    assert!(report.bytes <= 32 << 10, "{}", report.bytes);
    assert_eq!(world.past_digest(world.now), Ok(digest));
    assert!(world.past_digest(world.now - 1).is_err());
    world.put(vec![(key(Kind::Endpoints, "e0"), Some(endpoints(3)))]);
    assert_eq!(world.past_digest(world.now - 1), Ok(digest));
}

#[test]
fn commits_go_with_their_age_and_time_that_is_set_back_tears_no_order() {
    let mut world = World::new(16 << 20, Form::Encoded);
    world.put(vec![(key(Kind::Endpoints, "a"), Some(endpoints(1)))]);
    world.now += 3_600_001;
    world.put(vec![(key(Kind::Endpoints, "a"), Some(endpoints(2)))]);
    world.now -= 100_000;
    let digest = world.put(vec![(key(Kind::Endpoints, "a"), Some(endpoints(3)))]);
    let report = world.history.timeline(&TimelineFilter::default(), None);
    assert_eq!(report.kept, 2);
    assert_eq!(report.entries[0].unix_ms, report.entries[1].unix_ms);
    let at = report.entries[0].unix_ms;
    assert_eq!(world.past_digest(at), Ok(digest));
    assert!(world.past_digest(at - 1).is_ok());
    assert!(world.past_digest(BEGUN).is_err());
}

/// A resource of each kind with secrets, all of which are the canary.
fn secrets(round: u8) -> Vec<(Key, Option<Value>)> {
    let secret = format!("{CANARY}-{round}");
    let certificate = Certificate {
        chain: [Bytes::from(vec![round; 40])].into(),
        key: PrivateKey::new(KeyEncoding::Pkcs8, secret.clone().into()),
    };
    let trust = Trust {
        roots: Box::default(),
        crls: Box::default(),
        users: Users::new(vec![(
            secret.as_str().into(),
            format!("{{PLAIN}}{secret}").into(),
        )]),
    };
    let answer = ChallengeAnswer {
        host: Host::parse("a.test").unwrap(),
        form: ChallengeForm::Http,
        token: "t".into(),
        text: secret.as_str().into(),
    };
    let issuer = TokenIssuer {
        issuer: "i".into(),
        audiences: Box::default(),
        keys: TokenKeys::Inline(format!("{{\"keys\":[{{\"k\":\"{secret}\"}}]}}").into()),
        headers: Box::default(),
        params: Box::default(),
        cookies: Box::default(),
        is_forwarded: false,
        payload_header: "".into(),
        claim_headers: Box::default(),
        word_claims: Box::default(),
    };
    let policy = AccessPolicy {
        listeners: [].into(),
        check: AccessCheck::Authenticate(Authenticate {
            issuers: [issuer].into(),
        }),
    };
    [
        (Kind::Certificate, Value::Certificate(Box::new(certificate))),
        (Kind::Trust, Value::Trust(Box::new(trust))),
        (
            Kind::ChallengeAnswer,
            Value::ChallengeAnswer(Box::new(answer)),
        ),
        (Kind::AccessPolicy, Value::AccessPolicy(Box::new(policy))),
    ]
    .map(|(kind, value)| (key(kind, "one"), Some(value)))
    .into()
}

#[test]
fn a_former_secret_is_kept_as_its_fingerprint_alone() {
    for form in [Form::Value, Form::Encoded] {
        let mut world = World::new(16 << 20, form);
        world.put(secrets(1));
        let before = world.writer.snapshot().clone();
        world.put(secrets(2));
        world.put(secrets(3));
        let past = world.history.past(MAIN, world.now - 1_001).unwrap();
        assert_eq!(past.snapshot().len(), 4);
        // Their versions are the fingerprints by which they are told from others.
        assert_eq!(past.snapshot().digest(), before.digest());
        for sealed in past.snapshot().iter() {
            let bytes = sealed.encoded().expect("the bytes that were kept");
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains(CANARY), "{}", sealed.key());
            let resource = read(sealed).expect("stand-ins can be read");
            assert_eq!(resource.value.kind(), sealed.key().kind);
            if let Value::Certificate(certificate) = &resource.value {
                assert_eq!(certificate.chain[0], vec![1; 40]);
                assert!(!certificate.key.expose().is_empty());
            }
            if let Value::Trust(trust) = &resource.value {
                assert_eq!(trust.users.len(), 1);
            }
        }
        let report = world.history.timeline(&TimelineFilter::default(), None);
        let text = serde_json::to_string(&report).unwrap() + &report.entries[0].to_string();
        assert!(
            !text.contains(CANARY) && text.contains("certificate"),
            "{text}"
        );
    }
}

#[test]
fn fingerprints_tell_secrets_apart_and_differ_between_processes() {
    let [one, other] = [(), ()].map(|()| World::new(1, Form::Value).history);
    let print =
        |history: &History, secret: &str| history.stand_ins().fingerprint(secret.as_bytes());
    assert_eq!(print(&one, "a"), print(&one, "a"));
    assert_ne!(print(&one, "a"), print(&one, "b"));
    assert_ne!(print(&one, "a"), print(&other, "a"));
}

#[test]
fn a_view_that_came_later_was_not_there_before() {
    let mut world = World::new(16 << 20, Form::Encoded);
    world.put(vec![(key(Kind::Endpoints, "a"), Some(endpoints(1)))]);
    world.now += 1_000;
    let came = world.now;
    let view = |snapshot: &myriad_model::Snapshot| ViewChange {
        view: "own/shop/web".into(),
        delta: Delta::default(),
        snapshot: snapshot.clone(),
    };
    let commit = NewCommit {
        touches: touches("web"),
        views: vec![view(world.writer.snapshot())],
        ..NewCommit::default()
    };
    world.history.committed(commit, came, &world.live);
    assert!(world.history.past("own/shop/web", came).is_ok());
    let problem = world.history.past("own/shop/web", came - 1).err().unwrap();
    assert!(problem.contains("was no gateway"), "{problem}");
    let problem = world.history.past("other", came).err().unwrap();
    assert!(problem.contains("--gateways"), "{problem}");
    let commit = NewCommit {
        gone: vec!["own/shop/web".into()],
        ..NewCommit::default()
    };
    world.history.committed(commit, came + 1, &world.live);
    assert!(world.history.past("own/shop/web", came + 2).is_err());
}

#[test]
fn findings_of_a_former_moment_are_those_that_stood_then() {
    let mut world = World::new(16 << 20, Form::Encoded);
    let board = Board::new(&Metrics::new());
    let change = |world: &mut World, added: &[&str], removed: &[&str]| {
        let of = |names: &[&str]| names.iter().map(|name| finding(name)).collect();
        let findings = FindingsChange {
            added: of(added),
            removed: of(removed),
        };
        board.change_findings(findings.clone());
        world.now += 1_000;
        let commit = NewCommit {
            findings,
            ..NewCommit::default()
        };
        world.commit(commit, Delta::default());
        world.now
    };
    let one = change(&mut world, &["a", "b"], &[]);
    let two = change(&mut world, &["c"], &["a"]);
    let three = change(&mut world, &["a"], &["b", "c"]);
    let stood = |at: i64| {
        let past = world.history.past(MAIN, at).unwrap();
        let mut found = past.findings(&board, 10, &|_| true);
        found.sort();
        let names = found
            .iter()
            .map(|it| it.object.as_ref().unwrap().name().to_owned());
        names.collect::<Vec<_>>().concat()
    };
    assert_eq!(stood(BEGUN), "");
    assert_eq!([one, two, three].map(stood), ["ab", "bc", "a"]);
    let past = world.history.past(MAIN, two).unwrap();
    assert_eq!(past.findings(&board, 1, &|_| true).len(), 1);
}

#[test]
fn the_list_of_commits_is_filtered_and_cut_into_pages() {
    let mut world = World::new(16 << 20, Form::Value);
    let writer = ObjectKey::new(ObjectKind::Service, "shop", "s3");
    world
        .history
        .note_writers(vec![(writer, "kubectl-edit".into())]);
    for number in 0..10 {
        world.now += 1_000;
        let commit = NewCommit {
            touches: touches(&format!("s{number}")),
            findings: FindingsChange {
                added: vec![finding("a")],
                removed: Vec::new(),
            },
            ..NewCommit::default()
        };
        world.commit(commit, Delta::default());
    }
    let list = |namespace: &str, before, count_max| {
        let filter = TimelineFilter {
            host: None,
            namespace: Some(namespace.to_owned()),
            before,
            count_max,
        };
        world.history.timeline(&filter, None)
    };
    assert_eq!(list("other", None, 0).entries.len(), 0);
    let first = list("shop", None, 4);
    let numbers: Vec<u64> = first.entries.iter().map(|it| it.number).collect();
    assert_eq!((numbers, first.next), (vec![10, 9, 8, 7], Some(7)));
    let last = list("shop", Some(5), 4);
    assert_eq!((last.entries.len(), last.next), (4, None));
    let entry = world.history.entry(4, None).unwrap();
    assert_eq!(entry.objects[0].name, "s3");
    assert_eq!(entry.objects[0].by.as_deref(), Some("kubectl-edit"));
    assert!(
        entry
            .to_string()
            .contains("Service shop/s3 was written by kubectl-edit")
    );
    assert!(entry.appeared[0].contains("is wrong; mend it"), "{entry}");
    assert!(world.history.entry(11, None).is_none());
    assert!(world.history.entry(0, None).is_none());
}

#[test]
fn a_list_finds_what_is_behind_many_commits() {
    let mut world = World::new(16 << 20, Form::Value);
    for _ in 0..2_500 {
        world.now += 1;
        let commit = NewCommit {
            touches: touches("web"),
            findings: FindingsChange {
                added: vec![finding("a")],
                removed: Vec::new(),
            },
            ..NewCommit::default()
        };
        world.commit(commit, Delta::default());
    }
    let list = |namespace: &str, before| {
        let filter = TimelineFilter {
            namespace: Some(namespace.to_owned()),
            before,
            count_max: 500,
            ..TimelineFilter::default()
        };
        world.history.timeline(&filter, None)
    };
    let (mut before, mut numbers) = (None, Vec::new());
    loop {
        let report = list("shop", before);
        numbers.extend(report.entries.iter().map(|it| it.number));
        before = report.next;
        if before.is_none() {
            break;
        }
    }
    let all: Vec<u64> = (1..=2_500).rev().collect();
    assert_eq!(numbers, all);
    assert!(list("nobody", None).entries.is_empty());
    assert!(list("shop", Some(1)).entries.is_empty());
}

#[test]
fn what_one_commit_names_is_bounded_and_what_changes_nothing_for_anybody_is_left_out() {
    let mut world = World::new(16 << 20, Form::Value);
    let mut touches = Touches::default();
    for number in 0..OBJECTS_NAMED_MAX + 7 {
        let key = ObjectKey::new(ObjectKind::Ingress, "shop", &number.to_string());
        touches.note(&Change::Remove(key));
    }
    let commit = NewCommit {
        touches,
        ..NewCommit::default()
    };
    world.commit(commit, Delta::default());
    let mut touches = Touches::default();
    let slice = ObjectKey::new(ObjectKind::EndpointSlice, "shop", "unread");
    touches.note(&Change::Remove(slice));
    let commit = NewCommit {
        touches,
        ..NewCommit::default()
    };
    world.commit(commit, Delta::default());
    let report = world.history.timeline(&TimelineFilter::default(), None);
    assert_eq!(report.kept, 1);
    let entry = &report.entries[0];
    assert_eq!(entry.objects.len(), OBJECTS_NAMED_MAX);
    assert_eq!(entry.objects_total, OBJECTS_NAMED_MAX + 7);
}

#[test]
fn a_commit_says_where_it_is_live() {
    let mut world = World::new(16 << 20, Form::Value);
    let connect = |stream| {
        let newcomer = Newcomer {
            subject: "s".into(),
            view: MAIN.into(),
            instance: "p".to_owned(),
            schema: SCHEMA,
            speaker: Speaker::Operator,
        };
        world.live.connected(stream, newcomer);
    };
    connect(1);
    connect(2);
    // One that has said nothing yet is not waited for.
    let root = world.writer.snapshot().digest();
    let roots = vec![(MAIN.into(), root)];
    world.live.committed(roots, clock::now(), [].iter(), []);
    for stream in [1, 2] {
        world.live.acked(stream, root, Position::default());
    }
    let mut delta = Delta::default();
    let resource = Resource {
        origin: Origin::settings(),
        value: endpoints(1),
    };
    let outputs = vec![(Name::from("a"), resource)];
    world.writer.replace(&[], outputs, &mut delta);
    let root = world.writer.snapshot().digest();
    let roots = vec![(MAIN.into(), root)];
    world.live.committed(roots, clock::now(), [].iter(), []);
    let commit = NewCommit {
        commit: Some(world.live.newest_commit()),
        ..NewCommit::default()
    };
    world.commit(commit, delta);
    let line = |world: &World| {
        world
            .history
            .entry(1, Some(&world.live))
            .unwrap()
            .live
            .unwrap()
    };
    world.live.acked(1, root, Position::default());
    assert!(!line(&world).is_live);
    assert_eq!((line(&world).proxies, line(&world).proxies_total), (1, 2));
    world.live.acked(2, root, Position::default());
    assert!(line(&world).is_live);
    assert!(
        line(&world)
            .to_string()
            .starts_with("live on all proxies (2) after ")
    );
}
