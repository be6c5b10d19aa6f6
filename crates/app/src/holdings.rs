//! The holdings of each namespace in this process, kept in step with every change.
//!
//! A resource counts for the namespace of the object that it came from. Nothing is walked: a change
//! costs what it changes, and the largest namespaces stand in an index of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use myriad_base::metrics::{Family, Gauge, Metrics};
use myriad_model::{
    Balancer, Change, HashTable, Resource, RouteView, SealedArc, Upstream, Value, wire,
};
use myriad_translate::regex_bytes;
use serde::{Deserialize, Serialize};

/// The most namespaces that a report lists, the largest first; all are counted.
pub const NAMESPACES_SHOWN_MAX: usize = 10;

/// The namespace of what came from no object of any.
const NO_NAMESPACE: &str = "-";

/// The bytes of a point on a hash ring, and of a place in a Maglev table.
const POINT_BYTES: u64 = 12;
const PLACE_BYTES: u64 = 4;

/// A kind of memory that the ledger counts by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Routes,
    Endpoints,
    Certificates,
    Regexes,
    HashTables,
    Answers,
    Other,
}

const PARTS: [Part; 7] = [
    Part::Routes,
    Part::Endpoints,
    Part::Certificates,
    Part::Regexes,
    Part::HashTables,
    Part::Answers,
    Part::Other,
];

/// A number of things, and their bytes: of resources as they are encoded, of regexes and hash
/// tables what they take where nobody shares them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// How many there are.
    pub count: u64,
    /// How many bytes they are.
    pub bytes: u64,
}

/// The sum of what is held, and the namespaces that hold most of it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldingsReport {
    /// How many namespaces hold anything.
    pub namespaces_total: usize,
    /// The sums over all namespaces, by part.
    pub parts: BTreeMap<String, Held>,
    /// The namespaces that hold most, at most [`NAMESPACES_SHOWN_MAX`].
    pub namespaces: Vec<NamespaceReport>,
}

/// The holdings of one namespace.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceReport {
    /// Its name; `-` for what came from no object.
    pub namespace: String,
    /// The bytes of all parts.
    pub bytes: u64,
    /// The holdings, by part.
    pub parts: BTreeMap<String, Held>,
}

/// The holdings of all namespaces. Cheap to clone.
#[derive(Clone, Default)]
pub struct Holdings {
    state: Arc<Mutex<State>>,
    shown: Shown,
}

#[derive(Default)]
struct State {
    namespaces: BTreeMap<Arc<str>, Row>,
    /// All namespaces by their bytes.
    by_bytes: BTreeSet<(u64, Arc<str>)>,
    all: Row,
}

/// The holdings of one namespace, by the number of the part.
type Row = [Held; PARTS.len()];

type Label = [(&'static str, &'static str); 1];

#[derive(Clone, Default)]
struct Shown {
    count: Family<Label, Gauge<i64, AtomicI64>>,
    bytes: Family<Label, Gauge<i64, AtomicI64>>,
    namespaces: Gauge<i64, AtomicI64>,
    largest: Gauge<i64, AtomicI64>,
}

impl Holdings {
    /// Empty holdings, shown as metrics whose number does not depend on that of namespaces.
    pub fn new(metrics: &Metrics) -> Self {
        let holdings = Holdings::default();
        let shown = &holdings.shown;
        let help = "What resources make the process hold, by part";
        metrics.register("held", help, shown.count.clone());
        let help = "The bytes of it; docs/operations.md says what is counted";
        metrics.register("held_bytes", help, shown.bytes.clone());
        let help = "Namespaces that hold anything";
        metrics.register("held_namespaces", help, shown.namespaces.clone());
        let help = "The bytes that the namespace holds which holds most";
        metrics.register("held_namespace_bytes_max", help, shown.largest.clone());
        holdings
    }

    /// Takes changes in.
    pub fn apply(&self, changes: &[Change]) {
        let mut state = self.lock();
        for change in changes {
            state.add(change.old.as_ref(), |held, amount| {
                held.count = held.count.saturating_sub(amount.count);
                held.bytes = held.bytes.saturating_sub(amount.bytes);
            });
            state.add(change.new.as_ref(), |held, amount| {
                held.count += amount.count;
                held.bytes += amount.bytes;
            });
        }
        self.show(&state);
    }

    /// The report of what is held.
    pub fn report(&self) -> HoldingsReport {
        let state = self.lock();
        let largest = state.by_bytes.iter().rev().take(NAMESPACES_SHOWN_MAX);
        let namespaces = largest.map(|(bytes, namespace)| NamespaceReport {
            namespace: namespace.as_ref().to_owned(),
            bytes: *bytes,
            parts: by_name(state.namespaces.get(namespace).unwrap_or(&Row::default())),
        });
        HoldingsReport {
            namespaces_total: state.namespaces.len(),
            parts: by_name(&state.all),
            namespaces: namespaces.collect(),
        }
    }

