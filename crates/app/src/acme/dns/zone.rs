//! Where records of a name are: behind its CNAMEs, in a zone that has servers, which are asked
//! themselves, so that nobody's memory of what was not there stands between them and us.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use hickory_resolver::proto::rr::RecordType;
use myriad_base::clock::{self, Instant};
use myriad_base::task;
use myriad_pki::acme::StepTrouble;
use myriad_proxy::Names;

use super::ask::{self, AskError, AskWay, DnsReply, DnsRow, DnsValue, ask_any};
use crate::acme::proof::owner;

/// The most aliases on the way from a name to its records.
const HOPS_MAX: usize = 8;

/// The most labels in front of a zone's name that are looked at.
const LABELS_MAX: usize = 32;

/// The most servers of a zone, and addresses of one server, that are asked.
const SERVERS_MAX: usize = 8;
const ADDRESSES_MAX: usize = 2;

/// How long the servers of a zone are kept, and of how many zones.
const ZONE_TTL: Duration = Duration::from_secs(60);
const ZONES_MAX: usize = 1_024;

/// Names and the texts that they are to have.
type Texts = Vec<(Box<str>, Box<str>)>;

/// Finds records. What is not there is never kept.
pub(super) struct Finder {
    names: Names,
    /// The servers that find out about any name; the system's where there is none.
    recursors: Vec<SocketAddr>,
    /// The port of the servers of zones; none where they are not asked.
    port: Option<u16>,
    /// Whether all is asked over TCP.
    is_tcp: bool,
    zones: RefCell<HashMap<Box<str>, KnownZone>>,
}

/// The servers of a zone, and when they were found.
type KnownZone = (Instant, Rc<[SocketAddr]>);

/// The place of a name's records.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The name that has them.
    pub fqdn: Box<str>,
    /// The zone that it is in.
    pub zone: Box<str>,
    servers: Rc<[SocketAddr]>,
}

impl Finder {
    pub(super) fn new(names: Names, recursors: Vec<SocketAddr>, port: Option<u16>) -> Finder {
        Finder {
            names,
            recursors,
            port,
            is_tcp: false,
            zones: RefCell::default(),
        }
    }

    /// This finder, which asks everything over TCP, and for addresses of servers too.
    pub(super) fn over_tcp(mut self) -> Finder {
        self.is_tcp = true;
        self
    }

    fn way(&self, recurse: bool) -> AskWay {
        AskWay {
            recurse,
            is_tcp: self.is_tcp,
        }
    }

    /// Whether the servers of zones are asked.
    pub(super) fn asks_zones(&self) -> bool {
        self.port.is_some()
    }

    /// The place of the records of a name.
    ///
    /// # Errors
    /// DNS does not say, or leads in a circle.
    pub(super) async fn find(&self, name: &str) -> Result<Spot, StepTrouble> {
        let mut fqdn: Box<str> = name.into();
        for _ in 0..=HOPS_MAX {
            let zone = self.zone_of(&fqdn).await?;
            let servers = self.servers_of(&zone).await?;
            match self.alias(&fqdn, &servers).await? {
                Some(next) => fqdn = next,
                None => {
                    return Ok(Spot {
                        fqdn,
                        zone,
                        servers,
                    });
                }
            }
        }
        Err(StepTrouble::Unproven(
            format!("waits, since {name} leads by CNAME through more than {HOPS_MAX} names"),
            format!("see that {name} does not lead in a circle"),
        ))
    }

    /// The texts that a place has.
    ///
    /// # Errors
    /// No server says.
    pub(super) async fn texts(&self, spot: &Spot) -> Result<Vec<Box<[u8]>>, StepTrouble> {
        let reply = self
            .look(&spot.fqdn, &spot.servers, RecordType::TXT)
            .await?;
        let of_it = reply.answers.into_iter();
        let texts = of_it.filter_map(|row| match row.value {
            DnsValue::Text(text) if row.owner == spot.fqdn => Some(text),
            _ => None,
        });
        Ok(texts.collect())
    }

    /// Whether places have texts, as all of the zones' servers say that answer.
    ///
    /// # Errors
    /// Words about a server that does not have one, or of which none is heard.
    pub(super) async fn show(&self, wanted: &[(Spot, Box<str>)]) -> Result<(), String> {
        if !self.asks_zones() {
            return Ok(());
        }
        let mut zones: BTreeMap<&str, (&Spot, Texts)> = BTreeMap::new();
        for (spot, text) in wanted {
            let (_, texts) = zones.entry(&*spot.zone).or_insert((spot, Vec::new()));
            texts.push((spot.fqdn.clone(), text.clone()));
        }
        for (zone, (spot, texts)) in zones {
            zone_shows(zone, &spot.servers, &texts).await?;
        }
        Ok(())
    }

