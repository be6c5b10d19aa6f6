//! A graph of services in the YAML of Istio's isotope, with databases beside them.
//!
//! Everything is checked before anything is started; each problem names service, field and remedy.

mod database;
mod field;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(super) use database::{Database, Query};
use field::{bytes, duration, share};

/// Replicas of all services together: each has a network, a process and a sidecar.
const REPLICAS_MAX: usize = 200;

/// Commands of one script, those of concurrent lists included.
const COMMANDS_MAX: usize = 256;

/// The longest file.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// A graph without cycles, with one entrypoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Topology {
    /// The services, in the order of the file.
    pub services: Vec<Service>,
    /// The place of the entrypoint.
    pub entrypoint: usize,
    /// The databases, in the order of the file.
    pub databases: Vec<Database>,
}

/// One service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Service {
    /// Its name, which is that of its Service too.
    pub name: String,
    /// Processes, each with a sidecar.
    pub replicas: usize,
    /// The work that it does for each request.
    pub work: Work,
}

/// The work of a service for each request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The share of requests that are answered with 500, after the script.
    pub error_share: f64,
    /// The length of the answer's body.
    pub response_bytes: usize,
    /// One after the other.
    pub script: Vec<Command>,
}

/// A part of a script.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Waits.
    Sleep(Duration),
    /// Asks another service.
    Call(Call),
    /// Asks a database.
    Query(Query),
    /// All at once; the slowest says when it is done.
    Concurrent(Vec<Command>),
}

/// A request to another service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The service that is called.
    pub service: String,
    /// The length of the request's body.
    pub request_bytes: usize,
    /// How often it is made at all.
    pub probability: f64,
}

/// The values that hold where a service says nothing.
struct Defaults {
    request_bytes: usize,
    response_bytes: usize,
    error_share: f64,
    replicas: usize,
    script: Option<Value>,
}

impl Topology {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The problem: the service, the field and the remedy.
    pub(super) fn parse(text: &str) -> anyhow::Result<Topology> {
        let value: Value = serde_saphyr::from_str(text).context("it is no YAML")?;
        let Value::Object(mut file) = value else {
            bail!("it is no mapping: write `services` with a list");
        };
        let defaults = Defaults::read(file.remove("defaults"))?;
        let services = match file.remove("services") {
            Some(Value::Array(services)) if !services.is_empty() => services,
            _ => bail!("services: there is none; list at least the entrypoint"),
        };
        let databases = Database::read_all(file.remove("databases"))?;
        refuse_rest("the file", "", &file)?;
        let mut entrypoints = Vec::new();
        let mut read = Vec::with_capacity(services.len());
        for (at, service) in services.into_iter().enumerate() {
            let (service, is_entrypoint) = Service::read(at, service, &defaults)?;
            if is_entrypoint {
                entrypoints.push(at);
            }
            read.push(service);
        }
        let entrypoint = match entrypoints[..] {
            [one] => one,
            [] => bail!("no service has isEntrypoint: true; mark the one that is asked"),
            [first, second, ..] => bail!(
                "service {}: isEntrypoint is true, and so it is of {}; mark one alone",
                read[second].name,
                read[first].name
            ),
        };
        let topology = Topology {
            services: read,
            entrypoint,
            databases,
        };
        topology.check()?;
        Ok(topology)
    }

    /// How often each service is asked for one request to the entrypoint, in the order of the file;
    /// `None` where chance has a say.
    pub(super) fn demand(&self) -> Option<Vec<u64>> {
        if !self.services.iter().all(|it| it.work.is_certain()) {
            return None;
        }
        let places = self.places();
        let mut demand = vec![0; self.services.len()];
        // No way is longer than there are services, since none leads back.
        for _ in 0..self.services.len() {
            let mut next = vec![0_u64; self.services.len()];
            next[self.entrypoint] = 1;
            for (service, &times) in self.services.iter().zip(&demand) {
                for call in service.work.calls() {
                    if let Some(&at) = places.get(call.service.as_str()) {
                        next[at] = next[at].saturating_add(times);
                    }
                }
            }
            demand = next;
        }
        Some(demand)
    }

