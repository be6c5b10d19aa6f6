//! The gRPC client: connects, follows, and connects again.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use myriad_base::backoff::{Backoff, Waits, random_seed};
use myriad_base::clock;
use myriad_base::drain::Drained;
use myriad_model::Snapshot;
use tokio::time::timeout;

use super::TIMEOUT;
pub use super::knock::{ClientError, ClientSettings, Connect, TcpConnect};
use super::knock::{Knock, Opened};
use super::search::{Found, Search};
use crate::client::{ClientSession, Delivery, Received, Refusal};
use crate::demand::DemandedHost;
use crate::metrics::ClientCounters;
use crate::signing::{Anchors, Issued, NotSigned};
use crate::wire::{FromProxy, FromServer};

/// The interval at which the caller is asked whether it could now take what it refused.
const TICK: Duration = Duration::from_secs(1);

/// The waits before a proxy connects again. The first, after a connection that was of use, is
/// quick, since another replica is there already as a rule, and spread, since thousands lose theirs
/// at once. The longest, with the time that a connection may take, is how long after a server is
/// there again all its proxies are back.
static WAITS: Waits = Waits {
    first: Duration::ZERO..=Duration::from_millis(200),
    second: Duration::from_millis(200)..=Duration::from_millis(400),
    max: Duration::from_secs(2)..=Duration::from_secs(4),
};

/// The name under which a proxy holds what a server infers to be gone.
const HOLDER: &str = "what the controller does not have";

/// Puts commits into service. Called by one task, one call at a time.
pub trait Apply: Send {
    /// Puts a commit into service, and returns what it cannot take: each such resource keeps its
    /// last good version, and so should the rest of its unit, which is then to be named as well.
    /// A commit that was put into service goes to the log after it.
    fn apply(&mut self, delivery: Delivery) -> impl Future<Output = Vec<Refusal>> + Send;

    /// The cluster's key is now this one; the next record of the log must say so.
    fn rekey(&mut self, key: [u8; 32]);

    /// This is in service now, and the server is about to be told.
    fn holds(&mut self, _held: &Snapshot) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Called about once a second while a server is followed. Returns whether something that was
    /// refused could be taken now, so that it is worth asking for it again.
    fn tick(&mut self) -> bool {
        false
    }

    /// Whether an identity of the mesh is wanted. Asked for once per connection.
    fn wants_identity(&self) -> bool {
        false
    }

    /// The mesh is known by these now.
    fn anchored(&mut self, _anchors: Anchors) {}

    /// A request for a certificate (PKCS#10 in DER), if one is due. Asked about once a second
    /// while a server is followed that signs, and not before an earlier one was answered.
    fn request(&mut self) -> Option<Bytes> {
        None
    }

    /// Hands over the answer to the request. A connection that ends leaves one unanswered.
    fn signed(&mut self, _outcome: Result<Issued, NotSigned>) {}

    /// Whether hosts are told that clients ask for and that no object names. Asked for once per
    /// connection.
    fn demands(&self) -> bool {
        false
    }

    /// Somebody obtains certificates for such hosts from now on, or nobody does. Called with the
    /// latter first on every connection.
    fn set_demanding(&mut self, _is_open: bool) {}

    /// Waits for the next such host. Asked for while somebody obtains certificates; the future is
    /// dropped whenever something else happens, which must lose nothing.
    fn demanded(&mut self) -> impl Future<Output = DemandedHost> + Send {
        std::future::pending()
    }

    /// A host that was told is refused for this time; not at all where its certificate is there, or
    /// may come.
    fn answered(&mut self, _host: Arc<str>, _refused_for: Duration) {}

    /// A server has answered.
    fn connected(&mut self) {}

    /// The connection has ended, or none was made.
    fn disconnected(&mut self, _error: &ClientError) {}
}

/// A client that is ready to run.
pub struct Client {
    settings: ClientSettings,
    counters: ClientCounters,
    held: Snapshot,
    key: Option<[u8; 32]>,
    backoff: Backoff,
}

impl Client {
    /// A client that starts from what is in service already, for instance from the log, and the
    /// cluster's key as far as it is known from there.
    pub fn new(
        settings: ClientSettings,
        held: Snapshot,
        key: Option<[u8; 32]>,
        counters: ClientCounters,
    ) -> Self {
        Client {
            settings,
            counters,
            held,
            key,
            backoff: Backoff::new(&WAITS, random_seed()),
        }
    }

