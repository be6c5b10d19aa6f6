//! Brings the index up to date with some files, and collects what that changes: one batch.
//!
//! Removals are decided at the end, so that an object that moves from one file of the batch to
//! another never goes out of effect.
//!
//! **Last good.** While any document of a file is broken, nothing that the file gave goes away:
//! its good documents take effect as they are, and each object that none of them gives any more
//! stays. So a broken document takes no neighbour with it and is itself replaced only by a good
//! one. While the file as a whole cannot be read, all of it stays.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher};
use std::num::NonZero;
use std::sync::Arc;

use myriad_api::{Batch, Change, Finding, Object, ObjectKey, Report};

use super::findings::findings;
use super::{Document, FileId, Holds, Index, Mixed, Owner};
use crate::directory::document::{Hash, Outcome, Passed, Problems};
use crate::directory::file::{Files, Stamp};
use crate::directory::parsed::{Content, Parsed, ParsedDocument, Reading};
use crate::directory::problem::Problem;
use crate::directory::{Counters, Limits};

/// The most kinds that are told apart among objects that are not read.
const PASSED_KINDS_MAX: usize = 1_000;

/// One batch in the making.
pub(crate) struct Session<'a> {
    index: &'a mut Index,
    limits: &'a Limits,
    counters: &'a Counters,
    changes: BTreeMap<ObjectKey, Change>,
    /// Keys whose owner let go in this session.
    orphans: BTreeSet<ObjectKey>,
    /// Files whose findings may differ.
    touched: BTreeSet<FileId>,
    /// Files that are gone and had findings.
    cleared: Vec<Arc<str>>,
    /// Objects that were read now and are of kinds that are not, by kind.
    passed: BTreeMap<Passed, usize>,
}

/// The claim of a file to a key. Without an object the one in effect is unchanged.
struct Claim {
    document: usize,
    object: Option<(Object, Option<Hash>)>,
}

type Claims = HashMap<ObjectKey, Claim>;

impl<'a> Session<'a> {
    pub(crate) fn new(index: &'a mut Index, limits: &'a Limits, counters: &'a Counters) -> Self {
        Session {
            index,
            limits,
            counters,
            changes: BTreeMap::new(),
            orphans: BTreeSet::new(),
            touched: BTreeSet::new(),
            cleared: Vec::new(),
            passed: BTreeMap::new(),
        }
    }

    /// Reads a path and takes over what is there.
    pub(crate) fn update(&mut self, path: &Arc<str>, files: &mut dyn Files) {
        let state = files.read(path);
        let known = self.index.known(path);
        let parsed = Parsed::new(path, state, &known, self.limits, self.counters);
        self.apply(parsed);
    }

    /// Takes over the new state of a file.
    pub(crate) fn apply(&mut self, parsed: Parsed) {
        let Parsed {
            path,
            stamp,
            content,
        } = parsed;
        let awaited = self.take_awaited(&path);
        match content {
            Content::Gone => self.remove(&path),
            Content::Trouble(problem) => self.suspend(&path, stamp, problem),
            Content::Documents(documents) => self.replace(&path, stamp, documents),
        }
        for key in awaited.iter().filter(|key| self.orphans.contains(*key)) {
            // As in `finish`.
            if let Some(id) = self.index.paths.get(&path).copied() {
                withdraw(self.index, key, id);
            }
        }
    }

    /// The keys that wait for a file to be read, and that nobody has taken over meanwhile.
    fn take_awaited(&mut self, path: &Arc<str>) -> BTreeSet<ObjectKey> {
        let mut awaited = self.index.awaited.remove(path).unwrap_or_default();
        awaited.retain(|key| !self.index.owners.contains_key(key));
        self.orphans.extend(awaited.iter().cloned());
        awaited
    }

    /// How many objects this session came upon of each kind that is not read.
    pub(crate) fn take_passed(&mut self) -> BTreeMap<Passed, usize> {
        std::mem::take(&mut self.passed)
    }

