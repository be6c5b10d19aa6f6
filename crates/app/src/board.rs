//! The board: what operators may see of the control loop, written by it and read by pages. Whoever
//! reads takes little at once, and looks at it once others may write again.

mod standing;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use myriad_api::{Finding, ObjectKey, ObjectKind, Place, Report, Severity};
use myriad_base::clock;
use myriad_base::metrics::{Counter, Gauge, Metrics};
use myriad_model::host::Pattern;
use myriad_model::{
    Action, Change, Commit, Delta, Endpoints, Host, Kind, Origin, PathView, RouteView, Snapshot,
};
use myriad_proxy::Receipt;
use myriad_translate::{Engine, FindingsChange, MAIN};
use serde::Serialize;

use crate::catalog::Catalog;
use crate::holdings::Holdings;
use crate::obtained::Obtained;
use crate::told::{Line, Told};

use self::standing::{Cursor, StandingFindings};

/// Finds the file of an object, where there are files.
pub type Locate = Box<dyn Fn(&ObjectKey) -> Option<Place> + Send + Sync>;

/// The most findings that a dump lists; all are counted.
pub const FINDINGS_SHOWN_MAX: usize = 1_000;

/// Shared by the control loop, which writes, and the pages, which read. Cheap to clone.
#[derive(Clone)]
pub struct Board {
    state: Arc<Mutex<State>>,
    locate: Arc<OnceLock<Locate>>,
    work: Work,
    findings: Gauge,
    holdings: Holdings,
    catalog: Catalog,
    obtained: Obtained,
}

#[derive(Default)]
struct State {
    findings: StandingFindings,
    snapshot: Snapshot,
    /// The snapshots of the views beside the main one.
    others: BTreeMap<Arc<str>, Snapshot>,
    position: u64,
    counts: Vec<(&'static str, usize)>,
    sample: Option<(Host, Box<str>)>,
    /// The bound on lines about findings; none until the first one is written.
    told: Option<Told>,
}

/// Work done since the start, counted and not timed.
#[derive(Clone, Default)]
pub struct Work {
    /// Calls of keyed translation functions.
    pub units_translated: Counter,
    /// Objects that they read.
    pub objects_visited: Counter,
    /// Resources that appeared, changed or went.
    pub resources_changed: Counter,
    /// Bytes encoded in order to be hashed or sent.
    pub bytes_encoded: Counter,
    /// Nodes of the proxy's tables that were copied.
    pub table_nodes_copied: Counter,
    /// Commits applied.
    pub commits: Counter,
    /// Batches handled.
    pub batches: Counter,
    /// Changes of objects that wait to be translated.
    pub changes_waiting: Gauge,
    /// Namespaces whose changes wait for what their last ones cost.
    pub namespaces_deferred: Gauge,
    /// How long such changes have waited, in seconds.
    pub seconds_deferred: Counter<f64, AtomicU64>,
}

/// The content of a dump.
#[derive(Serialize)]
struct Dump<'a> {
    digest: String,
    position: u64,
    resources: BTreeMap<&'a str, usize>,
    /// Views beside the main one: their digests and numbers of resources.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    views: BTreeMap<&'a str, (String, usize)>,
    findings_total: usize,
    findings: Vec<Finding>,
}

