//! The write side: the next tables from the present ones and what changed.
//!
//! Every step costs what changed. Routes are gathered by host first, so that a host is compiled
//! once per commit, however many of its routes change; and so are the parts of upstreams.

use std::collections::HashMap;
use std::sync::Arc;

use myriad_model::{Endpoints, Host, Name, SealedArc, Value, on_demand_host};

use super::captured::{Aim, CapturedEntry};
use super::certificate::{self, CertificateEntry};
use super::challenge::{self, ChallengeEntry};
use super::entry::{BlockArc, BlockEntry};
use super::handed_on::CountStep;
use super::host::HostEntry;
use super::leaf::Leaf;
use super::on_demand::{self, OnDemandEntry};
use super::stream_route::{
    HostStreamRoutes, ListenerStreamRoutes, StreamRouteEntry, StreamRouteKey, listener_hash,
};
use super::tables::{DomainEntry, Tables};
use super::text::{self, Splitting};
use super::trust::{self, TrustEntry};
use crate::pattern::BadRegex;
use crate::upstream::endpoint::EndpointTable;
use crate::upstream::entry::{self, Parts, UpstreamEntry};

/// Why a resource cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// It was not opened.
    #[error("is in its encoded form")]
    NotOpened,
    /// One of its regexes cannot be compiled.
    #[error(transparent)]
    Regex(#[from] BadRegex),
    /// One of its texts could end the field of a head.
    #[error(transparent)]
    Text(#[from] Splitting),
}

/// One commit being applied.
pub struct Edit<'a> {
    tables: &'a mut Tables,
    targets: &'a mut EndpointTable,
    hosts: HashMap<Host, HostEdit>,
    upstreams: HashMap<Name, Whole>,
    stream_routes: HashMap<StreamRouteKey, StreamRouteEdit>,
}

/// The changes on one host, by the name of what holds its routes.
type HostEdit = HashMap<Name, Option<BlockArc>>;

/// The resources that an upstream is made of: itself, and the parts of its endpoints.
type Whole = (Option<SealedArc>, Parts);

/// The changes under one key, by the name of the stream route.
type StreamRouteEdit = HashMap<Name, Option<Arc<StreamRouteEntry>>>;

impl<'a> Edit<'a> {
    /// Begins a commit.
    pub fn new(tables: &'a mut Tables, targets: &'a mut EndpointTable) -> Self {
        tables.generation += 1;
        Edit {
            tables,
            targets,
            hosts: HashMap::new(),
            upstreams: HashMap::new(),
            stream_routes: HashMap::new(),
        }
    }

    /// Makes one change: `old` is what the tables hold of it, `new` what they shall hold. Both
    /// have the same key.
    ///
    /// # Errors
    /// Why the new one cannot be taken. Nothing has changed then.
    pub fn change(
        &mut self,
        old: Option<&SealedArc>,
        new: Option<&SealedArc>,
    ) -> Result<(), EditError> {
        let Some(some) = new.or(old) else {
            return Ok(());
        };
        let value = &some.resource().ok_or(EditError::NotOpened)?.value;
        if new.is_some() {
            text::check(value)?;
        }
        match value {
            Value::Listener(_) => self.change_listener(old, new),
            Value::Provider(_) => replace(&mut self.tables.providers, some.name(), new),
            Value::Telemetry(_) => self.tables.telemetries.change(some.name(), new)?,
            Value::Domain(_) => self.change_domain(old, new),
            Value::Certificate(_) => self.change_certificate(some.name(), new),
            Value::Route(_) | Value::Routes(_) => return self.change_routes(old, new),
            Value::Trust(_) => self.change_trust(some.name(), new),
            Value::ChallengeAnswer(_) => self.change_challenge(old, new),
            Value::StreamRoute(_) => return self.change_stream_route(old, new),
            Value::Upstream(_) => self.touch_upstream(some.name()).0 = new.cloned(),
            Value::Endpoints(_) => self.change_endpoints(some.name(), new),
            Value::AccessPolicy(_) => {
                self.tables.access_policies = self.tables.access_policies.with(some.name(), new)
            }
        }
        Ok(())
    }

