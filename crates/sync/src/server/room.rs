//! The room for what proxies say that they hold and their servers do not have: bounded for each
//! stream, for each namespace and over all streams. Whoever proves who it is may claim what it
//! likes, so that none of it may cost much before it was looked at. And the places of streams on a
//! long way that they share with nobody: few of a namespace at a time, since each holds a commit,
//! and of what its proxy has a tree of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_base::clock::Instant;

/// The most entries of one stream of a sidecar, of some 60 bytes each.
pub const STREAM_CLAIMS_MAX: usize = 1 << 16;
/// The most entries of all streams of sidecars together.
pub const CLAIMS_MAX: usize = 1 << 20;
/// The most entries of the sidecars of one namespace.
pub const NAMESPACE_CLAIMS_MAX: usize = CLAIMS_MAX / 4;
/// The most entries of one stream of a gateway, whose view may be the largest that is supported.
pub const GATEWAY_STREAM_CLAIMS_MAX: usize = 8 << 20;
/// The most entries of all streams of gateways together.
pub const GATEWAY_CLAIMS_MAX: usize = 16 << 20;
/// The most streams of sidecars of one namespace that are on a long way of their own at a time.
pub(crate) const NAMESPACE_WAYS_MAX: usize = 16;

/// How long a stream may be on its way while others of its namespace wait for a place.
pub(crate) const WAY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a stream that found no place counts as waiting: it asks again before.
const WAITING_TIME: Duration = Duration::from_secs(1);

/// The room of all streams of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct ClaimRoom(Arc<Mutex<Rooms>>);

#[derive(Default)]
struct Rooms {
    sidecars: Taken,
    gateways: Taken,
    /// The ways of sidecars, by namespace.
    ways: BTreeMap<Arc<str>, Ways>,
}

/// The ways of one namespace.
#[derive(Default)]
struct Ways {
    /// How many streams have a place.
    taken: usize,
    /// When one found none last.
    wanted: Option<Instant>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    namespaces: BTreeMap<Arc<str>, usize>,
}

/// The part of it that one stream has taken. It is given back at the stream's end.
pub(super) struct ClaimShare {
    room: ClaimRoom,
    namespace: Arc<str>,
    is_gateway: bool,
    taken: usize,
    /// Since when it has a place for a way of its own.
    way_since: Option<Instant>,
}

impl ClaimRoom {
    /// The share of a stream, of which nothing is taken yet.
    pub(super) fn share(&self, namespace: Arc<str>, is_gateway: bool) -> ClaimShare {
        ClaimShare {
            room: self.clone(),
            namespace,
            is_gateway,
            taken: 0,
            way_since: None,
        }
    }

    /// How many streams have a place for a way of their own.
    #[cfg(test)]
    pub(crate) fn ways(&self) -> usize {
        self.lock().ways.values().map(|ways| ways.taken).sum()
    }

    /// How many entries are taken.
    pub fn taken(&self) -> usize {
        let rooms = self.lock();
        rooms.sidecars.all + rooms.gateways.all
    }

    fn lock(&self) -> MutexGuard<'_, Rooms> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimShare {
    /// Whether it is of a gateway.
    pub(super) fn is_gateway(&self) -> bool {
        self.is_gateway
    }

    /// Holds so many entries instead of those before; false, with those before, where there is no
    /// room for more.
    pub(super) fn hold(&mut self, count: usize) -> bool {
        if count == self.taken {
            return true;
        }
        let mut rooms = self.room.lock();
        let (taken, [stream_max, namespace_max, all_max]) = match self.is_gateway {
            true => (
                &mut rooms.gateways,
                [
                    GATEWAY_STREAM_CLAIMS_MAX,
                    GATEWAY_CLAIMS_MAX,
                    GATEWAY_CLAIMS_MAX,
                ],
            ),
            false => (
                &mut rooms.sidecars,
                [STREAM_CLAIMS_MAX, NAMESPACE_CLAIMS_MAX, CLAIMS_MAX],
            ),
        };
        let former = taken.namespaces.get(&self.namespace).copied();
        let of_namespace = former.unwrap_or_default() - self.taken + count;
        let all = taken.all - self.taken + count;
        let is_over = count > stream_max || of_namespace > namespace_max || all > all_max;
        if count > self.taken && is_over {
            return false;
        }
        taken.all = all;
        if of_namespace == 0 {
            taken.namespaces.remove(&self.namespace);
        } else {
            let namespace = self.namespace.clone();
            taken.namespaces.insert(namespace, of_namespace);
        }
        self.taken = count;
        true
    }