    /// How many processes ask a database.
    pub(super) fn asking(&self, database: &str) -> usize {
        let is_asking = |it: &&Service| it.work.queries().iter().any(|it| it.database == database);
        let services = self.services.iter().filter(is_asking);
        services.map(|it| it.replicas).sum()
    }

    fn places(&self) -> BTreeMap<&str, usize> {
        let services = self.services.iter().enumerate();
        services.map(|(at, it)| (it.name.as_str(), at)).collect()
    }

    fn check(&self) -> anyhow::Result<()> {
        self.check_names()?;
        let places = self.places();
        let replicas: usize = self.services.iter().map(|it| it.replicas).sum();
        ensure!(
            replicas <= REPLICAS_MAX,
            "numReplicas: {replicas} of all services together, over {REPLICAS_MAX}; take fewer"
        );
        for service in &self.services {
            for call in service.work.calls() {
                ensure!(
                    places.contains_key(call.service.as_str()),
                    "service {}: script calls {}, which is no service; add it, or correct the name",
                    service.name,
                    call.service
                );
            }
        }
        for service in &self.services {
            for query in service.work.queries() {
                ensure!(
                    self.databases.iter().any(|it| it.name == query.database),
                    "service {}: script asks {}, which is no database; add it, or correct the name",
                    service.name,
                    query.database
                );
            }
        }
        let mut done = vec![false; self.services.len()];
        for at in 0..self.services.len() {
            self.visit(at, &places, &mut Vec::new(), &mut done)?;
        }
        Ok(())
    }

    fn check_names(&self) -> anyhow::Result<()> {
        let services = self.services.iter().map(|it| ("service", &it.name));
        let databases = self.databases.iter().map(|it| ("database", &it.name));
        let mut names = BTreeSet::new();
        for (kind, name) in services.chain(databases) {
            ensure!(
                names.insert(name),
                "{kind} {name}: name is another's too; give each its own"
            );
        }
        Ok(())
    }

    /// Walks along calls. Whoever is met again on the way is in a cycle.
    fn visit(
        &self,
        at: usize,
        places: &BTreeMap<&str, usize>,
        path: &mut Vec<usize>,
        done: &mut [bool],
    ) -> anyhow::Result<()> {
        if let Some(begin) = path.iter().position(|&it| it == at) {
            let names = path[begin..].iter().chain([&at]);
            let names: Vec<_> = names.map(|&it| self.services[it].name.as_str()).collect();
            bail!(
                "service {}: script leads back to it: {}; take one of these calls out",
                self.services[at].name,
                names.join(" -> ")
            );
        }
        if done[at] {
            return Ok(());
        }
        path.push(at);
        for call in self.services[at].work.calls() {
            if let Some(&next) = places.get(call.service.as_str()) {
                self.visit(next, places, path, done)?;
            }
        }
        path.pop();
        done[at] = true;
        Ok(())
    }
}

impl Work {
    /// All calls, those of concurrent lists included.
    pub fn calls(&self) -> Vec<&Call> {
        let calls = self.commands().filter_map(|command| match command {
            Command::Call(call) => Some(call),
            _ => None,
        });
        calls.collect()
    }

    /// All queries, in the same way.
    pub fn queries(&self) -> Vec<&Query> {
        let queries = self.commands().filter_map(|command| match command {
            Command::Query(query) => Some(query),
            _ => None,
        });
        queries.collect()
    }

    /// The rows that one request reads of databases.
    pub fn rows(&self) -> u64 {
        self.queries().iter().map(|query| query.rows).sum()
    }

    fn commands(&self) -> impl Iterator<Item = &Command> {
        self.script.iter().flat_map(|command| match command {
            Command::Concurrent(inner) => inner.as_slice(),
            single => std::slice::from_ref(single),
        })
    }

    /// Whether each request is answered with success after the whole script.
    fn is_certain(&self) -> bool {
        self.error_share <= 0.0 && self.calls().iter().all(|call| call.probability >= 1.0)
    }
}

