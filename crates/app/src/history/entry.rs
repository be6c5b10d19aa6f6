//! One commit as the history holds it, and what it is charged for.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use myriad_api::{Change, Finding, ObjectKey, ObjectKind};
use myriad_model::{Delta, Host, Key, Kind, Resource, Sealed, SealedArc, Snapshot, Value, Version};

use super::former::{StandIns, read};
use crate::live::BecameLive;

/// The most objects of one commit that are named; all are counted.
pub const OBJECTS_NAMED_MAX: usize = 256;

/// The most findings of one commit that are kept, of those that appeared and of those that went;
/// without the rest its commit is not whole.
pub const FINDINGS_MAX: usize = 4_096;

/// The most namespaces that are charged for one commit, each for its part. Further ones have one
/// part together, which is of no namespace.
const PARTS_MAX: usize = 16;

/// The most hosts that are noted of one changed resource.
const HOSTS_MAX: usize = 8;

/// The charge of an allocation beside its bytes.
const ALLOCATION_BYTES: usize = 32;

/// The objects that led to a commit.
#[derive(Debug, Default)]
pub struct Touches {
    named: Vec<Touch>,
    total: usize,
}

/// An object that changed.
#[derive(Clone, Debug)]
pub struct Touch {
    /// The object.
    pub key: ObjectKey,
    /// Whether it is there; otherwise it was removed.
    pub is_put: bool,
    /// The one who wrote it last, where the object says so.
    pub by: Option<Arc<str>>,
}

/// A view that a commit changed.
pub struct ViewChange {
    /// Its name.
    pub view: Arc<str>,
    /// The changes.
    pub delta: Delta,
    /// The state after it.
    pub snapshot: Snapshot,
}

/// A former resource.
#[derive(Clone)]
pub(super) struct Former {
    pub(super) version: Version,
    /// Its encoded bytes, without secrets.
    bytes: Bytes,
}

/// The way back of one changed resource.
#[derive(Clone)]
pub(super) struct Undo {
    pub(super) key: Key,
    slot: u64,
    /// The place of its namespace among those of its commit.
    part: usize,
    pub(super) old: Option<Former>,
    pub(super) new: Option<Version>,
    /// Some of the hosts that it names or named.
    pub(super) hosts: Box<[Host]>,
}

/// A view with the ways back of what changed in it.
type ViewUndo = (Arc<str>, Box<[Undo]>);

/// The part that a namespace has in a commit.
#[derive(Clone)]
struct Part {
    namespace: Arc<str>,
    bytes: usize,
    /// Whether its ways back were let go.
    is_lost: bool,
}

/// A commit.
#[derive(Clone)]
pub struct HistoryEntry {
    /// Its number in this process, from 1 on.
    pub number: u64,
    /// When it was made, in milliseconds since the epoch.
    pub at: i64,
    /// The objects that led to it, at most [`OBJECTS_NAMED_MAX`].
    pub touches: Box<[Touch]>,
    /// How many there were.
    pub touches_total: usize,
    /// The findings that appeared.
    pub appeared: Box<[Arc<Finding>]>,
    /// The findings that went.
    pub gone: Box<[Arc<Finding>]>,
    /// How many resources changed, over all views.
    pub resources_total: usize,
    /// Whether all of it is kept.
    pub is_whole: bool,
    /// Whether it can be undone, but for the namespaces whose part is lost.
    pub(super) is_undoable: bool,
    /// The namespaces that are charged for it, each for its part.
    parts: Box<[Part]>,
    /// The place of the namespace that is charged for what no view has, too.
    owner: usize,
    /// The ways back, by view.
    pub(super) views: Box<[ViewUndo]>,
    /// The number by which it is known whether proxies serve it; none where no view changed.
    pub(super) commit: Option<u64>,
    /// How it became live, once that is known.
    pub(super) live: OnceLock<BecameLive>,
    /// The bytes that it is charged.
    pub(super) bytes: usize,
}

impl Touches {
    /// Notes a change of an object.
    pub fn note(&mut self, change: &Change) {
        self.total += 1;
        if self.named.len() < OBJECTS_NAMED_MAX {
            self.named.push(Touch {
                key: change.key().clone(),
                is_put: matches!(change, Change::Put(_)),
                by: None,
            });
        }
    }

    /// Whether an object is among them whose change people look for, though nothing followed.
    pub(super) fn are_of_people(&self) -> bool {
        let is_of_machines = |kind: ObjectKind| {
            matches!(
                kind,
                ObjectKind::EndpointSlice
                    | ObjectKind::Pod
                    | ObjectKind::Order
                    | ObjectKind::OnDemand
            )
        };
        self.named.iter().any(|it| !is_of_machines(it.key.kind))
    }

