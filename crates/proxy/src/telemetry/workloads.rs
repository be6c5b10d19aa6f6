//! Workloads of the mesh that the proxy has spoken with, as their certificates name them.
//!
//! Each is found once per handshake and known by a small number from then on, so that a request
//! is counted for it without a look at any name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;
use myriad_base::metrics::Counter;
use myriad_model::WorkloadNames;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// The most workloads that are told apart. They are never forgotten, as counters never are; a
/// namespace has at most as many as are free then, so that none can use them up.
pub const WORKLOADS_MAX: usize = 1_024;

/// The longest identity in bytes (SPIFFE, section 2.3).
const PRINCIPAL_BYTES_MAX: usize = 2_048;

/// The number of a workload in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkloadId(u16);

/// A workload that has shown a certificate of the mesh.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Met {
    /// The URI of its identity.
    pub principal: Box<str>,
    /// The names of the workload, where the signer of the certificate gave them.
    pub names: WorkloadNames,
}

/// All workloads of a process.
pub struct Workloads {
    known: Mutex<Known>,
    /// The number of the first workload of the same namespace, for each.
    firsts: Box<[AtomicU16]>,
    /// How often one was one too many.
    overflows: Counter,
}

#[derive(Default)]
struct Known {
    ids: HashMap<Arc<Met>, WorkloadId, RandomState>,
    all: Vec<Arc<Met>>,
    /// The first workload of each namespace, and how many there are.
    namespaces: HashMap<Box<str>, (WorkloadId, usize), RandomState>,
}

impl WorkloadId {
    /// The number of a workload that is not known.
    pub const UNKNOWN: WorkloadId = WorkloadId(0);

    /// One of those beyond a maximum.
    pub const OVERFLOW: WorkloadId = WorkloadId(1);

    /// The numbers below this one stand for no single workload.
    const RESERVED: usize = 2;

    /// The number as an index.
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// The number of a workload at an index.
    pub fn at(index: usize) -> WorkloadId {
        u16::try_from(index).map_or(WorkloadId::OVERFLOW, WorkloadId)
    }

    /// The number in a form that can be kept in an atomic.
    pub fn to_bits(self) -> u16 {
        self.0
    }

    /// The number that [`WorkloadId::to_bits`] gave.
    pub fn from_bits(bits: u16) -> WorkloadId {
        WorkloadId(bits)
    }
}

impl Met {
    /// Reads a certificate of the mesh; none where it names no identity.
    pub fn read(leaf: &[u8]) -> Option<Met> {
        let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
        let names = parsed.subject_alternative_name().ok()??;
        let mut uris = names.value.general_names.iter();
        let principal = uris.find_map(|name| match name {
            GeneralName::URI(uri) if uri.starts_with("spiffe://") => Some(*uri),
            _ => None,
        });
        let is_named = |oid: &x509_parser::oid_registry::Oid<'_>| {
            oid.iter().is_some_and(|arcs| arcs.eq(WorkloadNames::OID))
        };
        let mut extensions = parsed.extensions().iter();
        let extension = extensions.find(|extension| is_named(&extension.oid));
        let names = extension.and_then(|extension| WorkloadNames::from_der(extension.value));
        Some(Met {
            principal: principal
                .filter(|it| it.len() <= PRINCIPAL_BYTES_MAX && !it.contains(char::is_control))?
                .into(),
            names: names.unwrap_or_default(),
        })
    }

    /// The namespace in its identity; empty where that is of another form.
    pub fn namespace(&self) -> &str {
        let mut parts = self.principal.split('/').skip(3);
        match (parts.next(), parts.next()) {
            (Some("ns"), Some(namespace)) => namespace,
            _ => "",
        }
    }
}

impl Workloads {
    /// An empty table; `overflows` counts handshakes with workloads that are one too many.
    pub fn new(overflows: Counter) -> Self {
        Workloads {
            known: Mutex::default(),
            firsts: (0..WORKLOADS_MAX).map(|_| AtomicU16::default()).collect(),
            overflows,
        }
    }

    /// The number of the workload that has shown this certificate, which was verified.
    pub fn meet(&self, leaf: &[u8]) -> WorkloadId {
        Met::read(leaf).map_or(WorkloadId::UNKNOWN, |met| self.number(met))
    }

