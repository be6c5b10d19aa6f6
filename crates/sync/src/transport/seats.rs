//! The streams of a server: few of each Pod, a share of each namespace, and some that are kept for
//! gateways.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use myriad_base::clock::Instant;
use tokio::sync::oneshot;

/// The most streams of one Pod: the one that it follows, and one by which it looks for another
/// server. A further one takes the place of the oldest.
pub(super) const POD_STREAMS_MAX: usize = 2;

/// The most streams that a sidecar may begin at once. Each may be compared with all of its view.
const POD_BURST: u32 = 16;

/// Then it may begin one in this time.
const POD_INTERVAL: Duration = Duration::from_secs(1);

/// How many Pods may be known before those are looked for that began nothing lately.
const PACES_MIN: usize = 1_024;

/// One in so many streams is kept free for gateways.
const GATEWAY_PART: usize = 10;

/// The owner of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The namespace that it counts for.
    pub namespace: Arc<str>,
    /// The Pod that its token is bound to, told from others of the name; empty where it is bound to
    /// none.
    pub pod: Arc<str>,
    /// Whether it is a gateway's, which the operator has listed.
    pub is_gateway: bool,
}

/// The seats of all streams.
pub(super) struct Seats {
    max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    gateways: Namespaces,
    sidecars: Namespaces,
    next: u64,
    paces: Paces,
}

/// The times up to which what Pods may begin is used up, by namespace and Pod.
#[derive(Default)]
struct Paces {
    used_until: BTreeMap<(Arc<str>, Arc<str>), Instant>,
    /// How many there may be before those are looked for that are over.
    max: usize,
}

/// Streams by their namespaces.
#[derive(Default)]
struct Namespaces {
    all: BTreeMap<Arc<str>, BTreeMap<u64, Taken>>,
    count: usize,
}

/// The seat of one stream. Without its sender the stream has to end.
struct Taken {
    pod: Arc<str>,
    _end: oneshot::Sender<()>,
}

/// The seat of one stream, for as long as that lives.
pub(super) struct Seat {
    seats: Arc<Seats>,
    owner: Owner,
    number: u64,
    lost: oneshot::Receiver<()>,
}

impl Seats {
    pub(super) fn new(max: usize) -> Self {
        Seats {
            max,
            state: Mutex::default(),
        }
    }

