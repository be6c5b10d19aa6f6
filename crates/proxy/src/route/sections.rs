//! Sections: the parts of a listener that have routes of their own. The host of a request tells
//! which it is of.

use std::sync::Arc;

use myriad_model::Name;

use super::host::HostEntry;
use super::leaf::{Hosted as _, has_listener};
use super::stream_route::{Arrival, Specificity, StreamRouteEntry, specificity};
use super::tables::Tables;

impl Tables {
    /// Whether any domain is of a section of its listeners.
    pub fn has_sections(&self) -> bool {
        self.sections > 0
    }

    /// Whether any stream route at a listener, or at a section of it, hands handshakes on by the
    /// name in them. A client that asks there for a name which nobody has may have meant such a
    /// one, and is told nothing by TLS then: its connection is closed.
    pub fn hands_handshakes_on(&self, listener: &Name) -> bool {
        self.handed_on.is_at(listener)
    }

    /// The name among the listeners of routes for a lower-case host, and those routes: the most
    /// specific pattern that has any there.
    ///
    /// A section has the hosts of its domain, whether it has routes for them or not. So a pattern
    /// of the listener's own is asked before it only where it is as specific.
    pub(super) fn served<'t: 'n, 'n>(
        &'t self,
        listener: &'n Name,
        host: &str,
    ) -> Option<(&'n Name, &'t HostEntry)> {
        let own = self.host_on(listener, host);
        let Some((section, least)) = self.section(listener, host) else {
            return Some((listener, own?));
        };
        let of_section = self.host_on(section, host);
        let rank = |entry: &HostEntry| specificity(entry.host().pattern());
        let theirs = of_section.map_or(least, |entry| least.max(rank(entry)));
        match own.filter(|own| rank(own) >= theirs) {
            Some(own) => Some((listener, own)),
            None => Some((section, of_section?)),
        }
    }

    /// The first stream route that takes a connection by its name, with how specific the host
    /// pattern is that it was found under. Sections go before it as in [`Tables::served`].
    pub(super) fn named_stream_route(
        &self,
        arrival: Arrival<'_>,
        name: &str,
    ) -> Option<(Specificity, &Arc<StreamRouteEntry>)> {
        let find = |arrival: Arrival<'_>| {
            self.stream_routes.most_specific(name, |entry| {
                let found = entry.find(arrival)?;
                Some((specificity(entry.host().pattern()), found))
            })
        };
        let own = find(arrival);
        let Some((section, least)) = self.section(arrival.listener, name) else {
            return own;
        };
        let of_section = find(Arrival {
            listener: section,
            ..arrival
        });
        let theirs = of_section.map_or(least, |(rank, _)| least.max(rank));
        own.filter(|(rank, _)| *rank >= theirs).or(of_section)
    }

    /// The section that a lower-case host is of on a listener, with how specific the pattern of its
    /// domain is.
    fn section(&self, listener: &Name, host: &str) -> Option<(&Name, Specificity)> {
        if !self.has_sections() {
            return None;
        }
        self.domains.most_specific(host, |entry| {
            let domains = entry.domains.iter().filter_map(|sealed| sealed.domain());
            let mut domains = domains.filter(|it| has_listener(&it.listeners, listener));
            let section = domains.find_map(|domain| domain.section.as_ref())?;
            Some((section, specificity(entry.host().pattern())))
        })
    }

    fn host_on(&self, listener: &Name, host: &str) -> Option<&HostEntry> {
        let entry = self
            .hosts
            .most_specific(host, |entry| entry.is_on(listener).then_some(entry))?;
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
