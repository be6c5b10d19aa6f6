//! Resources whose next change somebody waits for, until it is in service everywhere.

use myriad_model::Key;

use super::Live;

/// A resource whose next change is awaited, until this is dropped.
pub struct AwaitedResource {
    live: Live,
    key: Key,
}

impl Live {
    /// Awaits the next change of a resource, from now on. Of two who await the same one, the first
    /// to end ends it for both.
    pub fn await_next(&self, key: Key) -> AwaitedResource {
        self.lock().awaited.insert(key.clone(), None);
        AwaitedResource {
            live: self.clone(),
            key,
        }
    }
}

impl AwaitedResource {
    /// Whether the change has come, and every connected gateway serves it; whoever may run a Pod
    /// could have its sidecar keep everybody waiting. A gateway that has not said yet what it
    /// serves is not waited for.
    pub fn is_served(&self) -> bool {
        let state = self.live.lock();
        let number = state.awaited.get(&self.key).copied().flatten();
        number.is_some_and(|number| state.gateways.reached.range(1..number).next().is_none())
    }
}

impl Drop for AwaitedResource {
    fn drop(&mut self) {
        self.live.lock().awaited.remove(&self.key);
    }
}
