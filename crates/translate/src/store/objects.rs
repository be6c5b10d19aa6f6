//! The one store of objects.

use std::sync::Arc;

use bytes::Bytes;
use myriad_api::{KeyDer, Object, ObjectKey, ObjectKind, Secret, TlsPair};

use super::hasher::FactHasher;
use super::interner::Interner;
use super::multimap::Multimap;
use super::packed::{self, SliceHead};
use super::slab::Slab;

/// All objects, each standing under its key and under the collection that units read it from.
pub struct Objects {
    slab: Slab<AtRest>,
    index: Multimap,
    issuers: Interner<Bytes>,
    /// How many there are of each kind, by its number.
    counts: [usize; KIND_NUMBERS],
    found_under: FoundUnder,
}

/// The facts under which an object is found that is not found by its key alone.
pub(crate) type FoundUnder = fn(&FactHasher, &Object, &mut dyn FnMut(u64));

/// The store to read, where nobody notes what is read.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    objects: &'a Objects,
    hasher: &'a FactHasher,
}

impl<'a> Stored<'a> {
    /// All objects, with the hasher of their facts.
    pub fn new(objects: &'a Objects, hasher: &'a FactHasher) -> Self {
        Stored { objects, hasher }
    }

    /// The hasher of facts.
    pub fn hasher(&self) -> &'a FactHasher {
        self.hasher
    }

    /// The object of a kind with this `namespace/name`.
    pub fn get(&self, kind: ObjectKind, id: &str) -> Option<Object> {
        self.objects.get(self.hasher, kind, id)
    }

    /// The creation of an object, which is not unpacked for it.
    pub fn created(&self, kind: ObjectKind, id: &str) -> Option<i64> {
        self.objects.created(self.hasher, kind, id)
    }

    /// Whether there is an object of a kind with this `namespace/name`.
    pub fn has(&self, kind: ObjectKind, id: &str) -> bool {
        self.objects.has(self.hasher, kind, id)
    }

    /// Whether there is any object of a kind.
    pub fn has_any(&self, kind: ObjectKind) -> bool {
        self.objects.has_any(kind)
    }

    /// The objects under a fact, in no order that has a meaning. The caller checks that they
    /// are what it looks for.
    pub fn collection(&self, fact: u64) -> impl Iterator<Item = Object> + use<'a> {
        self.objects.collection(fact)
    }

    /// The number of objects under a fact, of which none is unpacked.
    pub fn count(&self, fact: u64) -> usize {
        self.objects.index.ids(fact).count()
    }

    /// The same for up to so many.
    pub fn count_to(&self, fact: u64, most: usize) -> usize {
        self.objects.index.ids(fact).take(most).count()
    }

    /// The heads of the EndpointSlices under a fact, in the order of [`Stored::collection`].
    pub fn slice_heads(&self, fact: u64) -> impl Iterator<Item = SliceHead> + use<'a> {
        self.objects.slice_heads(fact)
    }
}

/// The family of facts about whole objects; every other one has a higher number.
pub(crate) const WHOLE: u8 = 0;

/// The numbers of kinds are below this.
const KIND_NUMBERS: usize = 40;

/// An object at rest.
pub(crate) enum AtRest {
    /// A kind that is packed.
    Packed {
        /// The `namespace/name`.
        id: Arc<str>,
        /// All else.
        body: Box<[u8]>,
    },
    /// A Secret, whose bytes are shared with the resources that it becomes.
    Secret(Arc<Secret>),
    /// A kind whose types are compact as they are, and which is read more often than it changes.
    Whole(Object),
}

impl AtRest {
    /// An object, to be kept beside the store.
    pub(crate) fn new(object: Object) -> Self {
        match (packed::pack(&object), object) {
            (Some(body), object) => AtRest::Packed {
                id: object.key().id().clone(),
                body,
            },
            (None, Object::Secret(secret)) => AtRest::Secret(secret),
            (None, object) => AtRest::Whole(object),
        }
    }

    /// The bytes that an object of a kind takes which is packed, or which is kept in parts.
    pub(crate) fn bytes_of(object: &Object) -> usize {
        if let Object::ConfigMap(map) = object {
            let data = map.data.iter();
            let texts: usize = data.map(|(key, value)| key.len() + value.len()).sum();
            let trust = map.trust.as_ref().ok().and_then(Option::as_ref);
            let roots = trust.map_or(&[][..], |trust| &trust.roots[..]);
            return texts + roots.iter().map(Bytes::len).sum::<usize>();
        }
        packed::pack(object).map_or(0, |body| body.len())
    }

