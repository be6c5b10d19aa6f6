//! Views of sidecars: which there are, who follows them, and when they go.
//!
//! A proxy that is no gateway's sees what the workload of its Pod does. Pods of a namespace are one
//! workload and one view unless they differ in a label that some selector names: a rollout, whose
//! Pods have another `pod-template-hash`, is the view of those before. A view is there from when
//! the first of its proxies asks until a while after the last has gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock::{self, Instant};
use myriad_translate::{
    Engine, MovedLabel, Role, TooManyViews, VIEW_LABEL_BYTES_MAX, VIEW_LABELS_MAX, View,
};

use super::event::Answer;

/// How long a view stays that nobody follows, so that a proxy which returns finds it.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The most Pods that are remembered to have more labels. Further ones are looked at anew whenever
/// their proxies ask.
pub(super) const BEYOND_MAX: usize = 1_024;

/// The most labels in which the Pods of one view may differ. Who differs in more has another.
const DIFFERING_MAX: usize = 256;

/// The properties that the Pods of a workload share: their namespace, and the labels that selectors
/// name.
type Workload = (Box<str>, Labels);

type Labels = BTreeMap<String, String>;

/// A Pod, as it is now.
struct Found {
    namespace: Box<str>,
    /// Nothing, if it has more than a view may have.
    labels: Labels,
    is_beyond: bool,
}

/// The view of a Pod whose proxy asked.
struct Known {
    view: Arc<str>,
    /// Whether the Pod was looked at since it changed last.
    is_sure: bool,
}

/// Why there is no view for a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoView {
    /// There are as many as there may be.
    Many(TooManyViews),
    /// It has more than [`VIEW_LABELS_MAX`] labels, or [`VIEW_LABEL_BYTES_MAX`] of them.
    Labels,
}

/// The views of sidecars.
#[derive(Default)]
pub(super) struct Beside {
    views: BTreeMap<Workload, Arc<str>>,
    standings: BTreeMap<Arc<str>, Standing>,
    /// Views that nobody follows.
    idle: BTreeSet<Arc<str>>,
    /// The views of Pods whose proxies asked, by `namespace/name`.
    pods: BTreeMap<Box<str>, Known>,
    /// Pods that asked and have too many labels; no more than [`BEYOND_MAX`].
    beyond: BTreeSet<Box<str>>,
    /// The views of Pods that have a label, by its key and their namespace.
    labelled: BTreeMap<LabelPlace, BTreeSet<Arc<str>>>,
    waiting: Vec<(Answer, Option<Arc<str>>)>,
    /// Pods whose proxies asked and got no view, and why, since this was last taken.
    refused: Vec<Refusal>,
    /// How many views there have been.
    count: u64,
    /// How often a Pod was unpacked since its proxy asked.
    #[cfg(test)]
    unpacked: usize,
}

/// The key of a label, and the namespace of the Pods that have it.
type LabelPlace = (Box<str>, Box<str>);

/// A Pod, by `namespace/name`, and why there is no view for it.
type Refusal = (Box<str>, NoView);

struct Standing {
    workload: Workload,
    /// All labels of the first of its Pods.
    labels: Labels,
    /// The keys of labels in which any of its Pods has differed from that one. No selector names
    /// them.
    differing: BTreeSet<Box<str>>,
    /// The Pods whose proxies asked for it.
    pods: BTreeSet<Box<str>>,
    followers: u64,
    /// When somebody last came, asked or went.
    since: Instant,
    /// Whether another view is found by the same workload, as a label is not named any more.
    is_replaced: bool,
}

impl Beside {
    /// Finds the view of a Pod, and puts it where it is not there. Who asked is answered by
    /// [`Beside::answer`], once it has all that it shall.
    pub(super) fn ask(&mut self, engine: &mut Engine, pod: &str, answer: Answer) {
        let found = match self.remembered(pod) {
            Some(view) => Some(view),
            None => self.search(engine, pod),
        };
        self.waiting.push((answer, found));
    }

    /// Answers whoever waits for a view that has all that it shall, and forgets who does not wait
    /// any more.
    pub(super) fn answer(&mut self, engine: &Engine) {
        let is_whole = |view: &Option<Arc<str>>| view.as_ref().is_none_or(|it| engine.is_whole(it));
        let waiting = &mut self.waiting;
        for (answer, found) in waiting.extract_if(.., |it| it.0.is_closed() || is_whole(&it.1)) {
            // Who does not wait any more asks again.
            let _ = answer.send(found);
        }
    }

