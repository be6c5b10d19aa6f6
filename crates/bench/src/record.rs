//! The messages over the pipe to a child, and the typed objects that the child makes of them.

mod gateway;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use myriad_api::secret::KeyEncoding;
use myriad_api::{
    BackendPort, Batch, Change, Conditions, Endpoint, EndpointPort, EndpointSlice, Ingress,
    IngressBackend, IngressPath, IngressRule, IngressTls, KeyDer, Meta, Object, ObjectKey,
    ObjectKind, PathType, Secret, Service, ServicePort, TlsPair,
};

use crate::domains::{Domain, DomainObjects, EDITED_PATH, Layout, NAMESPACE, Pair, Site};

/// The longest part of a record.
const PART_BYTES_MAX: usize = 1 << 20;

/// A message from the parent to the child.
#[derive(Debug, PartialEq, Eq)]
pub enum Record {
    /// How objects lead to domains, before all others.
    Layout(Layout),
    /// The issuer of all certificates, in DER.
    Issuer(Vec<u8>),
    /// The shared certificate.
    Shared(Pair),
    /// A domain appears or changes.
    Put(Domain),
    /// A domain goes.
    Remove(u64),
    /// The Ingress or HTTPRoute of a domain gets a path more, or loses it.
    Edit {
        /// The number of the domain.
        number: u64,
        /// Whether it has the path.
        is_edited: bool,
    },
    /// The first list is complete.
    Synced,
    /// Say your counters on standard output.
    Count,
}

impl Record {
    /// Writes the record.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut parts: Vec<&[u8]> = Vec::new();
        let (number, endpoint, layout);
        let tag = match self {
            Record::Layout(of) => {
                layout = serde_json::to_vec(of)?;
                parts.push(&layout);
                b'L'
            }
            Record::Issuer(der) => {
                parts.push(der);
                b'I'
            }
            Record::Shared(pair) => {
                parts.extend([pair.leaf.as_slice(), &pair.key]);
                b'W'
            }
            Record::Put(domain) => {
                number = domain.number.to_le_bytes();
                endpoint = domain.endpoint.to_string();
                parts.extend([&number, domain.host.as_bytes(), endpoint.as_bytes()]);
                if let Some(pair) = &domain.own {
                    parts.extend([pair.leaf.as_slice(), &pair.key]);
                }
                b'P'
            }
            Record::Remove(domain) => {
                number = domain.to_le_bytes();
                parts.push(&number);
                b'R'
            }
            Record::Edit {
                number: domain,
                is_edited,
            } => {
                number = domain.to_le_bytes();
                parts.push(&number);
                if *is_edited { b'E' } else { b'e' }
            }
            Record::Synced => b'S',
            Record::Count => b'C',
        };
        out.write_all(&[tag, u8::try_from(parts.len()).unwrap_or(u8::MAX)])?;
        for part in parts {
            out.write_all(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes())?;
            out.write_all(part)?;
        }
        Ok(())
    }

    /// Reads the next record; none at the end.
    pub fn read(input: &mut impl Read) -> io::Result<Option<Record>> {
        let mut head = [0; 2];
        match input.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let mut parts = Vec::with_capacity(head[1].into());
        for _ in 0..head[1] {
            let mut length = [0; 4];
            input.read_exact(&mut length)?;
            let length = u32::from_le_bytes(length) as usize;
            if length > PART_BYTES_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut part = vec![0; length];
            input.read_exact(&mut part)?;
            parts.push(part);
        }
        Record::from_parts(head[0], parts)
            .map(Some)
            .ok_or(io::ErrorKind::InvalidData.into())
    }

    fn from_parts(tag: u8, parts: Vec<Vec<u8>>) -> Option<Record> {
        let number = |part: &Vec<u8>| Some(u64::from_le_bytes(part.as_slice().try_into().ok()?));
        let mut parts = parts.into_iter();
        Some(match tag {
            b'L' => Record::Layout(serde_json::from_slice(&parts.next()?).ok()?),
            b'I' => Record::Issuer(parts.next()?),
            b'W' => Record::Shared(Pair {
                leaf: parts.next()?,
                key: parts.next()?,
            }),
            b'P' => {
                let number = number(&parts.next()?)?;
                let host = String::from_utf8(parts.next()?).ok()?;
                let endpoint = String::from_utf8(parts.next()?).ok()?.parse().ok()?;
                let own = match (parts.next(), parts.next()) {
                    (Some(leaf), Some(key)) => Some(Pair { leaf, key }),
                    _ => None,
                };
                Record::Put(Domain {
                    number,
                    host,
                    endpoint,
                    own,
                })
            }
            b'R' => Record::Remove(number(&parts.next()?)?),
            b'E' | b'e' => Record::Edit {
                number: number(&parts.next()?)?,
                is_edited: tag == b'E',
            },
            b'S' => Record::Synced,
            b'C' => Record::Count,
            _ => return None,
        })
    }
}

/// Makes typed objects, as a source would: nothing is shared between two objects.
pub struct Objects {
    /// The issuer in DER.
    pub issuer: Vec<u8>,
    /// How they lead to domains.
    pub layout: Layout,
}

impl Objects {
    /// The change that brings what all domains need beside the shared Secret.
    pub fn common(&self) -> Option<Change> {
        let gateway = gateway::gateway(self.layout.objects)?;
        Some(Change::Put(Object::Gateway(Arc::new(gateway))))
    }