    /// Ends the session and reads nothing. Returns as well the files that are to be read since they
    /// hold what others let go; until they are, that stays in effect.
    pub(crate) fn end(mut self) -> (Batch, BTreeSet<Arc<str>>) {
        self.forget_let_go();
        let mut rivals = BTreeSet::new();
        for key in std::mem::take(&mut self.orphans) {
            match self.index.first_rival(&key).map(|(_, path)| path.clone()) {
                Some(path) => {
                    let awaited = self.index.awaited.entry(path.clone()).or_default();
                    awaited.insert(key);
                    rivals.insert(path);
                }
                None => self.drop_object(key),
            }
        }
        (self.into_batch(), rivals)
    }

    /// Ends the session. Reads again the files that hold what others let go.
    pub(crate) fn finish(mut self, files: &mut dyn Files) -> Batch {
        self.forget_let_go();
        while let Some(key) = self.orphans.first().cloned() {
            let rival = self.index.first_rival(&key);
            let Some((id, path)) = rival.map(|(id, path)| (id, path.clone())) else {
                self.orphans.remove(&key);
                self.drop_object(key);
                continue;
            };
            self.update(&path, files);
            if self.orphans.contains(&key) {
                // It did not give the object after all, so it must not be asked again.
                withdraw(self.index, &key, id);
            }
        }
        self.into_batch()
    }

    fn forget_let_go(&mut self) {
        for key in self.changes.keys() {
            self.index.let_go.remove(key);
        }
    }

    /// The object in effect under a key goes.
    fn drop_object(&mut self, key: ObjectKey) {
        self.index.let_go.remove(&key);
        self.changes.insert(key.clone(), Change::Remove(key));
    }

    fn into_batch(mut self) -> Batch {
        let reports = self.reports();
        Batch {
            changes: self.changes.into_values().collect(),
            reports,
            synced: false,
            positions: Vec::new(),
            infers: false,
            writers: Vec::new(),
            noticed: None,
        }
    }

    fn remove(&mut self, path: &Arc<str>) {
        let Some(id) = self.index.paths.get(path).copied() else {
            return;
        };
        self.touched.remove(&id);
        let Some(file) = self.index.forget(id) else {
            return;
        };
        for key in file
            .documents
            .iter()
            .flat_map(|document| document.holds.keys())
        {
            self.release(key, id);
        }
        if file.reported.is_some() {
            self.cleared.push(file.path);
        }
    }

    /// The file cannot be used: what it gave stays, and what it could give is not counted on.
    fn suspend(&mut self, path: &Arc<str>, stamp: Stamp, problem: Box<Problem>) {
        let id = self.index.ensure(path);
        self.touched.insert(id);
        let Some(file) = self.index.file_mut(id) else {
            return;
        };
        file.stamp = stamp;
        file.trouble = Some(problem);
        let keys = file
            .documents
            .iter()
            .flat_map(|document| document.holds.keys());
        for key in keys.cloned().collect::<Vec<_>>() {
            withdraw(self.index, &key, id);
        }
    }

    fn replace(&mut self, path: &Arc<str>, stamp: Stamp, parsed: Vec<ParsedDocument>) {
        let id = self.index.ensure(path);
        self.touched.insert(id);
        let Some(file) = self.index.file_mut(id) else {
            return;
        };
        file.stamp = stamp;
        file.trouble = None;
        let old = std::mem::take(&mut file.documents);
        let mut matched = vec![false; old.len()];
        self.count_passed(&parsed);
        let (mut documents, mut claims) = self.read_claims(&old, parsed, &mut matched);
        if documents.iter().any(|document| document.holds.is_broken()) {
            self.keep_last_good(id, &old, &matched, &mut documents, &mut claims);
        }
        for key in old.iter().flat_map(|document| document.holds.keys()) {
            if !claims.contains_key(key) {
                self.release(key, id);
            }
        }
        let items = self.owned_items(id, &old);
        for (key, claim) in claims {
            let former = items.get(&key).copied();
            self.stake(key, id, claim, former);
        }
        if let Some(file) = self.index.file_mut(id) {
            file.documents = documents.into();
        }
    }