    /// Follows a server, and then the next, until the drain is asked for. Returns what is in
    /// service then.
    pub async fn run(mut self, apply: &mut impl Apply, drained: Drained) -> Snapshot {
        loop {
            let error = tokio::select! {
                error = self.connect_and_follow(apply) => error,
                () = drained.signalled() => return self.held,
            };
            self.counters.disconnections.inc();
            apply.disconnected(&error);
            let wait = self.backoff.fail();
            tracing::info!(%error, ?wait, "no controller is followed");
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = drained.signalled() => return self.held,
            }
        }
    }

    /// One connection from its beginning to its end, and those that it moves on to.
    async fn connect_and_follow(&mut self, apply: &mut impl Apply) -> ClientError {
        let opened = match timeout(TIMEOUT, self.knock(apply).open()).await {
            Err(_) => return ClientError::Timeout,
            Ok(Err(error)) => return error,
            Ok(Ok(opened)) => opened,
        };
        let (mut opened, mut first) = (opened, None);
        loop {
            self.counters.connections.inc();
            apply.connected();
            let ended = self.follow(opened, first, apply).await;
            self.settings.holds.set(HOLDER, None);
            match ended {
                Ended::Failed(error) => return error,
                Ended::Moved(found) => {
                    tracing::info!("another controller is followed, which has its source");
                    let (next, welcome) = *found;
                    (opened, first) = (next, Some(welcome));
                }
            }
        }
    }

    fn knock(&self, apply: &impl Apply) -> Knock {
        Knock {
            settings: self.settings.clone(),
            counters: self.counters.clone(),
            held: self.held.clone(),
            key: self.key,
            wants_identity: apply.wants_identity(),
            demands: apply.demands(),
        }
    }

    async fn follow(
        &mut self,
        opened: Opened,
        mut first: Option<FromServer>,
        apply: &mut impl Apply,
    ) -> Ended {
        let Opened {
            outgoing,
            mut incoming,
            mut session,
        } = opened;
        apply.set_demanding(false);
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut confirmations = self.settings.holds.confirmations();
        let (mut loss, mut search) = (None, Search::default());
        loop {
            self.release(&mut session, apply).await;
            if loss != session.loss() {
                loss = session.loss();
                self.settings.holds.set(HOLDER, loss);
            }
            search.look(session.is_server_lost(), self.held.digest(), || {
                self.knock(apply)
            });
            if let Some(asked) = self.ask(&mut session, apply)
                && outgoing.send(asked).await.is_err()
            {
                return ClientError::Closed.into();
            }
            let message = match first.take() {
                Some(first) => Ok(Some(first)),
                None => tokio::select! {
                    message = incoming.message() => message,
                    found = search.found() => return Ended::Moved(Box::new(found)),
                    _ = ticks.tick() => match apply.tick() {
                        true => return ClientError::Again.into(),
                        false => continue,
                    },
                    // The sender is part of the settings, so it lives.
                    Ok(()) = confirmations.changed() => {
                        session.confirm();
                        continue;
                    }
                    demanded = apply.demanded(), if session.may_demand() => {
                        let told = session.demand(&demanded);
                        if let Some(told) = told && outgoing.send(told).await.is_err() {
                            return ClientError::Closed.into();
                        }
                        continue;
                    }
                },
            };
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return ClientError::Closed.into(),
                Err(status) => return ClientError::from(Box::new(status)).into(),
            };
            let answer = match session.receive(message) {
                Err(error) => return ClientError::from(error).into(),
                Ok(received) => self.take(received, &mut session, apply).await,
            };
            if let Some(answer) = answer
                && outgoing.send(answer).await.is_err()
            {
                return ClientError::Closed.into();
            }
        }
    }

    /// Does what a message asks for, and returns the answer.
    async fn take(
        &mut self,
        received: Received,
        session: &mut ClientSession,
        apply: &mut impl Apply,
    ) -> Option<FromProxy> {
        match received {
            Received::Nothing => None,
            Received::Answer(answer) => Some(answer),
            Received::Key(key, answer) => {
                self.key = Some(key);
                self.held = session.held().clone();
                apply.rekey(key);
                Some(answer)
            }
            Received::Anchors(anchors) => {
                apply.anchored(anchors);
                None
            }
            Received::Signed(outcome) => {
                apply.signed(outcome);
                None
            }
            Received::Demanding(is_open) => {
                apply.set_demanding(is_open);
                None
            }
            Received::Answered(host, refused_for) => {
                apply.answered(host, refused_for);
                None
            }
            Received::Apply(delivery) => {
                let refusals = apply.apply(delivery).await;
                let ack = session.applied(&refusals)?;
                self.held = session.held().clone();
                apply.holds(&self.held).await;
                self.backoff.reset();
                Some(ack)
            }
        }
    }

    /// Puts removals into service that need not wait any more.
    async fn release(&mut self, session: &mut ClientSession, apply: &mut impl Apply) {
        while let Some(delivery) = session.release(clock::now()) {
            // A removal is never refused.
            apply.apply(delivery).await;
            self.held = session.held().clone();
            apply.holds(&self.held).await;
        }
    }

    /// Asks for a certificate, if one is due and may be asked for.
    fn ask(&self, session: &mut ClientSession, apply: &mut impl Apply) -> Option<FromProxy> {
        if !session.may_ask() {
            return None;
        }
        let request = apply.request()?;
        match (self.settings.token)() {
            Ok(token) => session.ask(request, token.trim().to_owned()),
            Err(error) => {
                apply.signed(Err(NotSigned {
                    reason: format!("the token cannot be read: {error}"),
                    retry_after: Duration::ZERO,
                }));
                None
            }
        }
    }
}

/// How a stream ended.
enum Ended {
    Failed(ClientError),
    /// Another server has what this one has lost.
    Moved(Box<Found>),
}

impl From<ClientError> for Ended {
    fn from(error: ClientError) -> Self {
        Ended::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::WAITS;

    #[test]
    fn the_first_attempt_is_quick_and_later_ones_wait_ever_longer_up_to_a_bound() {
        for (failures, low_ms, high_ms) in [
            (0, 0, 200),
            (1, 200, 400),
            (2, 400, 800),
            (5, 2_000, 4_000),
            (99, 2_000, 4_000),
        ] {
            let wait = |random| WAITS.after(failures, Duration::ZERO, random).as_millis();
            assert_eq!((wait(0), wait(u32::MAX)), (low_ms, high_ms), "{failures}");
        }
    }
}