    /// The zone that a name is in: the nearest name above it that has one.
    async fn zone_of(&self, name: &str) -> Result<Box<str>, StepTrouble> {
        let recursors = ask::recursors(&self.recursors);
        let mut rest = name;
        for _ in 0..LABELS_MAX {
            let reply = ask_any(&recursors, rest, RecordType::SOA, self.way(true)).await;
            let reply = reply.map_err(|error| unknown(name, &error))?;
            if let Some(zone) = apex(&reply, rest) {
                return Ok(zone.into());
            }
            let Some((_, above)) = rest.split_once('.') else {
                break;
            };
            rest = above;
        }
        Err(unknown(name, &"no name above it is that of a zone"))
    }

    /// The servers of a zone. None where they are not asked.
    async fn servers_of(&self, zone: &str) -> Result<Rc<[SocketAddr]>, StepTrouble> {
        let Some(port) = self.port else {
            return Ok(Rc::from([]));
        };
        if let Some(servers) = self.known(zone) {
            return Ok(servers);
        }
        let recursors = ask::recursors(&self.recursors);
        let reply = ask_any(&recursors, zone, RecordType::NS, self.way(true)).await;
        let reply = reply.map_err(|error| unknown(zone, &error))?;
        let hosts = reply.answers.iter().filter_map(|row| match &row.value {
            DnsValue::Server(host) if *row.owner == *zone => Some(&**host),
            _ => None,
        });
        let mut servers = Vec::new();
        for host in hosts.take(SERVERS_MAX) {
            let found = self.addresses_of(host).await;
            // Whoever writes a zone chooses them.
            let border = self.names.border();
            let admitted = found.into_iter();
            let admitted = admitted.filter(|ip| border.admits_resolved(host, *ip, false));
            let admitted = admitted.take(ADDRESSES_MAX);
            servers.extend(admitted.map(|ip| SocketAddr::new(ip, port)));
        }
        if servers.is_empty() {
            return Err(unknown(zone, &"none of its servers has an address"));
        }
        let servers: Rc<[SocketAddr]> = servers.into();
        let mut zones = self.zones.borrow_mut();
        if zones.len() >= ZONES_MAX {
            zones.clear();
        }
        zones.insert(zone.into(), (clock::now(), servers.clone()));
        Ok(servers)
    }

    /// The addresses of a server; none where it has none, or nobody says.
    async fn addresses_of(&self, host: &str) -> Vec<IpAddr> {
        if !self.is_tcp {
            let found = self.names.look_up(owner(host), None, host).await;
            return found.map(|it| it.addresses).unwrap_or_default();
        }
        let recursors = ask::recursors(&self.recursors);
        let mut found = Vec::new();
        for kind in [RecordType::A, RecordType::AAAA] {
            let Ok(reply) = ask_any(&recursors, host, kind, self.way(true)).await else {
                continue;
            };
            let rows = reply.answers.iter().filter(|row| *row.owner == *host);
            found.extend(rows.filter_map(|row| match row.value {
                DnsValue::Address(ip) => Some(ip),
                _ => None,
            }));
        }
        found
    }

    fn known(&self, zone: &str) -> Option<Rc<[SocketAddr]>> {
        let zones = self.zones.borrow();
        let (since, servers) = zones.get(zone)?;
        let is_fresh = clock::now().duration_since(*since) < ZONE_TTL;
        is_fresh.then(|| servers.clone())
    }

    /// The name that a name is an alias of.
    async fn alias(
        &self,
        name: &str,
        servers: &[SocketAddr],
    ) -> Result<Option<Box<str>>, StepTrouble> {
        let reply = self.look(name, servers, RecordType::CNAME).await?;
        let mut aliases = reply.answers.into_iter();
        Ok(aliases.find_map(|row| match row.value {
            DnsValue::Alias(next) if *row.owner == *name => Some(next),
            _ => None,
        }))
    }

