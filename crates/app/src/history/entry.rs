//! One commit as the history holds it, and what it is charged for.

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
pub(super) struct Former {
    pub(super) version: Version,
    /// Its encoded bytes, without secrets.
    bytes: Bytes,
}

/// The way back of one changed resource.
pub(super) struct Undo {
    pub(super) key: Key,
    slot: u64,
    pub(super) old: Option<Former>,
    pub(super) new: Option<Version>,
    /// Some of the hosts that it names or named.
    pub(super) hosts: Box<[Host]>,
}

/// A view with the ways back of what changed in it.
type ViewUndo = (Arc<str>, Box<[Undo]>);

/// A commit.
pub struct HistoryEntry {
    /// Its number in this process, from 1 on and without gaps.
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
    /// Whether all of it is kept, so that it can be undone.
    pub is_whole: bool,
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
            views: Box::default(),
            commit: None,
            live: OnceLock::new(),
            bytes: 0,
        }
    }

    /// Takes in what changed in views. Where that would take more than so many bytes it is left
    /// out, and the commit cannot be undone.
    pub(super) fn keep(&mut self, changed: &[ViewChange], stand_ins: &StandIns, bytes_max: usize) {
        let totals = changed.iter().map(|it| it.delta.len());
        self.resources_total = totals.sum();
        let mut bytes = self.bytes_without_views();
        let mut views: Vec<(Arc<str>, Box<[Undo]>)> = Vec::new();
        let mut scratch = Vec::new();
        for change in changed {
            let mut undos: Vec<Undo> = Vec::new();
            for change in change.delta.changes() {
                match Undo::of(change, stand_ins, &mut scratch) {
                    Some(undo) if bytes <= bytes_max => {
                        bytes += undo.bytes();
                        undos.push(undo);
                    }
                    _ => {
                        self.is_whole = false;
                        self.bytes = self.bytes_without_views();
                        return;
                    }
                }
            }
            bytes += size_of::<(Arc<str>, Box<[Undo]>)>() + ALLOCATION_BYTES;
            views.push((change.view.clone(), undos.into()));
        }
        self.views = views.into();
        self.bytes = bytes;
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
        let touches = self.touches.iter().map(|touch| {
            let by = touch.by.as_deref().map_or(0, text_bytes);
            size_of::<Touch>() + text_bytes(touch.key.id()) + by
        });
        let findings = self.appeared.iter().chain(&self.gone);
        let findings = findings.map(|finding| {
            let Finding {
                field,
                message,
                remedy,
                ..
            } = &**finding;
            let texts = [field, message, remedy].map(|text| text_bytes(text));
            size_of::<Finding>() + texts.iter().sum::<usize>()
        });
        let fixed = size_of::<HistoryEntry>() + 4 * ALLOCATION_BYTES;
        fixed + touches.sum::<usize>() + findings.sum::<usize>()
    }
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
