//! The lists that are read by one who begins to lead: what is wrong is found there, and only that
//! is written.

use serde::Deserialize;
use serde_json::Value;

use super::super::super::client::Form;
use super::super::super::core::Failure;
use super::super::super::path;
use super::{DescribedWriter, Description};
use myriad_api::{ObjectKey, ObjectKind};

/// The most objects of a page: each of them is read whole, on the thread of the watches.
const PAGE_OBJECTS_MAX: u32 = 100;

/// How far the lists have been read.
pub(super) struct Rounds {
    /// The index of the kind, and of the namespace among those that are watched.
    kind: usize,
    namespace: usize,
    /// The token of the next page.
    token: Option<Box<str>>,
    /// How many objects the next page has: fewer where they are large.
    page_objects: u32,
}

/// A page that is asked for: whether it is still wanted is seen when it comes.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::kubernetes::status) struct Page {
    kind: usize,
    namespace: usize,
    token: Option<Box<str>>,
    objects: u32,
}

#[derive(Deserialize)]
struct List {
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Value>,
}

#[derive(Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    token: Option<Box<str>>,
}

impl Default for Rounds {
    fn default() -> Self {
        Rounds {
            kind: 0,
            namespace: 0,
            token: None,
            page_objects: PAGE_OBJECTS_MAX,
        }
    }
}

impl Rounds {
    /// The next page to ask for.
    pub(super) fn page(&self) -> Page {
        Page {
            kind: self.kind,
            namespace: self.namespace,
            token: self.token.clone(),
            objects: self.page_objects,
        }
    }

    /// The page was read, or there is no such list: goes on behind it. Returns whether that was
    /// the last one, where there are so many kinds and lists of this one.
    fn advance(&mut self, token: Option<Box<str>>, kinds: usize, lists: usize) -> bool {
        self.page_objects = self.page_objects.saturating_mul(2).min(PAGE_OBJECTS_MAX);
        self.token = token.filter(|token| !token.is_empty());
        if self.token.is_none() {
            self.namespace += 1;
            if self.namespace >= lists {
                (self.kind, self.namespace) = (self.kind + 1, 0);
            }
        }
        self.kind >= kinds
    }
}

impl DescribedWriter {
    /// Reads a page, and lets the objects be looked at whose status is wrong.
    ///
    /// # Errors
    /// See [`Failure`]; the same page is to be asked for again.
    pub(super) async fn look_through(&self, page: Page) -> Result<(), Failure> {
        let Some(kind) = self.settings.kinds.get(page.kind).copied() else {
            self.shared.lock().rounds = None;
            return Ok(());
        };
        let namespaces = match kind.is_cluster_scoped() {
            true => <&[_]>::default(),
            false => self.client.namespaces(),
        };
        let namespace = namespaces.get(page.namespace).map(|name| &**name);
        let mut target = self.client.collection(kind, namespace);
        target.push_str(&format!("?limit={}", page.objects));
        if let Some(token) = &page.token {
            target.push_str("&continue=");
            target.push_str(&path::escape(token));
        }
        let list = match self.client.page(&target, Form::Whole).await {
            Ok(read) => serde_json::from_slice::<List>(&read)
                .map_err(|_| Failure::Lost("the answer is not what the API promises".to_owned()))?,
            // The rest of the list is forgotten: what is right by now costs nothing when it is
            // read again.
            Err(Failure::Gone) => {
                self.turn_to(&page, |rounds| rounds.token = None);
                return Ok(());
            }
            Err(Failure::TooLarge) if page.objects > 1 => {
                self.turn_to(&page, |rounds| {
                    rounds.page_objects = page.objects.div_ceil(8)
                });
                return Ok(());
            }
            // There are none of the kind, or none that we may show anything.
            Err(Failure::Missing(_) | Failure::Refused(_)) => List {
                metadata: ListMetadata { token: None },
                items: Vec::new(),
            },
            Err(failure) => return Err(failure),
        };
        self.shared
            .counters
            .reviewed
            .inc_by(list.items.len() as u64);
        let items = list.items.iter();
        let wrong: Vec<ObjectKey> = items.filter_map(|item| self.wrong(kind, item)).collect();
        let (kinds, lists) = (self.settings.kinds.len(), namespaces.len().max(1));
        let mut state = self.shared.lock();
        for key in wrong {
            state.schedule.put_back(key);
        }
        // A newer review begins from its own beginning.
        if let Some(rounds) = state.rounds.as_mut().filter(|it| it.page() == page)
            && rounds.advance(list.metadata.token, kinds, lists)
        {
            state.rounds = None;
            tracing::debug!("all statuses were looked at");
        }
        Ok(())
    }

    /// Lets the review go on otherwise, if it is still the one that asked for the page.
    fn turn_to(&self, page: &Page, change: impl FnOnce(&mut Rounds)) {
        let mut state = self.shared.lock();
        if let Some(rounds) = state.rounds.as_mut().filter(|it| it.page() == *page) {
            change(rounds);
        }
    }

    /// The key of an object of a list whose status is wrong.
    fn wrong(&self, kind: ObjectKind, item: &Value) -> Option<ObjectKey> {
        let metadata = &item["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let key = ObjectKey::new(kind, namespace, metadata["name"].as_str()?);
        let wanted = match self.describe.describe(&key) {
            Description::Shown(wanted) => Some(wanted),
            Description::Nothing => None,
            Description::Later => return None,
        };
        let difference = self.difference(kind, item, wanted.as_ref());
        difference.map(|_| key)
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE_OBJECTS_MAX, Rounds};

    #[test]
    fn lists_are_read_page_by_page_one_namespace_and_kind_after_the_other() {
        let mut rounds = Rounds::default();
        let mut seen = Vec::new();
        let mut tokens = [Some("more"), None, Some(""), None, None].into_iter();
        loop {
            let page = rounds.page();
            let at = (page.kind, page.namespace, page.token.is_some());
            seen.push(at);
            let token = tokens.next().flatten().map(Box::from);
            // Two namespaces, and a kind that has none behind the first.
            let lists = if page.kind == 0 { 2 } else { 1 };
            if rounds.advance(token, 3, lists) {
                break;
            }
        }
        let wanted = [
            (0, 0, false),
            (0, 0, true),
            (0, 1, false),
            (1, 0, false),
            (2, 0, false),
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn pages_grow_again_once_they_fit() {
        let mut rounds = Rounds {
            page_objects: 3,
            ..Rounds::default()
        };
        let sizes = (0..7).map(|_| {
            rounds.advance(Some("more".into()), 1, 1);
            rounds.page().objects
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [6, 12, 24, 48, 96, 100, 100]);
        assert_eq!(rounds.page_objects, PAGE_OBJECTS_MAX);
    }
}