    async fn look(
        &self,
        name: &str,
        servers: &[SocketAddr],
        kind: RecordType,
    ) -> Result<DnsReply, StepTrouble> {
        let reply = match self.asks_zones() {
            true => ask_any(servers, name, kind, self.way(false)).await,
            false => {
                let recursors = ask::recursors(&self.recursors);
                ask_any(&recursors, name, kind, self.way(true)).await
            }
        };
        reply.map_err(|error| unknown(name, &error))
    }
}

/// Whether a name is in a zone, or below its name.
pub(super) fn is_below(name: &str, zone: &str) -> bool {
    let before = name.strip_suffix(zone);
    zone.is_empty() || before.is_some_and(|it| it.is_empty() || it.ends_with('.'))
}

/// The zone that an answer says a name to be in.
fn apex<'a>(reply: &'a DnsReply, name: &str) -> Option<&'a str> {
    let is_of_name = |row: &&DnsRow| *row.owner == *name;
    // An alias is in a zone above it; what is told besides is about the name that it is for.
    let mut aliases = reply.answers.iter().filter(is_of_name);
    if aliases.any(|row| matches!(row.value, DnsValue::Alias(_))) {
        return None;
    }
    let rows = reply.answers.iter().chain(&reply.authorities);
    let mut zones = rows.filter(|row| row.value == DnsValue::Apex);
    let zone = zones.find(|row| is_below(name, &row.owner))?;
    Some(&zone.owner)
}

/// Whether the servers of a zone have texts.
async fn zone_shows(zone: &str, servers: &[SocketAddr], texts: &Texts) -> Result<(), String> {
    let asking = servers.iter().map(|server| {
        let asked = missing(*server, texts.clone());
        task::spawn("dns proof", asked)
    });
    let asking: Vec<_> = asking.collect();
    let mut silent = format!("no server of {zone} answers");
    let mut is_heard = false;
    for (server, asked) in servers.iter().zip(asking) {
        match asked.await.ok().flatten() {
            Some(Ok(None)) => is_heard = true,
            Some(Ok(Some(name))) => return Err(format!("{server} does not have {name} yet")),
            Some(Err(error)) => silent = error.to_string(),
            None => {}
        }
    }
    is_heard.then_some(()).ok_or(silent)
}

/// The first name whose text a server does not have.
async fn missing(server: SocketAddr, texts: Texts) -> Result<Option<Box<str>>, AskError> {
    let way = AskWay {
        recurse: false,
        is_tcp: false,
    };
    for (name, text) in texts {
        let reply = ask_any(&[server], &name, RecordType::TXT, way).await?;
        let is_it = |row: &DnsRow| {
            row.owner == name
                && matches!(&row.value, DnsValue::Text(it) if **it == *text.as_bytes())
        };
        if !reply.answers.iter().any(is_it) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn unknown(name: &str, error: &dyn Display) -> StepTrouble {
    StepTrouble::Unproven(
        format!("waits, since {name} cannot be looked up in DNS: {error}"),
        format!(
            "see that the zone of {name} is there, and that its servers can be asked from here"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::ask::{DnsReply, DnsRow, DnsValue};
    use super::{apex, is_below};

    #[test]
    fn a_name_is_below_a_zone_by_whole_labels() {
        for (name, zone, is_it) in [
            ("a.example", "example", true),
            ("example", "example", true),
            ("a.example", "", true),
            ("a.myexample", "example", false),
            ("example", "a.example", false),
        ] {
            assert_eq!(is_below(name, zone), is_it, "{name} {zone}");
        }
    }

    #[test]
    fn the_zone_is_the_one_that_an_answer_names_but_not_that_of_an_alias() {
        let row = |owner: &str, value: DnsValue| DnsRow {
            owner: owner.into(),
            value,
        };
        let reply = |answers, authorities| DnsReply {
            answers,
            authorities,
            is_authoritative: false,
        };
        let negative = reply(Vec::new(), vec![row("shop.example", DnsValue::Apex)]);
        assert_eq!(
            apex(&negative, "_acme-challenge.a.shop.example"),
            Some("shop.example")
        );
        // Of a zone elsewhere nothing is learnt.
        assert_eq!(apex(&negative, "a.other.example"), None);
        let own = reply(vec![row("shop.example", DnsValue::Apex)], Vec::new());
        assert_eq!(apex(&own, "shop.example"), Some("shop.example"));
        let alias = reply(
            vec![row("a.shop.example", DnsValue::Alias("b.example".into()))],
            vec![row("example", DnsValue::Apex)],
        );
        assert_eq!(apex(&alias, "a.shop.example"), None);
    }
}