    fn count_passed(&mut self, documents: &[ParsedDocument]) {
        for document in documents {
            let passed = match &document.reading {
                Reading::Fresh(Outcome::Passed(passed)) => std::slice::from_ref(passed),
                Reading::Fresh(Outcome::Mixed(_, _, passed)) => passed,
                _ => continue,
            };
            for kind in passed {
                let is_known = self.passed.contains_key(kind);
                if is_known || self.passed.len() < PASSED_KINDS_MAX {
                    *self.passed.entry(kind.clone()).or_default() += 1;
                }
            }
        }
    }

    fn read_claims(
        &self,
        old: &[Document],
        parsed: Vec<ParsedDocument>,
        matched: &mut [bool],
    ) -> (Vec<Document>, Claims) {
        let mut documents = Vec::with_capacity(parsed.len());
        let mut claims = Claims::new();
        let mut room = self.limits.findings_per_file_max;
        for ParsedDocument {
            hash,
            line,
            reading,
        } in parsed
        {
            let document = documents.len();
            let mut claim = |key: &ObjectKey, object| {
                // The first document that gives a key is the one that counts.
                claims
                    .entry(key.clone())
                    .or_insert(Claim { document, object });
            };
            let holds = match reading {
                Reading::Known(index) => {
                    let Some(known) = old.get(index) else {
                        continue;
                    };
                    if let Some(matched) = matched.get_mut(index) {
                        *matched = true;
                    }
                    known.holds.keys().for_each(|key| claim(key, None));
                    known.holds.clone()
                }
                Reading::Fresh(Outcome::Nothing | Outcome::Passed(_)) => Holds::Nothing,
                Reading::Fresh(Outcome::One(object)) => {
                    let key = object.key().clone();
                    claim(&key, Some((object, None)));
                    Holds::One(key)
                }
                Reading::Fresh(Outcome::Mixed(objects, problems, _)) => {
                    let mut mixed = Mixed::new(problems, room);
                    for (object, hash) in objects {
                        let key = object.key().clone();
                        claim(&key, Some((object, Some(hash))));
                        mixed.items.push((key, hash));
                    }
                    Holds::Mixed(Box::new(mixed))
                }
            };
            if let Holds::Mixed(mixed) = &holds {
                room = room.saturating_sub(mixed.problems.len());
            }
            documents.push(Document {
                hash,
                line,
                is_kept: false,
                holds,
            });
        }
        (documents, claims)
    }

    /// Carries over the documents whose objects would go although the file has broken parts.
    fn keep_last_good(
        &self,
        id: FileId,
        old: &[Document],
        matched: &[bool],
        documents: &mut Vec<Document>,
        claims: &mut Claims,
    ) {
        for (index, document) in old.iter().enumerate() {
            if matched.get(index) != Some(&false) {
                continue;
            }
            // A file that stays broken while others of its documents come and go keeps no more
            // than it could hold.
            if documents.len() >= self.limits.documents_per_file_max {
                break;
            }
            let mut is_needed = false;
            for key in document.holds.keys() {
                let is_owned = self.index.owners.get(key) == Some(&Owner::new(id, index));
                if is_owned && let Entry::Vacant(vacant) = claims.entry(key.clone()) {
                    let document = documents.len();
                    vacant.insert(Claim {
                        document,
                        object: None,
                    });
                    is_needed = true;
                }
            }
            if is_needed {
                let mut kept = document.clone();
                kept.is_kept = true;
                documents.push(kept);
            }
        }
    }

    /// The hashes of the list items of a file that are in effect.
    fn owned_items(&self, id: FileId, old: &[Document]) -> HashMap<ObjectKey, Hash> {
        let mut owned = HashMap::new();
        for (index, document) in old.iter().enumerate() {
            let Holds::Mixed(mixed) = &document.holds else {
                continue;
            };
            for (key, hash) in &mixed.items {
                let is_owned = self.index.owners.get(key) == Some(&Owner::new(id, index));
                if is_owned && !self.index.let_go.contains(key) {
                    // Of a key that the list has twice, the first item is in effect.
                    owned.entry(key.clone()).or_insert(*hash);
                }
            }
        }
        owned
    }

