//! Claims that objects came to after their creation: who had a host, a port or a name first keeps
//! it from an older object that is edited to claim it.
//!
//! They are history, which the objects that are there do not tell, so they can be taken out of an
//! engine and given to another one. A claim that has an effect stays as old as it is, whatever
//! else changes in its object. What is left again is remembered for a while: an engine that starts
//! meanwhile may see it claimed, and would take it for as old as its object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::ObjectKey;

use super::claimed::Claimed;
use super::ports::{PortClaim, PortKey};

/// How long it is remembered that something was left, in seconds: for longer than an engine starts.
pub(super) const LEFT_SECONDS_MAX: i64 = 600;

/// The most that is remembered of what objects of a namespace left; what was left first goes first.
pub(super) const LEFT_MAX: usize = 1_024;

/// The most objects of a namespace that could not be read which are told apart.
const UNREAD_MAX: usize = 1_024;

/// The claims that one object came to after its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateClaims {
    /// The object.
    pub key: ObjectKey,
    /// Its creation, in seconds since the epoch. One that was made anew since is another.
    pub created: i64,
    /// The claims, and since when it makes each.
    pub claims: Vec<(Claimed, i64)>,
    /// The claims that it does not make any more, and since when.
    pub left: Vec<(Claimed, i64)>,
}

/// The changes of such claims, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimsChange {
    /// Objects, each with all that is noted of it.
    pub objects: Vec<LateClaims>,
    /// Namespaces beyond the bound: their objects make claims after everybody else, and no more is
    /// noted of them.
    pub beyond: Vec<Arc<str>>,
}

/// Since when objects make claims, where that is not since their creation.
pub struct Late {
    is_kept: bool,
    /// How many claims may be noted of a namespace; zero is no bound.
    bound: u64,
    pub objects: BTreeMap<ObjectKey, LateEntry>,
    /// How many claims are noted, by namespace.
    counts: BTreeMap<Box<str>, u64>,
    beyond: BTreeSet<Arc<str>>,
    /// The claims that objects left, by namespace and then by time.
    left: BTreeMap<Box<str>, BTreeSet<(i64, ObjectKey, Claimed)>>,
    /// None of those is forgotten before then.
    left_until: i64,
    /// The claims of objects of which something is noted, as a first list has them.
    pub found: BTreeMap<ObjectKey, BTreeSet<Claimed>>,
    /// The newest creation of an object that makes claims, by the clock of the API server.
    pub newest: i64,
    /// Objects that are there, as far as is known, and could not be read so far, by namespace; none
    /// for whatever a namespace has, of which there are too many.
    unread: BTreeMap<Box<str>, Option<BTreeSet<ObjectKey>>>,
    /// Objects of which other things are noted than was told.
    untold: BTreeSet<ObjectKey>,
    /// Namespaces beyond the bound of which that was not told yet.
    untold_beyond: BTreeSet<Arc<str>>,
}

/// The record of an object's claims.
pub struct LateEntry {
    /// Its creation.
    pub created: i64,
    /// The claims that it came to, and since when it makes each.
    pub claims: BTreeMap<Claimed, i64>,
    /// The claims that it left, and when; none that it makes.
    pub left: BTreeMap<Claimed, i64>,
}

impl LateClaims {
    /// Whether nothing is noted any more.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.left.is_empty()
    }
}

impl ClaimsChange {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.beyond.is_empty()
    }
}

impl LateEntry {
    fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.left.is_empty()
    }

    /// The claims that were left and that a claim makes again: the same, and of a host those to
    /// enter it.
    pub fn left_with(&self, claimed: &Claimed) -> Vec<Claimed> {
        let same = self.left.get_key_value(claimed).map(|(same, _)| same);
        let entered = match claimed {
            Claimed::Host(host) => Some(Claimed::Entered(host.clone(), "".into())),
            _ => None,
        };
        let entered = entered.into_iter().flat_map(|first| {
            let rest = self.left.range(first..).map(|(left, _)| left);
            rest.take_while(move |left| match (left, claimed) {
                (Claimed::Entered(left, _), Claimed::Host(host)) => left == host,
                _ => false,
            })
        });
        same.into_iter().chain(entered).cloned().collect()
    }
}

impl Late {
    /// A table without any record.
    pub fn new(is_kept: bool, bound: u64) -> Self {
        Late {
            is_kept,
            bound,
            objects: BTreeMap::new(),
            counts: BTreeMap::new(),
            beyond: BTreeSet::new(),
            left: BTreeMap::new(),
            left_until: i64::MAX,
            found: BTreeMap::new(),
            newest: 0,
            unread: BTreeMap::new(),
            untold: BTreeSet::new(),
            untold_beyond: BTreeSet::new(),
        }
    }

