//! The objects of domains as a tenant of the cluster writes them.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::api::Write;
use super::gateway_api;
use crate::domains::{Domain, DomainObjects, EDITED_PATH, Layout, Pair, SHARED_SECRET, Site, pem};

/// A namespace with a class of Ingresses and of Gateways.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The namespace of all objects.
    pub namespace: String,
    /// The class of all Ingresses and of the Gateway.
    pub class: String,
    /// The issuer's certificate in DER, which is sent with each leaf.
    pub issuer: Vec<u8>,
    /// How objects lead to domains.
    pub layout: Layout,
}

/// The kinds of objects that a domain is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The certificate.
    Secret,
    /// A headless Service: others slow down as they grow many.
    Service,
    /// Its only slice.
    EndpointSlice,
    /// The Ingress, which makes the domain live.
    Ingress,
    /// The HTTPRoute, at a listener of the domain's own or of all.
    HttpRoute,
}

impl Kind {
    /// The objects that an Ingress or HTTPRoute needs, in the order in which they are written.
    pub const NEEDS: [Kind; 3] = [Kind::Secret, Kind::Service, Kind::EndpointSlice];

    fn list(self, namespace: &str) -> String {
        let (group, plural) = match self {
            Kind::Secret => ("/api/v1", "secrets"),
            Kind::Service => ("/api/v1", "services"),
            Kind::EndpointSlice => ("/apis/discovery.k8s.io/v1", "endpointslices"),
            Kind::Ingress => ("/apis/networking.k8s.io/v1", "ingresses"),
            Kind::HttpRoute => (gateway_api::API, "httproutes"),
        };
        format!("{group}/namespaces/{namespace}/{plural}")
    }
}

impl Tenant {
    /// The path of the list of a kind.
    pub fn list(&self, kind: Kind) -> String {
        kind.list(&self.namespace)
    }

    /// The kind that leads to domains and of which each has its own.
    pub fn lead(&self) -> Kind {
        match self.layout.objects {
            DomainObjects::Ingresses => Kind::Ingress,
            DomainObjects::ListenerSets | DomainObjects::HttpRoutes => Kind::HttpRoute,
        }
    }

    /// The path of the list of the objects whose write makes a domain live.
    pub fn live_list(&self) -> String {
        match self.layout.objects {
            DomainObjects::ListenerSets => self.sets(),
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => self.list(self.lead()),
        }
    }

    /// The name of the object whose write makes a domain live.
    pub fn live_name(&self, domain: &Domain) -> String {
        match self.layout.objects {
            DomainObjects::ListenerSets => Layout::set_name(Layout::set_of(domain.number)),
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => domain.name(),
        }
    }

    /// The objects that are written before that, in their order.
    pub fn needs(&self) -> Vec<Kind> {
        let mut kinds = Kind::NEEDS.to_vec();
        if self.layout.objects == DomainObjects::ListenerSets {
            kinds.push(Kind::HttpRoute);
        }
        kinds
    }

    /// The one write that makes a new domain live, once all that it needs is there.
    pub fn admit(&self, domain: &Domain) -> Option<Write> {
        match self.layout.objects {
            DomainObjects::ListenerSets => Some(self.change_set(domain.number, Some(domain))),
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => {
                self.create(self.lead(), domain)
            }
        }
    }

    /// The one write that ends a domain which was not there from the start.
    pub fn dismiss(&self, domain: &Domain) -> Option<Write> {
        match self.layout.objects {
            DomainObjects::ListenerSets => Some(self.change_set(domain.number, None)),
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => {
                self.delete(self.lead(), domain)
            }
        }
    }

    /// Writes a ListenerSet with all domains that it has from the start; one that is there grows.
    pub fn write_set(&self, set: u64, is_there: bool) -> Write {
        let sites = self.layout.members(set);
        if is_there {
            return self.patch_set(set, &sites);
        }
        Write {
            method: Method::POST,
            path: self.sets(),
            body: Some(encode(&gateway_api::listener_set(set, &sites))),
        }
    }

    /// Gives the Ingress or HTTPRoute of a domain a path more, or takes it back.
    pub fn edit(&self, number: u64, is_edited: bool) -> Write {
        let site = self.layout.site(number);
        let kind = self.lead();
        let path = format!("{}/{}", self.list(kind), site.name);
        match self.layout.objects {
            DomainObjects::Ingresses => Write {
                method: Method::PUT,
                path,
                body: Some(encode(&self.ingress(&site, is_edited))),
            },
            DomainObjects::ListenerSets | DomainObjects::HttpRoutes => Write {
                method: Method::PATCH,
                path,
                body: Some(encode(&gateway_api::route_edit(&site, is_edited))),
            },
        }
    }

