//! Stories about a shop whose endpoints, routes and certificates come and go.

use myriad_api::{Change, Object, ObjectKey, ObjectKind};
use myriad_base::metrics::Metrics;
use myriad_model::{Form, Sealer, Writer};
use myriad_translate::{Engine, MAIN};
use serde_json::{Value, json};

use super::{TRIED_MAX, WhyReport, answer};
use crate::board::Board;
use crate::diff::{self, DiffQuestion};
use crate::explain::{Explainer, Question};
use crate::history::{
    BYTES_DEFAULT, History, HistorySettings, NewCommit, Touches, ViewChange, moment,
};
use crate::live::Live;

/// How long ago the first list was over, in milliseconds.
const LONG_AGO: i64 = 3_600_000;

struct Shop {
    engine: Engine,
    board: Board,
    live: Live,
    history: History,
    explainer: Explainer,
    now: i64,
    batches: u64,
}

fn object(kind: ObjectKind, value: Value) -> Change {
    Change::Put(Object::deserialize(kind, value).expect("an object"))
}

fn ingress(path: &str) -> Change {
    let value = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"namespace": "shop", "name": "front"},
        "spec": {"rules": [{"host": "www.shop.test", "http": {"paths": [{
            "path": path, "pathType": "Prefix",
            "backend": {"service": {"name": "cart", "port": {"number": 80}}}
        }]}}]}
    });
    object(ObjectKind::Ingress, value)
}

fn slice(addresses: &[&str]) -> Change {
    let value = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": "shop", "name": "cart-1",
            "labels": {"kubernetes.io/service-name": "cart"}
        },
        "addressType": "IPv4",
        "ports": [{"name": "web", "port": 8080}],
        "endpoints": addresses.iter().map(|it| json!({"addresses": [it]})).collect::<Vec<_>>()
    });
    object(ObjectKind::EndpointSlice, value)
}

fn service() -> Change {
    let value = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "shop", "name": "cart"},
        "spec": {"ports": [{"name": "web", "port": 80, "targetPort": 8080}]}
    });
    object(ObjectKind::Service, value)
}

impl Shop {
    /// A shop that has been open for an hour.
    fn open() -> Shop {
        let metrics = Metrics::new();
        let board = Board::new(&metrics);
        let history = History::new(HistorySettings {
            bytes_max: usize::try_from(BYTES_DEFAULT).unwrap(),
            age_max: std::time::Duration::from_secs(86_400),
        });
        let writer = Writer::new(Sealer::new([3; 32], Form::Encoded));
        let explainer = Explainer::of_board(board.clone());
        let mut shop = Shop {
            engine: Engine::new(myriad_translate::Settings::default(), writer),
            board,
            live: Live::new(&metrics),
            explainer: explainer.with_history(Some(history.clone())),
            history,
            now: moment::now() - LONG_AGO,
            batches: 0,
        };
        let changes = vec![
            ingress("/cart"),
            service(),
            slice(&["10.0.0.1", "10.0.0.2"]),
        ];
        shop.change(changes);
        shop.history.begin(shop.now);
        shop
    }

    /// Changes objects, a minute after the last change; returns when that is.
    fn change(&mut self, changes: Vec<Change>) -> i64 {
        self.now += 60_000;
        let mut touches = Touches::default();
        changes.iter().for_each(|change| touches.note(change));
        let outcome = self.engine.apply(changes, self.now / 1_000);
        self.batches += 1;
        self.board.change_findings(outcome.findings.clone());
        self.board
            .set_snapshot(self.engine.snapshot(), self.batches);
        let commit = NewCommit {
            touches,
            findings: outcome.findings,
            views: vec![ViewChange {
                view: MAIN.into(),
                delta: outcome.delta,
                snapshot: self.engine.snapshot().clone(),
            }],
            ..NewCommit::default()
        };
        self.history.committed(commit, self.now, &self.live);
        self.now
    }

    fn why(&self, domain: &str, at: &str) -> WhyReport {
        answer(&self.explainer, None, (domain, MAIN, at)).expect("a story")
    }

    fn is_served_at(&self, path: &str, at: i64) -> bool {
        let question = Question::new(&format!("http://www.shop.test{path}"), "GET", &[]);
        let explained = self
            .explainer
            .explain_at(&question.unwrap(), MAIN, &moment::text(at));
        explained.unwrap().is_served
    }
}

