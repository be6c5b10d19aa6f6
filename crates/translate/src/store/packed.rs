//! Objects at rest: a few dozen bytes instead of a tree of allocations.
//!
//! The engine keeps millions of objects and reads a handful per change, so an object is packed
//! when it is stored and unpacked when a unit reads it. The form never leaves the process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use myriad_api::istio::Labels;
use myriad_api::{
    BackendPort, Conditions, Endpoint, EndpointPort, EndpointSlice, Ingress, IngressBackend,
    IngressClass, IngressPath, IngressRule, IngressTls, Meta, Object, ObjectKey, ObjectKind, Owner,
    PathType, Pod, Service, ServicePort, TargetPort,
};

/// Packs all of an object but its key. Secrets are not packed, since their bytes are shared with
/// the resources that they become, nor are Istio's objects, whose types are compact.
pub(super) fn pack(object: &Object) -> Option<Box<[u8]>> {
    let mut out = Out(vec![object.key().kind as u8]);
    out.meta(object.meta());
    match object {
        Object::Ingress(ingress) => out.ingress(ingress),
        Object::IngressClass(class) => out.text(&class.controller),
        Object::Service(service) => out.service(service),
        Object::EndpointSlice(slice) => out.slice(slice),
        Object::Pod(pod) => out.pod(pod),
        // Kept as they are.
        _ => return None,
    }
    Some(out.0.into())
}

/// The kind of a packed object.
pub(super) fn kind(body: &[u8]) -> Option<ObjectKind> {
    let number = *body.first()?;
    ObjectKind::ALL
        .into_iter()
        .find(|known| *known as u8 == number)
}

/// The creation of what [`pack`] made, which stands before all that may be long.
pub(super) fn created(body: &[u8]) -> Option<i64> {
    In(body.get(1..)?).created()
}

/// An EndpointSlice but for its endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceHead {
    /// The `namespace/name` of the slice.
    pub id: Arc<str>,
    /// The Service in the same namespace.
    pub service: Option<Box<str>>,
    /// The ports, each of which every endpoint has.
    pub ports: Box<[EndpointPort]>,
    /// The number of endpoints.
    pub count: usize,
}

/// Unpacks the head of an EndpointSlice that [`pack`] made; the endpoints are behind it.
pub(super) fn slice_head(id: &Arc<str>, body: &[u8]) -> Option<SliceHead> {
    let kind = kind(body).filter(|kind| *kind == ObjectKind::EndpointSlice)?;
    let mut bytes = In(body.get(1..)?);
    bytes.meta(ObjectKey::from_id(kind, id.clone()))?;
    Some(SliceHead {
        id: id.clone(),
        service: bytes.option(In::text)?,
        ports: bytes.list(In::endpoint_port)?,
        count: usize::try_from(bytes.number()?).ok()?,
    })
}

/// Unpacks what [`pack`] made.
pub(super) fn unpack(id: &Arc<str>, body: &[u8]) -> Option<Object> {
    let kind = kind(body)?;
    let mut bytes = In(body.get(1..)?);
    let meta = bytes.meta(ObjectKey::from_id(kind, id.clone()))?;
    Some(match kind {
        ObjectKind::Ingress => Object::Ingress(Arc::new(bytes.ingress(meta)?)),
        ObjectKind::IngressClass => {
            let controller = bytes.text()?;
            Object::IngressClass(Arc::new(IngressClass { meta, controller }))
        }
        ObjectKind::Service => Object::Service(Arc::new(bytes.service(meta)?)),
        ObjectKind::EndpointSlice => Object::EndpointSlice(Arc::new(bytes.slice(meta)?)),
        ObjectKind::Pod => Object::Pod(Arc::new(bytes.pod(meta)?)),
        _ => return None,
    })
}

struct Out(Vec<u8>);

