//! ServiceEntries: hosts that the cluster does not know, and where they are.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use myriad_api::istio::service_entry::{
    EntryPort, Resolution, ServiceEntrySpec, WorkloadEntrySpec,
};
use myriad_api::istio::{Labels, ServiceEntry, WorkloadEntry};
use myriad_api::{Finding, Pod, Severity};
use myriad_model::{Dns, DnsMode, DnsName, Host, Origin, OriginKind, Unreachable, host::Pattern};

use super::claim::Claim;
use super::destination_rule::Choice;
use super::names;
use super::notes::notes;
use super::policy_texts::{LOCALITY_BYTES_MAX, alt_names};
use super::upstream::border::{Border, remedy};
use super::upstream::endpoint_source::{EndpointSource, Speech};
use super::upstream::group::{Group, Marks};
use crate::engine::{Output, Reader, Weight};
use crate::settings::{SELECTOR_LABELS_MAX, Settings};

/// The longest text of a DNS name, with a dot at its end.
const DNS_TEXT_MAX: usize = 254;

/// One port of a host of ServiceEntries.
pub(crate) struct Entry {
    /// The oldest of the ServiceEntries of one namespace that name host and port.
    first: Listing,
    /// The others, the oldest first.
    others: Vec<Listing>,
}

/// A ServiceEntry, and the place of a port among those that it lists.
type Listing = (Arc<ServiceEntry>, usize);

/// A ServiceEntry, and the workloads that its selector finds.
struct Source<'a> {
    entry: &'a ServiceEntry,
    port: &'a EntryPort,
    workloads: Arc<[Arc<WorkloadEntry>]>,
    pods: Arc<[Arc<Pod>]>,
}

/// The `namespace` whose ServiceEntries tell of a host to those of another, and the ports that
/// they list. Its own come first, then the gateway's, then those that it may see and that have
/// named the host longest; `only` those of one namespace where no other may tell of the host.
pub(crate) fn find(
    reader: &mut Reader<'_>,
    host: &str,
    (namespace, only): (&str, Option<&str>),
) -> Option<(Arc<str>, Arc<[u16]>)> {
    let view = reader.view();
    let mut seen = reader.entry_shapes(host);
    seen.retain(|entry| {
        let own = entry.meta.key.namespace();
        let to = &entry.spec.export_to;
        let is_seen = names::is_exported(to, own, namespace) || view.sees(to, own);
        is_seen && only.is_none_or(|only| only == own)
    });
    sort_by_claims(reader, host, &mut seen);
    let of = |wanted: &str| {
        let mut seen = seen.iter();
        seen.find(|entry| entry.meta.key.namespace() == wanted)
    };
    let mut by_age = seen.iter();
    let of_view = || by_age.find(|entry| view.is_of(entry.meta.key.namespace()));
    let first = of(namespace).or_else(of_view).or(seen.first())?;
    let owner = first.meta.key.namespace();
    let of_owner = seen.iter().map(|entry| &**entry);
    let of_owner = of_owner.filter(|entry| entry.meta.key.namespace() == owner);
    let of_owner: Vec<&ServiceEntry> = of_owner.collect();
    Some((owner.into(), reader.entry_numbers(&of_owner)))
}

