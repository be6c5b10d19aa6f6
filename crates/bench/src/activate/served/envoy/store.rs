//! The domains as the control plane knows them: those that were there from the start by their
//! numbers, and those that came, changed or went since.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use indicatif::ProgressBar;

use super::Told;
use super::bootstrap::LISTENER;
use super::protobuf::Message;
use super::resources::{self, Kind};
use crate::domains::{Domain, Generator, Layout};

/// All domains.
pub(super) struct Store {
    generator: Arc<Generator>,
    layout: Layout,
    /// Domains that came, or went, since the start.
    since: HashMap<u64, Option<Domain>>,
    /// The chains of all of them, where Envoy is sent chains.
    chains: BTreeMap<u64, Message>,
    told: Told,
    address: SocketAddr,
    version: u64,
}

/// A change that is ready to be sent.
pub(super) enum Change {
    /// The listener as it is with it.
    Listener(Message),
    /// A domain that comes, changes or goes.
    Domain {
        /// Its number.
        number: u64,
        /// The domain; none where it goes.
        domain: Option<Box<Domain>>,
    },
}

impl Store {
    /// One with so many domains.
    pub(super) fn fill(
        told: Told,
        generator: Arc<Generator>,
        layout: Layout,
        address: SocketAddr,
        bar: &ProgressBar,
    ) -> anyhow::Result<Store> {
        let mut store = Store {
            generator,
            layout,
            since: HashMap::new(),
            chains: BTreeMap::new(),
            told,
            address,
            version: 0,
        };
        for index in 0..layout.domains {
            if told == Told::Chains {
                let domain = store.generator.domain(Generator::existing(index), 0)?;
                let chain = store.chain(&domain);
                store.chains.insert(domain.number, chain);
            }
            bar.inc(1);
        }
        Ok(store)
    }

    /// Keeps a domain with exactly its certificate: a domain that is made anew has another one,
    /// since signatures differ each time.
    pub(super) fn hold(&mut self, domain: Domain) {
        if self.told == Told::Chains {
            let chain = self.chain(&domain);
            self.chains.insert(domain.number, chain);
        }
        self.since.insert(domain.number, Some(domain));
    }

    /// Makes a change ready. Chains are encoded here; on demand nothing is, so that nobody who
    /// asks before it is sent sees it.
    pub(super) fn prepare(&mut self, number: u64, domain: Option<Domain>) -> Change {
        if self.told == Told::OnDemand {
            let domain = domain.map(Box::new);
            return Change::Domain { number, domain };
        }
        match domain {
            Some(domain) => {
                let chain = self.chain(&domain);
                self.chains.insert(number, chain);
            }
            None => {
                self.chains.remove(&number);
            }
        }
        Change::Listener(self.listener())
    }

    /// Takes a domain that came, changed or went; its host.
    pub(super) fn take(&mut self, number: u64, domain: Option<Domain>) -> String {
        let host = self.generator.host(number);
        self.since.insert(number, domain);
        host
    }

    /// The response to these names.
    pub(super) fn answer(&mut self, kind: Kind, names: &[String]) -> Message {
        match kind {
            Kind::Listener => self.listener(),
            Kind::Routes => {
                let version = self.next_version();
                let routes = resources::routes();
                let names = names.iter();
                let routes =
                    names.map(|name| resources::resource(kind, name, version, Some(&routes)));
                resources::response(kind, version, &routes.collect::<Vec<_>>(), &[])
            }
            Kind::Secret => self.secrets(names),
            Kind::Host => self.hosts(names),
        }
    }

    /// A host that is no more.
    pub(super) fn without_host(&mut self, name: String) -> Message {
        let version = self.next_version();
        resources::response(Kind::Host, version, &[], &[name])
    }

    fn secrets(&mut self, names: &[String]) -> Message {
        let version = self.next_version();
        let (mut found, mut removed) = (Vec::new(), Vec::new());
        for name in names {
            match self.domain(name) {
                Some(domain) => {
                    let pair = domain.own.as_ref().unwrap_or(self.generator.shared());
                    let secret = resources::secret(name, pair, self.generator.issuer());
                    let kind = Kind::Secret;
                    found.push(resources::resource(kind, name, version, Some(&secret)));
                }
                None => removed.push(name.clone()),
            }
        }
        resources::response(Kind::Secret, version, &found, &removed)
    }

    fn hosts(&mut self, names: &[String]) -> Message {
        let version = self.next_version();
        let endpoints = self.generator.endpoints();
        let hosts = names.iter().map(|name| {
            let domain = name.split_once('/').and_then(|(_, host)| self.domain(host));
            let host = domain.map(|domain| resources::host(&domain, endpoints));
            resources::resource(Kind::Host, name, version, host.as_ref())
        });
        let hosts: Vec<Message> = hosts.collect();
        resources::response(Kind::Host, version, &hosts, &[])
    }

    fn listener(&mut self) -> Message {
        let version = self.next_version();
        let listener = resources::listener(self.address, self.chains.values());
        let listener = resources::resource(Kind::Listener, LISTENER, version, Some(&listener));
        resources::response(Kind::Listener, version, &[listener], &[])
    }

