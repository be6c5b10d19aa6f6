//! Records of DNS that answer challenges: where they belong, setting them, seeing that they are
//! there, and removing them.

mod ask;
mod persist;
mod places;
#[cfg(test)]
mod tests;
mod texts;
mod tsig;
mod update;
mod webhook;
mod zone;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use myriad_base::clock;
use myriad_pki::acme::{
    AcmeIssuer, ChallengeKind, DnsRecord, DnsSolver, Millis, Order, StepOutcome, StepTrouble,
};
use myriad_proxy::Names;

pub use self::texts::TextFinder;

use self::places::Places;
use self::update::{TextChange, update};
use self::webhook::{RecordAction, Webhooks};
use self::zone::{Finder, Spot, is_below};
use super::http::Client;
use super::proof::owner;

/// The label in front of a name that has the records of its challenges.
const LABEL: &str = "_acme-challenge";

/// The text of a record that is added and removed at once, to see whether it could be added.
const TRIAL: &str = "myriad";

/// How long records may take to be seen at all servers, in milliseconds, and the shortest and
/// longest pause between two looks.
const SEEN_AFTER_MAX: Millis = 600_000;
const SEEN_PAUSE_MIN: Millis = 200;
const SEEN_PAUSE_MAX: Millis = 15_000;

/// How long a step may take in all.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// An issuer, and the namespace for whose certificate something is asked.
type Asker<'a> = (&'a AcmeIssuer, &'a str);

/// Sets records.
pub(super) struct Records {
    names: Names,
    finder: Finder,
    webhooks: Webhooks,
    places: Places,
}

impl Records {
    /// Asks the servers of zones at a port whether records are there, or nobody where there is
    /// none. The recursors are those of the settings; the system's where there are none.
    pub(super) fn new(
        names: Names,
        recursors: Vec<SocketAddr>,
        port: Option<u16>,
        client: Client,
    ) -> Records {
        Records {
            finder: Finder::new(names.clone(), recursors, port),
            webhooks: Webhooks::new(client, names.clone()),
            places: Places::default(),
            names,
        }
    }

    /// Whether the names of an order that are proven by records of its own can have those, and
    /// where they go.
    ///
    /// # Errors
    /// They cannot, and why.
    pub(super) async fn prove_order(
        &self,
        issuer: &AcmeIssuer,
        order: &Order,
    ) -> Result<Vec<DnsRecord>, StepTrouble> {
        match &*names_by(issuer, order, ChallengeKind::Dns) {
            [] => Ok(Vec::new()),
            names => in_time(self.prove(asker(issuer, order), names)).await,
        }
    }

    /// Sets the records of an order that is so old, and sees that they are there.
    ///
    /// # Errors
    /// They cannot be set, or are not seen for long.
    pub(super) async fn answer_order(
        &self,
        issuer: &AcmeIssuer,
        order: &Order,
        age: Millis,
    ) -> Result<StepOutcome, StepTrouble> {
        if !order.is_set() {
            return Ok(StepOutcome::Answered);
        }
        match in_time(self.set(asker(issuer, order), &order.records)).await? {
            None => Ok(StepOutcome::Answered),
            Some(_) if age < SEEN_AFTER_MAX => {
                let pause = (age / 8).clamp(SEEN_PAUSE_MIN, SEEN_PAUSE_MAX);
                Ok(StepOutcome::Pending(pause))
            }
            Some(words) => Err(StepTrouble::Unproven(
                format!("is ordered anew, since records of DNS are not seen: {words}"),
                "see that all servers of the zone follow the one that is changed".to_owned(),
            )),
        }
    }

    /// Whether records of names can be set, and where they go. A server that takes updates is asked
    /// to add and remove one at once, which changes nothing.
    ///
    /// # Errors
    /// They cannot, and why.
    async fn prove(&self, asker: Asker<'_>, names: &[&str]) -> Result<Vec<DnsRecord>, StepTrouble> {
        let (issuer, _) = asker;
        let found = self.locate(issuer, names).await?;
        let records: Vec<DnsRecord> = found.into_iter().map(|(record, _)| record).collect();
        if let Some(DnsSolver::Update { .. }) = issuer.dns {
            let trials = records.iter().map(|record| DnsRecord {
                value: Some(TRIAL.into()),
                ..record.clone()
            });
            let trials: Vec<DnsRecord> = trials.collect();
            self.change(asker, &trials, &[true, false]).await?;
        }
        Ok(records)
    }