/// The problems of a ServiceEntry alone.
pub(crate) fn judge(entry: &ServiceEntry, settings: &Settings) -> Output {
    let mut output = Output::default();
    let key = &entry.meta.key;
    let spec = &entry.spec;
    output.findings = notes(key, &entry.notes);
    output
        .findings
        .extend(names::judge_exports(key, &spec.export_to));
    let mut tell = |field: String, message: &str, remedy: &str| {
        let finding = Finding::new(Severity::Error, key, field, message, remedy);
        output.findings.push(finding);
    };
    match spec.resolution {
        Resolution::None if settings.sidecars => {}
        Resolution::None => tell(
            "spec.resolution".to_owned(),
            "is NONE, and a gateway has no address that a request was meant for, so its requests \
             get 503",
            "write DNS, DYNAMIC_DNS for hosts with a wildcard, or STATIC with endpoints",
        ),
        Resolution::DynamicDns => judge_dynamic(spec, &mut tell),
        Resolution::Dns | Resolution::DnsRoundRobin if is_bare(spec) => {
            for (at, host) in spec.hosts.iter().enumerate() {
                if let Some(why) = refusal(spec, host, target, settings) {
                    let message = format!("is {why}, so its requests get 503");
                    tell(format!("spec.hosts[{at}]"), &message, remedy(why));
                }
            }
        }
        Resolution::Static | Resolution::Dns | Resolution::DnsRoundRobin => {}
    }
    judge_texts(spec, &mut tell);
    let selector = spec.workload_selector.as_ref();
    if selector.is_some_and(|selector| selector.labels.len() > SELECTOR_LABELS_MAX) {
        let message = format!("are more than {SELECTOR_LABELS_MAX}, so no workload is found");
        let remedy = "choose the workloads by fewer labels";
        tell("spec.workloadSelector.labels".to_owned(), &message, remedy);
    }
    for (at, endpoint) in spec.endpoints.iter().enumerate() {
        let field = format!("spec.endpoints[{at}].address");
        let is_ip = endpoint.address.parse::<IpAddr>().is_ok();
        if endpoint.address.starts_with("unix:") {
            let message = "is the path of a socket, which no gateway has, so it is left out";
            tell(field, message, "write an IP address or a DNS name");
        } else if spec.resolution == Resolution::Static && !is_ip {
            let message = "is no IP address, so it is left out";
            tell(field, message, "write an IP address, or resolution DNS");
        } else if !is_ip && dns_host(&endpoint.address).is_none() {
            let message = "is neither an IP address nor a DNS name, so it is left out";
            tell(field, message, "write an IP address or a DNS name");
        } else if let address = &*endpoint.address
            && let Some(why) = refusal(spec, address, |port| number(endpoint, port), settings)
        {
            let message = format!("{address} is {why}, so no gateway leads there");
            tell(field, &message, remedy(why));
        }
    }
    output
}

/// Texts that are longer than what they stand for.
fn judge_texts(spec: &ServiceEntrySpec, tell: &mut impl FnMut(String, &str, &str)) {
    if alt_names(&spec.subject_alt_names).is_none() {
        let message = "have too many bytes together, so what verifies endpoints by them is closed";
        let remedy = "write fewer or shorter names";
        tell("spec.subjectAltNames".to_owned(), message, remedy);
    }
    for (at, endpoint) in spec.endpoints.iter().enumerate() {
        if endpoint.locality.len() > LOCALITY_BYTES_MAX {
            let message = "is too long for a locality, so it counts as unknown";
            let remedy = "write region/zone/subzone, each of at most 63 bytes";
            tell(format!("spec.endpoints[{at}].locality"), message, remedy);
        }
    }
}

/// Why no gateway leads to an address or name, on one of the ports at least.
fn refusal(
    spec: &ServiceEntrySpec,
    host: &str,
    number: impl Fn(&EntryPort) -> u16,
    settings: &Settings,
) -> Option<Unreachable> {
    let mut ports = spec.ports.iter();
    ports.find_map(|port| settings.refusal_of_host(host, number(port)))
}

/// Whether its hosts are resolved, and nothing else.
fn is_bare(spec: &ServiceEntrySpec) -> bool {
    spec.endpoints.is_empty() && spec.workload_selector.is_none()
}

/// The problems where the host of each request is resolved.
fn judge_dynamic(spec: &ServiceEntrySpec, tell: &mut impl FnMut(String, &str, &str)) {
    if !spec.endpoints.is_empty() || spec.workload_selector.is_some() {
        let message = "is DYNAMIC_DNS, which takes endpoints from DNS alone, so those that are \
                       listed or selected are left out";
        let remedy = "remove endpoints and workloadSelector, or write STATIC or DNS";
        tell("spec.resolution".to_owned(), message, remedy);
    }
    for (at, host) in spec.hosts.iter().enumerate() {
        if dynamic_host(host).is_none() {
            let message = "is no DNS name that could be resolved, so its requests get 503";
            let remedy = "write a host below a domain, such as *.example.com";
            tell(format!("spec.hosts[{at}]"), message, remedy);
        }
    }
    for (at, port) in spec.ports.iter().enumerate() {
        let words = ["HTTP", "HTTP2", "HTTPS", "TLS", "GRPC", "GRPC-WEB"];
        let names_host = words
            .iter()
            .any(|word| port.protocol.eq_ignore_ascii_case(word));
        if !names_host {
            let message = "names no host when it connects, so nobody is reached where TLS does \
                           not name one";
            let remedy = "write HTTP, HTTPS, TLS or GRPC, or resolution DNS";
            tell(format!("spec.ports[{at}].protocol"), message, remedy);
        }
    }
}