    /// Says who wrote the objects, as far as that is known.
    pub(super) fn attribute(&mut self, mut writer: impl FnMut(&ObjectKey) -> Option<Arc<str>>) {
        for touch in &mut self.named {
            touch.by = writer(&touch.key);
        }
    }
}

impl Undo {
    /// The way back of a change; none where the former resource cannot be kept.
    fn of(
        change: &myriad_model::Change,
        stand_ins: &StandIns,
        scratch: &mut Vec<u8>,
    ) -> Option<Undo> {
        let mut former = |sealed: &SealedArc| {
            Some(Former {
                version: sealed.version(),
                bytes: stand_ins.keep(sealed, scratch)?,
            })
        };
        let old = match &change.old {
            Some(old) => Some(former(old)?),
            None => None,
        };
        let slot = change.new.as_ref().or(change.old.as_ref())?.slot();
        Some(Undo {
            key: change.key.clone(),
            slot,
            part: 0,
            old,
            new: change.new.as_ref().map(|sealed| sealed.version()),
            hosts: hosts_of(change),
        })
    }

    /// Takes a snapshot back.
    pub(super) fn apply(&self, snapshot: &mut Snapshot) {
        let present = snapshot.get(self.slot, &self.key).cloned();
        let former = self.old.as_ref().map(|former| {
            let (key, bytes) = (self.key.clone(), former.bytes.clone());
            SealedArc::new(Sealed::remembered(key, self.slot, former.version, bytes))
        });
        snapshot.apply(&myriad_model::Change {
            key: self.key.clone(),
            old: present,
            new: former,
        });
    }

    /// The bytes that it is charged.
    fn bytes(&self) -> usize {
        let old = self.old.as_ref();
        let old = old.map_or(0, |old| old.bytes.len() + ALLOCATION_BYTES);
        let hosts = self.hosts.iter().map(|host| text_bytes(host.as_str()));
        size_of::<Undo>() + text_bytes(&self.key.name) + old + hosts.sum::<usize>()
    }
}

impl HistoryEntry {
    /// A commit before it is looked at in detail.
    pub(super) fn new(
        (number, at): (u64, i64),
        touches: Touches,
        (appeared, gone): (Vec<Arc<Finding>>, Vec<Arc<Finding>>),
    ) -> HistoryEntry {
        let is_whole = appeared.len().max(gone.len()) <= FINDINGS_MAX;
        let kept = |mut findings: Vec<Arc<Finding>>| {
            findings.truncate(FINDINGS_MAX);
            findings.into()
        };
        HistoryEntry {
            number,
            at,
            touches: touches.named.into(),
            touches_total: touches.total,
            appeared: kept(appeared),
            gone: kept(gone),
            resources_total: 0,
            is_whole,
            is_undoable: true,
            parts: Box::default(),
            owner: 0,
            views: Box::default(),
            commit: None,
            live: OnceLock::new(),
            bytes: 0,
        }
    }

    /// Takes in what changed in views. Where that would take more than so many bytes, the part of
    /// the namespace that has most of it is left out.
    pub(super) fn keep(&mut self, changed: &[ViewChange], stand_ins: &StandIns, bytes_max: usize) {
        let totals = changed.iter().map(|it| it.delta.len());
        self.resources_total = totals.sum();
        let mut parts: Vec<Part> = self.writer().map(Part::new).into_iter().collect();
        let mut bytes = self.bytes_without_views();
        let mut views: Vec<(Arc<str>, Vec<Undo>)> = Vec::new();
        let mut scratch = Vec::new();
        for change in changed {
            views.push((change.view.clone(), Vec::new()));
            for change in change.delta.changes() {
                let Some(mut undo) = Undo::of(change, stand_ins, &mut scratch) else {
                    self.is_undoable = false;
                    self.is_whole = false;
                    self.charge(parts, Vec::new());
                    return;
                };
                undo.part = place(&mut parts, &namespace_of(change));
                let Some(part) = parts.get_mut(undo.part).filter(|part| !part.is_lost) else {
                    continue;
                };
                part.bytes += undo.bytes();
                bytes += undo.bytes();
                if let Some((_, undos)) = views.last_mut() {
                    undos.push(undo);
                }
                if bytes > bytes_max {
                    bytes = bytes.saturating_sub(lose_largest(&mut parts, &mut views));
                }
            }
        }
        self.charge(parts, views);
    }

