//! The authorities of issuers that objects make, apart from those of others.
//!
//! The directory of such an issuer has the issuer's name behind it, as the fragment of its URL, of
//! which no authority hears. So each issuer has accounts, budgets and troubles of its own,
//! whoever else orders at the same authority. Steps at those of one namespace have few places, and
//! those of all namespaces some, so that authorities which do not answer hold up nobody else.

mod keys;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use myriad_pki::acme::{KeyKind, Order, OrderKey, Task, TaskStep};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use keys::KeyTurns;

/// The most steps at a time at the authorities of one namespace.
const LANE_STEPS_MAX: usize = 8;

/// The most steps at a time at those of all namespaces.
const ALL_STEPS_MAX: usize = 256;

/// The directory of an authority as an issuer that an object makes has it.
pub(super) fn directory_of(url: &str, issuer: &str) -> Box<str> {
    format!("{url}#{issuer}").into()
}

/// The directory as people wrote it.
pub(super) fn without_issuer(directory: &str) -> &str {
    directory.split_once('#').map_or(directory, |(url, _)| url)
}

/// The issuer of a directory, where an object makes it.
pub(super) fn issuer_of(directory: &str) -> Option<&str> {
    directory.split_once('#').map(|(_, issuer)| issuer)
}

/// The namespace of the issuer of a directory; none where it is for all namespaces.
pub(super) fn namespace_of(directory: &str) -> Option<&str> {
    let issuer = issuer_of(directory)?;
    issuer.split_once('/').map(|(namespace, _)| namespace)
}

/// The places of steps.
pub(super) struct Lanes {
    all: Arc<Semaphore>,
    by_namespace: RefCell<BTreeMap<Box<str>, Arc<Semaphore>>>,
    keys: KeyTurns,
}

/// A place, for as long as a step takes.
pub(super) struct LanePlace {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Lanes {
    fn default() -> Self {
        Lanes {
            all: Arc::new(Semaphore::new(ALL_STEPS_MAX)),
            by_namespace: RefCell::default(),
            keys: KeyTurns::default(),
        }
    }
}

impl Lanes {
    /// A place for a step, where it is one at the authority of a namespace.
    pub(super) async fn come(&self, task: &Task) -> Option<LanePlace> {
        let directory = asked(&task.step, task.order.as_deref());
        self.come_to(directory?).await
    }

    /// A place for whatever is asked of the authority of a namespace.
    pub(super) async fn come_to(&self, directory: &str) -> Option<LanePlace> {
        let lane = self.lane(namespace_of(directory)?);
        // None of all is held while one of its own is waited for.
        let own = lane.acquire_owned().await.ok()?;
        let of_all = self.all.clone().acquire_owned().await.ok()?;
        Some(LanePlace {
            _own: own,
            _of_all: of_all,
        })
    }

    /// A new key for the certificate of a Secret, once it is the turn of its namespace where one
    /// takes long to make; or words about why there is none.
    pub(super) async fn key(&self, id: &str, kind: KeyKind) -> Result<OrderKey, String> {
        self.keys.make(id, kind).await
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
        let lane = Arc::new(Semaphore::new(LANE_STEPS_MAX));
        lanes.insert(namespace.into(), lane.clone());
        lane
    }
}

/// The directory of the authority that a step asks; none where it asks names and their servers, for
/// which it has a place of all that do.
fn asked<'a>(step: &'a TaskStep, order: Option<&'a Order>) -> Option<&'a str> {
    match (step, order) {
        (TaskStep::Prove | TaskStep::Answer | TaskStep::Clean, _) => None,
        (TaskStep::Window(url, _), _) => Some(url),
        (_, order) => order.map(|order| &*order.directory),
    }
}

#[cfg(test)]
mod tests {
    use myriad_pki::acme::{Order, OrderStage, TaskStep};

    use super::super::testing;
    use super::{
        LANE_STEPS_MAX, Lanes, asked, directory_of, issuer_of, namespace_of, without_issuer,
    };

    const URL: &str = "https://ca.example/dir";

    #[test]
    fn a_directory_says_whose_it_is() {
        let of_shop = directory_of(URL, "shop/le");
        assert_eq!(&*of_shop, "https://ca.example/dir#shop/le");
        assert_eq!(namespace_of(&of_shop), Some("shop"));
        assert_eq!(issuer_of(&of_shop), Some("shop/le"));
        assert_eq!(without_issuer(&of_shop), URL);
        let of_all = directory_of(URL, "le");
        assert_eq!(
            (namespace_of(&of_all), without_issuer(&of_all)),
            (None, URL)
        );
        assert_eq!((namespace_of(URL), without_issuer(URL)), (None, URL));
    }

    #[test]
    fn a_step_that_asks_no_authority_waits_for_none_with_the_place_that_it_has() {
        let order = Order {
            directory: directory_of(URL, "shop/le"),
            ..testing::order("shop/web", OrderStage::Placing)
        };
        for step in [TaskStep::Prove, TaskStep::Answer, TaskStep::Clean] {
            assert_eq!(asked(&step, Some(&order)), None, "{step:?}");
        }
        for step in [
            TaskStep::Place,
            TaskStep::Accept,
            TaskStep::Look,
            TaskStep::Finalise,
            TaskStep::Fetch,
            TaskStep::Window(order.directory.clone(), "a".into()),
        ] {
            let found = asked(&step, Some(&order));
            assert_eq!(found, Some(&*order.directory), "{step:?}");
        }
        let window = TaskStep::Window(order.directory.clone(), "a".into());
        assert_eq!(asked(&window, None), Some(&*order.directory));
        assert_eq!(asked(&TaskStep::Look, None), None);
    }

    #[tokio::test]
    async fn a_namespace_that_has_all_its_places_keeps_none_from_another() {
        let lanes = Lanes::default();
        let mut held = Vec::new();
        for number in 0..LANE_STEPS_MAX {
            let directory = directory_of(URL, &format!("dead/i{number}"));
            held.push(lanes.come_to(&directory).await.expect("a place"));
        }
        let dead = directory_of(URL, "dead/x");
        let other = directory_of(URL, "shop/le");
        tokio::select! {
            biased;
            _ = lanes.come_to(&dead) => panic!("it has more than its places"),
            place = lanes.come_to(&other) => assert!(place.is_some()),
        }
        // Those of the operator need none.
        assert!(lanes.come_to(URL).await.is_none());
        held.pop();
        assert!(lanes.come_to(&dead).await.is_some());
        held.clear();
        for number in 0..100 {
            let directory = directory_of(URL, &format!("n{number}/i"));
            lanes.come_to(&directory).await.expect("a place");
        }
        assert!(lanes.by_namespace.borrow().len() <= 64);
    }
}