    fn is(&self, kind: ObjectKind, id: &str) -> bool {
        match self {
            AtRest::Packed { id: own, body } => **own == *id && packed::kind(body) == Some(kind),
            AtRest::Secret(secret) => kind == ObjectKind::Secret && **secret.meta.key.id() == *id,
            AtRest::Whole(object) => object.key().kind == kind && **object.key().id() == *id,
        }
    }

    /// The object.
    pub(crate) fn unpack(&self) -> Option<Object> {
        match self {
            AtRest::Packed { id, body } => packed::unpack(id, body),
            AtRest::Secret(secret) => Some(Object::Secret(secret.clone())),
            AtRest::Whole(object) => Some(object.clone()),
        }
    }

    /// Its key.
    fn key(&self) -> Option<ObjectKey> {
        match self {
            AtRest::Packed { id, body } => {
                Some(ObjectKey::from_id(packed::kind(body)?, id.clone()))
            }
            AtRest::Secret(secret) => Some(secret.meta.key.clone()),
            AtRest::Whole(object) => Some(object.key().clone()),
        }
    }

    /// When it was created.
    pub(crate) fn created(&self) -> Option<i64> {
        match self {
            AtRest::Packed { body, .. } => packed::created(body),
            AtRest::Secret(secret) => Some(secret.meta.created),
            AtRest::Whole(object) => Some(object.meta().created),
        }
    }
}

impl Objects {
    /// An empty store.
    pub fn new(found_under: FoundUnder) -> Self {
        Objects {
            slab: Slab::new(),
            index: Multimap::default(),
            issuers: Interner::new(),
            counts: [0; KIND_NUMBERS],
            found_under,
        }
    }

