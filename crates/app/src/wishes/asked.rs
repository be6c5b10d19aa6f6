//! The wishes for one Secret, counted as they come and go, so that the certificate that they make
//! together is told at a cost that does not grow with how many they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use myriad_api::ObjectKey;
use myriad_pki::acme::NAMES_MAX;
use myriad_translate::Wish;

/// The most objects that are told how it is with a certificate, the first in order.
pub(super) const OBJECTS_MAX: usize = 100;

/// The most objects that are told that a certificate would have too many names.
pub(super) const OBJECTS_BEYOND_MAX: usize = 16;

/// A certificate that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCertificate {
    /// The names that it is to have, sorted: what a wildcard among them covers is left out, which
    /// authorities refuse beside it. Empty where there are more than [`NAMES_MAX`].
    pub names: Vec<Box<str>>,
    /// The number of names that it would have.
    pub count: usize,
    /// The issuer; where objects name several, the first in order.
    pub issuer: Box<str>,
    /// Objects that ask for it, the first in order: at most 100, or 16 where there are too many
    /// names.
    pub objects: Vec<ObjectKey>,
    /// Whether it is the second for its hosts, of RSA beside one of ECDSA.
    pub is_second: bool,
}

/// The wishes for a Secret.
#[derive(Default)]
pub(super) struct Asked {
    wishes: BTreeSet<Arc<Wish>>,
    /// The names by what stands behind their first labels, if anything does.
    names: BTreeMap<Option<Box<str>>, Siblings>,
    /// The number of names without those that wildcards cover.
    count: usize,
    objects: Counts<ObjectKey>,
    issuers: Counts<Box<str>>,
    seconds: usize,
}

/// Names that differ in their first label alone, which one wildcard covers.
#[derive(Default)]
struct Siblings {
    names: Counts<Box<str>>,
    /// The wishes for the wildcard.
    wild: usize,
}

/// The numbers of wishes that say something.
type Counts<T> = BTreeMap<T, usize>;

impl Asked {
    pub(super) fn is_empty(&self) -> bool {
        self.wishes.is_empty()
    }

    pub(super) fn insert(&mut self, wish: Arc<Wish>) {
        if self.wishes.contains(&wish) {
            return;
        }
        let name = wish.host.name();
        let (parent, is_wild) = parent_of(name);
        let siblings = self.names.entry(parent.map(Box::from)).or_default();
        let before = siblings.count();
        siblings.wild += usize::from(is_wild);
        if !is_wild {
            more(&mut siblings.names, name, || name.into());
        }
        self.count = self.count - before + siblings.count();
        more(&mut self.objects, &wish.object, || wish.object.clone());
        more(&mut self.issuers, &*wish.issuer, || wish.issuer.clone());
        self.seconds += usize::from(wish.is_second);
        self.wishes.insert(wish);
    }

    pub(super) fn remove(&mut self, wish: &Arc<Wish>) {
        if !self.wishes.remove(wish) {
            return;
        }
        let name = wish.host.name();
        let (parent, is_wild) = parent_of(name);
        let parent: Option<Box<str>> = parent.map(Box::from);
        if let Some(siblings) = self.names.get_mut(&parent) {
            let before = siblings.count();
            siblings.wild -= usize::from(is_wild);
            if !is_wild {
                fewer(&mut siblings.names, name);
            }
            let after = siblings.count();
            self.count = self.count - before + after;
            if after == 0 {
                self.names.remove(&parent);
            }
        }
        fewer(&mut self.objects, &wish.object);
        fewer(&mut self.issuers, &*wish.issuer);
        self.seconds -= usize::from(wish.is_second);
    }

    /// The certificate that all of them make, at a cost of some hundreds of steps at most.
    pub(super) fn wanted(&self) -> Option<WantedCertificate> {
        let (issuer, _) = self.issuers.first_key_value()?;
        let is_beyond = self.count > NAMES_MAX;
        let objects_max = match is_beyond {
            true => OBJECTS_BEYOND_MAX,
            false => OBJECTS_MAX,
        };
        Some(WantedCertificate {
            names: match is_beyond {
                true => Vec::new(),
                false => self.names(),
            },
            count: self.count,
            issuer: issuer.clone(),
            objects: self.objects.keys().take(objects_max).cloned().collect(),
            is_second: self.seconds > 0,
        })
    }

    /// The names without those that wildcards cover, of which no step is made.
    fn names(&self) -> Vec<Box<str>> {
        let mut names = Vec::with_capacity(self.count);
        for (parent, siblings) in &self.names {
            match parent {
                Some(parent) if siblings.wild > 0 => names.push(format!("*.{parent}").into()),
                _ => names.extend(siblings.names.keys().cloned()),
            }
        }
        names.sort_unstable();
        names
    }
}

