//! Services as units read them. One with many ports or long texts is unpacked once for all routes
//! and upstreams that read it in a batch, and its ports are found by an index.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_api::{BackendPort, Object, ObjectKind, Service};

use super::exports::exports;
use super::facts::SharedFact;
use super::upstream::{self, PortFound};
use crate::engine::{Kept, Moment, Reader, Recent};

/// A Service of fewer bytes is unpacked for each that reads it.
const SMALL_BYTES: usize = 2 << 10;

/// The most bytes of Services that are kept open, about.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// The bytes of memory that a port, a label or an address takes beside its texts, about.
const ENTRY_BYTES: usize = 64;

/// The large Services that were read last.
struct OpenServices {
    large: Recent<Arc<LargeService>>,
}

/// A Service and the numbers of its ports, by number and by name.
struct LargeService {
    service: Arc<Service>,
    ports: BTreeMap<BackendPort, u16>,
}

impl Default for OpenServices {
    fn default() -> Self {
        OpenServices {
            large: Recent::new(KEPT_BYTES_MAX),
        }
    }
}

impl Kept for OpenServices {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            self.large.clear();
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Reader<'_> {
    /// A Service, for the unit of what it is to sidecars, which runs again with it.
    pub fn service_itself(&mut self, id: &str) -> Option<Arc<Service>> {
        if let Some(known) = self.large_service(id) {
            self.count(1);
            return Some(known.service.clone());
        }
        let Object::Service(service) = self.visit(ObjectKind::Service, id)? else {
            return None;
        };
        let bytes = bytes_of(&service);
        if bytes > SMALL_BYTES {
            self.count_text();
            let large = Arc::new(LargeService {
                ports: upstream::all_ports(Some(&service)),
                service: service.clone(),
            });
            if let Some(open) = self.open_mut::<OpenServices>() {
                open.large.keep(service.meta.key.id(), large, bytes);
            }
        }
        Some(service)
    }

    /// The number of a port of a Service.
    pub fn service_port(&mut self, id: &str, port: &BackendPort) -> PortFound {
        self.find_port(id, port).0
    }

    /// The number of a port of a Service, by its number, and the namespaces to which the Service
    /// is exported, as written; none for all.
    pub fn exported_port(&mut self, id: &str, port: &BackendPort) -> (PortFound, Vec<Box<str>>) {
        let (found, service) = self.find_port(id, port);
        let exports = service.as_deref().map(exports);
        (found, exports.unwrap_or_default())
    }

    fn find_port(&mut self, id: &str, port: &BackendPort) -> (PortFound, Option<Arc<Service>>) {
        self.read(SharedFact::ServicePort(id, port));
        let service = self.service_itself(id);
        let found = match self.large_service(id) {
            Some(large) => match large.ports.get(port) {
                Some(number) => PortFound::Listed(*number),
                None => upstream::unlisted_port(&large.service, port),
            },
            None => upstream::find_port(service.as_deref(), port),
        };
        if !matches!(found, PortFound::Listed(_)) {
            self.read(SharedFact::ServiceShape(id));
        }
        (found, service)
    }

    fn large_service(&mut self, id: &str) -> Option<Arc<LargeService>> {
        let open = self.open_mut::<OpenServices>()?;
        open.large.find(id).cloned()
    }
}

/// The bytes of memory that a Service takes, about.
fn bytes_of(service: &Service) -> usize {
    let annotations = service.meta.annotations.iter();
    let annotations = annotations.map(|(key, value)| key.len() + value.len());
    let labels = service.selector.iter();
    let labels = labels.map(|(key, value)| key.len() + value.len() + ENTRY_BYTES);
    let ports = service.ports.iter();
    // Each stands in the index twice.
    let ports = ports.map(|port| 2 * port.name.len() + 3 * ENTRY_BYTES);
    let addresses = service.addresses.len() * ENTRY_BYTES;
    annotations.chain(labels).chain(ports).sum::<usize>() + addresses
}