impl Out {
    /// Seven bits a byte, the low ones first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn option<T: ?Sized>(&mut self, value: Option<&T>, write: impl Fn(&mut Self, &T)) {
        self.number(u64::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn list<T>(&mut self, values: &[T], write: impl Fn(&mut Self, &T)) {
        self.number(values.len() as u64);
        for value in values {
            write(self, value);
        }
    }

    fn meta(&mut self, meta: &Meta) {
        // An unknown age is the common case and the largest number.
        let age = meta.created.wrapping_sub(Meta::UNKNOWN_AGE);
        self.number(age.wrapping_neg() as u64);
        self.list(&meta.annotations, |out, (key, value)| {
            out.text(key);
            out.text(value);
        });
    }

    fn ingress(&mut self, ingress: &Ingress) {
        self.option(ingress.class_name.as_deref(), Self::text);
        self.option(ingress.default_backend.as_ref(), Self::backend);
        self.list(&ingress.tls, |out, entry| {
            out.list(&entry.hosts, |out, host| out.text(host));
            out.option(entry.secret_name.as_deref(), Self::text);
        });
        self.list(&ingress.rules, |out, rule| {
            out.option(rule.host.as_deref(), Self::text);
            out.list(&rule.paths, |out, path| {
                out.option(path.path.as_deref(), Self::text);
                out.number(match path.path_type {
                    PathType::Exact => 0,
                    PathType::Prefix => 1,
                    PathType::ImplementationSpecific => 2,
                });
                out.backend(&path.backend);
            });
        });
    }

    fn backend(&mut self, backend: &IngressBackend) {
        match backend {
            IngressBackend::Service { name, port } => {
                match port {
                    BackendPort::Number(number) => {
                        self.number(0);
                        self.number((*number).into());
                    }
                    BackendPort::Name(name) => {
                        self.number(1);
                        self.text(name);
                    }
                }
                self.text(name);
            }
            IngressBackend::Resource { kind, name } => {
                self.number(2);
                self.text(kind);
                self.text(name);
            }
        }
    }

    fn service(&mut self, service: &Service) {
        self.option(service.external_name.as_deref(), Self::text);
        self.labels(&service.selector);
        self.list(&service.ports, |out, port| {
            out.text(&port.name);
            out.number(port.port.into());
            match &port.target_port {
                None => out.number(0),
                Some(TargetPort::Number(number)) => {
                    out.number(1);
                    out.number((*number).into());
                }
                Some(TargetPort::Name(name)) => {
                    out.number(2);
                    out.text(name);
                }
            }
            out.option(port.app_protocol.as_deref(), Self::text);
            out.option(port.protocol.as_deref(), Self::text);
        });
        self.number(u64::from(service.is_headless));
        self.list(&service.addresses, |out, at| out.address(Some(*at)));
    }

    fn slice(&mut self, slice: &EndpointSlice) {
        // What is read alone goes first.
        self.option(slice.service.as_deref(), Self::text);
        self.list(&slice.ports, |out, port| {
            out.text(&port.name);
            out.number(port.port.map_or(0, |port| u64::from(port) + 1));
            out.option(port.protocol.as_deref(), Self::text);
        });
        self.list(&slice.endpoints, |out, endpoint| {
            let Conditions {
                ready,
                serving,
                terminating,
            } = endpoint.conditions;
            let flags = [ready, serving, terminating].map(u64::from);
            let has_zone = u64::from(endpoint.zone.is_some());
            out.number(flags[0] | flags[1] << 1 | flags[2] << 2 | has_zone << 3);
            out.address(endpoint.address);
            out.option(endpoint.pod.as_deref(), Self::text);
            if let Some(zone) = &endpoint.zone {
                out.text(zone);
            }
        });
    }

    fn pod(&mut self, pod: &Pod) {
        self.number(u64::from(pod.is_ready));
        self.address(pod.address);
        self.option(pod.account.as_deref(), Self::text);
        self.option(pod.owner.as_ref(), |out, owner| {
            out.text(&owner.kind);
            out.text(&owner.name);
        });
        self.labels(&pod.labels);
    }

    fn labels(&mut self, labels: &Labels) {
        self.list(labels, |out, (key, value)| {
            out.text(key);
            out.text(value);
        });
    }

    fn address(&mut self, address: Option<IpAddr>) {
        match address {
            None => self.number(0),
            Some(IpAddr::V4(address)) => {
                self.number(4);
                self.0.extend_from_slice(&address.octets());
            }
            Some(IpAddr::V6(address)) => {
                self.number(6);
                self.0.extend_from_slice(&address.octets());
            }
        }
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<Box<str>> {
        let length = usize::try_from(self.number()?).ok()?;
        Some(str::from_utf8(self.take(length)?).ok()?.into())
    }

    fn port(&mut self) -> Option<u16> {
        self.number()?.try_into().ok()
    }

    fn option<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Option<T>> {
        Some(match self.number()? {
            0 => None,
            _ => Some(read(self)?),
        })
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Box<[T]>> {
        let length = self.number()?;
        (0..length).map(|_| read(self)).collect()
    }

    fn created(&mut self) -> Option<i64> {
        let age = self.number()? as i64;
        Some(age.wrapping_neg().wrapping_add(Meta::UNKNOWN_AGE))
    }

    fn meta(&mut self, key: ObjectKey) -> Option<Meta> {
        Some(Meta {
            key,
            created: self.created()?,
            annotations: self.list(|bytes| Some((bytes.text()?, bytes.text()?)))?,
        })
    }

    fn ingress(&mut self, meta: Meta) -> Option<Ingress> {
        Some(Ingress {
            meta,
            class_name: self.option(Self::text)?,
            default_backend: self.option(Self::backend)?,
            tls: self.list(|bytes| {
                Some(IngressTls {
                    hosts: bytes.list(Self::text)?,
                    secret_name: bytes.option(Self::text)?,
                })
            })?,
            rules: self.list(|bytes| {
                Some(IngressRule {
                    host: bytes.option(Self::text)?,
                    paths: bytes.list(Self::path)?,
                })
            })?,
        })
    }

    fn path(&mut self) -> Option<IngressPath> {
        Some(IngressPath {
            path: self.option(Self::text)?,
            path_type: match self.number()? {
                0 => PathType::Exact,
                1 => PathType::Prefix,
                _ => PathType::ImplementationSpecific,
            },
            backend: self.backend()?,
        })
    }

    fn backend(&mut self) -> Option<IngressBackend> {
        let port = match self.number()? {
            0 => BackendPort::Number(self.port()?),
            1 => BackendPort::Name(self.text()?),
            _ => {
                return Some(IngressBackend::Resource {
                    kind: self.text()?,
                    name: self.text()?,
                });
            }
        };
        let name = self.text()?;
        Some(IngressBackend::Service { name, port })
    }

    fn service(&mut self, meta: Meta) -> Option<Service> {
        Some(Service {
            meta,
            external_name: self.option(Self::text)?,
            selector: self.labels()?,
            ports: self.list(|bytes| {
                Some(ServicePort {
                    name: bytes.text()?,
                    port: bytes.port()?,
                    target_port: match bytes.number()? {
                        0 => None,
                        1 => Some(TargetPort::Number(bytes.port()?)),
                        _ => Some(TargetPort::Name(bytes.text()?)),
                    },
                    app_protocol: bytes.option(Self::text)?,
                    protocol: bytes.option(Self::text)?,
                })
            })?,
            is_headless: self.number()? != 0,
            addresses: self.list(|bytes| bytes.address().flatten())?,
        })
    }

    fn slice(&mut self, meta: Meta) -> Option<EndpointSlice> {
        Some(EndpointSlice {
            meta,
            service: self.option(Self::text)?,
            ports: self.list(Self::endpoint_port)?,
            endpoints: self.list(Self::endpoint)?,
        })
    }

    fn endpoint_port(&mut self) -> Option<EndpointPort> {
        let name = self.text()?;
        let port = self.number()?.checked_sub(1);
        Some(EndpointPort {
            name,
            port: port.map(u16::try_from).transpose().ok()?,
            protocol: self.option(Self::text)?,
        })
    }

    fn endpoint(&mut self) -> Option<Endpoint> {
        let flags = self.number()?;
        Some(Endpoint {
            address: self.address()?,
            pod: self.option(Self::text)?,
            zone: match flags & 8 {
                0 => None,
                _ => Some(self.text()?),
            },
            conditions: Conditions {
                ready: flags & 1 != 0,
                serving: flags & 2 != 0,
                terminating: flags & 4 != 0,
            },
        })
    }

    fn pod(&mut self, meta: Meta) -> Option<Pod> {
        Some(Pod {
            meta,
            uid: None,
            is_ready: self.number()? != 0,
            address: self.address()?,
            account: self.option(Self::text)?,
            owner: self.option(|bytes| {
                Some(Owner {
                    kind: bytes.text()?,
                    name: bytes.text()?,
                })
            })?,
            labels: self.labels()?,
        })
    }

    fn labels(&mut self) -> Option<Labels> {
        let pairs = self.list(|bytes| Some((bytes.text()?, bytes.text()?)))?;
        Some(pairs.into_iter().collect())
    }

    fn address(&mut self) -> Option<Option<IpAddr>> {
        Some(match self.number()? {
            4 => {
                let octets: [u8; 4] = self.take(4)?.try_into().ok()?;
                Some(IpAddr::V4(Ipv4Addr::from(octets)))
            }
            6 => {
                let octets: [u8; 16] = self.take(16)?.try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(octets)))
            }
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
