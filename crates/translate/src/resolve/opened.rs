//! Services, their EndpointSlices and workloads as units read them: opened once in a batch, with
//! an index of their ports.
//!
//! Each path of an Ingress and each upstream asks for one port. A Service of ten thousand ports
//! would be unpacked and walked ten thousand times; one walk stands in for those of all who ask.

mod entries;
mod rules;

use std::any::Any;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use myriad_api::istio::{Labels, WorkloadEntry};
use myriad_api::{BackendPort, EndpointSlice, Object, ObjectKind, Pod, Service, ServicePort};

use super::exports::exports;
use super::facts::SharedFact;
use super::service_entry::has_labels;
use super::upstream::PortFound;
use crate::engine::{ChosenFact, Kept, Moment, Reader};
use crate::settings::SELECTOR_LABELS_MAX;
use crate::store::SliceHead;

/// Up to here ports are looked for one by one, which costs less than an index of them.
const LINEAR_MAX: usize = 16;

/// The most entries of the lists of one kind of object that are kept open at a time.
const KEPT_ENTRIES_MAX: usize = 1 << 18;

/// The entries that a Service or an EndpointSlice counts for beside its own, so that at most some
/// thousands are open at a time. To open a small one again costs little; to hold all of a first
/// list until its end would leave holes in memory everywhere among what stays.
const OBJECT_ENTRIES: usize = 64;

/// The labels that are compared with those of a workload for one that counts.
const LABELS_OF_LOOK: usize = 16;

/// The objects that were opened in a batch.
#[derive(Default)]
struct OpenShared {
    services: Shelf<Arc<str>, Arc<OpenedService>>,
    heads: Shelf<Arc<str>, Arc<OpenedSlices>>,
    slices: Shelf<Arc<str>, Arc<EndpointSlice>>,
    pods: Shelf<Arc<str>, Arc<Pod>>,
    selected_workloads: Shelf<Selector, Arc<Selected<WorkloadEntry>>>,
    selected_pods: Shelf<Selector, Arc<Selected<Pod>>>,
}

impl Kept for OpenShared {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            *self = OpenShared::default();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Opened values, as far as they are within the bound together. Whatever is beyond is opened
/// again.
struct Shelf<K, V> {
    values: HashMap<K, V>,
    /// The entries of the lists in them.
    count: usize,
    /// The entries of what found no room since.
    missed: usize,
}

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Shelf {
            values: HashMap::new(),
            count: 0,
            missed: 0,
        }
    }
}

impl<K: std::hash::Hash + Eq, V: Clone> Shelf<K, V> {
    /// The value of a key.
    fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: std::hash::Hash + Eq + ?Sized,
    {
        self.values.get(key).cloned()
    }

    /// Keeps a value with so many entries, where it fits beside the others. These give way once as
    /// much found no room as they are: whoever asks for somewhat more than fits, again and again,
    /// finds most of it.
    fn keep(&mut self, key: K, value: V, entries: usize) {
        let entries = entries + 1;
        if self.count + entries > KEPT_ENTRIES_MAX {
            self.missed += entries;
            if self.missed < KEPT_ENTRIES_MAX {
                return;
            }
            (self.count, self.missed) = (0, 0);
            self.values.clear();
        }
        self.count += entries;
        self.values.insert(key, value);
    }
}

/// A Service, and where in it its ports are.
pub struct OpenedService {
    service: Arc<Service>,
    exports: Box<[Box<str>]>,
    /// None where there are few.
    places: Option<Places>,
}

/// The places of ports of TCP, the first of each number and of each name.
struct Places {
    numbers: HashMap<u16, usize>,
    names: HashMap<Box<str>, usize>,
}

impl OpenedService {
    fn new(service: Arc<Service>) -> Self {
        let is_large = service.ports.len() > LINEAR_MAX;
        OpenedService {
            exports: exports(&service).into(),
            places: is_large.then(|| Places::of(&service.ports)),
            service,
        }
    }

    /// The namespaces to which it is exported, as written; none for all.
    pub fn exports(&self) -> &[Box<str>] {
        &self.exports
    }

    /// Looks a port up by number or name.
    pub fn find(&self, wanted: &BackendPort) -> PortFound {
        match (self.listed(wanted), wanted) {
            (Some(port), _) => PortFound::Listed(port.port),
            (None, BackendPort::Number(number)) if self.external_name.is_some() => {
                PortFound::Implied(*number)
            }
            (None, _) => PortFound::NoPort,
        }
    }

    /// The port of a number.
    pub fn port(&self, number: u16) -> Option<&ServicePort> {
        self.listed(&BackendPort::Number(number))
    }