    /// The view of a Pod that is as it was when its proxy asked before.
    fn remembered(&mut self, pod: &str) -> Option<Arc<str>> {
        let known = self.pods.get(pod).filter(|known| known.is_sure)?;
        let standing = self.standings.get_mut(&known.view)?;
        // The one that has its place now is the view of its Pods as well.
        if standing.is_replaced {
            return None;
        }
        standing.since = clock::now();
        Some(known.view.clone())
    }

    /// Looks at a Pod for its view.
    fn search(&mut self, engine: &mut Engine, pod: &str) -> Option<Arc<str>> {
        if self.beyond.contains(pod) {
            self.refused.push((pod.into(), NoView::Labels));
            return None;
        }
        #[cfg(test)]
        {
            self.unpacked += 1;
        }
        let found = find(engine, pod)?;
        if found.is_beyond {
            if self.beyond.len() < BEYOND_MAX {
                self.beyond.insert(pod.into());
            }
            self.refused.push((pod.into(), NoView::Labels));
            return None;
        }
        self.put(engine, pod, found)
    }

    /// Notes that so many proxies more follow a view, or fewer.
    pub(super) fn follow(&mut self, view: &str, change: i64) {
        if let Some(standing) = self.standings.get_mut(view) {
            standing.followers = standing.followers.saturating_add_signed(change);
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
        self.pods.contains_key(pod) || self.beyond.contains(pod)
    }

    /// How often Pods were unpacked for who asked, how many answers wait, and how many Pods are
    /// remembered: those that have a view, and those that have none.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize, (usize, usize)) {
        let remembered = (self.pods.len(), self.beyond.len());
        (self.unpacked, self.waiting.len(), remembered)
    }

    /// Takes out the Pods that got no view.
    pub(super) fn take_refused(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.refused)
    }

    /// Looks at a Pod that has changed. The view that is not its own any more is returned, to be
    /// taken away: its proxies come back, and each finds its own.
    pub(super) fn look(&mut self, engine: &Engine, pod: &str) -> Option<Arc<str>> {
        self.beyond.remove(pod);
        let known = self.pods.get_mut(pod)?;
        let found = find(engine, pod);
        known.is_sure = found.is_some();
        if found.is_none() && is_let_go(engine, pod) {
            // Its proxy is there all the same. It is looked at again once it is kept, since it may
            // be another by then.
            return None;
        }
        let known = known.view.clone();
        if let Some(found) = &found
            && self.fits(engine, &known, found)
        {
            return None;
        }
        self.pods.remove(pod);
        if let Some(standing) = self.standings.get_mut(&known) {
            standing.pods.remove(pod);
        }
        // One that is gone takes its proxy with it.
        found?;
        self.forget(&known);
        Some(known)
    }

    /// Takes in which labels are named or are not any more, of all that this changed for. The views
    /// whose Pods differ in one that is named are returned, to be taken away as above, each with
    /// the namespace by which it is; the others with that label are found by it. Costs those,
    /// however many views there are.
    pub(super) fn part(
        &mut self,
        engine: &Engine,
        moved: &[MovedLabel],
    ) -> Vec<(Arc<str>, Box<str>)> {
        let mut parted = Vec::new();
        for label in moved {
            for view in self.labelled(label) {
                let Some(standing) = self.standings.get_mut(&view) else {
                    continue;
                };
                let namespace = standing.workload.0.clone();
                let is_named = engine.names_label(&namespace, &label.key);
                if is_named && standing.differing.contains(&label.key) {
                    self.forget(&view);
                    parted.push((view, label.by.clone()));
                    continue;
                }
                let labels = named(engine, &namespace, &standing.labels);
                let workload = (namespace, labels);
                let former = std::mem::replace(&mut standing.workload, workload.clone());
                self.unlist(&view, &former);
                let listed = self.views.entry(workload);
                let is_replaced = *listed.or_insert_with(|| view.clone()) != view;
                if let Some(standing) = self.standings.get_mut(&view) {
                    standing.is_replaced = is_replaced;
                }
            }
        }
        parted
    }

    /// The views of Pods that have a label, among those for whom it moved.
    fn labelled(&self, label: &MovedLabel) -> Vec<Arc<str>> {
        let from = |namespace: &str| (label.key.clone(), Box::<str>::from(namespace));
        if let Some(namespace) = &label.namespace {
            let views = self.labelled.get(&from(namespace));
            return views.into_iter().flatten().cloned().collect();
        }
        let all = self.labelled.range(from("")..);
        let all = all.take_while(|((key, _), _)| *key == label.key);
        all.flat_map(|(_, views)| views).cloned().collect()
    }

    /// Whether a Pod sees a view: it has the labels of its workload, as far as they are named. In
    /// which others it differs is noted.
    fn fits(&mut self, engine: &Engine, view: &Arc<str>, pod: &Found) -> bool {
        let standing = self.standings.get_mut(view);
        let Some(standing) = standing.filter(|_| !pod.is_beyond) else {
            return false;
        };
        let differing = differing(&standing.labels, &pod.labels);
        let mut keys = differing.iter();
        if keys.any(|key| engine.names_label(&pod.namespace, key)) {
            return false;
        }
        let count = standing.differing.union(&differing).count();
        if count > DIFFERING_MAX {
            return false;
        }
        for key in &differing {
            let place = (key.clone(), pod.namespace.clone());
            self.labelled.entry(place).or_default().insert(view.clone());
        }
        standing.differing.extend(differing);
        true
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
        let Some(standing) = self.standings.remove(view) else {
            return;
        };
        self.unlist(view, &standing.workload);
        let own = standing.labels.keys().map(String::as_str);
        for key in own.chain(standing.differing.iter().map(|key| &**key)) {
            let place = (Box::<str>::from(key), standing.workload.0.clone());
            if let Some(views) = self.labelled.get_mut(&place) {
                views.remove(view);
                if views.is_empty() {
                    self.labelled.remove(&place);
                }
            }
        }
        for pod in &standing.pods {
            self.pods.remove(pod);
        }
    }

    /// Lets a view not be found by its workload, unless another is that by now.
    fn unlist(&mut self, view: &Arc<str>, workload: &Workload) {
        if self.views.get(workload) == Some(view) {
            self.views.remove(workload);
        }
    }

    fn put(&mut self, engine: &mut Engine, pod: &str, found: Found) -> Option<Arc<str>> {
        let labels = named(engine, &found.namespace, &found.labels);
        let workload = (found.namespace.clone(), labels);
        let known = self.views.get(&workload).cloned();
        let known = known.filter(|view| self.fits(engine, view, &found));
        let view = match known {
            Some(view) => view,
            None => self.add(engine, pod, workload, found.labels)?,
        };
        if let Some(standing) = self.standings.get_mut(&view) {
            standing.since = clock::now();
            standing.pods.insert(pod.into());
        }
        let known = Known {
            view: view.clone(),
            is_sure: true,
        };
        if let Some(former) = self.pods.insert(pod.into(), known)
            && former.view != view
            && let Some(standing) = self.standings.get_mut(&former.view)
        {
            standing.pods.remove(pod);
        }
        Some(view)
    }

    fn add(
        &mut self,
        engine: &mut Engine,
        pod: &str,
        workload: Workload,
        labels: Labels,
    ) -> Option<Arc<str>> {
        let namespace = &workload.0;
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
        if let Err(problem) = engine.put_view(view) {
            self.refused.push((pod.into(), NoView::Many(problem)));
            return None;
        }
        self.views.insert(workload.clone(), name.clone());
        for key in labels.keys() {
            let place = (key.as_str().into(), workload.0.clone());
            self.labelled.entry(place).or_default().insert(name.clone());
        }
        let standing = Standing {
            workload,
            labels,
            differing: BTreeSet::new(),
            pods: BTreeSet::new(),
            followers: 0,
            since: clock::now(),
            is_replaced: false,
        };
        self.standings.insert(name.clone(), standing);
        self.idle.insert(name.clone());
        Some(name)
    }
}

