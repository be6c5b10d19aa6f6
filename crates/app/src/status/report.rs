//! The parts of a status, and how a process makes one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind, Severity};
use myriad_base::clock::{self, Instant};
use myriad_base::hold::Holds;
use myriad_base::readiness::Readiness;
use myriad_model::wire::{self, SCHEMA};
use myriad_model::{Host, Kind, Origin, OriginKind, Resource, SealedArc, Snapshot, Value};
use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::confirm::HeldReport;
use crate::holdings::HoldingsReport;
use crate::live::{Live, LiveReport, ObjectReport, by_kind};
use crate::obtained::ObtainedReport;
use crate::stated::StatedStatuses;

/// The path of a process's status.
pub const PATH: &str = "/status";

/// The path of an Ingress's status.
pub const INGRESS_PATH: &str = "/status/ingress";

/// How a process is.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ProcessReport {
    /// `serve`, `controller` or `proxy`.
    pub role: String,
    /// The version of the program.
    pub version: String,
    /// The newest schema of resources that it understands.
    pub schema: u32,
    /// The name of the process: that of its host, which in a Pod is the Pod's.
    pub instance: String,
    /// The time that it has been running, in seconds.
    pub uptime_seconds: u64,
    /// The conditions that are missing for it to be ready; empty when it is.
    pub waiting_for: Vec<String>,
    /// The digest over all resources.
    pub digest: String,
    /// How far the sources were read, by kind.
    pub position: BTreeMap<String, u64>,
    /// How many resources there are of each kind.
    pub resources: BTreeMap<String, usize>,
    /// Findings that stand, and how many of them are errors.
    pub findings: usize,
    /// How many of them are errors.
    pub errors: usize,
    /// The errors among them, at most [`ERRORS_SHOWN_MAX`].
    pub errors_shown: Vec<String>,
    /// The holdings of namespaces: in a controller, those of the main view's proxies.
    #[serde(default)]
    pub holdings: HoldingsReport,
    /// The certificates that this process obtains; none where it obtains none now.
    #[serde(default)]
    pub certificates: Option<ObtainedReport>,
    /// The objects of Gateway API, by kind, where this process is a controller.
    #[serde(default)]
    pub gateway_api: BTreeMap<String, ConditionCounts>,
    /// The proxies that follow this process, where it is a controller.
    pub live: Option<LiveReport>,
    /// The removals that wait for `myriad confirm`.
    #[serde(default)]
    pub held: HeldReport,
    /// The controller that this process follows, where it is a proxy.
    pub followed: Option<FollowedReport>,
}

/// The state of a proxy's connection to its controller.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FollowedReport {
    /// The address of the controllers.
    pub controller: String,
    /// Whether one of them is followed now.
    pub is_connected: bool,
    /// When one was followed last, in seconds since the epoch; none for not since the start.
    pub followed_unix: Option<i64>,
    /// When something was last kept on disk, in seconds since the epoch; none for never.
    pub kept_unix: Option<i64>,
}

/// How many objects of a kind there are, and how many of them say that something is wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionCounts {
    /// All of them.
    pub total: usize,
    /// The number that is not accepted; of routes, by some parent.
    pub unaccepted: usize,
    /// The number that is accepted and not programmed, whatever their addresses.
    pub unprogrammed: usize,
}

/// How an Ingress is.
#[derive(Debug, Serialize, Deserialize)]
pub struct IngressReport {
    /// The Ingress, as `namespace/name`.
    pub ingress: String,
    /// The hosts that it is served on.
    pub hosts: Vec<HostReport>,
    /// The findings about it.
    pub findings: Vec<String>,
    /// The commits and proxies by which it is live.
    pub live: ObjectReport,
}

/// A host of an Ingress.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// The name or wildcard; `*` for every host that nobody names.
    pub host: String,
    /// How many routes the Ingress has there.
    pub routes: usize,
    /// The Secret of the certificate by which HTTPS is answered.
    pub certificate: Option<String>,
    /// The Secrets of further certificates, for clients that cannot verify that one.
    #[serde(default)]
    pub others: Vec<String>,
    /// Whether HTTPS is answered with a certificate of its own or the default one.
    pub has_certificate: bool,
}

/// The most errors of a status.
pub const ERRORS_SHOWN_MAX: usize = 20;

/// The most findings and hosts of the status of an Ingress.
pub const DETAILS_SHOWN_MAX: usize = 1_000;

/// The parts of the process that a status is made from. Cheap to clone.
#[derive(Clone)]
pub struct Reporter {
    /// `serve`, `controller` or `proxy`.
    pub role: &'static str,
    /// When the process started.
    pub started: Instant,
    /// Whether it is ready.
    pub readiness: Readiness,
    /// The board of the control loop.
    pub board: Board,
    /// The proxies that follow this process.
    pub live: Option<Live>,
    /// The statuses of objects of Gateway API; none where nobody writes any.
    pub stated: Option<StatedStatuses>,
    /// The removals that wait.
    pub holds: Holds,
    /// The report of the controller that is followed.
    pub followed: Option<Arc<dyn Fn() -> FollowedReport + Send + Sync>>,
}