#[test]
fn a_story_names_the_moment_the_object_and_the_answer_before() {
    let mut shop = Shop::open();
    let writer = ObjectKey::new(ObjectKind::EndpointSlice, "shop", "cart-1");
    shop.history
        .note_writers(vec![(writer, "kubectl-edit".into())]);
    let broken = shop.change(vec![slice(&[])]);
    let story = shop.why("www.shop.test/cart", "");
    assert!(!story.is_served, "{story}");
    assert_eq!(story.url, "http://www.shop.test/cart");
    assert_eq!(story.since, Some(moment::text(broken)));
    assert_eq!(
        story.before.as_deref(),
        Some("is sent to one of 2 endpoints")
    );
    let text = story.to_string();
    for part in [
        "NOT SERVED: ",
        "EndpointSlice shop/cart-1 was written by kubectl-edit",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(shop.is_served_at("/cart", broken - 1));
    assert!(!shop.is_served_at("/cart", broken));
    // The same story before it broke.
    let story = shop.why("www.shop.test/cart", &moment::text(broken - 1));
    assert!(story.is_served && story.since.is_none(), "{story}");
}

#[test]
fn a_domain_that_is_served_again_says_since_when() {
    let mut shop = Shop::open();
    shop.change(vec![slice(&[])]);
    let mended = shop.change(vec![slice(&["10.0.0.3"])]);
    shop.change(vec![slice(&["10.0.0.3", "10.0.0.4"])]);
    let story = shop.why("www.shop.test/cart", "");
    assert!(story.is_served, "{story}");
    assert_eq!(story.since, Some(moment::text(mended)));
    assert_eq!(story.changes.len(), 3);
    assert!(
        story.to_string().contains("other changes that concern it"),
        "{story}"
    );
}

#[test]
fn a_route_that_is_gone_is_found_though_nothing_of_it_is_left() {
    let mut shop = Shop::open();
    let key = ObjectKey::new(ObjectKind::Ingress, "shop", "front");
    let gone = shop.change(vec![Change::Remove(key)]);
    let story = shop.why("www.shop.test/cart", "");
    assert!(!story.is_served);
    assert_eq!(story.since, Some(moment::text(gone)), "{story}");
    assert!(
        story.to_string().contains("Ingress shop/front was removed"),
        "{story}"
    );
}

#[test]
fn changes_of_others_are_no_part_of_a_story_and_few_former_states_are_tried() {
    let mut shop = Shop::open();
    for number in 0..TRIED_MAX + 3 {
        let address = format!("10.0.1.{number}");
        shop.change(vec![slice(&[&address])]);
        let other = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "blog", "name": format!("other{number}")},
            "spec": {"ports": [{"port": 80}]}
        });
        shop.change(vec![object(ObjectKind::Service, other)]);
    }
    let story = shop.why("www.shop.test/cart", "");
    assert!(story.is_served, "{story}");
    assert!(!story.to_string().contains("blog"), "{story}");
    assert_eq!(story.changes.len(), super::CHANGES_SHOWN_MAX);
    // It was served all the time, and the newest change of the answer is not among the states
    // that are tried.
    assert_eq!(story.before, None);
}

#[test]
fn a_difference_is_told_field_by_field_and_for_one_host() {
    let mut shop = Shop::open();
    let before = moment::text(shop.now);
    shop.change(vec![ingress("/basket")]);
    shop.change(vec![slice(&["10.0.0.1", "10.0.0.9"])]);
    let ask = |host: &str, to: &str| {
        let question = DiffQuestion {
            view: MAIN.to_owned(),
            from: before.clone(),
            to: to.to_owned(),
            host: host.to_owned(),
        };
        diff::answer(Some(&shop.history), &question).expect("a difference")
    };
    let found = ask("www.shop.test", "");
    let kinds: Vec<(&str, &str)> = found
        .resources
        .iter()
        .map(|it| (&*it.kind, &*it.deed))
        .collect();
    assert!(kinds.contains(&("endpoints", "changed")), "{found}");
    let text = found.to_string();
    for part in [
        "endpoint 10.0.0.9:8080.address: nothing -> 10.0.0.9:8080",
        "endpoint 10.0.0.2:8080.address: 10.0.0.2:8080 -> nothing",
        "Ingress shop/front was written",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert_eq!(ask("other.test", "").resources_total, 0);
    assert_eq!(ask("", &before).resources_total, 0);
    assert_eq!(ask("", "").resources_total, found.resources_total);
}

#[test]
fn what_cannot_be_told_says_why() {
    let shop = Shop::open();
    let ask = |domain: &str, at: &str| {
        let told = answer(&shop.explainer, None, (domain, MAIN, at));
        told.expect_err("no story")
    };
    assert!(ask("www.shop.test", "noon").contains("-10m"));
    assert!(ask("www.shop.test", "-2d").contains("--history-bytes"));
    assert!(ask("", "").contains("is not a URL"));
    let explainer = Explainer::of_board(shop.board.clone());
    let told = answer(&explainer, None, ("www.shop.test", MAIN, ""));
    assert!(told.expect_err("none").contains("no history"));
    let question = DiffQuestion::default();
    assert!(diff::answer(None, &question).is_err());
}
