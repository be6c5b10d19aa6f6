//! The review of all statuses by one who begins to lead: what is wrong is found by reading lists,
//! and only that is written.
//!
//! Nobody but the API server knows what an earlier leader has written, and what it had still to
//! take back when it died. A list shows it: a status that is ours, of an Ingress that is not
//! served, is taken back, and one that is right costs nothing more.

use std::collections::HashSet;
use std::sync::Arc;

use myriad_api::{ObjectKey, ObjectKind};
use serde::Deserialize;

use super::super::client::{Client, Form};
use super::super::core::Failure;
use super::super::path;
use super::work::Shared;
use super::{Address, Current, State, Status};

/// The most Ingresses of a page.
const PAGE_OBJECTS_MAX: u32 = 500;

/// The statuses that are compared with those that the API server has.
pub(super) struct Review {
    /// The Ingresses that are served, by `namespace/name`; all others are not.
    served: HashSet<Arc<str>>,
    addresses: Arc<[Address]>,
    /// The index of the namespace that is read, among those that are watched.
    namespace: usize,
    /// The token of the next page.
    token: Option<Box<str>>,
    /// How many Ingresses the next page has: fewer where they are large.
    page_objects: u32,
}

/// The reason that a page was asked for, to see whether it still holds when the page comes.
pub(super) struct Page {
    namespace: usize,
    token: Option<Box<str>>,
    objects: u32,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    token: Option<Box<str>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMetadata {
    name: Box<str>,
    namespace: Box<str>,
    #[serde(flatten)]
    rest: super::Metadata,
}

impl Review {
    /// A review from the beginning.
    pub(super) fn new(served: HashSet<Arc<str>>, addresses: Arc<[Address]>) -> Self {
        Review {
            served,
            addresses,
            namespace: 0,
            token: None,
            page_objects: PAGE_OBJECTS_MAX,
        }
    }

    /// The page was too large, or was read.
    fn size(&mut self, page: &Page, is_too_large: bool) {
        self.page_objects = match is_too_large {
            true => page.objects / 8,
            false => page.objects.saturating_mul(2),
        };
        self.page_objects = self.page_objects.clamp(1, PAGE_OBJECTS_MAX);
    }

    /// Notes a wish that came meanwhile.
    pub(super) fn note(&mut self, ingress: &ObjectKey, addresses: &[Address]) {
        match addresses.is_empty() {
            true => drop(self.served.remove(ingress.id())),
            false => drop(self.served.insert(ingress.id().clone())),
        }
    }

    /// The next page to ask for.
    pub(super) fn page(&self) -> Page {
        Page {
            namespace: self.namespace,
            token: self.token.clone(),
            objects: self.page_objects,
        }
    }

    /// The address that an Ingress should show, if it shows another.
    fn wish(&self, key: &ObjectKey, current: &Current, manager: &str) -> Option<Arc<[Address]>> {
        let wanted = match self.served.contains(key.id()) {
            true => self.addresses.clone(),
            false => Arc::default(),
        };
        let is_right = current.has(&wanted) || (wanted.is_empty() && !current.is_of(manager));
        (!is_right).then_some(wanted)
    }
}

/// Reads a page, and puts what is wrong on it into the queue.
///
/// # Errors
/// See [`Failure`]; the same page is to be asked for again.
pub(super) async fn read(
    client: &Client,
    shared: &Shared<State>,
    manager: &str,
    page: Page,
) -> Result<(), Failure> {
    let namespaces = client.namespaces();
    let namespace = namespaces.get(page.namespace).map(|name| &**name);
    let mut target = client.collection(ObjectKind::Ingress, namespace);
    target.push_str(&format!("?limit={}", page.objects));
    if let Some(token) = &page.token {
        target.push_str("&continue=");
        target.push_str(&path::escape(token));
    }
    let read = match client.page(&target, Form::Whole).await {
        // The rest of the list is forgotten: what is right by now costs nothing when it is read
        // again.
        Err(Failure::Gone) => {
            if let Some(review) = &mut shared.lock().review {
                (review.namespace, review.token) = (0, None);
            }
            return Ok(());
        }
        Err(Failure::TooLarge) if page.objects > 1 => {
            if let Some(review) = &mut shared.lock().review {
                review.size(&page, true);
            }
            return Ok(());
        }
        read => read?,
    };
    let list: List = serde_json::from_slice(&read)
        .map_err(|_| Failure::Lost("the answer is not what the API promises".to_owned()))?;
    let mut state = shared.lock();
    let state = &mut *state;
    // A newer review begins from its own beginning.
    let Some(review) = &mut state.review else {
        return Ok(());
    };
    if (review.namespace, &review.token) != (page.namespace, &page.token) {
        return Ok(());
    }
    review.size(&page, false);
    shared.counters.reviewed.inc_by(list.items.len() as u64);
    for item in list.items {
        let ItemMetadata {
            name,
            namespace,
            rest,
        } = item.metadata;
        let key = ObjectKey::new(ObjectKind::Ingress, &namespace, &name);
        let current = Current {
            metadata: rest,
            status: item.status,
        };
        if let Some(wish) = review.wish(&key, &current, manager) {
            state.queue.put_back(key, wish);
        }
    }
    review.token = list.metadata.token.filter(|token| !token.is_empty());
    if review.token.is_none() {
        review.namespace += 1;
        if review.namespace >= namespaces.len() {
            state.review = None;
            tracing::debug!("all statuses were looked at");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::{PAGE_OBJECTS_MAX, Review};

    #[test]
    fn a_page_that_is_too_large_is_asked_for_in_smaller_ones_until_they_fit() {
        let mut review = Review::new(HashSet::new(), Arc::default());
        let mut asked = Vec::new();
        for is_too_large in [true, true, true, true, false, false] {
            let page = review.page();
            asked.push(page.objects);
            review.size(&page, is_too_large);
        }
        assert_eq!(asked, [500, 62, 7, 1, 1, 2]);
        for _ in 0..10 {
            review.size(&review.page(), false);
        }
        assert_eq!(review.page().objects, PAGE_OBJECTS_MAX);
    }
}
