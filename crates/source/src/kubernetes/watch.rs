//! The IO around a core: asks what the core wants, and feeds it what comes back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use kube::client::Body;
use myriad_api::{ObjectKey, ObjectKind};
use myriad_base::clock;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::client::{self, Client, Form};
use super::core::{Core, Failure, Output, Request};
use super::counters::WatchCounters;
use super::definitions::{Definition, Presence};
use super::holding::Holding;
use super::lines::Lines;
use super::pace::{self, Label, Pace};
use super::status::edits::StatusEdits;
use super::{item, path};
use crate::Wanted;

/// The longest line of a watch: one object, of which etcd takes at most 1.5 MiB, escaped.
const LINE_BYTES_MAX: usize = 16 << 20;

/// A message from a watch to the task that merges.
#[derive(Debug)]
pub(super) struct Message {
    /// The number of the watch.
    pub(super) scope: usize,
    /// Which cluster it is.
    pub(super) epoch: u64,
    /// The changes.
    pub(super) output: Output,
    /// When they came.
    pub(super) noticed: Instant,
}

/// One watch with its connection.
pub(super) struct Watch {
    /// The number of the watch.
    pub(super) scope: usize,
    /// The client that asks.
    pub(super) client: Client,
    /// The next request, and what is known so far.
    pub(super) core: Core,
    /// A connection that is silent for longer is dead: the server sends a bookmark a minute.
    pub(super) idle_timeout: Duration,
    /// After which time the server is asked to end the watch.
    pub(super) watch_timeout: Duration,
    /// The queue of changes; a full one stops the reading, and so the server.
    pub(super) sender: mpsc::Sender<Message>,
    /// The objects that are kept although a list did not show them.
    pub(super) holding: Holding,
    /// Which cluster it was at the last list.
    pub(super) epoch: u64,
    /// How much was done.
    pub(super) counters: WatchCounters,
    /// Whether objects are asked for as a whole, and not for their metadata alone.
    pub(super) is_whole: bool,
    /// The definition that the kind needs; none for a kind that every server has.
    pub(super) definition: Option<Definition>,
    /// How often some watch found that an older state was put back.
    pub(super) restored: watch::Receiver<u64>,
    /// Tells all watches of the cluster.
    pub(super) tell_restored: Arc<watch::Sender<u64>>,
    /// Objects that are to be read again although they have not changed.
    pub(super) wanted: Wanted,
    /// Which namespaces wait with their large objects.
    pub(super) pace: Pace,
    /// The things that are told beside changes.
    pub(super) remarks: Remarks,
}

/// The things that are told of events beside changes.
pub(super) struct Remarks {
    /// Whether it is told who wrote an object, for which it is read once more.
    pub(super) names_writers: bool,
    /// The place where objects are shown whose status may be another.
    pub(super) edits: StatusEdits,
}

/// The receiver is gone, so there is nobody to watch for.
struct Unwanted;

enum Stop {
    Failed(Failure),
    Unwanted,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

impl From<Unwanted> for Stop {
    fn from(_: Unwanted) -> Self {
        Stop::Unwanted
    }
}

impl Watch {
    /// Watches until nobody wants to know any more.
    pub(super) async fn run(mut self) {
        loop {
            if self.settle().await.is_err() {
                return;
            }
            if self.restored.has_changed().unwrap_or(false) {
                self.restored.mark_unchanged();
                self.core.distrust();
            }
            let wait = match self.ask().await {
                Ok(wait) => wait,
                Err(Stop::Failed(failure)) => {
                    let kind = self.core.scope().kind.as_str();
                    tracing::debug!(kind, ?failure, "a watch has to begin anew");
                    self.counters.fail(self.core.scope().kind, &failure);
                    self.fail(failure)
                }
                Err(Stop::Unwanted) => return,
            };
            if self.flush().await.is_err() || self.rest(wait).await.is_err() {
                return;
            }
        }
    }

