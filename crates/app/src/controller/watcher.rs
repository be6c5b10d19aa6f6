//! The events of proxies, as the rest of the controller learns them: which commits are live where,
//! and what was refused.

mod lines;

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

use self::lines::ProxyLines;
use super::held::HeldFindings;
use crate::board;
use crate::control::{Callers, Event as ControlEvent};
use crate::live::{Live, Newcomer, RefusedResource, Speaker};

/// How often is looked whether a commit is slow.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tells people what happens to proxies.
pub(super) struct Watcher {
    /// The sealer with the cluster's key, to find resources by.
    pub sealer: Sealer,
    pub views: Views,
    /// The streams that are followed.
    pub streams: FollowedStreams,
    pub live: Live,
    /// The findings about what is held for proxies.
    pub held: HeldFindings,
    /// The inbox of findings.
    pub inbox: mpsc::Sender<ControlEvent>,
    /// Where it is told who follows which view.
    pub callers: Callers,
    /// Counts the proxies that are connected.
    pub connected: Gauge,
}

/// The streams of connected proxies, and the lines of the log about them.
#[derive(Default)]
pub(super) struct FollowedStreams {
    views: BTreeMap<u64, (Arc<str>, Speaker)>,
    lines: ProxyLines,
}

impl FollowedStreams {
    /// Makes room for a line about a stream; gives how many were left out before it.
    fn admit(&mut self, stream: u64) -> Option<u64> {
        let (_, speaker) = self.views.get(&stream)?;
        self.lines.admit(speaker, clock::unix_seconds())
    }