    fn show(&self, state: &State) {
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        for (part, held) in PARTS.iter().zip(&state.all) {
            let label = [("part", part.as_str())];
            self.shown
                .count
                .get_or_create(&label)
                .set(number(held.count));
            self.shown
                .bytes
                .get_or_create(&label)
                .set(number(held.bytes));
        }
        self.shown
            .namespaces
            .set(number(state.namespaces.len() as u64));
        let largest = state.by_bytes.last();
        self.shown
            .largest
            .set(number(largest.map_or(0, |(bytes, _)| *bytes)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, sealed: Option<&SealedArc>, add: impl Fn(&mut Held, &Held)) {
        let Some(sealed) = sealed else { return };
        let decoded;
        let resource = match sealed.resource() {
            Some(resource) => resource,
            // A controller holds bytes alone.
            None => match sealed.encoded().map(wire::decode) {
                Some(Ok(resource)) => {
                    decoded = resource;
                    &decoded
                }
                _ => return,
            },
        };
        let amounts = amounts(resource, sealed.bytes_encoded() as u64);
        let name = match resource.origin.namespace() {
            "" => NO_NAMESPACE,
            namespace => namespace,
        };
        let (name, mut row) = match self.namespaces.remove_entry(name) {
            Some(known) => known,
            None => (Arc::from(name), Row::default()),
        };
        self.by_bytes.remove(&(bytes(&row), name.clone()));
        for ((held, all), amount) in row.iter_mut().zip(&mut self.all).zip(&amounts) {
            add(held, amount);
            add(all, amount);
        }
        if row != Row::default() {
            self.by_bytes.insert((bytes(&row), name.clone()));
            self.namespaces.insert(name, row);
        }
    }
}

impl Part {
    const fn as_str(self) -> &'static str {
        match self {
            Part::Routes => "routes",
            Part::Endpoints => "endpoints",
            Part::Certificates => "certificates",
            Part::Regexes => "regexes",
            Part::HashTables => "hash_tables",
            Part::Answers => "answers",
            Part::Other => "other",
        }
    }
}

fn by_name(row: &Row) -> BTreeMap<String, Held> {
    let named = PARTS.iter().zip(row);
    named
        .map(|(part, held)| (part.as_str().to_owned(), *held))
        .collect()
}

fn bytes(row: &Row) -> u64 {
    row.iter().map(|held| held.bytes).sum()
}

/// The amounts that a resource counts for.
fn amounts(resource: &Resource, bytes: u64) -> Row {
    let mut row = Row::default();
    let (part, count) = match &resource.value {
        Value::Route(_) | Value::Routes(_) => {
            let held = &mut row[Part::Regexes as usize];
            resource
                .value
                .routes()
                .for_each(|route| add_regexes(route, held));
            (Part::Routes, resource.value.routes_len() as u64)
        }
        Value::Endpoints(endpoints) => (Part::Endpoints, endpoints.endpoints.len() as u64),
        Value::Certificate(_) => (Part::Certificates, 1),
        Value::ChallengeAnswer(_) => (Part::Answers, 1),
        Value::Upstream(upstream) => {
            row[Part::HashTables as usize] = hash_tables(upstream);
            (Part::Other, 1)
        }
        _ => (Part::Other, 1),
    };
    row[part as usize] = Held { count, bytes };
    row
}

fn add_regexes(route: RouteView<'_>, held: &mut Held) {
    for text in route.regexes() {
        held.count += 1;
        // What a proxy holds, which is no longer the text.
        held.bytes += regex_bytes(text).unwrap_or_default();
    }
}

fn hash_tables(upstream: &Upstream) -> Held {
    let balancer = upstream.options.as_deref().map(|it| &it.balancer);
    let Some(Balancer::Hash(hash)) = balancer else {
        return Held::default();
    };
    let bytes = match hash.table {
        HashTable::Ring(points) => u64::from(points) * POINT_BYTES,
        HashTable::Maglev(places) => u64::from(places) * PLACE_BYTES,
    };
    Held { count: 1, bytes }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::order::{Order, OrderAnswer};
    use myriad_api::{Change, Meta, Object, ObjectKey, ObjectKind};
    use myriad_base::metrics::Metrics;
    use myriad_model::{Form, Sealer, Writer};
    use myriad_proxy::pattern::Pattern;
    use myriad_translate::{Engine, regex_bytes};
    use serde_json::json;

    use super::{Holdings, HoldingsReport, NAMESPACES_SHOWN_MAX};

    fn ingress(namespace: &str, paths: usize) -> Change {
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let paths = (0..paths).map(|number| {
            json!({"path": format!("/{number}"), "pathType": "Prefix", "backend": backend})
        });
        let paths: Vec<_> = paths.collect();
        let value = json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"namespace": namespace, "name": "web"},
            "spec": {"rules": [{"host": format!("{namespace}.test"), "http": {"paths": paths}}]},
        });
        let object = Object::deserialize(ObjectKind::Ingress, value);
        Change::Put(object.expect("an Ingress"))
    }

    /// The holdings after each batch, in whatever form resources are kept.
    fn after(batches: Vec<Vec<Change>>) -> (HoldingsReport, String) {
        let seen = [Form::Value, Form::Encoded].map(|form| {
            let metrics = Metrics::new();
            let holdings = Holdings::new(&metrics);
            let writer = Writer::new(Sealer::new([3; 32], form));
            let mut engine = Engine::new(myriad_translate::Settings::default(), writer);
            for batch in &batches {
                holdings.apply(engine.apply(batch.clone(), 0).delta.changes());
            }
            (holdings.report(), metrics.encode())
        });
        let [value, encoded] = seen;
        assert_eq!(value.0, encoded.0);
        value
    }

    #[test]
    fn a_namespace_holds_what_came_from_its_objects_until_they_go() {
        let (report, metrics) = after(vec![
            vec![ingress("a", 3), ingress("b", 1)],
            vec![ingress("a", 5)],
        ]);
        let first = &report.namespaces[0];
        assert_eq!((&*first.namespace, first.parts["routes"].count), ("a", 5));
        assert_eq!(report.parts["routes"].count, 6);
        assert!(
            metrics.contains("myriad_held{part=\"routes\"} 6\n"),
            "{metrics}"
        );
        let gone = ObjectKey::new(ObjectKind::Ingress, "a", "web");
        let with_a = vec![ingress("a", 5), ingress("b", 1)];
        let (without, _) = after(vec![with_a, vec![Change::Remove(gone)]]);
        let (never, _) = after(vec![vec![ingress("b", 1)]]);
        assert_eq!(without, never);
    }

    #[test]
    fn the_answers_of_an_order_count_for_the_namespace_of_its_certificate_until_it_is_over() {
        let key = ObjectKey::new(ObjectKind::Order, "a", "web");
        let answers = (0..3).map(|number| OrderAnswer {
            host: format!("n{number}.test").into(),
            by_tls: number == 2,
            token: "t".into(),
            text: "t.k".into(),
        });
        let order = Object::Order(Arc::new(Order {
            meta: Meta::new(key.clone()),
            answers: answers.collect(),
        }));
        let (report, metrics) = after(vec![vec![Change::Put(order.clone())]]);
        let first = &report.namespaces[0];
        assert_eq!((&*first.namespace, first.parts["answers"].count), ("a", 3));
        assert!(first.parts["answers"].bytes > 0);
        assert!(
            metrics.contains("myriad_held{part=\"answers\"} 3\n"),
            "{metrics}"
        );
        let (report, _) = after(vec![vec![Change::Put(order)], vec![Change::Remove(key)]]);
        assert_eq!(report.parts["answers"].count, 0);
    }

    #[test]
    fn a_regex_counts_for_what_it_is_compiled_to() {
        for pattern in [
            "/u17/(\\w+)/(\\w+)/edit",
            "(?i)/service-1(/|$)(.*)",
            "(a{1,200}){1,3}b",
            "/a{1000}",
            "(a?b|c+){3,90}(?:d{2,})*$",
            "/[^/]*/\\p{Greek}+\\b",
        ] {
            let told = regex_bytes(pattern).expect("a regex");
            let taken = Pattern::new(pattern).expect("a regex").memory_usage();
            assert!(taken as u64 <= told, "{pattern}: {taken} of {told}");
        }
        let large = regex_bytes("/a{1000}").expect("a regex");
        assert!((8_000..9_000).contains(&large), "{large}");
    }

    #[test]
    fn a_report_lists_a_few_namespaces_however_many_there_are() {
        let many: Vec<Change> = (0..50)
            .map(|number| ingress(&format!("n{number}"), number + 1))
            .collect();
        let (report, metrics) = after(vec![many]);
        assert_eq!(report.namespaces.len(), NAMESPACES_SHOWN_MAX);
        assert_eq!(report.namespaces[0].namespace, "n49");
        assert!(report.namespaces_total >= 50);
        assert!(!metrics.contains("n49"), "{metrics}");
    }
}