    /// Sets the parts, and charges one of their namespaces for all that is not in views.
    fn charge(&mut self, mut parts: Vec<Part>, views: Vec<(Arc<str>, Vec<Undo>)>) {
        if parts.is_empty() {
            parts.push(Part::new(""));
        }
        if views.is_empty() {
            parts.iter_mut().for_each(|part| part.bytes = 0);
        }
        let views = views.into_iter();
        self.views = views.map(|(view, undos)| (view, undos.into())).collect();
        // Where nobody has written anything, who has most of what followed.
        let largest = parts.iter().enumerate().max_by_key(|(_, part)| part.bytes);
        let largest = largest.map_or(0, |(place, _)| place);
        self.owner = if self.writer().is_some() { 0 } else { largest };
        self.parts = parts.into();
        let fixed = self.bytes_without_views();
        if let Some(owner) = self.parts.get_mut(self.owner) {
            owner.bytes += fixed;
            // Findings beyond the bound are as good as let go.
            owner.is_lost |= !self.is_whole;
        }
        self.note_lost();
    }

    /// The namespace of most of what was written and found.
    fn writer(&self) -> Option<&str> {
        let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
        for touch in &self.touches {
            *bytes.entry(touch.key.namespace()).or_default() += touch_bytes(touch);
        }
        for finding in self.appeared.iter().chain(&self.gone) {
            let object = finding.object.as_ref();
            let namespace = object.map_or("", ObjectKey::namespace);
            *bytes.entry(namespace).or_default() += finding_bytes(finding);
        }
        let most = bytes.into_iter().max_by_key(|(_, bytes)| *bytes);
        most.map(|(namespace, _)| namespace)
    }

    /// Sums up what is left of it.
    fn note_lost(&mut self) {
        self.bytes = self.parts.iter().map(|part| part.bytes).sum();
        let mut lost = self.parts.iter().filter(|part| part.is_lost);
        self.is_whole &= lost.clone().next().is_none();
        // What is of no namespace is of all of them.
        self.is_undoable &= lost.all(|part| !part.namespace.is_empty());
    }

    /// The commit without the part of a namespace; none where nothing is left of it.
    pub(super) fn without(&self, namespace: &str) -> Option<HistoryEntry> {
        let gone = place_among(&self.parts, namespace)?;
        let mut rest = self.clone();
        let views = self.views.iter().map(|(view, undos)| {
            let undos = undos.iter().filter(|undo| undo.part != gone);
            (view.clone(), undos.cloned().collect())
        });
        rest.views = views.collect();
        let part = rest.parts.get_mut(gone)?;
        (part.bytes, part.is_lost) = (0, true);
        if self.owner == gone {
            rest.touches = Box::default();
            (rest.appeared, rest.gone) = (Box::default(), Box::default());
            rest.owner = rest.parts.iter().position(|part| part.bytes > 0)?;
            let fixed = rest.bytes_without_views();
            rest.parts.get_mut(rest.owner)?.bytes += fixed;
        }
        rest.note_lost();
        Some(rest)
    }

    /// The namespaces that are charged for it, and their bytes.
    pub(super) fn charges(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        let charged = self.parts.iter().filter(|part| part.bytes > 0);
        charged.map(|part| (&part.namespace, part.bytes))
    }

    /// The namespaces whose part of it is not kept.
    pub(super) fn lost(&self) -> impl Iterator<Item = &Arc<str>> {
        let lost = self.parts.iter().filter(|part| part.is_lost);
        lost.map(|part| &part.namespace)
    }

    /// How many changes a view has in it.
    pub(super) fn changes_of(&self, view: &str) -> &[Undo] {
        let mut views = self.views.iter().filter(|(known, _)| **known == *view);
        match views.next() {
            Some((_, undos)) => undos,
            None => &[],
        }
    }

    /// Whether a host is named by what changed in a view, or a resource changed there that is
    /// asked for.
    pub fn touches_resource(
        &self,
        view: &str,
        host: &str,
        is_asked: &dyn Fn(&Key) -> bool,
    ) -> bool {
        let mut undos = self.changes_of(view).iter();
        undos.any(|undo| undo.hosts.iter().any(|it| it.covers(host)) || is_asked(&undo.key))
    }

    /// Whether a host is named by what changed in any view.
    pub(super) fn names_host(&self, host: &str) -> bool {
        let mut undos = self.views.iter().flat_map(|(_, undos)| undos.iter());
        undos.any(|undo| {
            let mut hosts = undo.hosts.iter();
            hosts.any(|it| it.as_str() == host || it.covers(host))
        })
    }