    /// The batch of one domain that appears or changes. The ListenerSet is in it where it
    /// changes, or is whole with this domain.
    pub fn put(&self, domain: &Domain) -> Batch {
        let (name, site) = (domain.name(), Site::of(domain));
        let mut changes = vec![
            Change::Put(Object::Service(Arc::new(service(&name)))),
            Change::Put(Object::EndpointSlice(Arc::new(slice(
                &name,
                domain.endpoint,
            )))),
            self.lead(&site, false),
        ];
        if let Some(pair) = &domain.own {
            changes.push(self.secret(&name, pair));
        }
        let is_fresh = domain.number % 2 == 1;
        let set = match is_fresh {
            true => self.set(domain.number, Some(site)),
            false => {
                let ended = self.layout.set_ended_by(domain.number);
                ended.and_then(|_| self.set(domain.number, None))
            }
        };
        changes.extend(set);
        Batch {
            changes,
            ..Batch::default()
        }
    }

    /// The batch that edits the Ingress or HTTPRoute of a domain, or takes that back.
    pub fn edit(&self, number: u64, is_edited: bool) -> Batch {
        Batch {
            changes: vec![self.lead(&self.layout.site(number), is_edited)],
            ..Batch::default()
        }
    }

    fn lead(&self, site: &Site, is_edited: bool) -> Change {
        let objects = self.layout.objects;
        Change::Put(match objects {
            DomainObjects::Ingresses => Object::Ingress(Arc::new(ingress(site, is_edited))),
            DomainObjects::ListenerSets | DomainObjects::HttpRoutes => {
                Object::HttpRoute(Arc::new(gateway::http_route(objects, site, is_edited)))
            }
        })
    }

    /// The ListenerSet of a domain with all that it has from the start, and one more.
    fn set(&self, number: u64, more: Option<Site>) -> Option<Change> {
        if self.layout.objects != DomainObjects::ListenerSets {
            return None;
        }
        let set = Layout::set_of(number);
        let mut sites = self.layout.members(set);
        sites.extend(more);
        let set = gateway::listener_set(set, &sites);
        Some(Change::Put(Object::ListenerSet(Arc::new(set))))
    }

    /// The change that brings a Secret.
    pub fn secret(&self, name: &str, pair: &Pair) -> Change {
        let leaf = Bytes::copy_from_slice(&pair.leaf);
        let chain = [leaf, Bytes::copy_from_slice(&self.issuer)].into();
        let key = KeyDer::new(KeyEncoding::Pkcs8, Bytes::copy_from_slice(&pair.key));
        Change::Put(Object::Secret(Arc::new(Secret {
            meta: meta(ObjectKind::Secret, name),
            secret_type: "kubernetes.io/tls".into(),
            tls: Ok(TlsPair { chain, key }),
            trust: Ok(None),
            keys: None,
        })))
    }

    /// The batch of one domain that goes, which was not there from the start.
    pub fn remove(&self, number: u64) -> Batch {
        let name = self.layout.site(number).name;
        let slice = format!("{name}-1");
        let lead = match self.layout.objects {
            DomainObjects::Ingresses => ObjectKind::Ingress,
            DomainObjects::ListenerSets | DomainObjects::HttpRoutes => ObjectKind::HttpRoute,
        };
        let keys = [
            (lead, &name),
            (ObjectKind::Service, &name),
            (ObjectKind::EndpointSlice, &slice),
            (ObjectKind::Secret, &name),
        ];
        let remove = |(kind, name): (ObjectKind, &String)| {
            Change::Remove(ObjectKey::new(kind, NAMESPACE, name))
        };
        let mut changes: Vec<_> = keys.map(remove).into();
        changes.extend(self.set(number, None));
        Batch {
            changes,
            ..Batch::default()
        }
    }
}

fn meta(kind: ObjectKind, name: &str) -> Meta {
    Meta::new(ObjectKey::new(kind, NAMESPACE, name))
}

fn ingress(site: &Site, is_edited: bool) -> Ingress {
    let (name, host, secret) = (&*site.name, &*site.host, &*site.secret);
    let edited = is_edited.then_some(EDITED_PATH);
    let paths = ["/"].into_iter().chain(edited);
    let paths = paths.map(|path| IngressPath {
        path: Some(path.into()),
        path_type: PathType::Prefix,
        backend: IngressBackend::Service {
            name: name.into(),
            port: BackendPort::Number(80),
        },
    });
    Ingress {
        meta: meta(ObjectKind::Ingress, name),
        class_name: None,
        default_backend: None,
        tls: [IngressTls {
            hosts: [host.into()].into(),
            secret_name: Some(secret.into()),
        }]
        .into(),
        rules: [IngressRule {
            host: Some(host.into()),
            paths: paths.collect(),
        }]
        .into(),
    }
}

fn service(name: &str) -> Service {
    let port = ServicePort {
        name: "http".into(),
        port: 80,
        target_port: None,
        app_protocol: None,
        protocol: None,
    };
    Service {
        meta: meta(ObjectKind::Service, name),
        external_name: None,
        selector: Default::default(),
        ports: [port].into(),
        addresses: Box::default(),
        is_headless: false,
    }
}

fn slice(name: &str, endpoint: SocketAddr) -> EndpointSlice {
    let conditions = Conditions {
        ready: true,
        serving: true,
        terminating: false,
    };
    let port = EndpointPort {
        name: "http".into(),
        port: Some(endpoint.port()),
        protocol: None,
    };
    EndpointSlice {
        meta: meta(ObjectKind::EndpointSlice, &format!("{name}-1")),
        service: Some(name.into()),
        endpoints: [Endpoint {
            address: Some(endpoint.ip()),
            pod: None,
            zone: None,
            conditions,
        }]
        .into(),
        ports: [port].into(),
    }
}

#[cfg(test)]
mod tests;