    /// The port of a number that takes datagrams.
    pub fn datagram_port(&self, number: u16) -> Option<&ServicePort> {
        let mut ports = self.service.ports.iter();
        ports.find(|port| is_udp(port) && port.port == number)
    }

    /// Whether a port has the name of one before it, whose endpoints are its own as well.
    pub fn is_repeated(&self, port: &ServicePort) -> bool {
        let first = self.listed(&BackendPort::Name(port.name.clone()));
        first.is_some_and(|first| first.port != port.port)
    }

    fn listed(&self, wanted: &BackendPort) -> Option<&ServicePort> {
        let is_wanted = |port: &&ServicePort| match wanted {
            BackendPort::Number(number) => port.port == *number,
            BackendPort::Name(name) => *port.name == **name,
        };
        let Some(places) = &self.places else {
            let mut ports = self.service.ports.iter();
            return ports.find(|port| is_tcp(port) && is_wanted(port));
        };
        let at = match wanted {
            BackendPort::Number(number) => places.numbers.get(number),
            BackendPort::Name(name) => places.names.get(name),
        };
        self.service.ports.get(*at?)
    }
}

impl Deref for OpenedService {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

impl Places {
    fn of(ports: &[ServicePort]) -> Self {
        let mut places = Places {
            numbers: HashMap::new(),
            names: HashMap::new(),
        };
        let ports = ports.iter().enumerate();
        for (at, port) in ports.filter(|(_, port)| is_tcp(port)) {
            places.numbers.entry(port.port).or_insert(at);
            places.names.entry(port.name.clone()).or_insert(at);
        }
        places
    }
}

/// Whether a port of a Service is one of TCP.
pub(crate) fn is_tcp(port: &ServicePort) -> bool {
    port.protocol.as_deref().is_none_or(|p| p == "TCP")
}

/// Whether a port of a Service is one of UDP.
pub(crate) fn is_udp(port: &ServicePort) -> bool {
    port.protocol.as_deref() == Some("UDP")
}

/// The EndpointSlices of a Service but for their endpoints, and which of them list a port.
pub struct OpenedSlices {
    heads: Box<[SliceHead]>,
    /// By the name of the port, in the order of the heads; none where there are few.
    by_port: Option<HashMap<Box<str>, Vec<ListedPort>>>,
}

/// A port that an EndpointSlice lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedPort {
    /// The place of the slice among those of the Service.
    pub slice: usize,
    /// The number of the port in it.
    pub number: u16,
    /// Whether it is one of TCP.
    pub is_tcp: bool,
    /// Whether it is one of UDP.
    pub is_udp: bool,
}

impl OpenedSlices {
    fn new(heads: Box<[SliceHead]>) -> Self {
        let mut opened = OpenedSlices {
            heads,
            by_port: None,
        };
        if opened.count() > LINEAR_MAX {
            let mut by_port: HashMap<Box<str>, Vec<ListedPort>> = HashMap::new();
            for (name, port) in opened.all_ports() {
                match by_port.get_mut(name) {
                    Some(known) => known.push(port),
                    None => drop(by_port.insert(name.into(), vec![port])),
                }
            }
            opened.by_port = Some(by_port);
        }
        opened
    }

    /// The slice at a place.
    pub fn head(&self, at: usize) -> Option<&SliceHead> {
        self.heads.get(at)
    }

    /// The ports of a name that slices list, in the order of the slices.
    pub fn ports(&self, name: &str) -> Vec<ListedPort> {
        if let Some(by_port) = &self.by_port {
            return by_port.get(name).cloned().unwrap_or_default();
        }
        let all = self.all_ports().filter(|(known, _)| *known == name);
        all.map(|(_, port)| port).collect()
    }

    fn all_ports(&self) -> impl Iterator<Item = (&str, ListedPort)> {
        let heads = self.heads.iter().enumerate();
        heads.flat_map(|(slice, head)| {
            let ports = head.ports.iter();
            ports.filter_map(move |port| {
                let listed = ListedPort {
                    slice,
                    number: port.port?,
                    is_tcp: port.protocol.as_deref().is_none_or(|p| p == "TCP"),
                    is_udp: port.protocol.as_deref() == Some("UDP"),
                };
                Some((&*port.name, listed))
            })
        })
    }

    /// The slices and their ports.
    fn count(&self) -> usize {
        let ports: usize = self.heads.iter().map(|head| head.ports.len()).sum();
        self.heads.len() + ports
    }
}

/// A namespace, and the labels that workloads there must have.
type Selector = (Box<str>, Labels);

/// The WorkloadEntries and the Pods that a selector finds.
pub(crate) type Chosen = (Arc<[Arc<WorkloadEntry>]>, Arc<[Arc<Pod>]>);

