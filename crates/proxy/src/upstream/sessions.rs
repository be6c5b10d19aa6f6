//! The sessions with endpoints that one worker may resume, bounded over all ways to do TLS.
//!
//! A session holds what its endpoint has sent: a ticket and a chain, of at most 64 KiB each. The
//! library shows the size of neither, so sessions are counted: 256 with one ticket each are 32 MiB
//! at most, and some 1 MiB with endpoints as they are.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// The most endpoints, by way and name, that a worker remembers a session with.
pub(super) const SESSIONS_MAX: usize = 256;

/// A way to do TLS, and the namespace whose it is; 0 for one that all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Way {
    /// The namespace.
    pub namespace: u64,
    /// The number of the way in its worker.
    pub number: u64,
}

/// The sessions of one worker. Beyond their bound the oldest of the namespace goes that has most.
#[derive(Default)]
pub(super) struct Sessions(Mutex<Kept>);

/// The sessions of one way.
pub(super) struct WaySessions {
    /// The sessions of the worker.
    pub all: Arc<Sessions>,
    /// The way.
    pub way: Way,
}

type Key = (Way, ServerName<'static>);

#[derive(Default)]
struct Kept {
    entries: HashMap<Key, Entry, RandomState>,
    /// The keys of each namespace, oldest first.
    lines: HashMap<u64, VecDeque<Key>, RandomState>,
}

#[derive(Default)]
struct Entry {
    hint: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    /// The newest ticket, which is used once.
    tls13: Option<Tls13ClientSessionValue>,
}

impl Sessions {
    /// Forgets all sessions of a way.
    pub(super) fn drop_way(&self, way: Way) {
        let mut kept = self.lock();
        kept.entries.retain(|(its, _), _| *its != way);
        if let Some(line) = kept.lines.get_mut(&way.namespace) {
            line.retain(|(its, _)| *its != way);
            if line.is_empty() {
                kept.lines.remove(&way.namespace);
            }
        }
    }

    // Nothing is left half done by what is done while it is held.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// The entry of a name, made where there is none.
    fn entry(&mut self, key: Key) -> &mut Entry {
        if !self.entries.contains_key(&key) {
            if self.entries.len() >= SESSIONS_MAX {
                self.make_room();
            }
            let line = self.lines.entry(key.0.namespace).or_default();
            line.push_back(key.clone());
        }
        self.entries.entry(key).or_default()
    }

    /// Forgets the oldest session of the namespace that has most.
    fn make_room(&mut self) {
        let most = self.lines.iter().max_by_key(|(_, line)| line.len());
        let Some(namespace) = most.map(|(namespace, _)| *namespace) else {
            return;
        };
        if let Some(line) = self.lines.get_mut(&namespace) {
            if let Some(key) = line.pop_front() {
                self.entries.remove(&key);
            }
            if line.is_empty() {
                self.lines.remove(&namespace);
            }
        }
    }
}

impl WaySessions {
    fn key(&self, name: &ServerName<'_>) -> Key {
        (self.way, name.to_owned())
    }
}

impl fmt::Debug for WaySessions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("WaySessions")
            .field("way", &self.way)
            .finish_non_exhaustive()
    }
}

impl ClientSessionStore for WaySessions {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        self.all.lock().entry((self.way, name)).hint = Some(group);
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        self.all.lock().entries.get(&self.key(name))?.hint
    }

    fn set_tls12_session(&self, name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.all.lock().entry((self.way, name)).tls12 = Some(value);
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.all.lock().entries.get(&self.key(name))?.tls12.clone()
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        if let Some(entry) = self.all.lock().entries.get_mut(&self.key(name)) {
            entry.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.all.lock().entry((self.way, name)).tls13 = Some(value);
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut kept = self.all.lock();
        kept.entries.get_mut(&self.key(name))?.tls13.take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::NamedGroup;
    use rustls::client::ClientSessionStore as _;
    use rustls::pki_types::ServerName;

    use super::{SESSIONS_MAX, Sessions, Way, WaySessions};

    fn name(number: usize) -> ServerName<'static> {
        ServerName::try_from(format!("n{number}.example")).unwrap()
    }

    fn way(all: &Arc<Sessions>, namespace: u64, number: u64) -> WaySessions {
        WaySessions {
            all: all.clone(),
            way: Way { namespace, number },
        }
    }

    #[test]
    fn sessions_of_all_ways_have_one_bound_and_who_has_most_loses_the_oldest() {
        let all = Arc::<Sessions>::default();
        let honest = way(&all, 1, 0);
        honest.set_kx_hint(name(0), NamedGroup::X25519);
        // As many ways as there are lists of names, each asked for by many names.
        for number in 0..100 {
            let flood = way(&all, 2, number + 1);
            for at in 0..32 {
                flood.set_kx_hint(name(at), NamedGroup::X25519);
            }
        }
        let kept = all.lock();
        assert_eq!(kept.entries.len(), SESSIONS_MAX);
        assert_eq!(
            kept.lines.values().map(|it| it.len()).sum::<usize>(),
            SESSIONS_MAX
        );
        drop(kept);
        assert!(honest.kx_hint(&name(0)).is_some());
        assert!(way(&all, 2, 100).kx_hint(&name(31)).is_some());
        assert!(way(&all, 2, 1).kx_hint(&name(0)).is_none());
    }

    #[test]
    fn a_name_that_is_there_takes_no_second_place_and_a_way_that_goes_leaves_nothing() {
        let all = Arc::<Sessions>::default();
        let (one, other) = (way(&all, 1, 1), way(&all, 1, 2));
        for _ in 0..1_000 {
            one.set_kx_hint(name(0), NamedGroup::X25519);
            other.set_kx_hint(name(0), NamedGroup::secp256r1);
        }
        assert_eq!(all.lock().lines[&1].len(), 2);
        all.drop_way(one.way);
        assert!(one.kx_hint(&name(0)).is_none());
        assert_eq!(other.kx_hint(&name(0)), Some(NamedGroup::secp256r1));
        all.drop_way(other.way);
        let kept = all.lock();
        assert!(kept.entries.is_empty() && kept.lines.is_empty());
    }
}
