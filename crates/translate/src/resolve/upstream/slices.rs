//! The endpoints that EndpointSlices list, each slice by itself.
//!
//! An upstream of many endpoints remembers what each slice said, so that a slice is read again when
//! it changes, or one of its Pods, and no other is.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use myriad_api::istio::Labels;
use myriad_api::{EndpointSlice, Finding, Service, ServicePort, Severity};
use myriad_model::{Endpoints, Unreachable, UpstreamTls};

use super::border::{Border, remedy};
use super::group::{Group, Spots};
use crate::engine::{Noted, Reader, Remembered};
use crate::resolve::facts::SharedFact;
use crate::resolve::opened::{ListedPort, OpenedSlices, is_udp};
use crate::resolve::service_entry::has_labels;
use crate::store::SliceHead;

/// The longest name of a service account.
const ACCOUNT_LETTERS_MAX: usize = 253;

/// The EndpointSlices that list a port of a Service.
pub(super) struct Listed {
    slices: Arc<OpenedSlices>,
    /// The port in each of them, in their order.
    ports: Vec<ListedPort>,
    /// The endpoints that they list, whoever of them takes traffic.
    pub count: usize,
}

/// The circumstances that decide what a slice says: who asks alike is told the same.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Asking {
    /// The name of the port.
    pub port: Box<str>,
    /// The labels of a subset, if there are any.
    pub labels: Option<Labels>,
    /// Whether addresses beyond the border of gateways are left out.
    pub is_gateway: bool,
}

/// The endpoints of one slice for one port.
#[derive(Default)]
pub(super) struct Said {
    /// The addresses that are ready.
    pub ready: Spots,
    /// The addresses that still serve while they terminate.
    pub leaving: Spots,
    /// The identities of both.
    pub identities: Identities,
    /// The findings about addresses that are left out.
    pub findings: Vec<Finding>,
}

/// The answers of all slices, in the order of the store.
pub(super) struct Hearing {
    asking: Asking,
    answers: Vec<(Arc<str>, Answer)>,
    /// The memory that it becomes a part of, where there are many endpoints.
    heard: Option<Box<Heard>>,
}

/// The slices that an upstream remembers.
#[derive(Default)]
pub(super) struct Heard {
    /// From the run before, for who asks again.
    before: Vec<Session>,
    /// From this run.
    now: Vec<Session>,
}

/// The answers to who asks alike, by the names of the slices.
struct Session {
    asking: Asking,
    answers: BTreeMap<Arc<str>, Answer>,
}

struct Answer {
    said: Said,
    /// The facts that it follows from.
    noted: Noted,
}

/// The identities that endpoints of the mesh may have.
#[derive(Default)]
pub(super) struct Identities {
    known: BTreeSet<Box<str>>,
    /// Whether the identity of one of them is not known.
    is_open: bool,
}

impl Listed {
    /// The slices of a port of a Service. None is unpacked.
    pub(super) fn read(reader: &mut Reader<'_>, service: &Service, port: &ServicePort) -> Self {
        let slices = reader.slices(service.meta.key.id());
        let mut ports = slices.ports(&port.name);
        let is_udp = is_udp(port);
        ports.retain(|listed| if is_udp { listed.is_udp } else { listed.is_tcp });
        let heads = ports.iter().filter_map(|port| slices.head(port.slice));
        let count = heads.map(|head| head.count).sum();
        Listed {
            slices,
            ports,
            count,
        }
    }

    /// The slices with the port in each, which may be there more than once.
    fn heads(&self) -> impl Iterator<Item = (&SliceHead, &[ListedPort])> {
        let ports = self.ports.chunk_by(|one, other| one.slice == other.slice);
        ports.filter_map(move |ports| Some((self.slices.head(ports.first()?.slice)?, ports)))
    }
}