/// The objects that a selector finds.
struct Selected<T> {
    found: Arc<[Arc<T>]>,
    /// How many were looked at.
    visited: u64,
}

/// Takes an object of a kind, and its labels; none of another kind.
type Pick<T> = for<'a> fn(&'a Object) -> Option<(&'a Arc<T>, &'a Labels)>;

/// The fact under which the objects of a kind in a namespace are that have a label.
type LabelFact = for<'a> fn(&'a str, &'a str, &'a str) -> SharedFact<'a>;

/// A kind of objects that selectors find.
struct Selectable<T> {
    fact: LabelFact,
    shelf: fn(&mut OpenShared) -> &mut Shelf<Selector, Arc<Selected<T>>>,
    /// An object of the kind, and its labels.
    pick: Pick<T>,
}

const WORKLOAD_ENTRIES: Selectable<WorkloadEntry> = Selectable {
    fact: |namespace, key, value| SharedFact::Workloads(namespace, key, value),
    shelf: |open| &mut open.selected_workloads,
    pick: |object| match object {
        Object::WorkloadEntry(entry) => Some((entry, &entry.spec.labels)),
        _ => None,
    },
};

const PODS: Selectable<Pod> = Selectable {
    fact: |namespace, key, value| SharedFact::Pods(namespace, key, value),
    shelf: |open| &mut open.selected_pods,
    pick: |object| match object {
        Object::Pod(pod) => Some((pod, &pod.labels)),
        _ => None,
    },
};