    /// Compiles the hosts whose routes have changed, puts upstreams together, and orders the
    /// stream routes that have changed.
    pub fn finish(mut self) {
        for (name, whole) in std::mem::take(&mut self.upstreams) {
            self.finish_upstream(name, whole);
        }
        for (key, changes) in std::mem::take(&mut self.stream_routes) {
            self.finish_stream_routes(key, changes);
        }
        for (host, changes) in self.hosts {
            let known = self.tables.hosts.get(&host);
            let known = known.into_iter().flat_map(|entry| entry.blocks());
            let kept = known.filter(|block| !changes.contains_key(block.sealed().name()));
            let mut blocks: Vec<BlockArc> = kept.cloned().collect();
            blocks.extend(changes.into_values().flatten());
            if blocks.is_empty() {
                self.tables.hosts.remove(&host);
            } else {
                let entry = HostEntry::new(host, &blocks);
                self.tables.hosts.insert(Arc::new(entry));
            }
        }
    }

    fn change_domain(&mut self, old: Option<&SealedArc>, new: Option<&SealedArc>) {
        let is_of_section = |sealed: Option<&SealedArc>| {
            let domain = sealed.and_then(|sealed| sealed.domain());
            domain.is_some_and(|domain| domain.section.is_some())
        };
        self.tables.sections += usize::from(is_of_section(new));
        self.tables.sections -= usize::from(is_of_section(old)).min(self.tables.sections);
        for (sealed, step) in [(new, CountStep::Up), (old, CountStep::Down)] {
            if let Some(domain) = sealed.and_then(|sealed| sealed.domain()) {
                self.tables.handed_on.count_domain(domain, step);
            }
        }
        let old_host = old.and_then(|sealed| sealed.domain()).map(|old| &old.host);
        let new_host = new.and_then(|sealed| sealed.domain()).map(|new| &new.host);
        if let (Some(host), Some(old)) = (old_host, old)
            && Some(host) != new_host
        {
            self.edit_domains(host, old.name(), None);
        }
        if let (Some(host), Some(new)) = (new_host, new) {
            self.edit_domains(host, new.name(), Some(new));
        }
    }

    fn edit_domains(&mut self, host: &Host, name: &Name, new: Option<&SealedArc>) {
        let known = self.tables.domains.get(host);
        let known = known.map_or(&[][..], |entry| &entry.domains);
        let mut domains: Vec<SealedArc> = known
            .iter()
            .filter(|sealed| sealed.name() != name)
            .cloned()
            .collect();
        domains.extend(new.cloned());
        match DomainEntry::new(domains) {
            Some(entry) => self.tables.domains.insert(Arc::new(entry)),
            None => self.tables.domains.remove(host),
        }
    }

    fn change_listener(&mut self, old: Option<&SealedArc>, new: Option<&SealedArc>) {
        let aim = |sealed: Option<&SealedArc>| sealed?.listener().and_then(Aim::of);
        let tables = &mut *self.tables;
        let has_socket = |sealed: Option<&SealedArc>| sealed.is_some() && aim(sealed).is_none();
        if let Some(some) = new.or(old)
            && (has_socket(old) || has_socket(new))
        {
            let new = new.filter(|_| has_socket(new));
            replace(&mut tables.listeners, some.name(), new);
        }
        let (before, after) = (aim(old), aim(new));
        if let (Some(aim), Some(old)) = (before.filter(|_| before != after), old) {
            // Another listener may have taken the place already.
            let is_it = |leaf: &Leaf<CapturedEntry>| {
                leaf.0.aim() == aim && leaf.0.sealed.name() == old.name()
            };
            if let Some(leaf) = tables.captured.remove(aim.hash(), is_it) {
                leaf.0.close();
            }
        }
        if let (Some(aim), Some(new)) = (after, new) {
            let known = tables.captured_at(aim).cloned();
            if let Some(entry) = CapturedEntry::new(new.clone(), known.as_deref()) {
                tables.captured.insert(Leaf(Arc::new(entry)));
            }
        }
    }

