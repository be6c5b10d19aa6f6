//! Follows the Secrets of a shelf: a list, and a watch that goes on from there. Where the server
//! has forgotten what the watch would go on from, it tells names and versions, and what differs is
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use kube::client::Body;
use myriad_base::backoff::{Backoff, random_seed};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Item, ItemMetadata, PageMetadata, Shelf, Shelved};
use crate::kubernetes::backoff::backoff;
use crate::kubernetes::client::{CallError, Form};
use crate::kubernetes::core::Failure;
use crate::kubernetes::lines::Lines;

/// The longest line of a watch: one object, of which etcd takes at most 1.5 MiB, escaped.
const LINE_BYTES_MAX: usize = 16 << 20;

/// A watch that is silent for longer is dead: the server sends a bookmark a minute.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// After how many seconds the server is asked to end a watch; it is resumed where it ended.
const WATCH_SECONDS: u32 = 290;

/// The pause before a watch is resumed that ended in order.
const RESUME_PAUSE: Duration = Duration::from_millis(50);

/// The most Secrets that are read one by one; where more differ, all are listed.
const READ_MAX: usize = 200;

/// A change of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShelfNews {
    /// It is there, or has changed.
    Put(Shelved),
    /// It is gone.
    Gone(Arc<str>),
}

/// Follows a shelf.
pub struct ShelfWatch {
    shelf: Shelf,
    /// The versions of those that are there.
    known: BTreeMap<Arc<str>, Box<str>>,
    /// The version that the watch goes on from; none where all are to be listed.
    version: Option<Box<str>>,
    stream: Option<(Body, Lines)>,
    is_listed: bool,
    backoff: Backoff,
}

/// Why a request did not end well.
struct Miss {
    text: String,
    /// The wait that the server asks for.
    after: Duration,
    /// Whether what was read before says nothing any more.
    is_stale: bool,
}

impl From<CallError> for Miss {
    fn from(error: CallError) -> Miss {
        Miss {
            text: error.to_string(),
            after: error.retry_after(),
            is_stale: true,
        }
    }
}

impl From<Failure> for Miss {
    fn from(failure: Failure) -> Miss {
        Miss {
            text: format!("{failure:?}"),
            after: match failure {
                Failure::Busy { after, .. } => after,
                _ => Duration::ZERO,
            },
            is_stale: !matches!(failure, Failure::Busy { .. } | Failure::Idle),
        }
    }
}

impl ShelfWatch {
    /// Follows a shelf of which nothing is known.
    pub(super) fn new(shelf: Shelf) -> ShelfWatch {
        ShelfWatch {
            shelf,
            known: BTreeMap::new(),
            version: None,
            stream: None,
            is_listed: false,
            backoff: backoff(random_seed()),
        }
    }