    /// A seat for one more stream of this owner; none where its namespace has its share, or its Pod
    /// begins too many.
    pub(super) fn take(self: &Arc<Self>, owner: Owner, now: Instant) -> Option<Seat> {
        let (end, lost) = oneshot::channel();
        let mut state = self.lock();
        if !state.paces.admit(&owner, now) {
            return None;
        }
        state.replace(&owner);
        if !state.has_room(&owner, self.max) && !state.make_room(&owner) {
            return None;
        }
        let number = state.next;
        state.next += 1;
        let pod = owner.pod.clone();
        let taken = Taken { pod, _end: end };
        let namespace = owner.namespace.clone();
        state.of(&owner).insert(namespace, number, taken);
        drop(state);
        Some(Seat {
            seats: self.clone(),
            owner,
            number,
            lost,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&mut self, owner: &Owner) -> &mut Namespaces {
        match owner.is_gateway {
            true => &mut self.gateways,
            false => &mut self.sidecars,
        }
    }

    /// Ends the oldest stream of a Pod that has as many as it may have.
    fn replace(&mut self, owner: &Owner) {
        if owner.pod.is_empty() {
            return;
        }
        let streams = self.of(owner);
        let of_namespace = streams.all.get(&owner.namespace).into_iter().flatten();
        let of_pod = of_namespace.filter(|(_, taken)| taken.pod == owner.pod);
        let numbers: Vec<u64> = of_pod.map(|(number, _)| *number).collect();
        if numbers.len() >= POD_STREAMS_MAX
            && let Some(oldest) = numbers.first()
        {
            streams.remove(&owner.namespace, *oldest);
        }
    }

    fn has_room(&self, owner: &Owner, max: usize) -> bool {
        let (sidecars, all) = (
            self.sidecars.count,
            self.sidecars.count + self.gateways.count,
        );
        all < max && (owner.is_gateway || sidecars < max - max / GATEWAY_PART)
    }

    /// Ends the newest stream of the namespace whose sidecars have most, for a gateway or for a
    /// namespace that has fewer.
    fn make_room(&mut self, owner: &Owner) -> bool {
        let own = match owner.is_gateway {
            true => 0,
            false => {
                self.sidecars
                    .all
                    .get(&owner.namespace)
                    .map_or(0, BTreeMap::len)
                    + 1
            }
        };
        let namespaces = self.sidecars.all.iter();
        let largest = namespaces.max_by_key(|(_, streams)| streams.len());
        let Some((namespace, streams)) = largest.filter(|(_, streams)| streams.len() > own) else {
            return false;
        };
        let newest = streams.last_key_value().map(|(number, _)| *number);
        let (namespace, newest) = (namespace.clone(), newest.unwrap_or_default());
        self.sidecars.remove(&namespace, newest);
        true
    }
}

impl Paces {
    /// Whether a Pod may begin one more stream, which counts then. The operator's own always may;
    /// those of a namespace whose tokens are bound to no Pod count as one.
    fn admit(&mut self, owner: &Owner, now: Instant) -> bool {
        if owner.is_gateway {
            return true;
        }
        if self.used_until.len() >= self.max.max(PACES_MIN) {
            self.used_until.retain(|_, until| *until > now);
            self.max = 2 * self.used_until.len();
        }
        let pod = (owner.namespace.clone(), owner.pod.clone());
        let known = self.used_until.get(&pod).copied();
        let until = known.map_or(now, |until| until.max(now));
        let may_begin = until.saturating_duration_since(now) <= POD_INTERVAL * (POD_BURST - 1);
        if may_begin {
            self.used_until.insert(pod, until + POD_INTERVAL);
        }
        may_begin
    }
}

impl Namespaces {
    fn insert(&mut self, namespace: Arc<str>, number: u64, taken: Taken) {
        self.all.entry(namespace).or_default().insert(number, taken);
        self.count += 1;
    }

    fn remove(&mut self, namespace: &Arc<str>, number: u64) {
        let Some(streams) = self.all.get_mut(namespace) else {
            return;
        };
        self.count -= usize::from(streams.remove(&number).is_some());
        if streams.is_empty() {
            self.all.remove(namespace);
        }
    }
}

impl Seat {
    /// Waits until another stream has the seat.
    pub(super) async fn lost(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.lost).await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.seats.lock();
        let namespace = self.owner.namespace.clone();
        state.of(&self.owner).remove(&namespace, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_base::clock;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::{Owner, PACES_MIN, POD_BURST, POD_INTERVAL, Seat, Seats};

    fn owner(namespace: &str, pod: &str, is_gateway: bool) -> Owner {
        Owner {
            namespace: namespace.into(),
            pod: pod.into(),
            is_gateway,
        }
    }

    /// Whether each was lost.
    fn lost(seats: &mut [Seat]) -> Vec<bool> {
        let is_lost = |seat: &mut Seat| seat.lost.try_recv() == Err(TryRecvError::Closed);
        seats.iter_mut().map(is_lost).collect()
    }

    #[test]
    fn a_third_stream_of_a_pod_takes_the_place_of_its_first() {
        let seats = Arc::new(Seats::new(100));
        let mut now = clock::now();
        let mut take = |pod| {
            now += POD_INTERVAL;
            seats.take(owner("evil", pod, false), now).unwrap()
        };
        let mut held: Vec<_> = (0..50).map(|_| take("p0")).collect();
        held.push(take("p1"));
        let is_lost = lost(&mut held);
        assert!(is_lost[..48].iter().all(|is_lost| *is_lost));
        assert_eq!(is_lost[48..], [false, false, false]);
        assert_eq!(seats.lock().sidecars.count, 3);
        drop(held);
        assert_eq!(seats.lock().sidecars.count, 0);
        assert!(seats.lock().sidecars.all.is_empty());
    }

    #[test]
    fn a_namespace_with_many_pods_leaves_others_their_share_and_gateways_theirs() {
        let seats = Arc::new(Seats::new(20));
        let take = |namespace, number, is_gateway| {
            let owner = owner(namespace, &format!("p{number}"), is_gateway);
            seats.take(owner, clock::now())
        };
        let mut evil: Vec<_> = (0..40).filter_map(|it| take("evil", it, false)).collect();
        assert_eq!(evil.len(), 18, "two are kept for gateways");
        let victims: Vec<_> = (0..40).filter_map(|it| take("victim", it, false)).collect();
        assert_eq!(victims.len(), 9);
        assert_eq!(lost(&mut evil)[9..], [true; 9], "the newest go");
        assert!(take("evil", 99, false).is_none());
        let gateways: Vec<_> = (0..4).filter_map(|it| take("system", it, true)).collect();
        assert_eq!(
            gateways.len(),
            4,
            "beyond what is kept, sidecars go for them"
        );
        let state = seats.lock();
        assert_eq!((state.sidecars.count, state.gateways.count), (16, 4));
        drop(state);
        drop((evil, victims, gateways));
    }

    #[test]
    fn a_pod_that_begins_one_stream_after_the_other_has_to_take_its_time() {
        let seats = Arc::new(Seats::new(100));
        let now = clock::now();
        let begin = |pod: &str, is_gateway, now| {
            let seat = seats.take(owner("evil", pod, is_gateway), now);
            seat.is_some()
        };
        for pod in ["p0", ""] {
            let begun = (0..100).filter(|_| begin(pod, false, now)).count();
            assert_eq!(u32::try_from(begun), Ok(POD_BURST), "{pod}");
        }
        assert!(begin("p1", false, now), "another Pod");
        assert!((0..100).all(|_| begin("p0", true, now)), "a gateway");
        let mut later = now + POD_INTERVAL;
        assert!(begin("p0", false, later) && !begin("p0", false, later));
        for number in 0..10 * PACES_MIN {
            later += POD_INTERVAL;
            assert!(begin(&format!("n{number}"), false, later));
        }
        let known = seats.lock().paces.used_until.len();
        assert!(known <= PACES_MIN, "{known} Pods are known");
    }
}