    /// Whether anything is noted.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Whether the objects of a namespace make claims after everybody else.
    pub fn is_beyond(&self, namespace: &str) -> bool {
        !self.beyond.is_empty() && self.beyond.contains(namespace)
    }

    /// Whether an object may make some claim since later than its creation.
    pub fn is_late(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key) || self.is_beyond(key.namespace())
    }

    /// Since when an object makes a claim, if not since its creation.
    pub fn since(&self, key: &ObjectKey, created: i64, claimed: &Claimed) -> Option<i64> {
        if self.is_beyond(key.namespace()) {
            return Some(i64::MAX);
        }
        let entry = self.objects.get(key)?;
        let is_of = entry.created == created;
        is_of.then(|| entry.claims.get(claimed).copied())?
    }

    /// Makes claims to ports, which are as old as their objects, as young as they are.
    pub fn age(&self, claims: &mut BTreeMap<PortKey, PortClaim>) {
        for (port, claim) in claims {
            if !self.is_late(&claim.gateway) {
                continue;
            }
            let claimed = Claimed::Port(port.number, claim.speech);
            let since = self.since(&claim.gateway, claim.created, &claimed);
            claim.created = claim.created.max(since.unwrap_or(claim.created));
        }
    }

    /// How many claims are noted.
    pub fn len(&self) -> usize {
        self.objects.values().map(|entry| entry.claims.len()).sum()
    }

    /// The changes since it was asked last, at a time in seconds since the epoch.
    pub fn settle(&mut self, now: i64) -> ClaimsChange {
        self.forget_left(now);
        let untold = std::mem::take(&mut self.untold);
        ClaimsChange {
            objects: untold.into_iter().map(|key| self.told(key)).collect(),
            beyond: std::mem::take(&mut self.untold_beyond)
                .into_iter()
                .collect(),
        }
    }

    /// All that is noted.
    pub fn all(&self) -> ClaimsChange {
        ClaimsChange {
            objects: self
                .objects
                .keys()
                .map(|it| self.told(it.clone()))
                .collect(),
            beyond: self.beyond.iter().cloned().collect(),
        }
    }

    fn told(&self, key: ObjectKey) -> LateClaims {
        let entry = self.objects.get(&key);
        let listed = |of: fn(&LateEntry) -> &BTreeMap<Claimed, i64>| {
            let claims = entry.into_iter().flat_map(of);
            claims.map(|(claimed, at)| (claimed.clone(), *at)).collect()
        };
        LateClaims {
            created: entry.map_or(0, |entry| entry.created),
            claims: listed(|entry| &entry.claims),
            left: listed(|entry| &entry.left),
            key,
        }
    }

    /// The record of an object of a creation, which is made where there is none.
    fn entry(&mut self, key: &ObjectKey, created: i64) -> &mut LateEntry {
        let known = self.objects.get(key);
        if known.is_some_and(|it| it.created != created) {
            self.forget(key);
        }
        self.objects
            .entry(key.clone())
            .or_insert_with(|| LateEntry {
                created,
                claims: BTreeMap::new(),
                left: BTreeMap::new(),
            })
    }

    /// Notes claims of an object; returns whether its namespace is beyond the bound now.
    pub fn insert(&mut self, key: &ObjectKey, created: i64, claims: Vec<(Claimed, i64)>) -> bool {
        let namespace = key.namespace();
        if claims.is_empty() || self.is_beyond(namespace) {
            return false;
        }
        let entry = self.entry(key, created);
        let mut added = 0;
        let mut back = Vec::new();
        for (claimed, since) in claims {
            for claimed in entry.left_with(&claimed) {
                let at = entry.left.remove(&claimed);
                back.extend(at.map(|at| (at, key.clone(), claimed)));
            }
            added += u64::from(entry.claims.insert(claimed, since).is_none());
        }
        if let Some(left) = self.left.get_mut(namespace) {
            back.iter().for_each(|it| {
                left.remove(it);
            });
        }
        self.untold.insert(key.clone());
        let count = self.counts.entry(namespace.into()).or_default();
        *count += added;
        let is_beyond = self.bound > 0 && *count > self.bound;
        if is_beyond {
            self.overrun(namespace);
        }
        is_beyond
    }

    /// Notes that an object, of which something is noted, makes no other claims than these now.
    pub fn retain(&mut self, key: &ObjectKey, all: &BTreeSet<Claimed>, now: i64) {
        let Some(entry) = self.objects.get(key) else {
            return;
        };
        let noted = entry.claims.keys();
        let gone: Vec<Claimed> = noted.filter(|it| !it.is_among(all)).cloned().collect();
        let created = entry.created;
        for claimed in gone {
            self.leave(key, created, (claimed, now));
        }
    }

    /// Notes that an object does not make a claim any more, and since when.
    pub fn leave(&mut self, key: &ObjectKey, created: i64, (claimed, at): (Claimed, i64)) {
        let namespace = key.namespace();
        if self.is_beyond(namespace) {
            return;
        }
        let entry = self.entry(key, created);
        let removed = usize::from(entry.claims.remove(&claimed).is_some());
        let former = entry.left.insert(claimed.clone(), at);
        let left = self.left.entry(namespace.into()).or_default();
        if let Some(former) = former {
            left.remove(&(former, key.clone(), claimed.clone()));
        }
        left.insert((at, key.clone(), claimed));
        self.left_until = self.left_until.min(at.saturating_add(LEFT_SECONDS_MAX));
        let first = (left.len() > LEFT_MAX).then(|| left.pop_first()).flatten();
        self.untold.insert(key.clone());
        self.count_off(namespace, removed);
        if let Some((_, key, claimed)) = first {
            self.forget_one(&key, &claimed);
        }
    }

    /// Forgets what was left long ago.
    fn forget_left(&mut self, now: i64) {
        if now < self.left_until {
            return;
        }
        let mut over = Vec::new();
        self.left_until = i64::MAX;
        self.left.retain(|_, left| {
            while let Some((at, ..)) = left.first() {
                let until = at.saturating_add(LEFT_SECONDS_MAX);
                if until > now {
                    self.left_until = self.left_until.min(until);
                    break;
                }
                over.extend(left.pop_first());
            }
            !left.is_empty()
        });
        for (_, key, claimed) in over {
            self.forget_one(&key, &claimed);
        }
    }

    /// Forgets that an object left something, which is not among what its namespace left any more.
    fn forget_one(&mut self, key: &ObjectKey, claimed: &Claimed) {
        let Some(entry) = self.objects.get_mut(key) else {
            return;
        };
        entry.left.remove(claimed);
        if entry.is_empty() {
            self.objects.remove(key);
        }
        self.untold.insert(key.clone());
    }

    /// Forgets what is noted of an object.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.found.remove(key);
        let Some(entry) = self.objects.remove(key) else {
            return;
        };
        if let Some(left) = self.left.get_mut(key.namespace()) {
            for (claimed, at) in entry.left {
                left.remove(&(at, key.clone(), claimed));
            }
        }
        self.untold.insert(key.clone());
        self.count_off(key.namespace(), entry.claims.len());
    }

    /// Notes that an object which nobody knows cannot be read, or if that is noted, that it is
    /// gone.
    pub fn note_unread(&mut self, key: &ObjectKey) {
        let noted = self.unread.entry(key.namespace().into());
        let noted = noted.or_insert_with(|| Some(BTreeSet::new()));
        let Some(keys) = noted else {
            return;
        };
        if !keys.remove(key) {
            keys.insert(key.clone());
        }
        match keys.len() {
            0 => drop(self.unread.remove(key.namespace())),
            1..=UNREAD_MAX => {}
            _ => *noted = None,
        }
    }

    /// Whether an object that is known now could not be read before.
    pub fn take_unread(&mut self, key: &ObjectKey) -> bool {
        let Some(noted) = self.unread.get_mut(key.namespace()) else {
            return false;
        };
        let Some(keys) = noted else {
            return true;
        };
        let was_unread = keys.remove(key);
        if keys.is_empty() {
            self.unread.remove(key.namespace());
        }
        was_unread
    }

    fn count_off(&mut self, namespace: &str, removed: usize) {
        if let Some(count) = self.counts.get_mut(namespace) {
            *count = count.saturating_sub(removed as u64);
            if *count == 0 {
                self.counts.remove(namespace);
            }
        }
    }

    /// Lets the objects of a namespace make claims after everybody else; returns whether that is
    /// new.
    pub fn overrun(&mut self, namespace: &str) -> bool {
        if self.is_beyond(namespace) {
            return false;
        }
        let of_namespace = |key: &&ObjectKey| key.namespace() == namespace;
        let keys: Vec<ObjectKey> = self.objects.keys().filter(of_namespace).cloned().collect();
        for key in keys {
            self.objects.remove(&key);
            self.untold.insert(key);
        }
        self.left.remove(namespace);
        self.counts.remove(namespace);
        let namespace: Arc<str> = namespace.into();
        self.beyond.insert(namespace.clone());
        self.untold_beyond.insert(namespace);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_model::Host;

    use super::{Claimed, LEFT_MAX, LEFT_SECONDS_MAX, Late, UNREAD_MAX};

    fn key() -> ObjectKey {
        ObjectKey::new(ObjectKind::Ingress, "shop", "web")
    }

    fn host(number: usize) -> Claimed {
        Claimed::Host(Host::parse(&format!("h{number}.test")).expect("a host"))
    }

    fn left(late: &Late) -> usize {
        let all = late.all().objects;
        all.iter().map(|it| it.left.len()).sum()
    }

    #[test]
    fn what_was_left_is_remembered_for_a_while_and_not_as_a_claim() {
        let mut late = Late::new(true, 10);
        late.insert(&key(), 7, vec![(host(0), 100)]);
        late.retain(&key(), &BTreeSet::new(), 200);
        assert_eq!((late.len(), left(&late)), (0, 1));
        assert_eq!(late.since(&key(), 7, &host(0)), None);
        assert_eq!(late.settle(200 + LEFT_SECONDS_MAX - 1).objects.len(), 1);
        assert_eq!(left(&late), 1);
        let told = late.settle(200 + LEFT_SECONDS_MAX);
        assert!(told.objects.len() == 1 && told.objects[0].is_empty());
        assert!(late.objects.is_empty() && late.left.is_empty());
        assert_eq!(late.left_until, i64::MAX);
    }

    #[test]
    fn who_comes_back_left_nothing() {
        let mut late = Late::new(true, 10);
        late.insert(&key(), 7, vec![(host(0), 100)]);
        late.retain(&key(), &BTreeSet::new(), 200);
        late.insert(&key(), 7, vec![(host(0), 300)]);
        assert_eq!((late.len(), left(&late)), (1, 0));
        assert_eq!(late.since(&key(), 7, &host(0)), Some(300));
        assert_eq!(late.since(&key(), 8, &host(0)), None);
        late.settle(200 + LEFT_SECONDS_MAX);
        assert_eq!(late.len(), 1);
        late.forget(&key());
        assert!(late.objects.is_empty() && late.counts.is_empty());
    }

    #[test]
    fn what_could_not_be_read_is_known_until_it_can_be_or_is_gone() {
        let of = |number: usize| {
            let name = format!("web{number}");
            ObjectKey::new(ObjectKind::Ingress, "shop", &name)
        };
        let mut late = Late::new(true, 10);
        late.note_unread(&of(0));
        assert!(!late.take_unread(&of(1)) && late.take_unread(&of(0)));
        assert!(!late.take_unread(&of(0)) && late.unread.is_empty());
        late.note_unread(&of(0));
        late.note_unread(&of(0));
        assert!(!late.take_unread(&of(0)) && late.unread.is_empty());
        for number in 0..=UNREAD_MAX {
            late.note_unread(&of(number));
        }
        // All of them, as nobody knows which.
        assert_eq!(late.unread["shop"], None);
        assert!(late.take_unread(&of(UNREAD_MAX + 7)) && late.take_unread(&of(0)));
        let other = ObjectKey::new(ObjectKind::Ingress, "blog", "web0");
        assert!(!late.take_unread(&other));
    }

    #[test]
    fn what_was_entered_goes_and_comes_back_with_its_host() {
        let of = |text| Claimed::parse(text).expect(text);
        let mut late = Late::new(true, 10);
        let entered = ["h0.test@evil", "h0.test@infra", "h1.test@evil"];
        let claims = entered.map(|text| (of(text), 100));
        late.insert(&key(), 7, claims.into());
        // The object says which hosts it names, and not who lets it in.
        late.retain(&key(), &[host(0)].into(), 200);
        assert_eq!((late.len(), left(&late)), (2, 1));
        assert_eq!(late.since(&key(), 7, &of("h0.test@evil")), Some(100));
        assert_eq!(late.since(&key(), 7, &host(0)), None);
        late.retain(&key(), &BTreeSet::new(), 200);
        assert_eq!((late.len(), left(&late)), (0, 3));
        late.insert(&key(), 7, vec![(host(0), 300)]);
        assert_eq!((late.len(), left(&late)), (1, 1));
        assert_eq!(late.left["shop"].len(), 1);
    }

    #[test]
    fn of_what_a_namespace_left_the_last_is_remembered() {
        let mut late = Late::new(true, 0);
        for number in 0..LEFT_MAX + 3 {
            late.insert(&key(), 7, vec![(host(number), 100)]);
        }
        for number in 0..LEFT_MAX + 3 {
            let at = 200 + i64::try_from(number).expect("a time");
            late.leave(&key(), 7, (host(number), at));
        }
        let entry = &late.objects[&key()];
        assert_eq!((entry.claims.len(), entry.left.len()), (0, LEFT_MAX));
        assert!(!entry.left.contains_key(&host(2)) && entry.left.contains_key(&host(3)));
        assert!(late.counts.is_empty());
        assert!(late.overrun("shop") && late.left.is_empty() && late.objects.is_empty());
        late.leave(&key(), 7, (host(0), 1));
        assert!(late.objects.is_empty());
    }
}