    /// Waits until the server has the kind. Until then it counts as empty.
    async fn settle(&mut self) -> Result<(), Unwanted> {
        while let Some(definition) = &mut self.definition {
            match definition.presence() {
                Some(Presence::Served(version)) => {
                    self.core.set_version(version);
                    if self.core.begins_list() {
                        definition.may_list().await;
                    }
                    let is_whole = definition.is_wanted_whole();
                    if std::mem::replace(&mut self.is_whole, is_whole) != is_whole {
                        self.core.list_anew();
                    }
                    return Ok(());
                }
                Some(Presence::Absent) => {
                    self.pace.clear();
                    self.core.set_absent(clock::now());
                }
                Some(Presence::Hidden(failure)) => self.core.set_hidden(&failure),
                None => {}
            }
            self.flush().await?;
            self.wait_for_definition().await?;
        }
        Ok(())
    }

    /// Waits for news of the definition, and lets held removals take effect meanwhile.
    async fn wait_for_definition(&mut self) -> Result<(), Unwanted> {
        let Some(definition) = &mut self.definition else {
            return Ok(());
        };
        let until = self.core.deadline();
        tokio::select! {
            () = definition.changed() => {}
            () = sleep_to(until) => self.core.tick(clock::now()),
            () = self.holding.confirmed() => self.core.confirm(),
            () = self.sender.closed() => return Err(Unwanted),
        }
        Ok(())
    }

    /// A request failed. Returns how long to wait.
    fn fail(&mut self, failure: Failure) -> Duration {
        let failure = match (failure, &self.definition) {
            (Failure::Missing(text), None) => Failure::Refused(text),
            (failure @ Failure::Missing(_), Some(definition)) => {
                definition.doubt();
                failure
            }
            (failure, _) => failure,
        };
        self.core.fail(failure)
    }

    /// One request and its answer. Returns how long to wait before the next.
    async fn ask(&mut self) -> Result<Duration, Stop> {
        if self.core.begins_list() {
            // It shows everything anew.
            self.pace.clear();
            // A list is where another cluster at the same address would show.
            self.epoch = self.client.epoch().await?;
        }
        let request = self.core.request(clock::now());
        self.counters.ask(self.core.scope().kind, &request);
        let seconds = self.watch_timeout.as_secs();
        let path = path::of_request(self.core.scope(), &request, seconds);
        let form = form(self.is_whole, &request);
        match request {
            Request::Page { .. } => {
                let page = self.client.page(&path, form).await?;
                self.take_page(&page)?;
            }
            Request::Probe => {
                let page = self.client.page(&path, form).await?;
                let list: List<'_> = parse(&page)?;
                if self.core.end_probe(list.version()?) {
                    self.tell_restored();
                }
            }
            Request::Check { .. } => {
                let page = self.client.page(&path, form).await?;
                let list: List<'_> = parse(&page)?;
                let first = list.items.iter().flatten().next();
                let head = first.map(|raw| item::read_head(self.core.scope().kind, raw.get()));
                let head = head.transpose().map_err(Failure::Lost)?;
                if self.core.end_check(head.as_ref()) {
                    self.tell_restored();
                }
            }
            Request::Stream | Request::Watch(_) => {
                let body = self.client.open(&path, form).await?;
                return self.follow(body).await;
            }
        }
        Ok(Duration::ZERO)
    }

    /// Others whose kinds are quiet cannot see what this one has seen.
    fn tell_restored(&mut self) {
        let kind = self.core.scope().kind;
        tracing::warn!(
            kind = kind.as_str(),
            "the cluster was put back to an older state: everything is listed anew"
        );
        self.counters.note_restored(kind);
        self.tell_restored.send_modify(|times| *times += 1);
        self.restored.mark_unchanged();
    }

    fn take_page(&mut self, page: &Bytes) -> Result<(), Failure> {
        let list: List<'_> = parse(page)?;
        for raw in list.items.iter().flatten() {
            put(&mut self.core, raw.get(), &self.remarks);
        }
        let token = list
            .metadata
            .token
            .as_deref()
            .filter(|token| !token.is_empty());
        let version = list.version()?;
        self.core
            .end_page(version, token.map(Into::into), clock::now());
        Ok(())
    }

