//! The bodies of questions that are in memory: bounded together, by the address that sends them.
//!
//! Where there is no room, the address that has most bytes loses its oldest body, for anybody with
//! less; who has most already is told to come again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// All bodies.
pub(crate) struct Bodies {
    state: Mutex<State>,
    /// The most bytes that all of them may have.
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    sources: BTreeMap<IpAddr, Source>,
    bytes: usize,
    /// The number of the next.
    next: u64,
}

/// The bodies of one address.
#[derive(Default)]
struct Source {
    bodies: BTreeMap<u64, Held>,
    bytes: usize,
}

struct Held {
    bytes: usize,
    gone: CancellationToken,
}

/// One body, for as long as it is held.
pub(crate) struct Body {
    bodies: Arc<Bodies>,
    source: IpAddr,
    number: u64,
    gone: CancellationToken,
}

impl Bodies {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Bodies {
            state: Mutex::default(),
            bytes_max,
        }
    }

    /// One more body, of which nothing has come yet.
    pub(crate) fn begin(self: &Arc<Self>, source: IpAddr) -> Body {
        let gone = CancellationToken::new();
        let held = Held {
            bytes: 0,
            gone: gone.clone(),
        };
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let own = state.sources.entry(source).or_default();
        own.bodies.insert(number, held);
        drop(state);
        Body {
            bodies: self.clone(),
            source,
            number,
            gone,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes out a body.
    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Held> {
        let source = self.sources.get_mut(&address)?;
        let held = source.bodies.remove(&number)?;
        source.bytes -= held.bytes;
        self.bytes -= held.bytes;
        if source.bodies.is_empty() {
            self.sources.remove(&address);
        }
        Some(held)
    }

    /// Ends the oldest body of the address that has most bytes; false if that has no more than
    /// these.
    fn evict(&mut self, bytes: usize) -> bool {
        let sources = self.sources.iter();
        let largest = sources.max_by_key(|(_, source)| source.bytes);
        let Some((address, source)) = largest.filter(|(_, source)| source.bytes > bytes) else {
            return false;
        };
        let mut bodies = source.bodies.iter();
        let oldest = bodies.find(|(_, held)| held.bytes > 0);
        let Some((address, number)) = oldest.map(|(number, _)| (*address, *number)) else {
            return false;
        };
        if let Some(held) = self.remove(address, number) {
            held.gone.cancel();
        }
        true
    }
}

impl Body {
    /// Takes room for more bytes; false where others had better have it.
    pub(crate) fn grow(&self, bytes: usize) -> bool {
        let mut state = self.bodies.lock();
        loop {
            let room = self.bodies.bytes_max - state.bytes;
            let own = state.sources.get_mut(&self.source);
            let Some(own) = own.filter(|own| own.bodies.contains_key(&self.number)) else {
                return false;
            };
            if bytes <= room {
                own.bytes += bytes;
                if let Some(held) = own.bodies.get_mut(&self.number) {
                    held.bytes += bytes;
                }
                state.bytes += bytes;
                return true;
            }
            let wanted = own.bytes + bytes;
            if !state.evict(wanted) {
                return false;
            }
        }
    }

    /// Waits until its room is somebody else's.
    pub(crate) async fn evicted(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.bodies.lock().remove(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use super::Bodies;

    #[test]
    fn who_has_most_loses_its_oldest_to_who_has_less_and_gets_no_more() {
        let bodies = Arc::new(Bodies::new(100));
        let address = |number: u8| IpAddr::from([192, 0, 2, number]);
        let flood = [(); 5].map(|()| bodies.begin(address(1)));
        let taken = flood.each_ref().map(|body| body.grow(30));
        assert_eq!(taken, [true, true, true, false, false]);
        let honest = bodies.begin(address(2));
        assert!(honest.grow(10));
        let gone = || flood.each_ref().map(|body| body.gone.is_cancelled());
        assert_eq!(gone(), [false; 5], "there was room");
        assert!(honest.grow(10));
        assert_eq!(gone(), [true, false, false, false, false]);
        assert!(!flood[0].grow(1), "what it has read is thrown away");
        assert!(honest.grow(10));
        assert_eq!(bodies.lock().bytes, 90);
        assert!(!honest.grow(200), "no body is larger than all together");
        drop((flood, honest));
        let state = bodies.lock();
        assert!(state.bytes == 0 && state.sources.is_empty());
    }
}