    /// Whether there is any object of a kind.
    pub fn has_any(&self, kind: ObjectKind) -> bool {
        // What is not counted may be there.
        self.counts
            .get(kind as usize)
            .is_none_or(|count| *count > 0)
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// The number of issuer certificates that are stored.
    pub fn issuers_len(&self) -> usize {
        self.issuers.len()
    }

    /// The object of a kind with this `namespace/name`.
    pub fn get(&self, hasher: &FactHasher, kind: ObjectKind, id: &str) -> Option<Object> {
        let at = self.find(hasher, kind, id)?;
        self.slab.get(at)?.unpack()
    }

    /// The keys of all objects of some namespaces. A walk over all objects, of which none is
    /// unpacked: for settings that change, and never for an object.
    pub fn keys_of<'a>(
        &'a self,
        is_wanted: impl Fn(&str) -> bool + 'a,
    ) -> impl Iterator<Item = ObjectKey> + 'a {
        let keys = self.slab.iter().filter_map(|at_rest| at_rest.key());
        keys.filter(move |key| is_wanted(key.namespace()))
    }

    /// The creation of an object, which is not unpacked for it.
    pub fn created(&self, hasher: &FactHasher, kind: ObjectKind, id: &str) -> Option<i64> {
        let at = self.find(hasher, kind, id)?;
        self.slab.get(at)?.created()
    }

    /// Whether there is an object of a kind with this `namespace/name`.
    pub fn has(&self, hasher: &FactHasher, kind: ObjectKind, id: &str) -> bool {
        self.find(hasher, kind, id).is_some()
    }

    /// The objects under a fact, in no order that has a meaning. The caller checks that they
    /// are what it looks for.
    pub fn collection(&self, fact: u64) -> impl Iterator<Item = Object> {
        let stored = self.index.ids(fact).filter_map(|at| self.slab.get(at));
        stored.filter_map(AtRest::unpack)
    }

    /// The heads of the EndpointSlices under a fact, in the same order.
    pub fn slice_heads(&self, fact: u64) -> impl Iterator<Item = SliceHead> {
        let stored = self.index.ids(fact).filter_map(|at| self.slab.get(at));
        stored.filter_map(|stored| match stored {
            AtRest::Packed { id, body } => packed::slice_head(id, body),
            AtRest::Secret(_) | AtRest::Whole(_) => None,
        })
    }

    /// Puts an object in the place of the one with its key, and returns that one. Nothing is
    /// done and returned where both are equal.
    pub fn put(&mut self, hasher: &FactHasher, object: &Object) -> Option<Option<Object>> {
        let key = object.key();
        let at = self.find(hasher, key.kind, key.id());
        let body = packed::pack(object);
        let is_equal = match (at.and_then(|at| self.slab.get(at)), object, &body) {
            (Some(AtRest::Packed { body: known, .. }), _, Some(body)) => known == body,
            (Some(AtRest::Secret(known)), Object::Secret(secret), _) => is_same(known, secret),
            (Some(AtRest::Whole(known)), object, _) => known == object,
            _ => false,
        };
        if is_equal {
            return None;
        }
        let old = at.and_then(|at| self.take(hasher, at));
        let stored = match (object, body) {
            (Object::Secret(secret), _) => AtRest::Secret(Arc::new(self.intern(secret))),
            (_, Some(body)) => AtRest::Packed {
                id: key.id().clone(),
                body,
            },
            (object, None) => AtRest::Whole(object.clone()),
        };
        let at = self.slab.insert(stored);
        if let Some(count) = self.counts.get_mut(key.kind as usize) {
            *count += 1;
        }
        let index = &mut self.index;
        index.insert(object_fact(hasher, key.kind, key.id()), at);
        (self.found_under)(hasher, object, &mut |fact| index.insert(fact, at));
        if let Some(old) = &old {
            self.release(old);
        }
        Some(old)
    }

    /// Takes an object out.
    pub fn remove(&mut self, hasher: &FactHasher, key: &ObjectKey) -> Option<Object> {
        let at = self.find(hasher, key.kind, key.id())?;
        let old = self.take(hasher, at)?;
        self.release(&old);
        Some(old)
    }

    /// Forgets shared values that nothing uses any more.
    pub fn settle(&mut self) {
        self.issuers.settle();
    }

    fn find(&self, hasher: &FactHasher, kind: ObjectKind, id: &str) -> Option<u32> {
        self.index
            .ids(object_fact(hasher, kind, id))
            .find(|at| self.slab.get(*at).is_some_and(|known| known.is(kind, id)))
    }

    fn take(&mut self, hasher: &FactHasher, at: u32) -> Option<Object> {
        let old = self.slab.remove(at)?.unpack()?;
        if let Some(count) = self.counts.get_mut(old.key().kind as usize) {
            *count -= 1;
        }
        let (index, key) = (&mut self.index, old.key());
        index.remove(object_fact(hasher, key.kind, key.id()), at);
        (self.found_under)(hasher, &old, &mut |fact| index.remove(fact, at));
        Some(old)
    }

    /// Leaf and key lie in one allocation, and equal issuers share their bytes across Secrets
    /// and resources. A type that goes without saying is not kept.
    fn intern(&mut self, secret: &Secret) -> Secret {
        let mut trust = secret.trust.clone();
        if let Ok(Some(trust)) = &mut trust {
            for root in &mut trust.roots {
                let shared = self.issuers.share(root.clone());
                self.issuers.retain(&shared);
                *root = shared;
            }
        }
        let parts = secret.tls.as_ref().ok();
        let parts = parts.and_then(|pair| Some((pair, pair.chain.split_first()?)));
        let Some((pair, (leaf, issuers))) = parts else {
            return Secret {
                trust,
                ..secret.clone()
            };
        };
        let key = pair.key.expose();
        let both = Bytes::from([&**leaf, &**key].concat());
        let mut chain = Vec::with_capacity(pair.chain.len());
        chain.push(both.slice(..leaf.len()));
        for issuer in issuers {
            let issuer = self.issuers.share(issuer.clone());
            self.issuers.retain(&issuer);
            chain.push(issuer);
        }
        let key = KeyDer::new(pair.key.encoding, both.slice(leaf.len()..));
        Secret {
            meta: secret.meta.clone(),
            secret_type: Box::default(),
            tls: Ok(TlsPair {
                chain: chain.into(),
                key,
            }),
            trust,
            keys: None,
        }
    }

    fn release(&mut self, old: &Object) {
        if let Object::Secret(secret) = old {
            let roots = secret.trust.as_ref().ok().and_then(Option::as_ref);
            let roots = roots.map_or(&[][..], |trust| &trust.roots);
            for issuer in issuers_of(secret).unwrap_or_default().iter().chain(roots) {
                self.issuers.release(issuer);
            }
        }
    }
}

fn is_same(known: &Secret, secret: &Secret) -> bool {
    let is_typed = known.tls.is_ok() || known.secret_type == secret.secret_type;
    is_typed
        && known.meta == secret.meta
        && known.tls == secret.tls
        && known.trust == secret.trust
        && known.keys == secret.keys
}

fn issuers_of(secret: &Secret) -> Option<&[Bytes]> {
    secret.tls.as_ref().ok()?.chain.get(1..)
}

/// The fact of a whole object, by kind and `namespace/name`.
pub(crate) fn object_fact(hasher: &FactHasher, kind: ObjectKind, id: &str) -> u64 {
    hasher.hash((WHOLE, kind, id))
}
