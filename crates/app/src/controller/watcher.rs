//! The events of proxies, as the rest of the controller learns them: which commits are live where,
//! and what was refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::ObjectKey;
use myriad_base::clock;
use myriad_base::metrics::Gauge;
use myriad_model::{Key, Sealer, wire};
use myriad_sync::{Event, Receipt, Views};
use myriad_translate::FindingsChange;
use tokio::sync::mpsc;

use super::held::HeldFindings;
use crate::board;
use crate::control::Event as ControlEvent;
use crate::live::{Live, Newcomer, RefusedResource};

/// How often is looked whether a commit is slow.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tells people what happens to proxies.
pub(super) struct Watcher {
    /// The sealer with the cluster's key, to find resources by.
    pub sealer: Sealer,
    pub views: Views,
    /// The views of the streams.
    pub streams: BTreeMap<u64, Arc<str>>,
    pub live: Live,
    /// The findings about what is held for proxies.
    pub held: HeldFindings,
    /// The inbox of findings.
    pub inbox: mpsc::Sender<ControlEvent>,
    /// Counts the proxies that are connected.
    pub connected: Gauge,
}

impl Watcher {
    /// Follows the events until the server ends.
    pub(super) async fn watch_over(mut self, mut events: mpsc::Receiver<Event>) {
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        loop {
            let found = tokio::select! {
                event = events.recv() => match event {
                    Some(event) => {
                        let followed = self.followed(&event);
                        let found = self.see(event);
                        if let Some((view, is_there)) = followed {
                            let followed = ControlEvent::Followed(view, is_there);
                            // As below.
                            let _ = self.inbox.send(followed).await;
                        }
                        found
                    }
                    None => return,
                },
                _ = looks.tick() => {
                    let mut found = self.live.look(clock::now());
                    let held = self.held.look();
                    found.added.extend(held.added);
                    found.removed.extend(held.removed);
                    found
                }
            };
            // A control loop that has ended tells nobody anything any more.
            if !found.is_empty() && self.inbox.send(ControlEvent::Found(found)).await.is_err() {
                return;
            }
        }
    }

    /// The view that a proxy begins to follow, or ends to.
    fn followed(&self, event: &Event) -> Option<(Arc<str>, bool)> {
        match event {
            Event::Connected { identity, .. } => Some((identity.view.clone(), true)),
            Event::Gone { stream, .. } => Some((self.streams.get(stream)?.clone(), false)),
            Event::Refused { .. } | Event::Acked { .. } => None,
        }
    }

    fn see(&mut self, event: Event) -> FindingsChange {
        match event {
            Event::Connected {
                stream,
                identity,
                instance,
                schema,
                ..
            } => {
                self.connected.inc();
                let proxy = &*identity.subject;
                tracing::info!(stream, proxy, instance, schema, "a proxy follows");
                self.streams.insert(stream, identity.view.clone());
                let newcomer = Newcomer {
                    subject: identity.subject,
                    view: identity.view,
                    instance,
                    schema,
                };
                self.live.connected(stream, newcomer);
            }
            Event::Refused {
                stream,
                receipts,
                receipts_omitted,
            } => return self.see_refused(stream, receipts, receipts_omitted),
            Event::Acked {
                stream,
                position,
                root,
                ..
            } => self.live.acked(stream, root, position),
            Event::Gone { stream, error } => {
                self.connected.dec();
                self.streams.remove(&stream);
                tracing::info!(stream, ?error, "a proxy is gone");
                return self.live.gone(stream);
            }
        }
        FindingsChange::default()
    }

    fn see_refused(&self, stream: u64, receipts: Vec<Receipt>, omitted: u64) -> FindingsChange {
        let mut refused = Vec::with_capacity(receipts.len());
        for Receipt { key, reason, .. } in receipts {
            let resource = key.to_string();
            tracing::warn!(stream, resource, reason, "a proxy refused a resource");
            refused.push(RefusedResource {
                object: self.object_of(stream, &key),
                key,
                reason,
            });
        }
        if omitted > 0 {
            tracing::warn!(stream, omitted, "a proxy refused more resources");
        }
        self.live.refused(stream, refused, omitted)
    }

    /// The object that a resource came from.
    fn object_of(&self, stream: u64, key: &Key) -> Option<ObjectKey> {
        let newest = self.views.newest(self.streams.get(&stream)?)?;
        let sealed = newest.get(self.sealer.slot(key), key)?;
        let resource = wire::decode(sealed.encoded()?).ok()?;
        board::object_of(&resource.origin)
    }
}