    fn change_certificate(&mut self, name: &Name, new: Option<&SealedArc>) {
        if let Some(host) = on_demand_host(name) {
            return self.change_on_demand(host, new);
        }
        let certificates = &mut self.tables.certificates;
        match new {
            Some(new) => {
                certificates.insert(Leaf(Arc::new(CertificateEntry::new(new.clone()))));
            }
            None => {
                let hash = certificate::hash_of(name);
                certificates.remove(hash, |leaf| leaf.0.sealed.name() == name);
            }
        }
    }

    fn change_on_demand(&mut self, host: &str, new: Option<&SealedArc>) {
        let on_demand = &mut self.tables.on_demand;
        match new.and_then(OnDemandEntry::new) {
            Some(entry) => {
                on_demand.insert(Leaf(Arc::new(entry)));
            }
            None => {
                on_demand.remove(on_demand::hash_of(host), |leaf| *leaf.0.host == *host);
            }
        }
    }

    fn change_challenge(&mut self, old: Option<&SealedArc>, new: Option<&SealedArc>) {
        let challenges = &mut self.tables.challenges;
        if let Some(old) = old
            && let Some(answer) = old.challenge_answer()
        {
            let question = answer.question();
            challenges.remove(challenge::hash_of(&question), |leaf| {
                leaf.0.question == question && leaf.0.sealed.name() == old.name()
            });
        }
        if let Some(entry) = new.cloned().and_then(ChallengeEntry::new) {
            challenges.insert(Leaf(Arc::new(entry)));
        }
    }

    fn change_trust(&mut self, name: &Name, new: Option<&SealedArc>) {
        let trusts = &mut self.tables.trusts;
        match new {
            Some(new) => {
                trusts.insert(Leaf(Arc::new(TrustEntry::new(new.clone()))));
            }
            None => {
                let hash = trust::hash_of(name);
                trusts.remove(hash, |leaf| leaf.0.sealed.name() == name);
            }
        }
    }