    /// The next news, in the order in which they happened. The first are all that are there, of
    /// which there may be none; after that there is at least one. A server that does not answer is
    /// asked again until it does. Dropping the future may lose some.
    pub async fn next(&mut self) -> Vec<ShelfNews> {
        loop {
            match self.step().await {
                Ok(Some(news)) => return news,
                Ok(None) => {}
                Err(miss) => {
                    let label = self.shelf.label.1;
                    tracing::debug!(label, reason = miss.text, "Secrets are followed anew");
                    self.stream = None;
                    if miss.is_stale {
                        self.version = None;
                    }
                    let wait = self.backoff.fail().max(miss.after);
                    tokio::time::sleep(wait).await;
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Vec<ShelfNews>>, Miss> {
        let Some(version) = &self.version else {
            return match self.is_listed {
                true => self.compare().await,
                false => self.list().await,
            };
        };
        if self.stream.is_none() {
            let path = format!(
                "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}\
                 &resourceVersion={version}{}",
                self.shelf.collection(),
                self.shelf.selector()
            );
            let body = self.shelf.client.open(&path, Form::Whole).await?;
            self.stream = Some((body, Lines::new(LINE_BYTES_MAX)));
        }
        let Some((body, lines)) = &mut self.stream else {
            return Ok(None);
        };
        let frame = tokio::time::timeout(IDLE_MAX, body.frame()).await;
        let data = match frame.map_err(|_| Failure::Idle)? {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) => return Err(Failure::Lost(error.to_string()).into()),
            None => {
                self.stream = None;
                tokio::time::sleep(RESUME_PAUSE).await;
                return Ok(None);
            }
        };
        lines.push(&data);
        let mut whole = Vec::new();
        while let Some(line) = lines.take().map_err(|_| Failure::TooLarge)? {
            whole.push(line);
        }
        let mut news = Vec::new();
        for line in whole.iter().filter(|line| !line.is_empty()) {
            self.take(line, &mut news)?;
        }
        self.backoff.reset();
        Ok((!news.is_empty()).then_some(news))
    }

    /// Reads all of them.
    async fn list(&mut self) -> Result<Option<Vec<ShelfNews>>, Miss> {
        let (found, version) = self.shelf.list().await?;
        let names = found.iter().map(|it| it.name.clone()).collect();
        Ok(self.settle(&names, found, version))
    }

    /// Reads those that differ from what is known.
    async fn compare(&mut self) -> Result<Option<Vec<ShelfNews>>, Miss> {
        let (found, version) = self.shelf.versions().await?;
        let is_other = |it: &&ItemMetadata| self.known.get(&it.name) != Some(&it.resource_version);
        let others: Vec<&ItemMetadata> = found.iter().filter(is_other).collect();
        if others.len() > READ_MAX {
            return self.list().await;
        }
        let mut read = Vec::new();
        for other in others {
            // As of the list, so that what comes after it comes by the watch alone.
            read.extend(self.shelf.get_at(&other.name, &version).await?);
        }
        let names = found.into_iter().map(|it| it.name).collect();
        Ok(self.settle(&names, read, version))
    }

    /// Takes in which ones there are at a version, and what was read of them.
    fn settle(
        &mut self,
        names: &BTreeSet<Arc<str>>,
        read: Vec<Shelved>,
        version: Box<str>,
    ) -> Option<Vec<ShelfNews>> {
        let gone = self.known.keys().filter(|name| !names.contains(*name));
        let gone: Vec<Arc<str>> = gone.cloned().collect();
        let mut news = Vec::new();
        for name in gone {
            self.remove(&name, &mut news);
        }
        for shelved in read {
            self.put(shelved, &mut news);
        }
        self.version = Some(version);
        let is_first = !std::mem::replace(&mut self.is_listed, true);
        (is_first || !news.is_empty()).then_some(news)
    }

    /// Takes in one line of the watch.
    fn take(&mut self, line: &Bytes, news: &mut Vec<ShelfNews>) -> Result<(), Failure> {
        let broken = |_| Failure::Lost("a watch has a line that is no event".to_owned());
        let event: Event<'_> = serde_json::from_slice(line).map_err(broken)?;
        let version = match event.kind {
            "ADDED" | "MODIFIED" | "DELETED" => {
                let item: Item = serde_json::from_str(event.object.get()).map_err(broken)?;
                let shelved = item.read();
                let version = shelved.version.clone();
                match event.kind {
                    "DELETED" => self.remove(&shelved.name, news),
                    _ => self.put(shelved, news),
                }
                version
            }
            "BOOKMARK" => {
                let mark: Bookmark = serde_json::from_str(event.object.get()).map_err(broken)?;
                mark.metadata.resource_version
            }
            // The history that it would go on from is forgotten, or the server is in trouble.
            _ => return Err(Failure::Gone),
        };
        self.version = Some(version);
        Ok(())
    }

    fn put(&mut self, shelved: Shelved, news: &mut Vec<ShelfNews>) {
        let version = shelved.version.clone();
        let known = self.known.insert(shelved.name.clone(), version);
        if known.as_ref() != Some(&shelved.version) {
            news.push(ShelfNews::Put(shelved));
        }
    }

    fn remove(&mut self, name: &Arc<str>, news: &mut Vec<ShelfNews>) {
        if self.known.remove(name).is_some() {
            news.push(ShelfNews::Gone(name.clone()));
        }
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: PageMetadata,
}