    /// A file claims a key.
    fn stake(&mut self, key: ObjectKey, id: FileId, claim: Claim, former: Option<Hash>) {
        let Some(path) = self.index.file(id).map(|file| file.path.clone()) else {
            return;
        };
        let owner = self.index.owners.get(&key).copied();
        if owner.is_some_and(|owner| owner.file == id) {
            self.index
                .owners
                .insert(key.clone(), Owner::new(id, claim.document));
            if let Some((object, hash)) = claim.object
                && (hash.is_none() || hash != former)
            {
                self.changes.insert(key, Change::Put(object));
            }
            return;
        }
        let holder = match owner {
            Some(owner) => self.index.file(owner.file).map(|file| file.path.clone()),
            None => self.index.first_rival(&key).map(|(_, path)| path.clone()),
        };
        let is_first = holder.is_none_or(|holder| path <= holder);
        let Some((object, _)) = claim.object.filter(|_| is_first) else {
            self.index.rivals.entry(key).or_default().insert(id);
            return;
        };
        if let Some(owner) = owner {
            self.index
                .rivals
                .entry(key.clone())
                .or_default()
                .insert(owner.file);
        }
        withdraw(self.index, &key, id);
        self.index
            .owners
            .insert(key.clone(), Owner::new(id, claim.document));
        self.orphans.remove(&key);
        // Their findings name the file that is in effect.
        self.touched
            .extend(self.index.rivals.get(&key).into_iter().flatten());
        self.changes.insert(key, Change::Put(object));
    }

    /// A file claims a key no longer.
    fn release(&mut self, key: &ObjectKey, id: FileId) {
        if self
            .index
            .owners
            .get(key)
            .is_some_and(|owner| owner.file == id)
        {
            self.index.owners.remove(key);
            self.orphans.insert(key.clone());
        } else {
            withdraw(self.index, key, id);
        }
    }

    fn reports(&mut self) -> Vec<Report> {
        let mut reports = Vec::new();
        for path in std::mem::take(&mut self.cleared) {
            match self.index.paths.get(&path).copied() {
                None => reports.push(Report {
                    subject: path,
                    findings: Vec::new(),
                }),
                // The path was taken again since, by a file that has not been reported on.
                Some(id) => {
                    if let Some(file) = self.index.file_mut(id) {
                        file.reported = Some(NonZero::<u64>::MAX);
                        self.touched.insert(id);
                    }
                }
            }
        }
        for id in std::mem::take(&mut self.touched) {
            let found = findings(self.index, id, self.limits.findings_per_file_max);
            let reported = fingerprint(&found);
            let Some(file) = self.index.file_mut(id) else {
                continue;
            };
            if file.reported != reported {
                file.reported = reported;
                reports.push(Report {
                    subject: file.path.clone(),
                    findings: found,
                });
            }
        }
        reports.sort_by(|a, b| a.subject.cmp(&b.subject));
        reports
    }
}

/// A file is no rival for a key.
fn withdraw(index: &mut Index, key: &ObjectKey, id: FileId) {
    if let Some(rivals) = index.rivals.get_mut(key) {
        rivals.remove(&id);
        if rivals.is_empty() {
            index.rivals.remove(key);
        }
    }
}

/// A hash by which a report that says nothing new is recognised.
fn fingerprint(findings: &[Finding]) -> Option<NonZero<u64>> {
    if findings.is_empty() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    findings.hash(&mut hasher);
    Some(NonZero::new(hasher.finish()).unwrap_or(NonZero::<u64>::MIN))
}

impl Mixed {
    /// Keeps as many problems as there is room for.
    fn new(found: Problems, room: usize) -> Mixed {
        let mut problems = found.kept;
        let dropped = found.dropped + problems.len().saturating_sub(room);
        problems.truncate(room);
        Mixed {
            items: Vec::new(),
            problems,
            dropped: u32::try_from(dropped).unwrap_or(u32::MAX),
        }
    }
}