    /// Takes a place for a way of its own, unless it has one; false where its namespace has as many
    /// as it may, which is one while there is little room. Gateways, which are the operator's, need
    /// none.
    pub(super) fn begin_way(&mut self, is_crowded: bool, now: Instant) -> bool {
        if self.is_gateway || self.way_since.is_some() {
            return true;
        }
        let mut rooms = self.room.lock();
        let ways = rooms.ways.entry(self.namespace.clone()).or_default();
        let max = if is_crowded { 1 } else { NAMESPACE_WAYS_MAX };
        if ways.taken >= max {
            ways.wanted = Some(now);
            return false;
        }
        ways.taken += 1;
        self.way_since = Some(now);
        true
    }

    /// Gives the place back, if it has one.
    pub(super) fn end_way(&mut self) {
        if self.way_since.take().is_none() {
            return;
        }
        let mut rooms = self.room.lock();
        if let Some(ways) = rooms.ways.get_mut(&self.namespace) {
            ways.taken -= 1;
            if ways.taken == 0 {
                rooms.ways.remove(&self.namespace);
            }
        }
    }

    /// Whether it has been on its way for long, and others of its namespace wait for a place.
    pub(super) fn holds_up_others(&self, now: Instant) -> bool {
        let is_within = |since: Instant, time| now.saturating_duration_since(since) < time;
        if self
            .way_since
            .is_none_or(|since| is_within(since, WAY_TIMEOUT))
        {
            return false;
        }
        let rooms = self.room.lock();
        let wanted = rooms.ways.get(&self.namespace).and_then(|it| it.wanted);
        wanted.is_some_and(|wanted| is_within(wanted, WAITING_TIME))
    }
}

impl Drop for ClaimShare {
    fn drop(&mut self) {
        self.end_way();
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        CLAIMS_MAX, ClaimRoom, ClaimShare, GATEWAY_STREAM_CLAIMS_MAX, NAMESPACE_CLAIMS_MAX,
        STREAM_CLAIMS_MAX,
    };

    fn full(room: &ClaimRoom, namespace: &str) -> Vec<ClaimShare> {
        let mut shares = Vec::new();
        loop {
            let mut share = room.share(namespace.into(), false);
            if !share.hold(STREAM_CLAIMS_MAX) {
                return shares;
            }
            shares.push(share);
        }
    }

    #[test]
    fn a_stream_a_namespace_and_all_together_have_bounds_and_gateways_their_own() {
        let room = ClaimRoom::default();
        let mut one = room.share("a".into(), false);
        assert!(!one.hold(STREAM_CLAIMS_MAX + 1));
        assert!(one.hold(STREAM_CLAIMS_MAX));
        assert!(one.hold(1), "it can always hold less");
        drop(one);
        assert_eq!(room.taken(), 0);
        let names = ["a", "b", "c", "d", "e"];
        let all: Vec<_> = names.iter().map(|name| full(&room, name)).collect();
        let counts: Vec<_> = all.iter().map(Vec::len).collect();
        assert_eq!(counts, [4, 4, 4, 4, 0]);
        assert_eq!(4 * STREAM_CLAIMS_MAX, NAMESPACE_CLAIMS_MAX);
        assert_eq!(room.taken(), CLAIMS_MAX);
        let mut gateway = room.share("a".into(), true);
        assert!(gateway.hold(GATEWAY_STREAM_CLAIMS_MAX));
        assert!(!gateway.hold(GATEWAY_STREAM_CLAIMS_MAX + 1));
        drop((all, gateway));
        assert_eq!(room.taken(), 0);
        assert!(room.lock().sidecars.namespaces.is_empty());
    }
}