fn find(engine: &Engine, pod: &str) -> Option<Found> {
    let pod = engine.pod(pod)?;
    let labels = pod.labels.iter();
    let bytes: usize = labels.map(|(key, value)| key.len() + value.len()).sum();
    let is_beyond = pod.labels.len() > VIEW_LABELS_MAX || bytes > VIEW_LABEL_BYTES_MAX;
    let labels = pod.labels.iter().filter(|_| !is_beyond);
    let labels = labels.map(|(key, value)| (key.to_string(), value.to_string()));
    Some(Found {
        namespace: pod.meta.key.namespace().into(),
        labels: labels.collect(),
        is_beyond,
    })
}

/// Whether a Pod is there of which nothing is known, since it takes more memory than its namespace
/// may have.
fn is_let_go(engine: &Engine, pod: &str) -> bool {
    engine.is_let_go(&ObjectKey::from_id(ObjectKind::Pod, pod.into()))
}

/// The labels that selectors name for workloads of a namespace.
fn named(engine: &Engine, namespace: &str, labels: &Labels) -> Labels {
    let labels = labels.iter();
    let named = labels.filter(|(key, _)| engine.names_label(namespace, key));
    named
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The keys of labels that two workloads do not share.
fn differing(one: &Labels, other: &Labels) -> BTreeSet<Box<str>> {
    let keys = one.keys().chain(other.keys());
    let keys = keys.filter(|key| one.get(*key) != other.get(*key));
    keys.map(|key| key.as_str().into()).collect()
}