impl Hearing {
    /// Asks all slices. It is remembered what they said where `is_many`. None if more addresses are
    /// ready than there is room for; `room` is none where there cannot be.
    pub(super) fn hold(
        reader: &mut Reader<'_>,
        listed: &Listed,
        asking: Asking,
        (is_many, room): (bool, Option<usize>),
    ) -> Option<Self> {
        let mut heard = is_many.then(|| reader.recall::<Heard>().unwrap_or_default());
        let mut known = heard.as_mut().map(|it| it.resume(&asking));
        let mut answers = Vec::with_capacity(listed.ports.len());
        let mut ready: BTreeSet<SocketAddr> = BTreeSet::new();
        // One without endpoints says nothing, and is not unpacked to learn that.
        for (head, ports) in listed.heads().filter(|(head, _)| head.count > 0) {
            let answer = known.as_mut().and_then(|known| known.remove(&head.id));
            let listed = (head, ports);
            let answer = answer.unwrap_or_else(|| Answer::of(reader, listed, &asking, is_many));
            reader.note_all(&answer.noted);
            if let Some(room) = room {
                ready.extend(answer.said.ready.addresses());
                if ready.len() > room {
                    heard.into_iter().for_each(|heard| reader.remember(heard));
                    return None;
                }
            }
            answers.push((head.id.clone(), answer));
        }
        Some(Hearing {
            asking,
            answers,
            heard,
        })
    }

    /// The content of each slice.
    pub(super) fn said(&self) -> impl Iterator<Item = &Said> {
        self.answers.iter().map(|(_, answer)| &answer.said)
    }

    /// Remembers it, where there are many endpoints.
    pub(super) fn close(self, reader: &mut Reader<'_>) {
        if let Some(mut heard) = self.heard {
            heard.now.push(Session {
                asking: self.asking,
                answers: self.answers.into_iter().collect(),
            });
            reader.remember(heard);
        }
    }
}

impl Heard {
    /// Takes out what who asks alike was told.
    fn resume(&mut self, asking: &Asking) -> BTreeMap<Arc<str>, Answer> {
        for sessions in [&mut self.now, &mut self.before] {
            if let Some(at) = sessions.iter().position(|it| it.asking == *asking) {
                return sessions.swap_remove(at).answers;
            }
        }
        BTreeMap::new()
    }
}

impl Remembered for Heard {
    fn forget(&mut self, facts: &BTreeSet<u64>) {
        self.before = std::mem::take(&mut self.now);
        for session in &mut self.before {
            let answers = &mut session.answers;
            answers.retain(|_, answer| !answer.noted.has_any(facts));
        }
    }

    fn settle(&mut self) {
        self.before.clear();
    }