/// The problems of a WorkloadEntry alone.
pub(crate) fn judge_workload(entry: &WorkloadEntry, settings: &Settings) -> Output {
    let mut output = Output::default();
    let key = &entry.meta.key;
    output.findings = notes(key, &entry.notes);
    let address = &entry.spec.address;
    if entry.spec.locality.len() > LOCALITY_BYTES_MAX {
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            "spec.locality",
            "is too long for a locality, so it counts as unknown",
            "write region/zone/subzone, each of at most 63 bytes",
        ));
    }
    if address.parse::<IpAddr>().is_err() && dns_host(address).is_none() {
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            "spec.address",
            "is neither an IP address nor a DNS name, so it takes no traffic",
            "write an IP address or a DNS name",
        ));
    } else if let Some(why) = settings.refusal_of_host(address, 0) {
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            "spec.address",
            format!("{address} is {why}, so no gateway leads there"),
            remedy(why),
        ));
    }
    output
}

impl Entry {
    /// The port of a host of a namespace.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        namespace: &str,
        host: &str,
        number: u16,
    ) -> Option<Self> {
        let mut entries = reader.entries(host);
        entries.retain(|entry| entry.meta.key.namespace() == namespace);
        sort(&mut entries);
        let mut listings = entries.into_iter().filter_map(|entry| {
            let at = reader.entry_place(&entry, number)?;
            Some((entry, at))
        });
        let first = listings.next()?;
        let others = listings.collect();
        Some(Entry { first, others })
    }

    /// The origin of its resources.
    pub(crate) fn origin(&self) -> Origin {
        Origin {
            kind: OriginKind::ServiceEntry,
            id: self.first().meta.key.id().clone(),
        }
    }

    /// The oldest.
    pub(crate) fn first(&self) -> &ServiceEntry {
        &self.first.0
    }

    /// All of them with their ports, the oldest first.
    fn all(&self) -> impl Iterator<Item = (&ServiceEntry, Option<&EntryPort>)> {
        let listings = std::iter::once(&self.first).chain(&self.others);
        listings.map(|(entry, at)| (&**entry, entry.spec.ports.get(*at)))
    }

    /// The port as the oldest lists it.
    fn port(&self) -> Option<&EntryPort> {
        let (entry, at) = &self.first;
        entry.spec.ports.get(*at)
    }

    /// Whether its kind of resolution is one that finds endpoints here.
    pub(crate) fn is_resolvable(&self) -> bool {
        let resolution = self.first().spec.resolution;
        resolution != Resolution::None
    }

    /// The protocol.
    pub(crate) fn speech(&self) -> Speech {
        let port = self.port();
        port.map_or(Speech::Http1, |port| Speech::of_word(&port.protocol))
    }

    /// The names of which the endpoints' certificates must hold one.
    pub(crate) fn subject_alt_names(&self) -> &[Box<str>] {
        &self.first().spec.subject_alt_names
    }

    /// Its endpoints, of a subset where one was chosen; none where the subset has more than it may.
    /// Several ServiceEntries of one host and resolution add theirs up.
    pub(crate) fn place(
        &self,
        reader: &mut Reader<'_>,
        host: &str,
        choice: &Choice<'_>,
    ) -> Option<EndpointSource> {
        let resolution = self.first().spec.resolution;
        Some(match resolution {
            Resolution::Static => {
                let found = self.collect(reader, resolution, choice)?;
                EndpointSource::at(found.ips.endpoints())
            }
            Resolution::None => EndpointSource::nowhere(),
            Resolution::DynamicDns => self.dynamic(host),
            Resolution::Dns | Resolution::DnsRoundRobin => {
                let mut found = self.collect(reader, resolution, choice)?;
                if self.all().all(|(entry, _)| is_bare(&entry.spec))
                    && let Some(host) = dns_host(host)
                    && let Some(port) = self.port()
                {
                    found.add_name(host, target(port), 1);
                }
                found.dns(match resolution {
                    Resolution::DnsRoundRobin => DnsMode::Logical,
                    _ => DnsMode::Strict,
                })
            }
        })
    }

    /// Whatever the host covers.
    fn dynamic(&self, host: &str) -> EndpointSource {
        match (dynamic_host(host), self.port()) {
            (Some(host), Some(port)) => {
                let mut dns = Dns::strict(host, target(port));
                dns.mode = DnsMode::Dynamic;
                EndpointSource::Dns(dns)
            }
            _ => EndpointSource::nowhere(),
        }
    }

    /// The amount that the port counts for, or each of its subsets.
    pub(crate) fn weigh(&self, reader: &mut Reader<'_>, is_subset: bool) -> Option<Weight> {
        let first = self.first();
        let resolution = first.spec.resolution;
        if matches!(resolution, Resolution::None | Resolution::DynamicDns) {
            return None;
        }
        let same = self.all().map(|(entry, _)| entry);
        let same = same.filter(|entry| entry.spec.resolution == resolution);
        let endpoints = same.map(|entry| {
            let selector = entry.spec.workload_selector.as_ref();
            let namespace = entry.meta.key.namespace();
            let looks = selector.map_or(0, |it| reader.choices(namespace, &it.labels));
            let listed = if is_subset {
                entry.spec.endpoints.len()
            } else {
                0
            };
            listed + looks
        });
        // A copy of nothing is an upstream as well.
        let endpoints = endpoints.sum::<usize>().max(usize::from(is_subset));
        Weight::new(first.meta.created, endpoints)
    }

    /// The entries of a resolution, with the workloads that their selectors find.
    fn sources(&self, reader: &mut Reader<'_>, resolution: Resolution) -> Vec<Source<'_>> {
        let same = self
            .all()
            .filter(|(entry, _)| entry.spec.resolution == resolution);
        let sources = same.filter_map(|(entry, port)| Some(Source::read(reader, entry, port?)));
        sources.collect()
    }

    /// The endpoints of a choice among all entries of a resolution; `None` if they are too many.
    fn collect<'a>(
        &self,
        reader: &mut Reader<'a>,
        resolution: Resolution,
        choice: &Choice<'_>,
    ) -> Option<Found<'a>> {
        let sources = self.sources(reader, resolution);
        let endpoints = sources.iter().map(Source::count).sum();
        let mut found = Found {
            ips: Group::default(),
            names: BTreeMap::new(),
            room: choice.room(endpoints, &reader.settings().bounds),
            border: Border::of(reader),
        };
        if found.room == 0 {
            return None;
        }
        for source in &sources {
            found.add_source(source, choice.labels);
        }
        (!found.is_beyond()).then_some(found)
    }
}