impl Board {
    /// An empty board, whose work counters are registered as metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let work = Work::default();
        work.register(metrics);
        let findings = Gauge::default();
        let help = "Findings of translation that stand";
        metrics.register("translate_findings", help, findings.clone());
        Board {
            state: Arc::default(),
            locate: Arc::default(),
            work,
            findings,
            holdings: Holdings::new(metrics),
            catalog: Catalog::default(),
            obtained: Obtained::default(),
        }
    }

    /// The ledger of memory by namespace.
    pub fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// The resources by host and by name, where somebody keeps them so.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Takes changes of the main view into what is kept of its resources.
    pub fn register(&self, changes: &[Change]) {
        self.holdings.apply(changes);
        self.catalog.apply(changes);
    }

    /// Where people are shown how many certificates are obtained.
    pub fn obtained(&self) -> &Obtained {
        &self.obtained
    }

    /// The work counters.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// Finds objects in files from now on.
    pub fn locate_with(&self, locate: Locate) {
        // Whoever has files says so once.
        let _ = self.locate.set(locate);
    }

    /// From now on the log is told of findings that appear or go; those that hold already are
    /// told by whoever asks for them.
    pub fn tell_log(&self) {
        self.lock().told.get_or_insert_default();
    }

    /// Tells the log how many findings it was not told of.
    pub fn tell_left_out(&self) {
        let told = |told: &mut Told| told.left_out(clock::unix_seconds());
        let line = self.lock().told.as_mut().and_then(told);
        if let Some(line) = line {
            line.write();
        }
    }

    /// Replaces what a source says of one subject; returns how that differs from before.
    pub fn set_report(&self, report: Report) -> FindingsChange {
        let new: Vec<Arc<Finding>> = report.findings.into_iter().map(Arc::new).collect();
        let mut state = self.lock();
        let former = state.findings.set_report(report.subject, new.clone());
        let (gone, kept): (Vec<_>, Vec<_>) = former.into_iter().partition(|it| !new.contains(it));
        let appeared: Vec<_> = new.into_iter().filter(|it| !kept.contains(it)).collect();
        let lines = lines(&mut state.told, gone.iter(), appeared.iter());
        drop(state);
        self.write(lines);
        FindingsChange {
            added: appeared,
            removed: gone,
        }
    }

    /// Applies a change of the findings of translation.
    pub fn change_findings(&self, change: FindingsChange) {
        if change.is_empty() {
            return;
        }
        let mut state = self.lock();
        let lines = lines(&mut state.told, change.removed.iter(), change.added.iter());
        for finding in &change.removed {
            state.findings.remove(finding);
        }
        for finding in change.added {
            state.findings.add(finding);
        }
        let count = state.findings.of_translation();
        self.findings.set(i64::try_from(count).unwrap_or(i64::MAX));
        drop(state);
        self.write(lines);
    }

    /// Writes lines with the places of their objects.
    fn write(&self, lines: Vec<Line>) {
        for mut line in lines {
            if let Line::Appeared(finding) | Line::Gone(finding) = &mut line {
                self.place(finding);
            }
            line.write();
        }
    }

    /// Says where the object of a finding stands, where that is known.
    fn place(&self, finding: &mut Finding) {
        if finding.place.is_none()
            && let (Some(locate), Some(object)) = (self.locate.get(), &finding.object)
        {
            finding.place = locate(object);
        }
    }

    /// Takes in what the proxy refused of a commit. A later version of the same resource clears
    /// the refusal, unless it is refused as well.
    pub fn set_receipts(&self, commit: &Commit, refused: Vec<Receipt>) {
        let mut state = self.lock();
        if !state.findings.has_refusals() && refused.is_empty() {
            return;
        }
        for change in &commit.changes {
            state.findings.set_refusal(change.key.clone(), None);
        }
        for receipt in refused {
            let change = commit
                .changes
                .iter()
                .find(|change| change.key == receipt.key);
            let sealed = change.and_then(|change| change.new.as_ref());
            let origin = sealed
                .and_then(|sealed| sealed.resource())
                .map(|it| &it.origin);
            let finding = Finding {
                severity: Severity::Error,
                object: origin.and_then(object_of),
                field: String::new(),
                message: format!("the proxy refused {}: {}", receipt.key, receipt.reason),
                remedy: "change the object; until then its last good version is served".into(),
                place: None,
            };
            state.findings.set_refusal(receipt.key, Some(finding));
        }
    }

    /// Shows the newest snapshot.
    pub fn set_snapshot(&self, snapshot: &Snapshot, position: u64) {
        let mut state = self.lock();
        state.snapshot = snapshot.clone();
        state.position = position;
        state.counts.clear();
        state
            .counts
            .extend(Kind::ALL.map(|kind| (kind.as_str(), snapshot.count(kind))));
    }

    /// Shows the newest snapshots of the other views that changed or came, and none of those that
    /// are gone.
    pub fn set_others(&self, engine: &Engine, changed: &[(Arc<str>, Delta)], gone: &[Arc<str>]) {
        let mut state = self.lock();
        for view in gone {
            state.others.remove(view);
        }
        for (view, _) in changed {
            if let Some(snapshot) = engine.snapshot_of(view) {
                state.others.insert(view.clone(), snapshot);
            }
        }
    }

    /// The newest snapshot of a view.
    pub fn snapshot_of(&self, view: &str) -> Option<Snapshot> {
        let state = self.lock();
        match view {
            MAIN => Some(state.snapshot.clone()),
            other => state.others.get(other).cloned(),
        }
    }

    /// The names of all views, the main one first.
    pub fn views(&self) -> Vec<Arc<str>> {
        let state = self.lock();
        let others = state.others.keys().cloned();
        std::iter::once(MAIN.into()).chain(others).collect()
    }

    /// The newest snapshot of the main view.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot.clone()
    }

    /// The findings that are wanted, at most so many, whoever found them.
    pub fn findings_where(
        &self,
        count_max: usize,
        is_wanted: impl Fn(&Finding) -> bool,
    ) -> Vec<Finding> {
        self.findings_among(usize::MAX, count_max, is_wanted).0
    }

    /// The same among the first so many, about; and whether those were all.
    pub fn findings_among(
        &self,
        read_max: usize,
        count_max: usize,
        is_wanted: impl Fn(&Finding) -> bool,
    ) -> (Vec<Finding>, bool) {
        let mut wanted: Vec<Finding> = Vec::new();
        let (mut cursor, mut read) = (Cursor::default(), 0);
        while wanted.len() < count_max && read < read_max && !cursor.is_at_end() {
            let page = self.lock().findings.page(&mut cursor);
            read += page.len();
            let found = page.iter().filter(|finding| is_wanted(finding));
            let found = found.take(count_max - wanted.len());
            wanted.extend(found.map(|finding| Finding::clone(finding)));
        }
        let is_whole = cursor.is_at_end() && wanted.len() < count_max;
        wanted.iter_mut().for_each(|finding| self.place(finding));
        (wanted, is_whole)
    }

    /// The findings of translation about an object, at most so many, the worst first.
    pub fn findings_of(&self, object: &ObjectKey, count_max: usize) -> Vec<Finding> {
        let found = self.lock().findings.about(object, count_max);
        let mut found: Vec<Finding> = found.iter().map(|it| Finding::clone(it)).collect();
        found.iter_mut().for_each(|finding| self.place(finding));
        found
    }

    /// Picks a domain and a path on it that a person can try. Looks at every resource, so it is
    /// called once, at the start.
    pub fn pick_sample(&self, snapshot: &Snapshot) {
        self.lock().sample = sample(snapshot);
    }

    /// A domain and a path on it that a person can try.
    pub fn sample(&self) -> Option<(Host, Box<str>)> {
        self.lock().sample.clone()
    }

    /// The number of domains and of routes. Reads through all resources.
    pub fn served(&self) -> (usize, usize) {
        let (snapshot, domains) = {
            let state = self.lock();
            let mut counts = state.counts.iter();
            let found = counts.find(|(name, _)| *name == Kind::Domain.as_str());
            (state.snapshot.clone(), found.map_or(0, |(_, count)| *count))
        };
        let resources = snapshot.iter().filter_map(|sealed| sealed.resource());
        let routes = resources.map(|resource| resource.value.routes_len());
        (domains, routes.sum())
    }

    /// The number of findings: errors, and all.
    pub fn findings_count(&self) -> (usize, usize) {
        self.lock().findings.counts()
    }

    /// The dump as JSON: digest, counts, findings. It holds no secret, since nothing on the
    /// board does.
    pub fn dump(&self) -> String {
        let findings = self.findings_where(FINDINGS_SHOWN_MAX, |_| true);
        let state = self.lock();
        let (_, findings_total) = state.findings.counts();
        let (snapshot, others) = (state.snapshot.clone(), state.others.clone());
        let (position, counts) = (state.position, state.counts.clone());
        drop(state);
        let others = others.iter();
        let views = others.map(|(view, it)| (&**view, (it.digest().to_string(), it.len())));
        let dump = Dump {
            digest: snapshot.digest().to_string(),
            position,
            resources: counts.into_iter().collect(),
            views: views.collect(),
            findings_total,
            findings,
        };
        // The types above have string keys only, so that writing cannot fail.
        serde_json::to_string_pretty(&dump).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first exact domain, in the order of the alphabet, that has a route without conditions.
fn sample(snapshot: &Snapshot) -> Option<(Host, Box<str>)> {
    let mut domains = std::collections::BTreeSet::new();
    for domain in snapshot.iter().filter_map(|sealed| sealed.domain()) {
        if matches!(domain.host.pattern(), Pattern::Exact(_)) {
            domains.insert(&domain.host);
        }
    }
    let filled = snapshot.iter().filter_map(|sealed| {
        let endpoints = sealed.endpoints()?;
        let upstream = Endpoints::upstream_of(sealed.name());
        (!endpoints.endpoints.is_empty()).then_some(upstream)
    });
    let filled: std::collections::BTreeSet<_> = filled.collect();
    let mut best: Option<(&Host, &str)> = None;
    for route in snapshot.iter().flat_map(|sealed| sealed.routes()) {
        let (PathView::Exact(path) | PathView::Prefix(path)) = route.path else {
            continue;
        };
        if !route.conditions.is_empty() || !answers(route, |name| filled.contains(name)) {
            continue;
        }
        for host in route.hosts.iter().filter(|host| domains.contains(host)) {
            let candidate = (host, path);
            best = Some(best.map_or(candidate, |best| best.min(candidate)));
        }
    }
    best.map(|(host, path)| (host.clone(), path.into()))
}

/// Whether a request on a route is not answered with the proxy's own error; `is_filled` says
/// which upstreams have endpoints.
fn answers(route: RouteView<'_>, is_filled: impl Fn(&str) -> bool) -> bool {
    match route.action {
        Action::Forward(shares) => {
            !shares.is_empty() && shares.iter().all(|share| is_filled(&share.upstream))
        }
        Action::Respond(fixed) => fixed.status < 400,
        Action::Redirect(_) => true,
    }
}

/// The lines that the log may have of what changed.
fn lines<'a>(
    told: &mut Option<Told>,
    gone: impl Iterator<Item = &'a Arc<Finding>>,
    appeared: impl Iterator<Item = &'a Arc<Finding>>,
) -> Vec<Line> {
    let Some(told) = told else {
        return Vec::new();
    };
    let now = clock::unix_seconds();
    let mut lines: Vec<Line> = told.left_out(now).into_iter().collect();
    for finding in gone {
        if told.admit(now) {
            lines.push(Line::Gone(Finding::clone(finding)));
        }
    }
    for finding in appeared {
        if told.admit(now) {
            lines.push(Line::Appeared(Finding::clone(finding)));
        }
    }
    lines
}