impl Reader<'_> {
    /// A Service, for the unit of what it is to sidecars, which runs again with it.
    pub fn service_itself(&mut self, id: &str) -> Option<Arc<OpenedService>> {
        let known = self.open::<OpenShared>();
        if let Some(known) = known.and_then(|open| open.services.get(id)) {
            self.count(1);
            return Some(known);
        }
        let Object::Service(service) = self.visit(ObjectKind::Service, id)? else {
            return None;
        };
        let entries = service.ports.len();
        self.count_entries(entries);
        let opened = Arc::new(OpenedService::new(service));
        if let Some(open) = self.open_mut::<OpenShared>() {
            let key = opened.meta.key.id().clone();
            open.services
                .keep(key, opened.clone(), OBJECT_ENTRIES + entries);
        }
        Some(opened)
    }

    /// The EndpointSlices of a Service but for their endpoints. They count for no object that is
    /// visited: none is unpacked.
    pub fn slices(&mut self, service: &Arc<str>) -> Arc<OpenedSlices> {
        let fact = self.read(SharedFact::Endpoints(service));
        let known = self.open::<OpenShared>();
        if let Some(known) = known.and_then(|open| open.heads.get(service)) {
            return known;
        }
        let heads = self.stored().slice_heads(fact);
        let heads = heads.filter(|head| is_head_of(head, service));
        let opened = Arc::new(OpenedSlices::new(heads.collect()));
        let entries = opened.count();
        self.count_entries(entries);
        if let Some(open) = self.open_mut::<OpenShared>() {
            open.heads
                .keep(service.clone(), opened.clone(), OBJECT_ENTRIES + entries);
        }
        opened
    }

    /// An EndpointSlice by its `namespace/name`, for who reads the heads of those of its Service.
    pub fn slice(&mut self, id: &Arc<str>) -> Option<Arc<EndpointSlice>> {
        let known = self.open::<OpenShared>();
        if let Some(known) = known.and_then(|open| open.slices.get(id)) {
            self.count(1);
            return Some(known);
        }
        let Object::EndpointSlice(slice) = self.visit(ObjectKind::EndpointSlice, id)? else {
            return None;
        };
        let entries = slice.endpoints.len() + slice.ports.len();
        self.count_entries(entries);
        if let Some(open) = self.open_mut::<OpenShared>() {
            open.slices
                .keep(id.clone(), slice.clone(), OBJECT_ENTRIES + entries);
        }
        Some(slice)
    }

    /// A Pod, of which the labels, the account and the address are read.
    pub fn pod(&mut self, id: &str) -> Option<Arc<Pod>> {
        self.read_object(ObjectKind::Pod, id);
        let known = self.open::<OpenShared>();
        if let Some(known) = known.and_then(|open| open.pods.get(id)) {
            self.count(1);
            return Some(known);
        }
        let Object::Pod(pod) = self.visit(ObjectKind::Pod, id)? else {
            return None;
        };
        let entries = pod.labels.len();
        self.count_entries(entries);
        if let Some(open) = self.open_mut::<OpenShared>() {
            let key = pod.meta.key.id().clone();
            open.pods.keep(key, pod.clone(), entries);
        }
        Some(pod)
    }

    /// Whether there is any WorkloadEntry. No fact: who asks reads those that it looks for.
    pub fn has_workloads(&self) -> bool {
        self.stored().has_any(ObjectKind::WorkloadEntry)
    }

    /// The WorkloadEntries of a namespace that have all labels; none without labels.
    pub fn workloads(&mut self, namespace: &str, labels: &Labels) -> Arc<[Arc<WorkloadEntry>]> {
        if let Some((key, value)) = first_label(labels) {
            self.read(SharedFact::Workloads(namespace, key, value));
        }
        self.selected(&WORKLOAD_ENTRIES, namespace, labels)
    }

    /// The WorkloadEntries and the Pods of the namespace of an object that its selector finds; none
    /// without labels.
    pub fn chosen(&mut self, namespace: &str, labels: &Labels) -> Chosen {
        self.read(ChosenFact(namespace, labels));
        let workloads = self.selected(&WORKLOAD_ENTRIES, namespace, labels);
        (workloads, self.selected(&PODS, namespace, labels))
    }

    /// The amount that it counts for to look for the WorkloadEntries of a namespace that have all
    /// labels: all that have the first of them, once for each begun 16 labels. None is opened.
    pub fn looks(&mut self, namespace: &str, labels: &Labels) -> usize {
        let Some((key, value)) = first_label(labels) else {
            return 0;
        };
        let fact = self.read(SharedFact::Workloads(namespace, key, value));
        self.stored().count(fact) * labels.len().div_ceil(LABELS_OF_LOOK)
    }

    /// The same for the WorkloadEntries and Pods that the selector of an object chooses.
    pub fn choices(&mut self, namespace: &str, labels: &Labels) -> usize {
        let Some((key, value)) = first_label(labels) else {
            return 0;
        };
        let found = self.looked_at(namespace, (key, value));
        let found = usize::try_from(found).unwrap_or(usize::MAX);
        found.saturating_mul(labels.len().div_ceil(LABELS_OF_LOOK))
    }

    /// The fact of the label that the fewest have, among the first ones.
    fn rarest(&self, fact: LabelFact, namespace: &str, labels: &Labels) -> Option<u64> {
        first_label(labels)?;
        let mut rarest = None;
        for (key, value) in labels.iter().take(LABELS_OF_LOOK) {
            let fact = self.hash(fact(namespace, key, value));
            let least = rarest.map_or(usize::MAX, |(_, least)| least);
            let count = self.stored().count_to(fact, least);
            if count < least {
                rarest = Some((fact, count));
            }
        }
        rarest.map(|(fact, _)| fact)
    }

    /// The objects of a kind in a namespace that have all labels, of which the caller noted that it
    /// reads them. Each port of a Service asks for them.
    fn selected<T>(
        &mut self,
        kind: &Selectable<T>,
        namespace: &str,
        labels: &Labels,
    ) -> Arc<[Arc<T>]> {
        let Some(fact) = self.rarest(kind.fact, namespace, labels) else {
            return Arc::default();
        };
        let asked = (Box::from(namespace), labels.clone());
        let known = self.open_mut::<OpenShared>();
        if let Some(known) = known.and_then(|open| (kind.shelf)(open).get(&asked)) {
            self.count(known.visited);
            return known.found.clone();
        }
        let (mut found, mut visited) = (Vec::new(), 0);
        for object in self.stored().collection(fact) {
            if object.key().namespace() != namespace {
                continue;
            }
            visited += 1;
            let picked = (kind.pick)(&object).filter(|(_, own)| has_labels(own, labels));
            found.extend(picked.map(|(it, _)| it.clone()));
        }
        self.count(visited);
        let count = usize::try_from(visited).unwrap_or(usize::MAX);
        self.count_entries(count);
        let found: Arc<[Arc<T>]> = found.into();
        let selected = Arc::new(Selected {
            found: found.clone(),
            visited,
        });
        if let Some(open) = self.open_mut::<OpenShared>() {
            (kind.shelf)(open).keep(asked, selected, count);
        }
        found
    }
}

/// The label under which workloads are looked for that have all labels; none where none is found.
fn first_label(labels: &Labels) -> Option<&(Box<str>, Box<str>)> {
    let is_bounded = labels.len() <= SELECTOR_LABELS_MAX;
    labels.first().filter(|_| is_bounded)
}

/// Whether a slice is of a Service, by `namespace/name`.
fn is_head_of(head: &SliceHead, service: &str) -> bool {
    let both = head.id.split_once('/').zip(service.split_once('/'));
    both.is_some_and(|((own, _), (namespace, name))| {
        own == namespace && head.service.as_deref() == Some(name)
    })
}

#[cfg(test)]
mod tests;