impl<'a> Source<'a> {
    fn read(reader: &mut Reader<'_>, entry: &'a ServiceEntry, port: &'a EntryPort) -> Self {
        let mut source = Source {
            entry,
            port,
            workloads: Arc::default(),
            pods: Arc::default(),
        };
        if let Some(selector) = &entry.spec.workload_selector {
            let namespace = entry.meta.key.namespace();
            (source.workloads, source.pods) = reader.chosen(namespace, &selector.labels);
        }
        source
    }

    /// How many there are before anybody asks for a subset.
    fn count(&self) -> usize {
        self.entry.spec.endpoints.len() + self.workloads.len() + self.pods.len()
    }
}

/// Addresses and names, with their weights.
struct Found<'a> {
    ips: Group,
    names: BTreeMap<(Box<str>, u16), u32>,
    /// How many there may be.
    room: usize,
    border: Border<'a>,
}

impl Found<'_> {
    /// Whether there are more than there may be, however many are still to come.
    fn is_beyond(&self) -> bool {
        self.ips.len() + self.names.len() > self.room
    }

    fn add_source(&mut self, source: &Source<'_>, labels: Option<&Labels>) {
        let port = source.port;
        let listed = source.entry.spec.endpoints.iter();
        let selected = source.workloads.iter().map(|workload| &workload.spec);
        for endpoint in listed.chain(selected) {
            if self.is_beyond() {
                return;
            }
            self.add(endpoint, port, labels);
        }
        for pod in &*source.pods {
            if let Some(address) = pod.address.filter(|_| pod.is_ready)
                && !self.is_beyond()
                && labels.is_none_or(|wanted| has_labels(&pod.labels, wanted))
            {
                let address = SocketAddr::new(address, target(port));
                self.add_address(address, 1, Marks::default());
            }
        }
    }

    fn add_address(&mut self, at: SocketAddr, weight: u32, marks: Marks<'_>) {
        if self.border.refusal(at).is_none() {
            self.ips.add(at, weight, marks);
        }
    }

    fn add_name(&mut self, host: Box<str>, port: u16, weight: u32) {
        if self.border.refusal_of_host(&host, port).is_none() {
            self.names.entry((host, port)).or_insert(weight);
        }
    }

    fn add(&mut self, endpoint: &WorkloadEntrySpec, port: &EntryPort, wanted: Option<&Labels>) {
        if wanted.is_some_and(|wanted| !has_labels(&endpoint.labels, wanted)) {
            return;
        }
        let number = number(endpoint, port);
        let weight = endpoint.weight.max(1);
        if let Ok(ip) = endpoint.address.parse() {
            let address = SocketAddr::new(ip, number);
            let marks = Marks {
                locality: &endpoint.locality,
                ..Marks::default()
            };
            self.add_address(address, weight, marks);
        } else if let Some(host) = dns_host(&endpoint.address) {
            self.add_name(host, number, weight);
        }
    }

    /// Addresses among names are names too, which resolve to themselves.
    fn dns(self, mode: DnsMode) -> EndpointSource {
        if self.names.is_empty() && mode == DnsMode::Strict {
            return EndpointSource::at(self.ips.endpoints());
        }
        let name = |host: Box<str>, port, weight| DnsName {
            host,
            port,
            weight,
            priority: 0,
        };
        let ips = self.ips.addresses();
        let ips = ips.map(|(at, weight)| name(at.ip().to_string().into(), at.port(), weight));
        let names = self.names.into_iter();
        let names = names.map(|((host, port), weight)| name(host, port, weight));
        let mut names: Vec<DnsName> = ips.chain(names).collect();
        names.sort_unstable();
        names.truncate(Dns::NAMES_MAX);
        match names.is_empty() {
            true => EndpointSource::nowhere(),
            false => EndpointSource::Dns(Dns {
                mode,
                names: names.into(),
            }),
        }
    }
}

