//! The hosts that this proxy tells, as far as it may.

use std::sync::Arc;
use std::time::Duration;

use super::ClientSession;
use crate::demand::{self, DEMANDS_OPEN_MAX, DemandedHost};
use crate::wire::{self, FromProxy, SessionError, from_proxy};

/// The hosts of one stream, from this end.
#[derive(Default)]
pub(super) struct Demanding {
    /// Whether it tells hosts, if it may.
    pub(super) is_wanted: bool,
    /// Whether the server has said that somebody obtains certificates.
    is_open: bool,
    /// How many have no answer.
    unanswered: usize,
}

impl Demanding {
    /// The server says whether somebody obtains certificates.
    pub(super) fn set_open(&mut self, is_open: bool) -> Result<bool, SessionError> {
        if !self.is_wanted {
            return Err(SessionError::Unexpected("state of demand"));
        }
        self.is_open = is_open;
        Ok(is_open)
    }

    /// The server answers one.
    pub(super) fn take_answer(
        &mut self,
        answer: wire::DemandAnswer,
    ) -> Result<(Arc<str>, Duration), SessionError> {
        let left = self.unanswered.checked_sub(1);
        self.unanswered = left.ok_or(SessionError::Unexpected("answer to a demand"))?;
        if !myriad_model::is_demandable(&answer.host) {
            return Err(SessionError::Invalid("host in demand"));
        }
        let refused_for = demand::refused_for(answer.refused_for);
        Ok((answer.host.into(), refused_for))
    }
}

impl ClientSession {
    /// This session, which tells hosts that clients ask for and that no object names.
    #[must_use]
    pub fn demanding(mut self) -> Self {
        self.demanding.is_wanted = true;
        self
    }

    /// Whether a host may be told now: somebody obtains certificates, and not too many hosts are
    /// without an answer.
    pub fn may_demand(&self) -> bool {
        self.demanding.is_open && self.demanding.unanswered < DEMANDS_OPEN_MAX
    }

    /// Tells a host, if that may be. None of one that cannot have a certificate.
    pub fn demand(&mut self, demanded: &DemandedHost) -> Option<FromProxy> {
        if !self.may_demand() || !myriad_model::is_demandable(&demanded.host) {
            return None;
        }
        self.demanding.unanswered += 1;
        Some(wire::from_proxy(from_proxy::Body::Demand(wire::Demand {
            host: demanded.host.to_string(),
            used: demanded.is_used,
        })))
    }
}
