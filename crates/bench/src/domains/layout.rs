//! The objects that lead to domains: Ingresses, or those of Gateway API.

use serde::{Deserialize, Serialize};

use super::{Certificates, Domain, Generator, SHARED_SECRET, gateway_yaml, object_name, yaml};

/// The listeners that a ListenerSet has from the start, of a domain each.
pub const SET_LISTENERS: u64 = 16;

/// The Gateway of all ListenerSets and HTTPRoutes.
pub const GATEWAY: &str = "edge";

/// The host of the listener that HTTPRoutes of all domains share.
pub const WILDCARD_HOST: &str = "*.shared.test";

/// The path that an edited route has beside `/`.
pub(crate) const EDITED_PATH: &str = "/edited";

/// The kind of the objects that lead to domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainObjects {
    /// An Ingress for each domain.
    #[default]
    Ingresses,
    /// A ListenerSet for each 16 domains, with an HTTPS listener and an HTTPRoute for each.
    #[value(name = "listenersets")]
    ListenerSets,
    /// An HTTPRoute for each domain, on one wildcard listener of a Gateway.
    #[value(name = "httproutes")]
    HttpRoutes,
}

/// How objects lead to so many domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The kind of the objects.
    pub objects: DomainObjects,
    /// How certificates are spread.
    pub certificates: Certificates,
    /// Domains that exist from the start.
    pub domains: u64,
}

/// A domain as the objects that lead to it name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its number.
    pub number: u64,
    /// The name of its own objects.
    pub name: String,
    /// Its host.
    pub host: String,
    /// The Secret with its certificate.
    pub secret: String,
}

impl Site {
    /// That of a domain.
    pub fn of(domain: &Domain) -> Site {
        Site::new(domain.number, domain.host.clone(), domain.own.is_none())
    }

    fn new(number: u64, host: String, is_shared: bool) -> Site {
        let name = object_name(number);
        let secret = match is_shared {
            true => SHARED_SECRET.to_owned(),
            false => name.clone(),
        };
        Site {
            number,
            name,
            host,
            secret,
        }
    }
}

impl Layout {
    /// The domain with this number.
    pub fn site(&self, number: u64) -> Site {
        let host = self.certificates.host(number);
        Site::new(number, host, self.certificates.is_shared(number))
    }

    /// The number of the ListenerSet that a domain belongs to.
    pub fn set_of(number: u64) -> u64 {
        number / 2 / SET_LISTENERS
    }

    /// The name of a ListenerSet.
    pub fn set_name(set: u64) -> String {
        format!("s{set:08}")
    }

    /// How many ListenerSets there are.
    pub fn sets(&self) -> u64 {
        match self.objects {
            DomainObjects::ListenerSets => self.domains.div_ceil(SET_LISTENERS),
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => 0,
        }
    }

    /// The domains that a ListenerSet has from the start.
    pub fn members(&self, set: u64) -> Vec<Site> {
        let first = set * SET_LISTENERS;
        let indices = first..self.domains.min(first + SET_LISTENERS);
        let numbers = indices.map(Generator::existing);
        numbers.map(|number| self.site(number)).collect()
    }

    /// The ListenerSet that is whole with this domain, of those that come in their order.
    pub fn set_ended_by(&self, number: u64) -> Option<u64> {
        let (set, after) = (Layout::set_of(number), number / 2 + 1);
        let is_end = after == self.domains || after.is_multiple_of(SET_LISTENERS);
        (set < self.sets() && is_end).then_some(set)
    }

    /// Domains in a file, where so many are asked for: those of a ListenerSet stand together.
    pub fn per_file(&self, wanted: u64) -> u64 {
        match self.objects {
            DomainObjects::ListenerSets => SET_LISTENERS,
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => wanted.max(1),
        }
    }

    /// The documents that all domains need: the Gateway, where there is one.
    pub fn common_documents(&self) -> String {
        gateway_yaml::gateway_document(self.objects)
    }

    /// The documents of a domain, each with its separator first; without the ListenerSet.
    pub fn documents(&self, domain: &Domain, issuer: &[u8]) -> String {
        self.lead(&Site::of(domain), false) + &yaml::need_documents(domain, issuer)
    }

    /// The document at the end of the file that begins with this domain: a ListenerSet that
    /// further listeners can be written behind.
    pub fn end_document(&self, first: u64) -> String {
        match self.objects {
            DomainObjects::ListenerSets => {
                let set = Layout::set_of(first);
                gateway_yaml::set_document(&Layout::set_name(set), &self.members(set))
            }
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => String::new(),
        }
    }

    /// The text that one more domain adds at the end of its file.
    pub fn addition(&self, domain: &Domain, issuer: &[u8]) -> String {
        let listener = match self.objects {
            DomainObjects::ListenerSets => gateway_yaml::listener(&Site::of(domain)),
            DomainObjects::Ingresses | DomainObjects::HttpRoutes => String::new(),
        };
        listener + &self.documents(domain, issuer)
    }

    /// The Ingress or HTTPRoute of a domain, as it is and edited.
    pub fn edits(&self, number: u64) -> [String; 2] {
        let site = self.site(number);
        [false, true].map(|is_edited| self.lead(&site, is_edited))
    }

    fn lead(&self, site: &Site, is_edited: bool) -> String {
        match self.objects {
            DomainObjects::Ingresses => yaml::ingress_document(site, is_edited),
            DomainObjects::ListenerSets | DomainObjects::HttpRoutes => {
                gateway_yaml::route_document(self.objects, site, is_edited)
            }
        }
    }
}

#[cfg(test)]
mod tests;