/// Whether two states of a ServiceEntry have the same hosts and ports and are seen by the same.
pub(crate) fn is_shape_same(old: Option<&ServiceEntry>, new: Option<&ServiceEntry>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    let numbers = |entry: &ServiceEntry| {
        let ports = entry.spec.ports.iter().map(|port| port.number);
        ports.collect::<Vec<_>>()
    };
    old.meta.created == new.meta.created
        && old.spec.hosts == new.spec.hosts
        && old.spec.export_to == new.spec.export_to
        && numbers(old) == numbers(new)
}

/// Whether labels hold all that are wanted; none hold more than a selector may have.
pub(crate) fn has_labels(labels: &Labels, wanted: &Labels) -> bool {
    let is_bounded = wanted.len() <= SELECTOR_LABELS_MAX;
    let mut wanted = wanted.iter();
    is_bounded && wanted.all(|(key, value)| labels.get(key).is_some_and(|known| **known == **value))
}

/// The port of an endpoint.
fn number(endpoint: &WorkloadEntrySpec, port: &EntryPort) -> u16 {
    let own = endpoint.ports.get(&port.name).copied();
    own.filter(|own| *own > 0).unwrap_or_else(|| target(port))
}

fn target(port: &EntryPort) -> u16 {
    match port.target_port {
        0 => port.number,
        target => target,
    }
}

/// The wire form of hosts that requests name and a proxy resolves: Istio's wildcard stands for one
/// label or more. Every host there is would be a way to everywhere.
fn dynamic_host(text: &str) -> Option<Box<str>> {
    match text.strip_prefix("*.") {
        Some(rest) => dns_host(rest).map(|rest| format!("**.{rest}").into()),
        None => dns_host(text),
    }
}

/// A host that can be resolved.
fn dns_host(text: &str) -> Option<Box<str>> {
    // Whatever is longer is no name, and every port would read it again.
    if text.len() > DNS_TEXT_MAX {
        return None;
    }
    let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let host = Host::parse(&text).ok()?;
    match host.pattern() {
        Pattern::Exact(name) => Some(name.into()),
        _ => None,
    }
}

/// Sorts by since when they name a host.
fn sort_by_claims(reader: &Reader<'_>, host: &str, entries: &mut [Arc<ServiceEntry>]) {
    let host = names::host(host).ok();
    entries.sort_by_cached_key(|entry| {
        let meta = &entry.meta;
        let late = host.as_ref().and_then(|host| reader.late_since(meta, host));
        let claim = Claim::new(meta, late);
        (claim.time(), claim.key)
    });
}

fn sort(entries: &mut [Arc<ServiceEntry>]) {
    entries.sort_unstable_by(|left, right| {
        let place = |entry: &ServiceEntry| (entry.meta.created, entry.meta.key.clone());
        place(left).cmp(&place(right))
    });
}