impl Defaults {
    fn read(value: Option<Value>) -> anyhow::Result<Defaults> {
        let mut fields = mapping("defaults", "", value.unwrap_or(Value::Object(Map::new())))?;
        let who = "defaults";
        let defaults = Defaults {
            request_bytes: bytes(who, "requestSize", fields.remove("requestSize"), 0)?,
            response_bytes: bytes(who, "responseSize", fields.remove("responseSize"), 0)?,
            error_share: share(who, "errorRate", fields.remove("errorRate"), 0.0)?,
            replicas: replicas(who, fields.remove("numReplicas"), 1)?,
            script: fields.remove("script"),
        };
        check_type(who, fields.remove("type"))?;
        check_policies(who, fields.remove("numRbacPolicies"))?;
        refuse_rest(who, "", &fields)?;
        Ok(defaults)
    }
}

impl Service {
    fn read(at: usize, value: Value, defaults: &Defaults) -> anyhow::Result<(Service, bool)> {
        let mut fields = mapping(&format!("services[{at}]"), "", value)?;
        let Some(Value::String(name)) = fields.remove("name") else {
            bail!("services[{at}]: name is missing; write one");
        };
        let who = format!("service {name}");
        check_name(&who, &name)?;
        let is_entrypoint = match fields.remove("isEntrypoint") {
            None => false,
            Some(Value::Bool(is_it)) => is_it,
            Some(other) => bail!("{who}: isEntrypoint is {other}; write true or false"),
        };
        check_type(&who, fields.remove("type"))?;
        check_policies(&who, fields.remove("numRbacPolicies"))?;
        let count = replicas(&who, fields.remove("numReplicas"), defaults.replicas)?;
        let error_share = share(
            &who,
            "errorRate",
            fields.remove("errorRate"),
            defaults.error_share,
        )?;
        let response_bytes = bytes(
            &who,
            "responseSize",
            fields.remove("responseSize"),
            defaults.response_bytes,
        )?;
        let script = fields.remove("script").or_else(|| defaults.script.clone());
        refuse_rest(&who, "", &fields)?;
        let script = read_script(&who, script, defaults)?;
        let work = Work {
            error_share,
            response_bytes,
            script,
        };
        let service = Service {
            name,
            replicas: count,
            work,
        };
        Ok((service, is_entrypoint))
    }
}

impl Command {
    fn read(who: &str, place: &str, value: Value, defaults: &Defaults) -> anyhow::Result<Command> {
        let mut fields = match value {
            Value::Array(inner) => {
                let inner = inner.into_iter().enumerate().map(|(at, command)| {
                    let place = format!("{place}[{at}]");
                    ensure!(
                        !command.is_array(),
                        "{who}: {place} is a list in a concurrent list; give a service of its own \
                         what comes one after the other"
                    );
                    Command::read(who, &place, command, defaults)
                });
                return Ok(Command::Concurrent(inner.collect::<anyhow::Result<_>>()?));
            }
            value => mapping(who, place, value)?,
        };
        let [sleep, call, query] = ["sleep", "call", "query"].map(|it| fields.remove(it));
        let command = match (sleep, call, query) {
            (Some(sleep), None, None) => {
                Command::Sleep(duration(who, &format!("{place}.sleep"), &sleep)?)
            }
            (None, Some(call), None) => Command::Call(Call::read(who, place, call, defaults)?),
            (None, None, Some(query)) => Command::Query(Query::read(who, place, query)?),
            _ => bail!("{who}: {place} is neither sleep, call nor query; write one of them"),
        };
        refuse_rest(who, place, &fields)?;
        Ok(command)
    }
}