    fn count(&self) -> usize {
        let answers = self.now.iter().flat_map(|it| it.answers.values());
        answers.map(Answer::count).sum()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Answer {
    fn of(
        reader: &mut Reader<'_>,
        (head, ports): (&SliceHead, &[ListedPort]),
        asking: &Asking,
        is_many: bool,
    ) -> Self {
        let (said, noted) = reader.apart(|reader| {
            if is_many {
                reader.read(SharedFact::Slice(&head.id));
            }
            let slice = reader.slice(&head.id);
            slice.map(|slice| Said::read(reader, (&slice, ports), asking, is_many))
        });
        Answer {
            said: said.unwrap_or_default(),
            noted,
        }
    }

    /// How much it is: its addresses, or the facts about their Pods where these are more.
    fn count(&self) -> usize {
        let addresses = self.said.ready.len() + self.said.leaving.len();
        addresses.max(self.noted.count())
    }
}

impl Said {
    /// The addresses that may take traffic, with the findings about those that may not. An address
    /// that is there twice counts once.
    fn read(
        reader: &mut Reader<'_>,
        (slice, ports): (&EndpointSlice, &[ListedPort]),
        asking: &Asking,
        is_many: bool,
    ) -> Self {
        let mut said = Said::default();
        let (mut ready, mut leaving) = (Group::default(), Group::default());
        for port in ports {
            reader.count_entries(slice.endpoints.len());
            let both = [&mut ready, &mut leaving];
            said.add(reader, slice, (port.number, asking), both);
        }
        said.ready = ready.sorted(is_many);
        said.leaving = leaving.sorted(is_many);
        said
    }

    fn add(
        &mut self,
        reader: &mut Reader<'_>,
        slice: &EndpointSlice,
        (port, asking): (u16, &Asking),
        [ready, leaving]: [&mut Group; 2],
    ) {
        let is_mesh = reader.settings().sidecars;
        let border = Border::new(reader.settings(), asking.is_gateway);
        let labels = asking.labels.as_ref();
        let namespace = slice.meta.key.namespace();
        let mut refused = None;
        for (index, endpoint) in slice.endpoints.iter().enumerate() {
            let Some(address) = endpoint.address else {
                continue;
            };
            let at = SocketAddr::new(address, port);
            if let Some(why) = border.refusal(at) {
                refused.get_or_insert((index, at, why));
                continue;
            }
            let conditions = endpoint.conditions;
            let is_ready = conditions.ready;
            let is_leaving = conditions.serving && conditions.terminating;
            if !(is_ready || is_leaving) {
                continue;
            }
            let pod = endpoint.pod.as_deref();
            let pod = pod.filter(|_| is_mesh || labels.is_some());
            let pod = pod.and_then(|pod| reader.pod(&format!("{namespace}/{pod}")));
            let has = |wanted| {
                let labels = pod.as_ref().map(|pod| &pod.labels);
                labels.is_some_and(|labels| has_labels(labels, wanted))
            };
            if !labels.is_none_or(has) {
                continue;
            }
            let member = pod.filter(|pod| is_member(reader, &pod.labels));
            if let Some(pod) = &member {
                let account = pod.account.as_deref();
                self.identities.add(namespace, account, reader);
            }
            let zone = endpoint.zone.as_deref();
            let into = match is_ready {
                true => &mut *ready,
                false => &mut *leaving,
            };
            into.add_in_zone(at, zone, member.is_some());
        }
        // The first says what is wrong; a slice may have a hundred of them.
        let told = refused.map(|(index, at, why)| refused_endpoint(slice, index, at, why));
        self.findings.extend(told);
    }
}

/// Whether so many endpoints are worth a memory: they are sent in parts.
pub(super) const fn are_many(count: usize) -> bool {
    count > Endpoints::PART_MAX
}

fn refused_endpoint(
    slice: &EndpointSlice,
    index: usize,
    at: SocketAddr,
    why: Unreachable,
) -> Finding {
    Finding::new(
        Severity::Error,
        &slice.meta.key,
        format!("endpoints[{index}].addresses[0]"),
        format!("{at} is {why}, so no gateway leads there"),
        remedy(why),
    )
}

/// Whether a workload speaks mutual TLS of the mesh: its labels say so where a sidecar is beside
/// it.
pub(super) fn is_member(reader: &Reader<'_>, labels: &Labels) -> bool {
    let mode = labels.get("security.istio.io/tlsMode");
    reader.settings().sidecars && mode.is_some_and(|mode| **mode == *"istio")
}

impl Identities {
    /// Adds the identity of an account, which may not be known.
    pub(super) fn add(&mut self, namespace: &str, account: Option<&str>, reader: &Reader<'_>) {
        match account.filter(|account| !account.is_empty()) {
            // No account has a longer name, so that what is left of one names none.
            Some(account) => {
                let account = account.chars().take(ACCOUNT_LETTERS_MAX + 1);
                let account: String = account.collect();
                let domains = reader.settings().trust_domains();
                let ids = domains.map(|it| format!("spiffe://{it}/ns/{namespace}/sa/{account}"));
                self.known.extend(ids.map(Into::into));
            }
            None => self.is_open = true,
        }
    }

    /// Adds those of others.
    pub(super) fn add_all(&mut self, others: &Identities) {
        self.is_open |= others.is_open;
        for id in &others.known {
            if !self.known.contains(id) {
                self.known.insert(id.clone());
            }
        }
    }

    /// The identities, or none for any of the mesh.
    pub(super) fn into_known(self) -> BTreeSet<Box<str>> {
        match self.is_open || self.known.len() > UpstreamTls::NAMES_MAX {
            true => BTreeSet::new(),
            false => self.known,
        }
    }
}