impl Reporter {
    /// The status of this process.
    pub fn process(&self) -> ProcessReport {
        let (errors, findings) = self.board.findings_count();
        let snapshot = self.board.snapshot();
        let is_error = |severity: Severity| severity == Severity::Error;
        let shown = self
            .board
            .findings_where(ERRORS_SHOWN_MAX, |finding| is_error(finding.severity));
        let counts = Kind::ALL.map(|kind| (kind.as_str().to_owned(), snapshot.count(kind)));
        ProcessReport {
            role: self.role.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: SCHEMA,
            instance: crate::process::host_name(),
            uptime_seconds: clock::now()
                .saturating_duration_since(self.started)
                .as_secs(),
            waiting_for: self
                .readiness
                .pending()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            digest: snapshot.digest().to_string(),
            position: by_kind(snapshot.position()),
            resources: counts.into(),
            findings,
            errors,
            errors_shown: shown.iter().map(ToString::to_string).collect(),
            holdings: self.board.holdings().report(),
            certificates: self.board.obtained().report(),
            gateway_api: self.stated.as_ref().map(gateway_api).unwrap_or_default(),
            live: self.live.as_ref().map(Live::report),
            held: HeldReport::of(&self.holds),
            followed: self.followed.as_ref().map(|followed| followed()),
        }
    }

    /// The status of an Ingress. Reads through all routes.
    ///
    /// # Errors
    /// A message that nothing is known of it here.
    pub fn ingress(&self, namespace: &str, name: &str) -> Result<IngressReport, String> {
        let key = ObjectKey::new(ObjectKind::Ingress, namespace, name);
        let Some(live) = &self.live else {
            return Err("a proxy does not know: ask a controller".to_owned());
        };
        let hosts = hosts_of(&self.board.snapshot(), &key);
        let findings = self
            .board
            .findings_where(DETAILS_SHOWN_MAX, |it| it.object.as_ref() == Some(&key));
        if hosts.is_empty() && findings.is_empty() {
            return Err(format!(
                "{key} is not served here: there is none, it is of another class, or it has no \
                 rules"
            ));
        }
        Ok(IngressReport {
            ingress: format!("{namespace}/{name}"),
            hosts,
            findings: findings.iter().map(ToString::to_string).collect(),
            live: live.report_of(&key),
        })
    }
}

impl IngressReport {
    /// Whether it is served, and as it is now by every proxy.
    pub fn is_live(&self) -> bool {
        let live = &self.live;
        let is_everywhere = live.live == live.proxies_total && live.proxies_total > 0;
        is_everywhere && live.refused.is_empty() && !self.hosts.is_empty()
    }
}

/// The counts of objects of Gateway API. Reads through all statuses.
fn gateway_api(stated: &StatedStatuses) -> BTreeMap<String, ConditionCounts> {
    let mut counts: BTreeMap<String, ConditionCounts> = BTreeMap::new();
    stated.look_through(|object, is_accepted, is_programmed| {
        let kind = object.kind.as_str().to_owned();
        let counts = counts.entry(kind).or_default();
        counts.total += 1;
        counts.unaccepted += usize::from(!is_accepted);
        counts.unprogrammed += usize::from(is_accepted && !is_programmed);
    });
    counts
}

/// The value of a resource, in whatever form it is there.
pub fn read(sealed: &SealedArc) -> Option<Resource> {
    match sealed.resource() {
        Some(resource) => Some(resource.clone()),
        None => wire::decode(sealed.encoded()?).ok(),
    }
}

fn hosts_of(snapshot: &Snapshot, ingress: &ObjectKey) -> Vec<HostReport> {
    let wanted = Origin {
        kind: OriginKind::Ingress,
        id: ingress.id().clone(),
    };
    let of_kind = |kind| {
        let resources = snapshot.iter().filter(move |it| it.key().kind == kind);
        resources.filter_map(read)
    };
    let mut routes: BTreeMap<Host, usize> = BTreeMap::new();
    for resource in of_kind(Kind::Route) {
        for (at, route) in resource.value.routes().enumerate() {
            if *resource.origin_of(at) == wanted {
                for host in route.hosts.iter() {
                    *routes.entry(host.clone()).or_default() += 1;
                }
            }
        }
    }
    let certificates = snapshot.iter().map(|sealed| sealed.key());
    let certificates: BTreeSet<&str> = certificates
        .filter(|key| key.kind == Kind::Certificate)
        .map(|key| key.name.as_str())
        .collect();
    let mut domains = BTreeMap::new();
    for resource in of_kind(Kind::Domain) {
        if let Value::Domain(domain) = resource.value
            && routes.contains_key(&domain.host)
        {
            domains.insert(domain.host, (domain.certificate, domain.alternatives));
        }
    }
    let has_default = of_kind(Kind::Listener).any(|resource| match resource.value {
        Value::Listener(listener) => listener
            .default_certificate
            .is_some_and(|name| certificates.contains(name.as_str())),
        _ => false,
    });
    let report = |(host, routes): (Host, usize)| {
        let domain = domains.get(&host);
        let certificate = domain.and_then(|(certificate, _)| certificate.as_ref());
        let others = domain.map_or(&[][..], |(_, others)| &**others);
        let mut all = certificate.into_iter().chain(others);
        HostReport {
            host: host.as_str().to_owned(),
            routes,
            certificate: certificate.map(|name| name.as_str().to_owned()),
            others: others.iter().map(|name| name.as_str().to_owned()).collect(),
            has_certificate: match certificate {
                Some(_) => all.any(|name| certificates.contains(name.as_str())),
                None => has_default,
            },
        }
    };
    let hosts = routes.into_iter().take(DETAILS_SHOWN_MAX);
    hosts.map(report).collect()
}