    /// Reads a watch to its end.
    async fn follow(&mut self, mut body: Body) -> Result<Duration, Stop> {
        let mut lines = Lines::new(LINE_BYTES_MAX);
        let mut idle_at = clock::now() + self.idle_timeout;
        loop {
            let until = self.core.deadline().map_or(idle_at, |at| at.min(idle_at));
            let paced = self.pace.deadline();
            let frame = tokio::select! {
                frame = body.frame() => frame,
                Ok(()) = self.restored.changed() => {
                    if self.core.distrust() {
                        return Ok(Duration::ZERO);
                    }
                    continue;
                }
                () = sleep_to(paced) => {
                    self.take_due()?;
                    self.flush().await?;
                    continue;
                }
                keys = self.wanted.next() => {
                    self.read_again(keys).await?;
                    self.flush().await?;
                    continue;
                }
                () = changed(&mut self.definition) => {
                    if self.is_settled() {
                        self.flush().await?;
                        continue;
                    }
                    return Ok(Duration::ZERO);
                }
                () = self.holding.confirmed() => {
                    self.core.confirm();
                    self.flush().await?;
                    continue;
                }
                () = tokio::time::sleep_until(until) => {
                    self.core.tick(clock::now());
                    self.flush().await?;
                    if until < idle_at {
                        continue;
                    }
                    return Err(Failure::Idle.into());
                }
            };
            let data = match frame {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(Failure::Lost(error.to_string()).into()),
                None => return Ok(self.core.end_watch(clock::now())),
            };
            idle_at = clock::now() + self.idle_timeout;
            lines.push(&data);
            while let Some(line) = lines.take().map_err(|_| Failure::TooLarge)? {
                self.take_line(line)?;
            }
            self.flush().await?;
            if self.core.is_watch_over() {
                return Ok(Duration::ZERO);
            }
        }
    }

    /// One line of a watch. A large one of a namespace that has to wait is set aside.
    fn take_line(&mut self, line: Bytes) -> Result<(), Failure> {
        let Watch {
            core,
            counters,
            pace,
            remarks,
            ..
        } = self;
        let is_large = line.len() >= pace::LARGE_BYTES;
        // What a list does not show before it ends counts as absent.
        if core.is_listing() || !is_large && pace.is_empty() {
            return take_event(core, &line, (counters, remarks));
        }
        let Some(label) = label_of(core.scope().kind, &line) else {
            return take_event(core, &line, (counters, remarks));
        };
        if !is_large {
            pace.forget(&label.id);
            return take_event(core, &line, (counters, remarks));
        }
        match pace.admit(&label, line, clock::now()) {
            Some(line) => self.read_large(&label, &line),
            None => Ok(()),
        }
    }

    /// Reads what was set aside and has waited for long enough; the others wait for it in turn.
    fn take_due(&mut self) -> Result<(), Failure> {
        match self.pace.take_due(clock::now()) {
            Some((label, line)) => self.read_large(&label, &line),
            None => Ok(()),
        }
    }

    fn read_large(&mut self, label: &Label, line: &[u8]) -> Result<(), Failure> {
        let before = clock::processor_time();
        let taken = take_event(&mut self.core, line, (&self.counters, &self.remarks));
        let took = clock::processor_time().saturating_sub(before);
        self.pace.charge(&label.id, took, clock::now());
        taken
    }

    /// Reads objects again. Those that could not be read stay wanted.
    async fn read_again(&mut self, mut keys: BTreeSet<ObjectKey>) -> Result<(), Failure> {
        let form = form(self.is_whole, &Request::Probe);
        let kind = self.core.scope().kind;
        while let Some(key) = keys.pop_first() {
            let path = path::of_object(self.core.scope(), key.id());
            let page = match self.client.page(&path, form).await {
                Ok(page) => page,
                Err(failure) => {
                    keys.insert(key);
                    self.wanted.add(keys);
                    return Err(failure);
                }
            };
            let list: List<'_> = parse(&page)?;
            for json in list.items.iter().flatten().map(|raw| raw.get()) {
                match item::read_head(kind, json) {
                    Ok(head) if head.id == *key.id() => {
                        self.core.put_again(&head, || item::decode(kind, json));
                    }
                    Ok(_) => {}
                    Err(problem) => self.core.note_unreadable(problem),
                }
            }
        }
        Ok(())
    }

    /// Whether the watch that is under way is the right one by the newest definitions.
    fn is_settled(&mut self) -> bool {
        let Some(definition) = &mut self.definition else {
            return true;
        };
        let served = Some(Presence::Served(self.core.scope().api_version));
        definition.presence() == served && definition.is_wanted_whole() == self.is_whole
    }