    fn change_routes(
        &mut self,
        old: Option<&SealedArc>,
        new: Option<&SealedArc>,
    ) -> Result<(), EditError> {
        let block = match new.cloned().map(BlockEntry::new) {
            None => None,
            Some(None) => return Err(EditError::NotOpened),
            Some(Some(block)) => Some(BlockArc::new(block?)),
        };
        let hosts_of = |sealed: Option<&'_ SealedArc>| -> Vec<Host> {
            let first = sealed.and_then(|sealed| sealed.routes().next());
            first.map_or_else(Vec::new, |route| route.hosts.to_vec())
        };
        if let Some(old) = old {
            for host in hosts_of(Some(old)) {
                self.touch(host, old.name(), None);
            }
        }
        if let Some(new) = new {
            for host in hosts_of(Some(new)) {
                self.touch(host, new.name(), block.clone());
            }
        }
        Ok(())
    }

    fn change_stream_route(
        &mut self,
        old: Option<&SealedArc>,
        new: Option<&SealedArc>,
    ) -> Result<(), EditError> {
        let read = |sealed: Option<&SealedArc>| match sealed.cloned().map(StreamRouteEntry::new) {
            None => Ok(None),
            Some(None) => Err(EditError::NotOpened),
            Some(Some(entry)) => Ok(Some(Arc::new(entry))),
        };
        let (old, new) = (read(old)?, read(new)?);
        for (entry, step) in [(&new, CountStep::Up), (&old, CountStep::Down)] {
            if let Some(entry) = entry {
                self.tables.handed_on.count_stream_route(entry, step);
            }
        }
        for (entry, now) in [(&old, None), (&new, new.as_ref())] {
            let Some(entry) = entry else { continue };
            for key in entry.keys() {
                let edit = self.stream_routes.entry(key).or_default();
                edit.insert(entry.sealed().name().clone(), now.cloned());
            }
        }
        Ok(())
    }

    fn finish_stream_routes(&mut self, key: StreamRouteKey, changes: StreamRouteEdit) {
        let tables = &mut *self.tables;
        let is_it = |leaf: &Leaf<ListenerStreamRoutes>| match &key {
            StreamRouteKey::Listener(listener) => leaf.0.listener() == listener,
            StreamRouteKey::Host(_) => false,
        };
        let known = match &key {
            StreamRouteKey::Host(host) => tables
                .stream_routes
                .get(host)
                .map(|entry| entry.stream_routes()),
            StreamRouteKey::Listener(listener) => {
                let leaf = tables
                    .listener_stream_routes
                    .get(listener_hash(listener), is_it);
                leaf.map(|leaf| leaf.0.stream_routes())
            }
        };
        let known = known.unwrap_or_default().iter();
        let kept = known.filter(|entry| !changes.contains_key(entry.sealed().name()));
        let mut stream_routes: Vec<Arc<StreamRouteEntry>> = kept.cloned().collect();
        stream_routes.extend(changes.into_values().flatten());
        match (&key, stream_routes.is_empty()) {
            (StreamRouteKey::Host(host), true) => tables.stream_routes.remove(host),
            (StreamRouteKey::Host(host), false) => {
                let entry = HostStreamRoutes::new(host.clone(), stream_routes);
                tables.stream_routes.insert(Arc::new(entry));
            }
            (StreamRouteKey::Listener(listener), true) => {
                let table = &mut tables.listener_stream_routes;
                table.remove(listener_hash(listener), is_it);
            }
            (StreamRouteKey::Listener(listener), false) => {
                let entry = ListenerStreamRoutes::new(listener.clone(), stream_routes);
                tables.listener_stream_routes.insert(Leaf(Arc::new(entry)));
            }
        }
    }

    fn touch(&mut self, host: Host, name: &Name, block: Option<BlockArc>) {
        let edit = self.hosts.entry(host).or_default();
        edit.insert(name.clone(), block);
    }

    fn change_endpoints(&mut self, name: &Name, new: Option<&SealedArc>) {
        let (_, parts) = match Endpoints::upstream_of(name) {
            whole if whole == name.as_str() => self.touch_upstream(name),
            upstream => self.touch_upstream(&Name::from(upstream)),
        };
        parts.retain(|part| part.name() != name);
        let key = parts.partition_point(|part| part.name() < name);
        if let Some(new) = new {
            parts.insert(key, new.clone());
        }
    }

    /// The resources of an upstream, which are put together once all of the commit is known.
    fn touch_upstream(&mut self, name: &Name) -> &mut Whole {
        let upstreams = &self.tables.upstreams;
        self.upstreams.entry(name.clone()).or_insert_with(|| {
            let is_it = |leaf: &Leaf<UpstreamEntry>| leaf.0.name == *name;
            match upstreams.get(entry::hash_of(name), is_it) {
                Some(Leaf(known)) => (known.upstream.clone(), known.endpoints.clone()),
                None => (None, Parts::new()),
            }
        })
    }

    fn finish_upstream(&mut self, name: Name, (upstream, endpoints): Whole) {
        let hash = entry::hash_of(&name);
        let is_it = |leaf: &Leaf<UpstreamEntry>| leaf.0.name == name;
        let known = self.tables.upstreams.get(hash, is_it);
        let known = known.map(|leaf| leaf.0.clone());
        if upstream.is_none() && endpoints.is_empty() {
            self.tables.upstreams.remove(hash, is_it);
            if let Some(known) = known {
                known.release(self.targets, None);
            }
            return;
        }
        // The new entry takes its targets before the old one gives them back, so that those in
        // both keep their connections and counts.
        let shared = match (&known, &upstream) {
            (Some(entry), _) => &entry.name,
            (None, Some(sealed)) => sealed.name(),
            (None, None) => &name,
        };
        let shared = shared.clone();
        let entry = Arc::new(UpstreamEntry::new(
            shared,
            upstream,
            endpoints,
            self.targets,
            known.as_deref(),
        ));
        self.tables.upstreams.insert(Leaf(entry.clone()));
        if let Some(known) = known {
            known.release(self.targets, Some(&entry));
        }
    }
}

/// Puts a resource in the place of that of the same name, among those of a kind of which there
/// are few, and which change with settings only.
fn replace(known: &mut Arc<[SealedArc]>, name: &Name, new: Option<&SealedArc>) {
    let others = known.iter().filter(|sealed| sealed.name() != name);
    let mut all: Vec<SealedArc> = others.cloned().collect();
    all.extend(new.cloned());
    all.sort_by(|a, b| a.name().cmp(b.name()));
    *known = all.into();
}

#[cfg(test)]
mod tests;