    fn chain(&self, domain: &Domain) -> Message {
        let pair = domain.own.as_ref().unwrap_or(self.generator.shared());
        let endpoints = self.generator.endpoints();
        resources::chain(domain, pair, self.generator.issuer(), endpoints)
    }

    /// The domain with this host, as it is now.
    fn domain(&self, host: &str) -> Option<Domain> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let name = host
            .strip_prefix("www.")
            .unwrap_or(host)
            .strip_prefix('d')?;
        let number: u64 = name.get(..digits(name))?.parse().ok()?;
        if self.generator.host(number) != host {
            return None;
        }
        if let Some(domain) = self.since.get(&number) {
            return domain.clone();
        }
        let index = number / 2;
        let is_there = Generator::existing(index) == number && index < self.layout.domains;
        let domain = is_there.then(|| self.generator.domain(number, 0))?;
        domain.ok()
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::{Value, fields};
    use super::*;
    use crate::domains::{Certificates, DomainObjects};

    fn store(told: Told) -> Store {
        let endpoints = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().unwrap());
        let generator = Generator::new(Certificates::Unique, endpoints).unwrap();
        let layout = generator.layout(DomainObjects::Ingresses, 3);
        let address = "127.0.0.1:3".parse().unwrap();
        let bar = ProgressBar::hidden();
        Store::fill(told, Arc::new(generator), layout, address, &bar).unwrap()
    }

    /// The numbers of the fields of a response, which tell resources and removals apart.
    fn numbers(message: &Message) -> Vec<u64> {
        let fields = fields(message.as_bytes()).unwrap();
        fields.into_iter().map(|(number, _)| number).collect()
    }

    /// The chains of a listener in a response.
    fn chains(message: &Message) -> usize {
        let inner = |bytes: &[u8], field: u64| {
            let all = fields(bytes).unwrap();
            let found = all.into_iter().find_map(|(number, value)| match value {
                Value::Bytes(bytes) if number == field => Some(bytes.to_vec()),
                Value::Number | Value::Bytes(_) => None,
            });
            found.unwrap()
        };
        // The resource, what it is, and the value of that.
        let listener = inner(&inner(&inner(message.as_bytes(), 2), 2), 2);
        let all = fields(&listener).unwrap();
        all.into_iter().filter(|(number, _)| *number == 3).count()
    }

    #[test]
    fn a_domain_is_found_by_its_host_from_when_it_comes_until_it_goes() {
        let mut store = store(Told::OnDemand);
        let name = |number: u64| Certificates::Unique.host(number);
        assert_eq!(store.domain(&name(4)).unwrap().number, 4);
        for host in [
            name(1),
            name(6),
            "www.d.custom.test".to_owned(),
            String::new(),
        ] {
            assert_eq!(store.domain(&host), None, "{host}");
        }
        let fresh = store.generator.domain(1, 0).unwrap();
        let change = store.prepare(1, Some(fresh.clone()));
        assert!(matches!(
            change,
            Change::Domain {
                number: 1,
                domain: Some(_)
            }
        ));
        // It is there once it is sent.
        assert_eq!(store.domain(&name(1)), None);
        assert_eq!(store.take(1, Some(fresh.clone())), name(1));
        assert_eq!(store.domain(&name(1)), Some(fresh));
        let known = store.answer(Kind::Secret, &[name(1)]);
        assert_eq!(numbers(&known), [1, 2, 4, 5]);
        store.take(1, None);
        let gone = store.answer(Kind::Secret, &[name(1), name(0)]);
        assert_eq!(numbers(&gone), [1, 2, 4, 5, 6]);
        let host = store.answer(Kind::Host, &[resources::host_name(&name(2))]);
        assert_eq!(numbers(&host), [1, 2, 4, 5]);
    }

    #[test]
    fn a_domain_that_is_held_has_the_same_certificate_whenever_it_is_asked_for() {
        let name = |store: &Store| store.generator.host(Generator::existing(0));
        let mut held = store(Told::OnDemand);
        let first = held.generator.domain(Generator::existing(0), 0).unwrap();
        held.hold(first.clone());
        assert_eq!(held.domain(&name(&held)), Some(first.clone()));
        let mut chained = store(Told::Chains);
        let made = chained.chains[&first.number].as_bytes().to_vec();
        chained.hold(first);
        assert_ne!(chained.chains[&0].as_bytes(), made);
        assert_eq!(chains(&chained.answer(Kind::Listener, &[])), 3);
    }

    #[test]
    fn a_listener_has_a_chain_for_each_domain() {
        let mut store = store(Told::Chains);
        assert_eq!(chains(&store.answer(Kind::Listener, &[])), 3);
        let fresh = store.generator.domain(1, 0).unwrap();
        let Change::Listener(listener) = store.prepare(1, Some(fresh)) else {
            panic!("no listener");
        };
        assert_eq!(chains(&listener), 4);
        let Change::Listener(listener) = store.prepare(1, None) else {
            panic!("no listener");
        };
        assert_eq!(chains(&listener), 3);
    }
}