/// The object that an origin names; none for settings.
pub fn object_of(origin: &Origin) -> Option<ObjectKey> {
    let kind = ObjectKind::ALL
        .into_iter()
        .find(|kind| kind.full_name() == origin.kind.as_str())?;
    Some(ObjectKey::new(kind, origin.namespace(), origin.name()))
}

impl Work {
    fn register(&self, metrics: &Metrics) {
        let counters = [
            (
                "translate_units",
                "Calls of keyed translation functions",
                &self.units_translated,
            ),
            (
                "translate_objects_visited",
                "Objects read by them",
                &self.objects_visited,
            ),
            (
                "translate_resources_changed",
                "Resources changed",
                &self.resources_changed,
            ),
            (
                "translate_encoded_bytes",
                "Bytes encoded to be hashed or sent",
                &self.bytes_encoded,
            ),
            (
                "proxy_table_nodes_copied",
                "Table nodes copied",
                &self.table_nodes_copied,
            ),
            ("control_commits", "Commits applied", &self.commits),
            ("control_batches", "Batches handled", &self.batches),
        ];
        for (name, help, counter) in counters {
            metrics.register(name, help, counter.clone());
        }
        let help = "Changes of objects that wait to be translated";
        let waiting = self.changes_waiting.clone();
        metrics.register("control_changes_waiting", help, waiting);
        let help = "Namespaces whose changes wait for what their last ones cost";
        let deferred = self.namespaces_deferred.clone();
        metrics.register("control_namespaces_deferred", help, deferred);
        let help = "How long such changes have waited";
        let deferred = self.seconds_deferred.clone();
        metrics.register("control_deferred_seconds", help, deferred);
    }
}

#[cfg(test)]
mod tests;
