//! Private keys of orders. One of RSA takes a good part of a second, so that it is made on a thread
//! beside: one at a time for a namespace, which take turns, and two in all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_pki::acme::clerk::order_key;
use myriad_pki::acme::{KeyKind, OrderKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

/// The most keys of RSA that are made at a time.
const KEYS_MAX: usize = 2;

/// The turns of namespaces at having keys of RSA made.
pub(super) struct KeyTurns {
    all: Arc<Semaphore>,
    by_namespace: RefCell<BTreeMap<Box<str>, Arc<Semaphore>>>,
}

/// A turn: that of a namespace, and one of all.
type Turn = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl Default for KeyTurns {
    fn default() -> Self {
        KeyTurns {
            all: Arc::new(Semaphore::new(KEYS_MAX)),
            by_namespace: RefCell::default(),
        }
    }
}

impl KeyTurns {
    /// A new key for the certificate of a Secret, or words about why there is none.
    pub(super) async fn make(&self, id: &str, kind: KeyKind) -> Result<OrderKey, String> {
        match kind {
            KeyKind::EcdsaP256 | KeyKind::EcdsaAndRsa => return order_key(kind),
            KeyKind::Rsa2048 => {}
        }
        // Certificates on demand have one namespace together.
        let namespace = id.split_once('/').map_or("", |(namespace, _)| namespace);
        let turn = self.turn(namespace).await;
        let made = spawn_blocking(move || {
            let made = order_key(kind);
            // Whoever does not wait for it any more has had a turn all the same.
            drop(turn);
            made
        });
        let made = made.await;
        made.unwrap_or_else(|_| Err("its key could not be made".to_owned()))
    }

    async fn turn(&self, namespace: &str) -> Option<Turn> {
        let lane = self.lane(namespace);
        // One of each namespace waits for a turn of all at most.
        let own = lane.acquire_owned().await.ok()?;
        let of_all = self.all.clone().acquire_owned().await.ok()?;
        Some((own, of_all))
    }

    fn lane(&self, namespace: &str) -> Arc<Semaphore> {
        let mut lanes = self.by_namespace.borrow_mut();
        if let Some(lane) = lanes.get(namespace) {
            return lane.clone();
        }
        // Those that nobody uses, once for as many as there are.
        if lanes.len().is_power_of_two() {
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        let lane = Arc::new(Semaphore::new(1));
        lanes.insert(namespace.into(), lane.clone());
        lane
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;

    use myriad_pki::acme::KeyKind;

    use super::{KeyTurns, Turn};

    /// The turn that there is at once, if there is one.
    async fn at_once(turn: impl Future<Output = Option<Turn>>) -> Option<Turn> {
        tokio::select! {
            biased;
            turn = turn => turn,
            () = ready(()) => None,
        }
    }

    #[tokio::test]
    async fn a_key_of_rsa_is_not_made_on_the_thread_that_waits_for_it() {
        let keys = KeyTurns::default();
        let mut made = pin!(keys.make("shop/web", KeyKind::Rsa2048));
        tokio::select! {
            biased;
            _ = made.as_mut() => panic!("nothing else was done meanwhile"),
            () = ready(()) => {}
        }
        assert!(made.await.unwrap().expose().len() > 1_000);
        let small = keys.make("shop/web", KeyKind::EcdsaP256).await;
        assert!(small.unwrap().expose().len() < 1_000);
    }

    #[tokio::test]
    async fn a_namespace_has_one_turn_at_a_time_and_takes_none_from_another() {
        let keys = KeyTurns::default();
        let many = at_once(keys.turn("many")).await.expect("a turn");
        assert!(at_once(keys.turn("many")).await.is_none());
        let new = at_once(keys.turn("new")).await.expect("a turn");
        // There are two in all.
        assert!(at_once(keys.turn("third")).await.is_none());
        drop(new);
        assert!(at_once(keys.turn("third")).await.is_some());
        drop(many);
        assert!(at_once(keys.turn("many")).await.is_some());
        for number in 0..100 {
            let turn = keys.turn(&format!("n{number}")).await;
            assert!(turn.is_some());
        }
        assert!(keys.by_namespace.borrow().len() <= 64);
    }
}
