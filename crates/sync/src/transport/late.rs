//! The events of a stream that wait until there is room for them.
//!
//! A stream never waits for whoever reads them: it serves its proxy, and keeps the newest. So what
//! one proxy says without end delays no other, and what waits is bounded: one acknowledgement of
//! each stream, and the refusals of one of a gateway. Further refusals are counted.

use tokio::sync::mpsc;

use super::event::Event;
use crate::server::Receipt;

/// The events that a stream has not been able to tell yet.
pub(super) struct Late {
    stream: u64,
    is_gateway: bool,
    refused: Option<(Vec<Receipt>, u64)>,
    acked: Option<Event>,
}

impl Late {
    /// Nothing waits.
    pub(super) fn nothing(stream: u64, is_gateway: bool) -> Self {
        Late {
            stream,
            is_gateway,
            refused: None,
            acked: None,
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_nothing(&self) -> bool {
        self.refused.is_none() && self.acked.is_none()
    }

    /// Tells an acknowledgement and the refusals that came with it, or keeps them. Returns how
    /// many refusals were dropped.
    pub(super) fn tell(
        &mut self,
        (receipts, omitted): (Vec<Receipt>, u64),
        acked: Event,
        events: &mpsc::Sender<Event>,
    ) -> u64 {
        let mut dropped = 0;
        match &mut self.refused {
            None if receipts.is_empty() && omitted == 0 => {}
            None => self.refused = Some((receipts, omitted)),
            Some((_, before)) => {
                dropped = receipts.len() as u64;
                *before = before.saturating_add(omitted).saturating_add(dropped);
            }
        }
        self.acked = Some(acked);
        while !self.is_nothing()
            && let Ok(place) = events.try_reserve()
        {
            let Some(event) = self.pop() else { break };
            place.send(event);
        }
        // Those of very many sidecars would be much to keep.
        if let Some((receipts, _)) = self.refused.take_if(|_| !self.is_gateway) {
            dropped += receipts.len() as u64;
        }
        dropped
    }

    /// Takes out the oldest of what waits.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let stream = self.stream;
        let refused = self.refused.take();
        let refused = refused.map(|(receipts, receipts_omitted)| Event::Refused {
            stream,
            receipts,
            receipts_omitted,
        });
        refused.or_else(|| self.acked.take())
    }
}

/// Waits for room for an event; nothing where nobody reads any more.
pub(super) async fn place(events: &mpsc::Sender<Event>) -> Option<mpsc::OwnedPermit<Event>> {
    events.clone().reserve_owned().await.ok()
}