    fn bytes_without_views(&self) -> usize {
        let touches = self.touches.iter().map(touch_bytes);
        let findings = self.appeared.iter().chain(&self.gone);
        let findings = findings.map(|finding| finding_bytes(finding));
        let views = self.views.len() * (size_of::<ViewUndo>() + ALLOCATION_BYTES);
        let fixed = size_of::<HistoryEntry>() + 4 * ALLOCATION_BYTES + views;
        let parts = self.parts.iter().map(|part| {
            let name = text_bytes(&part.namespace);
            size_of::<Part>() + name + 4 * ALLOCATION_BYTES
        });
        fixed + touches.sum::<usize>() + findings.sum::<usize>() + parts.sum::<usize>()
    }
}

impl Part {
    fn new(namespace: &str) -> Part {
        Part {
            namespace: namespace.into(),
            bytes: 0,
            is_lost: false,
        }
    }
}

/// The place of a namespace among the parts of a commit.
fn place(parts: &mut Vec<Part>, namespace: &str) -> usize {
    if let Some(known) = place_among(parts, namespace) {
        return known;
    }
    let is_full = parts.len() >= PARTS_MAX;
    let namespace = if is_full { "" } else { namespace };
    place_among(parts, namespace).unwrap_or_else(|| {
        parts.push(Part::new(namespace));
        parts.len() - 1
    })
}

fn place_among(parts: &[Part], namespace: &str) -> Option<usize> {
    let mut parts = parts.iter();
    parts.position(|part| *part.namespace == *namespace)
}

/// Lets go of the largest part, and returns its bytes.
fn lose_largest(parts: &mut [Part], views: &mut [(Arc<str>, Vec<Undo>)]) -> usize {
    let kept = parts.iter_mut().enumerate().filter(|it| !it.1.is_lost);
    let Some((place, part)) = kept.max_by_key(|(_, part)| part.bytes) else {
        return 0;
    };
    part.is_lost = true;
    for (_, undos) in views {
        undos.retain(|undo| undo.part != place);
    }
    std::mem::take(&mut part.bytes)
}

/// The namespace of what a changed resource was made from, before the change where it was there.
fn namespace_of(change: &myriad_model::Change) -> String {
    let sealed = change.old.as_ref().or(change.new.as_ref());
    let resource = sealed.and_then(|sealed| read(sealed));
    let origin = resource.as_ref().map(|resource| &resource.origin);
    origin.map_or_else(String::new, |origin| origin.namespace().to_owned())
}

fn touch_bytes(touch: &Touch) -> usize {
    let by = touch.by.as_deref().map_or(0, text_bytes);
    size_of::<Touch>() + text_bytes(touch.key.id()) + by
}

fn finding_bytes(finding: &Finding) -> usize {
    let Finding {
        field,
        message,
        remedy,
        ..
    } = finding;
    let texts = [field, message, remedy].map(|text| text_bytes(text));
    size_of::<Finding>() + texts.iter().sum::<usize>()
}

/// The charge of a text of its own.
fn text_bytes(text: &str) -> usize {
    text.len() + ALLOCATION_BYTES
}

/// Some of the hosts that a changed resource names, or named.
fn hosts_of(change: &myriad_model::Change) -> Box<[Host]> {
    let has_hosts = matches!(
        change.key.kind,
        Kind::Domain | Kind::Route | Kind::StreamRoute | Kind::ChallengeAnswer
    );
    let mut hosts: Vec<Host> = Vec::new();
    if has_hosts {
        let sealed = change.new.iter().chain(&change.old);
        for resource in sealed.filter_map(|sealed| read(sealed)) {
            for host in hosts_in(&resource) {
                if hosts.len() < HOSTS_MAX && !hosts.contains(host) {
                    hosts.push(host.clone());
                }
            }
        }
    }
    hosts.into()
}

/// The hosts that a resource names.
pub fn hosts_in(resource: &Resource) -> Vec<&Host> {
    match &resource.value {
        Value::Domain(domain) => vec![&domain.host],
        Value::StreamRoute(stream_route) => stream_route.hosts.iter().collect(),
        Value::ChallengeAnswer(answer) => vec![&answer.host],
        // All routes of a block are on the same hosts.
        value @ (Value::Route(_) | Value::Routes(_)) => {
            let route = value.route(0);
            route.map_or_else(Vec::new, |route| route.hosts.iter().collect())
        }
        _ => Vec::new(),
    }
}