    /// Sets records, and sees whether they are there; otherwise words about what is not.
    ///
    /// # Errors
    /// They cannot be set, or belong elsewhere by now.
    async fn set(
        &self,
        asker: Asker<'_>,
        records: &[DnsRecord],
    ) -> Result<Option<String>, StepTrouble> {
        let (issuer, _) = asker;
        let names: Vec<&str> = records.iter().map(|record| &*record.name).collect();
        let found = self.locate(issuer, &names).await?;
        let mut wanted: Vec<(Spot, Box<str>)> = Vec::new();
        for record in records {
            let Some(value) = &record.value else { continue };
            let of_name = |(now, _): &&(DnsRecord, Spot)| now.name == record.name;
            match found.iter().find(of_name) {
                Some((now, spot)) if now.fqdn == record.fqdn && now.zone == record.zone => {
                    wanted.push((spot.clone(), value.clone()));
                }
                _ => return Err(moved(record)),
            }
        }
        // A look that was too early is not made again by setting all once more.
        if self.finder.asks_zones() && self.finder.show(&wanted).await.is_ok() {
            return Ok(None);
        }
        self.change(asker, records, &[true]).await?;
        Ok(self.finder.show(&wanted).await.err())
    }

    /// Removes the records that were set. They stay where the issuer is gone, or sets none any
    /// more.
    ///
    /// # Errors
    /// They cannot be removed now.
    pub(super) async fn remove_order(
        &self,
        issuer: Option<&AcmeIssuer>,
        order: &Order,
    ) -> Result<(), StepTrouble> {
        let asker = issuer.map(|issuer| asker(issuer, order));
        self.remove(asker, &order.records).await
    }

    async fn remove(
        &self,
        asker: Option<Asker<'_>>,
        records: &[DnsRecord],
    ) -> Result<(), StepTrouble> {
        let set: Vec<DnsRecord> = records
            .iter()
            .filter(|record| record.value.is_some())
            .cloned()
            .collect();
        let asker = asker.filter(|(issuer, _)| issuer.dns.is_some() && !set.is_empty());
        let Some(asker) = asker else {
            return Ok(());
        };
        let removed = in_time(self.change(asker, &set, &[false])).await;
        removed.inspect_err(|trouble| {
            let names: BTreeSet<&str> = set.iter().map(|record| &*record.fqdn).collect();
            tracing::warn!(?names, ?trouble, "records of DNS are not removed");
        })
    }

    /// Whether names have records for good that let an account have their certificates.
    ///
    /// # Errors
    /// One has none, and what to set.
    pub(super) async fn admit(&self, account: &str, names: &[&str]) -> Result<(), StepTrouble> {
        in_time(self.admit_all(account, names)).await
    }