    fn view(&self, stream: u64) -> Option<&Arc<str>> {
        self.views.get(&stream).map(|(view, _)| view)
    }
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
                            self.callers.follow(view, is_there);
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
            Event::Gone { stream, .. } => Some((self.streams.view(*stream)?.clone(), false)),
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
                // Its token says who it is, and nothing that it says itself.
                let speaker = match identity.owner.is_gateway {
                    true => Speaker::Operator,
                    false => Speaker::Namespace(identity.owner.namespace),
                };
                let followed = (identity.view.clone(), speaker.clone());
                self.streams.views.insert(stream, followed);
                if let Some(left_out) = self.streams.admit(stream) {
                    let proxy = &*identity.subject;
                    tracing::info!(stream, proxy, instance, schema, left_out, "a proxy follows");
                }
                let newcomer = Newcomer {
                    subject: identity.subject,
                    view: identity.view,
                    instance,
                    schema,
                    speaker,
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
                if let Some(left_out) = self.streams.admit(stream) {
                    tracing::info!(stream, ?error, left_out, "a proxy is gone");
                }
                self.streams.views.remove(&stream);
                return self.live.gone(stream);
            }
        }
        FindingsChange::default()
    }

    fn see_refused(&mut self, stream: u64, receipts: Vec<Receipt>, omitted: u64) -> FindingsChange {
        let refused = receipts.into_iter().map(|receipt| RefusedResource {
            object: self.object_of(stream, &receipt.key),
            key: receipt.key,
            reason: receipt.reason,
        });
        let refused = refused.collect();
        let found = self.live.refused(stream, refused, omitted);
        // What is known already was told.
        for finding in &found.added {
            if let Some(left_out) = self.streams.admit(stream) {
                let refusal = &*finding.message;
                tracing::warn!(stream, refusal, left_out, "a proxy refused a resource");
            }
        }
        if omitted > 0
            && let Some(left_out) = self.streams.admit(stream)
        {
            tracing::warn!(stream, omitted, left_out, "a proxy refused more resources");
        }
        found
    }

    /// The object that a resource came from. It may be anybody's: who says something of it has to
    /// be asked.
    fn object_of(&self, stream: u64, key: &Key) -> Option<ObjectKey> {
        let newest = self.views.newest(self.streams.view(stream)?)?;
        let sealed = newest.get(self.sealer.slot(key), key)?;
        let resource = wire::decode(sealed.encoded()?).ok()?;
        board::object_of(&resource.origin)
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{ObjectKey, ObjectKind};
    use myriad_base::hold::{HoldLimits, Holds};
    use myriad_base::metrics::{Gauge, Metrics};
    use myriad_model::{
        Delta, Endpoints, Form, Key, Kind, Name, Origin, OriginKind, Position, Resource, Sealer,
        Snapshot, Value, Version, Writer,
    };
    use myriad_sync::{Event, Identity, Owner, Receipt, Views};
    use tokio::sync::{mpsc, watch};

    use super::{Callers, FollowedStreams, HeldFindings, Watcher};
    use crate::live::Live;

    const KEY: [u8; 32] = [3; 32];

    fn connected(stream: u64, namespace: &str, is_gateway: bool) -> Event {
        Event::Connected {
            stream,
            identity: Identity {
                subject: "somebody".into(),
                view: "all".into(),
                owner: Owner {
                    namespace: namespace.into(),
                    pod: "pod".into(),
                    is_gateway,
                },
            },
            instance: "proxy".to_owned(),
            schema: 1,
            position: Position::default(),
        }
    }

    fn watcher(newest: &watch::Sender<Snapshot>) -> Watcher {
        Watcher {
            sealer: Sealer::new(KEY, Form::Encoded),
            views: Views::one("all", newest.subscribe()),
            streams: FollowedStreams::default(),
            live: Live::new(&Metrics::new()),
            held: HeldFindings::new(Holds::new(HoldLimits::NONE), None),
            inbox: mpsc::channel(1).0,
            callers: Callers::new(mpsc::channel(1).0),
            connected: Gauge::default(),
        }
    }

    #[test]
    fn a_refusal_that_is_known_makes_no_line_of_the_log_however_often_it_comes() {
        let mut watcher = watcher(&watch::Sender::new(Snapshot::new()));
        watcher.see(connected(1, "blog", false));
        let mut refuse = || {
            let receipt = |number: usize| Receipt {
                key: Key::new(Kind::Endpoints, &*format!("e{number}")),
                version: Version([0; 16]),
                reason: "it says so".to_owned(),
            };
            let found = watcher.see(Event::Refused {
                stream: 1,
                receipts: (0..1_024).map(receipt).collect(),
                receipts_omitted: 0,
            });
            (found.added.len(), watcher.streams.lines.counts())
        };
        let (found, lines) = refuse();
        assert!(found > 0 && lines.0 > 0, "{found} {lines:?}");
        for _ in 0..100 {
            assert_eq!(refuse(), (0, lines));
        }
    }

    #[test]
    fn what_a_proxy_says_is_told_of_objects_by_what_its_token_proves() {
        let key = Key {
            kind: Kind::Endpoints,
            name: Name::from("shop/cart:80"),
        };
        let resource = Resource {
            origin: Origin {
                kind: OriginKind::Service,
                id: "shop/cart".into(),
            },
            value: Value::Endpoints(Box::new(Endpoints::new(Box::default()))),
        };
        let mut writer = Writer::new(Sealer::new(KEY, Form::Encoded));
        let resources = vec![(key.name.clone(), resource)];
        writer.replace(&[], resources, &mut Delta::default());
        let newest = watch::Sender::new(writer.snapshot().clone());
        let mut watcher = watcher(&newest);
        let mut told = |stream: u64, namespace: &str, is_gateway: bool| {
            watcher.see(connected(stream, namespace, is_gateway));
            let receipt = Receipt {
                key: key.clone(),
                version: Version([0; 16]),
                reason: "it says so".to_owned(),
            };
            let found = watcher.see(Event::Refused {
                stream,
                receipts: vec![receipt],
                receipts_omitted: 0,
            });
            found.added[0].object.clone()
        };
        let object = ObjectKey::new(ObjectKind::Service, "shop", "cart");
        assert_eq!(told(1, "blog", false), None);
        assert_eq!(told(2, "shop", false), Some(object.clone()));
        assert_eq!(told(3, "gateways", true), Some(object));
    }
}