impl Call {
    fn read(who: &str, place: &str, value: Value, defaults: &Defaults) -> anyhow::Result<Call> {
        let place = format!("{place}.call");
        let mut fields = match value {
            Value::String(service) => {
                return Ok(Call {
                    service,
                    request_bytes: defaults.request_bytes,
                    probability: 1.0,
                });
            }
            value => mapping(who, &place, value)?,
        };
        let Some(Value::String(service)) = fields.remove("service") else {
            bail!("{who}: {place}.service is missing; name the service that is called");
        };
        let size = format!("{place}.size");
        let request_bytes = bytes(who, &size, fields.remove("size"), defaults.request_bytes)?;
        let probability = match fields.remove("probability") {
            None => 1.0,
            Some(value) => match value.as_f64() {
                Some(percent) if percent > 0.0 && percent <= 100.0 => percent / 100.0,
                _ => bail!(
                    "{who}: {place}.probability is {value}; write percent above 0 and up to 100, \
                     or take the call out"
                ),
            },
        };
        refuse_rest(who, &place, &fields)?;
        Ok(Call {
            service,
            request_bytes,
            probability,
        })
    }
}

fn read_script(
    who: &str,
    script: Option<Value>,
    defaults: &Defaults,
) -> anyhow::Result<Vec<Command>> {
    let script: Vec<Command> = match script {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(commands)) => commands
            .into_iter()
            .enumerate()
            .map(|(at, command)| Command::read(who, &format!("script[{at}]"), command, defaults))
            .collect::<anyhow::Result<_>>()?,
        Some(other) => bail!("{who}: script is {other}; write a list of commands"),
    };
    let count_of = |command: &Command| match command {
        Command::Concurrent(inner) => inner.len(),
        _ => 1,
    };
    let commands: usize = script.iter().map(count_of).sum();
    ensure!(
        commands <= COMMANDS_MAX,
        "{who}: script has {commands} commands, over {COMMANDS_MAX}; shorten it"
    );
    Ok(script)
}

fn mapping(who: &str, place: &str, value: Value) -> anyhow::Result<Map<String, Value>> {
    match value {
        Value::Object(fields) => Ok(fields),
        other if place.is_empty() => bail!("{who} is {other}; write a mapping"),
        other => bail!("{who}: {place} is {other}; write a mapping"),
    }
}

/// Refuses fields that are not known here, so that nobody measures what he did not write.
fn refuse_rest(who: &str, place: &str, fields: &Map<String, Value>) -> anyhow::Result<()> {
    match fields.keys().next() {
        None => Ok(()),
        Some(field) if place.is_empty() => bail!("{who}: {field} is not honoured; take it out"),
        Some(field) => bail!("{who}: {place}.{field} is not honoured; take it out"),
    }
}

fn replicas(who: &str, value: Option<Value>, default: usize) -> anyhow::Result<usize> {
    let Some(value) = value else {
        return Ok(default);
    };
    let count = value.as_u64().and_then(|it| usize::try_from(it).ok());
    match count {
        Some(count) if (1..=REPLICAS_MAX).contains(&count) => Ok(count),
        _ => bail!("{who}: numReplicas is {value}; write 1 to {REPLICAS_MAX}"),
    }
}

fn check_name(who: &str, name: &str) -> anyhow::Result<()> {
    let is_label = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    ensure!(
        (1..=50).contains(&name.len())
            && name.bytes().all(is_label)
            && name.starts_with(|it: char| it.is_ascii_lowercase())
            && !name.ends_with('-'),
        "{who}: name is no name of a Service; take 1 to 50 of a-z, 0-9 and -, a letter first"
    );
    ensure!(
        name != super::LOAD,
        "{who}: name is that of whoever asks here; take another"
    );
    Ok(())
}

fn check_type(who: &str, value: Option<Value>) -> anyhow::Result<()> {
    match value.as_ref().map(|it| it.as_str().unwrap_or_default()) {
        None | Some("http" | "HTTP") => Ok(()),
        Some(_) => bail!("{who}: type is not http, which is all that services speak; take it out"),
    }
}

fn check_policies(who: &str, value: Option<Value>) -> anyhow::Result<()> {
    match value.is_none_or(|it| it == 0) {
        true => Ok(()),
        false => bail!("{who}: numRbacPolicies is not honoured; take it out, or write 0"),
    }
}

#[cfg(test)]
mod tests;