    async fn admit_all(&self, account: &str, names: &[&str]) -> Result<(), StepTrouble> {
        for name in names {
            let base = base(name)?;
            let is_wildcard = base != *name;
            let name = format!("{}.{base}", persist::LABEL);
            let spot = self.finder.find(&name).await?;
            let texts = self.finder.texts(&spot).await?;
            let now = clock::unix_seconds();
            let mut texts = texts.iter();
            if !texts.any(|text| persist::admits(text, account, is_wildcard, now)) {
                let (fqdn, wanted) = (&spot.fqdn, persist::wanted(account, is_wildcard));
                return Err(StepTrouble::Unproven(
                    format!("waits, since {fqdn} has no TXT record for account {account}"),
                    format!(
                        "set the TXT record {fqdn} to \"{wanted}\", where AUTHORITY is what the \
                         authority calls itself in CAA records, such as letsencrypt.org"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The places of the records of names, each once.
    async fn locate(
        &self,
        issuer: &AcmeIssuer,
        names: &[&str],
    ) -> Result<Vec<(DnsRecord, Spot)>, StepTrouble> {
        let solver = issuer.dns.as_ref().ok_or_else(no_solver)?;
        let bases: Result<BTreeSet<&str>, StepTrouble> =
            names.iter().map(|name| base(name)).collect();
        let mut found = Vec::new();
        for name in bases? {
            let spot = self.finder.find(&format!("{LABEL}.{name}")).await?;
            let mut zone = spot.zone.clone();
            if let DnsSolver::Update {
                zone: Some(own), ..
            } = solver
            {
                zone = own.trim_end_matches('.').to_ascii_lowercase().into();
                if !is_below(&spot.fqdn, &zone) {
                    return Err(outside(name, &spot.fqdn, &zone));
                }
            }
            let record = DnsRecord {
                name: name.into(),
                fqdn: spot.fqdn.clone(),
                zone,
                value: None,
            };
            found.push((record, spot));
        }
        Ok(found)
    }

    /// Adds and removes records, in this order, with a place for each zone or record.
    async fn change(
        &self,
        asker: Asker<'_>,
        records: &[DnsRecord],
        order: &[bool],
    ) -> Result<(), StepTrouble> {
        let (issuer, namespace) = asker;
        let solver = issuer.dns.as_ref().ok_or_else(no_solver)?;
        let at = place_of(asker, solver);
        match solver {
            DnsSolver::Update { server, key, .. } => {
                let servers = self.servers(server, issuer.is_tenants).await?;
                for (zone, records) in by_zone(records) {
                    let changes = records.iter().flat_map(|record| {
                        let value = record.value.as_deref().unwrap_or_default();
                        order.iter().map(move |is_added| TextChange {
                            fqdn: &record.fqdn,
                            value,
                            is_added: *is_added,
                        })
                    });
                    let changes: Vec<TextChange<'_>> = changes.collect();
                    let _place = self.places.come(&at, namespace).await;
                    let updated = update(&servers, key, zone, &changes).await;
                    updated.map_err(|error| unchanged(server, zone, &error.to_string()))?;
                }
            }
            DnsSolver::Webhook(webhook) => {
                for record in records {
                    let _place = self.places.come(&at, namespace).await;
                    for is_added in order {
                        let action = match is_added {
                            true => RecordAction::Present,
                            false => RecordAction::CleanUp,
                        };
                        let asked = (action, record);
                        let asked = self.webhooks.ask(webhook, issuer.is_tenants, asked).await;
                        asked.map_err(|error| unsolved(record, &format!("{error:#}")))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The addresses of a server that takes updates.
    async fn servers(
        &self,
        server: &str,
        is_tenants: bool,
    ) -> Result<Vec<SocketAddr>, StepTrouble> {
        let (host, port) = host_and_port(server);
        let found = self.names.look_up(owner(host), None, host).await;
        let found = found.map_err(|error| unchanged(server, "", &error.to_string()))?;
        let found = found.addresses.into_iter();
        let found = found.map(|ip| SocketAddr::new(ip, port));
        // Whoever writes an issuer chooses them.
        let border = self.names.border();
        let admitted = |address: &SocketAddr| match is_tenants {
            true => border.admits_resolved(host, address.ip(), true),
            false => border.admits(*address),
        };
        Ok(found.filter(admitted).collect())
    }
}

/// The issuer of an order, and the namespace of its certificate. Those on demand have one together.
fn asker<'a>(issuer: &'a AcmeIssuer, order: &'a Order) -> Asker<'a> {
    let namespace = order.id.split_once('/');
    (issuer, namespace.map_or("", |(namespace, _)| namespace))
}

/// The name of the places at a server or a webhook: a tenant's issuer has places of its own, though
/// it names those of others.
fn place_of((issuer, namespace): Asker<'_>, solver: &DnsSolver) -> String {
    let server = match solver {
        DnsSolver::Update { server, .. } => String::from(&**server),
        DnsSolver::Webhook(webhook) => match &webhook.url {
            Some(url) => String::from(&**url),
            None => format!("{} {}", webhook.group, webhook.solver),
        },
    };
    match issuer.is_tenants {
        true => format!("{namespace} {server}"),
        false => server,
    }
}

/// Carries a step out, unless that takes too long.
async fn in_time<T>(step: impl Future<Output = Result<T, StepTrouble>>) -> Result<T, StepTrouble> {
    let ended = tokio::time::timeout(STEP_TIMEOUT, step).await;
    ended.unwrap_or_else(|_| {
        Err(StepTrouble::Unproven(
            "waits, since DNS, or what sets its records, did not answer in 60 s".to_owned(),
            "see that the server or the webhook answers, and use fewer names".to_owned(),
        ))
    })
}

/// The names of an order that are proven in a way.
pub(super) fn names_by<'a>(
    issuer: &AcmeIssuer,
    order: &'a Order,
    kind: ChallengeKind,
) -> Vec<&'a str> {
    let names = order.names.iter().map(|name| &**name);
    names
        .filter(|name| issuer.challenge_of(name) == kind)
        .collect()
}

/// The names of an order that are proven at a gateway.
pub(super) fn names_at_gateway(issuer: &AcmeIssuer, order: &Order) -> Vec<Box<str>> {
    let names = order.names.iter();
    names
        .filter(|name| !issuer.challenge_of(name).is_in_dns())
        .cloned()
        .collect()
}

/// The name that the records of a name are for.
fn base(name: &str) -> Result<&str, StepTrouble> {
    let base = DnsRecord::base(name);
    match base.parse::<IpAddr>() {
        Err(_) => Ok(base),
        Ok(_) => Err(StepTrouble::Unproven(
            format!("is not ordered: {name} is an address, of which DNS proves nothing"),
            "prove it by http-01 or tls-alpn-01".to_owned(),
        )),
    }
}

/// The host and the port of an address or a name, with a port or without one.
fn host_and_port(server: &str) -> (&str, u16) {
    let whole = server.trim_matches(['[', ']']);
    if whole.parse::<IpAddr>().is_ok() {
        return (whole, ask::PORT);
    }
    let parts = server.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.unwrap_or((server, ask::PORT));
    (host.trim_matches(['[', ']']), port)
}

/// Records by their zones, each of which is changed at once.
fn by_zone(records: &[DnsRecord]) -> BTreeMap<&str, Vec<&DnsRecord>> {
    let mut zones: BTreeMap<&str, Vec<&DnsRecord>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.value.is_some()) {
        zones.entry(&*record.zone).or_default().push(record);
    }
    zones
}

fn no_solver() -> StepTrouble {
    StepTrouble::Unproven(
        "is not ordered: its issuer cannot set records of DNS (dns-01)".to_owned(),
        "name a server that takes updates, or a webhook".to_owned(),
    )
}

fn moved(record: &DnsRecord) -> StepTrouble {
    let (name, fqdn) = (&record.name, &record.fqdn);
    StepTrouble::Unproven(
        format!("is ordered anew, since {LABEL}.{name} does not lead to {fqdn} any more"),
        "nothing is to be done, unless it happens again".to_owned(),
    )
}

fn outside(name: &str, fqdn: &str, zone: &str) -> StepTrouble {
    StepTrouble::Unproven(
        format!("waits, since {LABEL}.{name} leads to {fqdn}, which is not in the zone {zone}"),
        format!("let {LABEL}.{name} lead to a name in {zone} by CNAME"),
    )
}

fn unchanged(server: &str, zone: &str, words: &str) -> StepTrouble {
    let zone = match zone {
        "" => "its zone".to_owned(),
        zone => format!("the zone {zone}"),
    };
    StepTrouble::Unproven(
        format!("waits, since {server} does not change {zone}: {words}"),
        format!("see that {server} has {zone} and lets the key change TXT records there"),
    )
}

fn unsolved(record: &DnsRecord, words: &str) -> StepTrouble {
    let fqdn = &record.fqdn;
    StepTrouble::Unproven(
        format!("waits, since the webhook does not set {fqdn}: {words}"),
        "see what the webhook says in its log, and that its config is right".to_owned(),
    )
}
