//! Views of sidecars: which there are, who follows them, and when they go.
//!
//! A proxy that is no gateway's sees what the workload of its Pod does. Pods with the same labels
//! in the same namespace are one workload and one view. It is there from when the first of its
//! proxies asks until a while after the last has gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use myriad_translate::{Engine, Role, View};

use super::event::Answer;

/// How long a view stays that nobody follows, so that a proxy which returns finds it.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The properties that the Pods of a workload share: their namespace and labels.
type Workload = (Box<str>, BTreeMap<String, String>);

/// The views of sidecars.
#[derive(Default)]
pub(super) struct Beside {
    views: BTreeMap<Workload, Arc<str>>,
    standings: BTreeMap<Arc<str>, Standing>,
    /// Views that nobody follows.
    idle: BTreeSet<Arc<str>>,
    /// The views of Pods whose proxies asked, by `namespace/name`.
    pods: BTreeMap<Box<str>, Arc<str>>,
    waiting: Vec<(Answer, Option<Arc<str>>)>,
    /// How many views there have been.
    count: u64,
}

struct Standing {
    workload: Workload,
    /// The Pods whose proxies asked for it.
    pods: BTreeSet<Box<str>>,
    followers: u64,
    /// When somebody last came, asked or went.
    since: Instant,
}

impl Beside {
    /// Finds the view of a Pod, and puts it where it is not there. Who asked is answered by
    /// [`Beside::answer`], once it has been translated.
    pub(super) fn ask(&mut self, engine: &mut Engine, pod: &str, answer: Answer) {
        let found = workload(engine, pod).and_then(|workload| self.put(engine, pod, workload));
        self.waiting.push((answer, found));
    }

    /// Whether anybody waits for an answer.
    pub(super) fn is_asked(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Answers whoever waits.
    pub(super) fn answer(&mut self) {
        for (answer, found) in self.waiting.drain(..) {
            // Who does not wait any more asks again.
            let _ = answer.send(found);
        }
    }

    /// Notes that a proxy follows a view, or does not any more.
    pub(super) fn follow(&mut self, view: &str, is_there: bool) {
        if let Some(standing) = self.standings.get_mut(view) {
            standing.followers = match is_there {
                true => standing.followers + 1,
                false => standing.followers.saturating_sub(1),
            };
            standing.since = clock::now();
            let is_idle = standing.followers == 0;
            match (is_idle, self.standings.get_key_value(view)) {
                (true, Some((view, _))) => drop(self.idle.insert(view.clone())),
                _ => drop(self.idle.remove(view)),
            }
        }
    }

    /// Whether the proxy of a Pod has asked.
    pub(super) fn knows(&self, pod: &str) -> bool {
        self.pods.contains_key(pod)
    }

    /// Looks at a Pod that has changed. The view that is not its own any more is returned, to be
    /// taken away: its proxies come back, and each finds its own.
    pub(super) fn look(&mut self, engine: &Engine, pod: &str) -> Option<Arc<str>> {
        let known = self.pods.get(pod)?.clone();
        let workload = workload(engine, pod);
        let own = workload.as_ref().and_then(|it| self.views.get(it));
        if own == Some(&known) {
            return None;
        }
        self.pods.remove(pod);
        if let Some(standing) = self.standings.get_mut(&known) {
            standing.pods.remove(pod);
        }
        // One that is gone takes its proxy with it.
        workload?;
        self.forget(&known);
        Some(known)
    }

    /// The views that nobody has followed for a while. They are forgotten.
    pub(super) fn sweep(&mut self) -> Vec<Arc<str>> {
        let now = clock::now();
        let idle = self.idle.iter().filter(|view| {
            let since = self.standings.get(*view).map(|standing| standing.since);
            since.is_none_or(|since| now.saturating_duration_since(since) > IDLE_MAX)
        });
        let idle: Vec<Arc<str>> = idle.cloned().collect();
        for view in &idle {
            self.forget(view);
        }
        idle
    }

    fn forget(&mut self, view: &Arc<str>) {
        self.idle.remove(view);
        if let Some(standing) = self.standings.remove(view) {
            self.views.remove(&standing.workload);
            for pod in &standing.pods {
                self.pods.remove(pod);
            }
        }
    }

    fn put(&mut self, engine: &mut Engine, pod: &str, workload: Workload) -> Option<Arc<str>> {
        let view = match self.views.get(&workload) {
            Some(view) => view.clone(),
            None => self.add(engine, pod, &workload)?,
        };
        if let Some(standing) = self.standings.get_mut(&view) {
            standing.since = clock::now();
            standing.pods.insert(pod.into());
        }
        self.pods.insert(pod.into(), view.clone());
        Some(view)
    }

    fn add(&mut self, engine: &mut Engine, pod: &str, workload: &Workload) -> Option<Arc<str>> {
        let (namespace, labels) = workload;
        let app = ["app", "app.kubernetes.io/name"].map(|key| labels.get(key));
        let name = pod.split_once('/').map_or(pod, |(_, name)| name);
        let app = app.into_iter().flatten().next().map_or(name, |app| app);
        self.count += 1;
        // No gateway has a slash in its name.
        let name: Arc<str> = format!("{namespace}/{app}#{}", self.count).into();
        let view = View {
            name: name.clone(),
            role: Role::Sidecar,
            labels: labels.clone(),
            namespace: namespace.clone(),
        };
        if let Err(error) = engine.put_view(view) {
            tracing::error!(%name, "is not served: {error}");
            return None;
        }
        self.views.insert(workload.clone(), name.clone());
        let standing = Standing {
            workload: workload.clone(),
            pods: BTreeSet::new(),
            followers: 0,
            since: clock::now(),
        };
        self.standings.insert(name.clone(), standing);
        self.idle.insert(name.clone());
        Some(name)
    }
}

fn workload(engine: &Engine, pod: &str) -> Option<Workload> {
    let pod = engine.pod(pod)?;
    let labels = pod.labels.iter();
    let labels = labels.map(|(key, value)| (key.to_string(), value.to_string()));
    Some((pod.meta.key.namespace().into(), labels.collect()))
}