    /// Hands on what the core has seen.
    async fn flush(&mut self) -> Result<(), Unwanted> {
        self.holding.tell(self.core.scope(), self.core.loss());
        if let Some(mut output) = self.core.take() {
            output.version = self.pace.read_up_to(output.version);
            if let Some(definition) = &mut self.definition {
                definition.note_selecting(&output.changes);
            }
            let message = Message {
                scope: self.scope,
                epoch: self.epoch,
                output,
                noticed: clock::now(),
            };
            self.sender.send(message).await.map_err(|_| Unwanted)?;
        }
        if let Some(definition) = self.definition.as_ref().filter(|_| self.core.is_whole()) {
            definition.note_listed();
        }
        Ok(())
    }

    /// Waits, and lets held removals take effect meanwhile.
    async fn rest(&mut self, wait: Duration) -> Result<(), Unwanted> {
        if wait.is_zero() {
            return Ok(());
        }
        let end: Instant = clock::now() + wait;
        tokio::select! {
            () = tokio::time::sleep_until(end) => {}
            () = self.sender.closed() => return Err(Unwanted),
        }
        self.core.tick(clock::now());
        self.flush().await
    }
}

/// Waits for news of a definition; for ever, where none is needed.
async fn changed(definition: &mut Option<Definition>) {
    match definition {
        Some(definition) => definition.changed().await,
        None => std::future::pending().await,
    }
}

/// An answer to a list, with its objects as they stand.
#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: Box<str>,
    #[serde(default, rename = "continue")]
    token: Option<Box<str>>,
}

impl List<'_> {
    fn version(&self) -> Result<u64, Failure> {
        let text = &self.metadata.resource_version;
        let unreadable = |_| Failure::Lost("a list has no resourceVersion".to_owned());
        text.parse().map_err(unreadable)
    }
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    event_type: Box<str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|_| Failure::Lost("the answer is not what the API promises".to_owned()))
}

/// The form in which objects are asked for: of Pods, whose status changes all the time, their
/// metadata, while that is enough.
fn form(is_whole: bool, request: &Request) -> Form {
    match request {
        _ if is_whole => Form::Whole,
        Request::Stream | Request::Watch(_) => Form::Metadata,
        Request::Page { .. } | Request::Probe | Request::Check { .. } => Form::MetadataList,
    }
}

/// Waits until a time; for ever, where there is none.
async fn sleep_to(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The name and version of the object that an event puts or deletes; none for other events.
fn label_of(kind: ObjectKind, line: &[u8]) -> Option<Label> {
    let event: Event<'_> = serde_json::from_slice(line).ok()?;
    let is_object = matches!(&*event.event_type, "ADDED" | "MODIFIED" | "DELETED");
    is_object.then(|| item::read_label(kind, event.object.get()))?
}

/// One event of a watch.
fn take_event(
    core: &mut Core,
    line: &[u8],
    (counters, remarks): (&WatchCounters, &Remarks),
) -> Result<(), Failure> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let event: Event<'_> = parse(line)?;
    let json = event.object.get();
    counters.take(core.scope().kind, &event.event_type);
    match &*event.event_type {
        "ADDED" | "MODIFIED" => put(core, json, remarks),
        "DELETED" => match item::read_head(core.scope().kind, json) {
            Ok(head) => core.delete(&head),
            Err(problem) => core.note_unreadable(problem),
        },
        "BOOKMARK" => match item::read_bookmark(json) {
            Ok(bookmark) => core.bookmark(bookmark, clock::now()),
            Err(problem) => return Err(Failure::Lost(problem)),
        },
        "ERROR" => {
            let status: client::Status = parse(json.as_bytes())?;
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY);
            return Err(client::failure(code, &status.message, status.retry_after()));
        }
        // A type of event that is newer than this program.
        _ => {}
    }
    Ok(())
}

fn put(core: &mut Core, json: &str, remarks: &Remarks) {
    let kind: ObjectKind = core.scope().kind;
    match item::read_head(kind, json) {
        Ok(head) => {
            let id = head.id.clone();
            let is_as_before = core.put(head, || item::decode(kind, json));
            if is_as_before && ObjectKind::GATEWAY_API.contains(&kind) {
                let key = ObjectKey::from_id(kind, id);
                remarks.edits.show(&key, json);
            } else if remarks.names_writers {
                core.attribute(&id, || item::read_writer(json));
            }
        }
        Err(problem) => core.note_unreadable(problem),
    }
}