    /// The number of a workload.
    pub(super) fn number(&self, met: Met) -> WorkloadId {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = known.ids.get(&met) {
            return *id;
        }
        let id = WorkloadId::at(known.all.len() + WorkloadId::RESERVED);
        let free = WORKLOADS_MAX.saturating_sub(known.all.len() + WorkloadId::RESERVED);
        let of_namespace = known.namespaces.get(met.namespace()).copied();
        let (first, count) = of_namespace.unwrap_or((id, 0));
        if count >= free {
            self.overflows.inc();
            return WorkloadId::OVERFLOW;
        }
        let namespace = met.namespace().into();
        known.namespaces.insert(namespace, (first, count + 1));
        if let Some(slot) = self.firsts.get(id.index()) {
            slot.store(first.to_bits(), Relaxed);
        }
        let met = Arc::new(met);
        known.all.push(met.clone());
        known.ids.insert(met, id);
        id
    }

    /// The first workload that was met of the namespace of one.
    pub fn first_of_namespace(&self, workload: WorkloadId) -> WorkloadId {
        let first = self.firsts.get(workload.index());
        WorkloadId::from_bits(first.map_or(0, |first| first.load(Relaxed)))
    }

    /// All of them, by number.
    pub fn all(&self) -> Vec<Option<Arc<Met>>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let nobody = std::iter::repeat_n(None, WorkloadId::RESERVED);
        nobody.chain(known.all.iter().cloned().map(Some)).collect()
    }
}

#[cfg(test)]
mod tests {
    use myriad_base::metrics::Counter;
    use myriad_model::WorkloadNames;
    use rcgen::{CertificateParams, CustomExtension, KeyPair, SanType};

    use super::{Met, WORKLOADS_MAX, WorkloadId, Workloads};

    fn leaf(uri: &str, names: Option<&WorkloadNames>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.custom_extensions.extend(
            names.map(|names| {
                CustomExtension::from_oid_content(&WorkloadNames::OID, names.to_der())
            }),
        );
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_workload_is_known_by_its_certificate_whoever_signed_it() {
        let workloads = Workloads::new(Counter::default());
        let names = WorkloadNames {
            workload: "cart-v1".into(),
            ..WorkloadNames::default()
        };
        let uri = "spiffe://cluster.local/ns/shop/sa/cart";
        let own = leaf(uri, Some(&names));
        let id = workloads.meet(&own);
        assert_eq!(workloads.meet(&leaf(uri, Some(&names))), id, "another key");
        let bare = workloads.meet(&leaf(uri, None));
        assert_ne!(bare, id);
        let met = Met::read(&own).unwrap();
        assert_eq!((met.namespace(), &met.names), ("shop", &names));
        assert_eq!(workloads.all()[id.index()].as_deref(), Some(&met));
        let unnamed = workloads.all()[bare.index()].clone().unwrap();
        assert_eq!(unnamed.names, WorkloadNames::default());
        for bad in ["https://a.example/ns/shop/sa/cart", "spiffe://a/\u{7}"] {
            assert_eq!(workloads.meet(&leaf(bad, None)), WorkloadId::UNKNOWN);
        }
        assert_eq!(workloads.meet(b"no certificate"), WorkloadId::UNKNOWN);
    }

    fn met(namespace: &str, number: usize) -> Met {
        Met {
            principal: format!("spiffe://a/ns/{namespace}/sa/c{number}").into(),
            names: WorkloadNames::default(),
        }
    }

    #[test]
    fn a_namespace_that_fills_its_part_leaves_as_much_to_others() {
        let overflows = Counter::default();
        let workloads = Workloads::new(overflows.clone());
        let fill = |namespace: &str| {
            let ids = (0..WORKLOADS_MAX).map(|number| workloads.number(met(namespace, number)));
            ids.filter(|id| *id != WorkloadId::OVERFLOW).count()
        };
        let places = WORKLOADS_MAX - 2;
        assert_eq!(fill("evil"), places / 2);
        assert_eq!(overflows.get(), (WORKLOADS_MAX - places / 2) as u64);
        assert_eq!(fill("evil"), places / 2, "those that are known stay so");
        assert!(fill("shop") > places / 5, "others have room");
        let id = workloads.number(met("shop", 7));
        let first = workloads.number(met("shop", 0));
        assert_eq!(workloads.first_of_namespace(id), first);
        assert_ne!(workloads.number(met("blog", 0)), WorkloadId::OVERFLOW);
        assert!(workloads.all().len() <= WORKLOADS_MAX);
    }
}