    /// Creates what all domains have in common: the class and the Gateway, where there is one.
    pub fn create_common(&self) -> Vec<Write> {
        let Some(gateway) = gateway_api::gateway(self.layout.objects, &self.class) else {
            return Vec::new();
        };
        let post = |path: String, object: &Value| Write {
            method: Method::POST,
            path,
            body: Some(encode(object)),
        };
        let class = gateway_api::class(&self.class, &self.controller());
        let gateways = format!(
            "{}/namespaces/{}/gateways",
            gateway_api::API,
            self.namespace
        );
        vec![
            post(gateway_api::classes(), &class),
            post(gateways, &gateway),
        ]
    }

    /// Deletes the class, which is in no namespace; none where there are Ingresses.
    pub fn delete_class(&self) -> Option<Write> {
        (self.layout.objects != DomainObjects::Ingresses).then(|| Write {
            method: Method::DELETE,
            path: format!("{}/{}", gateway_api::classes(), self.class),
            body: None,
        })
    }

    /// The name of the controller of the class: no other run's.
    pub fn controller(&self) -> String {
        format!("bench.myriad.dev/{}", self.class)
    }

    fn sets(&self) -> String {
        format!(
            "{}/namespaces/{}/listenersets",
            gateway_api::API,
            self.namespace
        )
    }

    /// The ListenerSet of a domain, with all that it has from the start and one more.
    fn change_set(&self, number: u64, more: Option<&Domain>) -> Write {
        let set = Layout::set_of(number);
        let mut sites = self.layout.members(set);
        sites.extend(more.map(Site::of));
        self.patch_set(set, &sites)
    }

    fn patch_set(&self, set: u64, sites: &[Site]) -> Write {
        Write {
            method: Method::PATCH,
            path: format!("{}/{}", self.sets(), Layout::set_name(set)),
            body: Some(encode(&gateway_api::set_change(sites))),
        }
    }

    /// Creates an object of a domain; `None` where a domain has no Secret of its own.
    pub fn create(&self, kind: Kind, domain: &Domain) -> Option<Write> {
        Some(Write {
            method: Method::POST,
            path: self.list(kind),
            body: Some(encode(&self.object(kind, domain)?)),
        })
    }

    /// Replaces an object of a domain, whatever its version.
    pub fn replace(&self, kind: Kind, domain: &Domain) -> Option<Write> {
        Some(Write {
            method: Method::PUT,
            path: format!("{}/{}", self.list(kind), domain.name()),
            body: Some(encode(&self.object(kind, domain)?)),
        })
    }

    /// Deletes an object of a domain.
    pub fn delete(&self, kind: Kind, domain: &Domain) -> Option<Write> {
        if kind == Kind::Secret && domain.own.is_none() {
            return None;
        }
        Some(Write {
            method: Method::DELETE,
            path: format!("{}/{}", self.list(kind), domain.name()),
            body: None,
        })
    }

    /// Creates the Secret of the certificate that domains without their own have.
    pub fn create_shared(&self, pair: &Pair) -> Write {
        Write {
            method: Method::POST,
            path: self.list(Kind::Secret),
            body: Some(encode(&self.secret(SHARED_SECRET, pair))),
        }
    }

    fn object(&self, kind: Kind, domain: &Domain) -> Option<Value> {
        let name = domain.name();
        Some(match kind {
            Kind::Secret => self.secret(&name, domain.own.as_ref()?),
            Kind::Service => json!({
                "metadata": {"name": name},
                "spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]},
            }),
            Kind::EndpointSlice => slice(&name, domain.endpoint),
            Kind::Ingress => self.ingress(&Site::of(domain), false),
            Kind::HttpRoute => gateway_api::http_route(self.layout.objects, &Site::of(domain)),
        })
    }

    fn secret(&self, name: &str, pair: &Pair) -> Value {
        let chain = pem("CERTIFICATE", &pair.leaf) + &pem("CERTIFICATE", &self.issuer);
        let key = pem("PRIVATE KEY", &pair.key);
        json!({
            "metadata": {"name": name},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": STANDARD.encode(chain), "tls.key": STANDARD.encode(key)},
        })
    }

    fn ingress(&self, site: &Site, is_edited: bool) -> Value {
        let Site {
            name, host, secret, ..
        } = site;
        let service = json!({"name": name, "port": {"number": 80}});
        let edited = is_edited.then_some(EDITED_PATH);
        let paths = ["/"].into_iter().chain(edited);
        let paths = paths.map(
            |path| json!({"path": path, "pathType": "Prefix", "backend": {"service": service}}),
        );
        json!({
            "metadata": {"name": name},
            "spec": {
                "ingressClassName": self.class,
                "tls": [{"hosts": [host], "secretName": secret}],
                "rules": [{"host": host, "http": {"paths": paths.collect::<Vec<_>>()}}],
            },
        })
    }
}

fn slice(name: &str, endpoint: SocketAddr) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [endpoint.ip()]}],
        "ports": [{"name": "http", "port": endpoint.port()}],
    })
}

fn encode(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
