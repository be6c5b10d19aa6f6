//! The signing requests of one proxy: one at a time, and no more of them than a proxy needs,
//! however often it asks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::clock::Instant;

use crate::metrics::ServerCounters;
use crate::signing::{Anchors, NotSigned, SIGN_REQUEST_BYTES_MAX, TOKEN_BYTES_MAX};
use crate::wire::{self, FromServer, SessionError, from_server};

/// The most requests of a stream that are signed at once.
pub const SIGN_BURST: u32 = 4;
/// Then one in this time. A certificate that lives for a minute is renewed every 40 seconds.
pub const SIGN_INTERVAL: Duration = Duration::from_secs(15);

/// A request of a proxy that may be signed, if its token is good.
#[derive(Clone, PartialEq, Eq)]
pub struct Asked {
    /// PKCS#10, in DER, as the proxy sent it.
    pub request: Bytes,
    /// The token that came with it.
    pub token: String,
}

/// The signing of one stream.
#[derive(Default)]
pub(super) struct Signing {
    is_wanted: bool,
    anchors: Option<Arc<Anchors>>,
    /// Whether the proxy has not been told the newest anchors.
    owes_anchors: bool,
    asked: Option<Asked>,
    /// Whether a request has no answer yet.
    is_open: bool,
    answer: Option<wire::Signed>,
    /// The time up to which signatures are used up.
    used_until: Option<Instant>,
}

impl Signing {
    /// The proxy wants an identity, or not.
    pub(super) fn greeted(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
        self.owes_anchors = is_wanted && self.anchors.is_some();
    }

    /// The mesh is known by these now.
    pub(super) fn anchor(&mut self, anchors: Arc<Anchors>) {
        if self.anchors.as_ref() != Some(&anchors) {
            self.anchors = Some(anchors);
            self.owes_anchors = self.is_wanted;
        }
    }

    pub(super) fn receive(&mut self, asked: wire::SignRequest) -> Result<(), SessionError> {
        let may_ask = self.is_wanted && self.anchors.is_some();
        if !may_ask || self.is_open {
            return Err(SessionError::Unexpected("request to sign"));
        }
        if asked.request.len() > SIGN_REQUEST_BYTES_MAX || asked.token.len() > TOKEN_BYTES_MAX {
            return Err(SessionError::TooMany("bytes of a request to sign"));
        }
        self.is_open = true;
        self.asked = Some(Asked {
            request: asked.request,
            token: asked.token,
        });
        Ok(())
    }

    /// The request that is to be signed now. One that comes too soon is refused here.
    pub(super) fn take(&mut self, now: Instant) -> Option<Asked> {
        let asked = self.asked.take()?;
        let used = self.used_until.map_or(now, |until| until.max(now));
        let ahead = used.saturating_duration_since(now);
        let most = SIGN_INTERVAL * (SIGN_BURST - 1);
        if ahead > most {
            self.answer(Err(NotSigned {
                reason: "it asks too often".to_owned(),
                retry_after: ahead - most,
            }));
            return None;
        }
        self.used_until = Some(used + SIGN_INTERVAL);
        Some(asked)
    }

    /// Answers the request with its outcome.
    pub(super) fn answer(&mut self, outcome: Result<Vec<Bytes>, NotSigned>) {
        if !self.is_open {
            return;
        }
        let mut signed = wire::Signed::default();
        match outcome {
            Ok(chain) => {
                signed.chain = chain;
                signed.anchors = self.anchors.as_deref().map(Anchors::message);
            }
            Err(NotSigned {
                reason,
                retry_after,
            }) => {
                signed.refusal = wire::cut_text(&reason);
                let seconds = retry_after.as_secs_f64().ceil() as u64;
                signed.retry_after = u32::try_from(seconds).unwrap_or(u32::MAX);
            }
        }
        self.answer = Some(signed);
    }

    /// The next message to the proxy, which never waits behind a long difference.
    pub(super) fn poll(&mut self, counters: &ServerCounters) -> Option<FromServer> {
        if std::mem::take(&mut self.owes_anchors)
            && let Some(anchors) = &self.anchors
        {
            let body = from_server::Body::Anchors(anchors.message());
            return Some(wire::from_server(body));
        }
        let answer = self.answer.take()?;
        self.is_open = false;
        match answer.chain.is_empty() {
            true => counters.not_signed.inc(),
            false => counters.signed.inc(),
        };
        Some(wire::from_server(from_server::Body::Signed(answer)))
    }
}