impl Siblings {
    /// The number of names without those that the wildcard covers.
    fn count(&self) -> usize {
        match self.wild > 0 {
            true => 1,
            false => self.names.len(),
        }
    }
}

/// The text behind the first label of a name, and whether that label is a wildcard's.
fn parent_of(name: &str) -> (Option<&str>, bool) {
    match name.split_once('.') {
        Some((label, parent)) => (Some(parent), label == "*"),
        None => (None, false),
    }
}

fn more<Q: Ord + ?Sized, T: Ord + std::borrow::Borrow<Q>>(
    counts: &mut Counts<T>,
    key: &Q,
    make: impl FnOnce() -> T,
) {
    match counts.get_mut(key) {
        Some(count) => *count += 1,
        None => {
            counts.insert(make(), 1);
        }
    }
}

fn fewer<Q: Ord + ?Sized, T: Ord + std::borrow::Borrow<Q>>(counts: &mut Counts<T>, key: &Q) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_model::Host;
    use myriad_pki::acme::NAMES_MAX;
    use myriad_translate::Wish;

    use super::{Asked, OBJECTS_BEYOND_MAX, OBJECTS_MAX};

    fn wish(host: &str, object: usize) -> Arc<Wish> {
        Arc::new(Wish {
            secret: "shop/web".into(),
            host: Host::of_name(host).unwrap(),
            issuer: "default".into(),
            object: ObjectKey::new(ObjectKind::Ingress, "shop", &format!("i{object:05}")),
            is_second: false,
        })
    }

    #[test]
    fn too_many_names_are_counted_and_not_copied_and_found_again_once_they_are_few_enough() {
        let all: Vec<Arc<Wish>> = (0..5_000)
            .map(|number| wish(&format!("h{number:04}.example"), number))
            .collect();
        let mut asked = Asked::default();
        for wish in &all {
            asked.insert(wish.clone());
            // Once more changes nothing.
            asked.insert(wish.clone());
        }
        let wanted = asked.wanted().unwrap();
        assert_eq!((wanted.count, wanted.names.len()), (5_000, 0));
        assert_eq!(wanted.objects.len(), OBJECTS_BEYOND_MAX);
        let (gone, left) = all.split_at(5_000 - NAMES_MAX - 1);
        for wish in gone {
            asked.remove(wish);
            asked.remove(wish);
        }
        let wanted = asked.wanted().unwrap();
        assert_eq!((wanted.count, wanted.names.len()), (NAMES_MAX + 1, 0));
        asked.remove(&left[0]);
        let wanted = asked.wanted().unwrap();
        let names: Vec<&str> = left[1..].iter().map(|wish| wish.host.name()).collect();
        let found: Vec<&str> = wanted.names.iter().map(|name| &**name).collect();
        assert_eq!((wanted.count, found), (NAMES_MAX, names));
        assert_eq!(wanted.objects.len(), NAMES_MAX);
        for wish in left {
            asked.remove(wish);
        }
        assert!(asked.is_empty() && asked.wanted().is_none());
        assert!(asked.names.is_empty() && asked.objects.is_empty() && asked.issuers.is_empty());
        assert_eq!(asked.count, 0);
    }

    #[test]
    fn of_the_objects_that_ask_for_one_name_the_first_are_told() {
        let mut asked = Asked::default();
        for object in (0..3_000).rev() {
            asked.insert(wish("a.example", object));
        }
        let wanted = asked.wanted().unwrap();
        assert_eq!((wanted.count, wanted.names.len()), (1, 1));
        assert_eq!(wanted.objects.len(), OBJECTS_MAX);
        assert_eq!(wanted.objects[0].name(), "i00000");
        asked.remove(&wish("a.example", 0));
        let wanted = asked.wanted().unwrap();
        assert_eq!((wanted.count, wanted.objects[0].name()), (1, "i00001"));
    }

    #[test]
    fn a_wildcard_covers_any_number_of_names_and_they_are_back_without_it() {
        let mut asked = Asked::default();
        for number in 0..1_000 {
            asked.insert(wish(&format!("h{number}.example"), 0));
        }
        let wild = wish("*.example", 0);
        asked.insert(wild.clone());
        asked.insert(wish("*.example", 1));
        let wanted = asked.wanted().unwrap();
        assert_eq!((wanted.count, wanted.names), (1, vec!["*.example".into()]));
        asked.remove(&wild);
        assert_eq!(asked.wanted().unwrap().count, 1);
        asked.remove(&wish("*.example", 1));
        assert_eq!(asked.wanted().unwrap().count, 1_000);
    }
}
