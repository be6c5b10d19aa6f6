//! Handshakes with endpoints: each step has a turn, as those with clients have, by the namespace of
//! the upstream. An endpoint that keeps thousands of them waiting, and lets all go on at once,
//! holds up that namespace alone.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use myriad_model::MeshTls;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use super::dial::Dial;
use crate::admission::share::Owner;
use crate::admission::silent::source_of;
use crate::admission::turns::HandshakeTurn;
use crate::failure::FailureKind;
use crate::limits::Reached;
use crate::local::Local;
use crate::net::allowance::Allowance;
use crate::net::record::Tls;
use crate::net::stream::{PARTS_MAX, hear};
use crate::telemetry::count::Count;
use crate::telemetry::refusal::{PeerRefusal, PeerSide};

/// How long turns have been waited for together where an endpoint that hangs up has lost patience:
/// nothing is wrong with it, and another connection would only be one more that waits.
const OWN_WAIT: Duration = Duration::from_secs(1);

/// The time that a connection to an endpoint may take.
pub(super) struct ConnectTime {
    /// To connect, and for the endpoint's part of handshakes.
    pub(super) endpoint: Allowance,
    /// For a port to be free, as often as one is needed.
    pub(super) ports: Allowance,
    /// For all turns of handshakes together.
    turns: Allowance,
}

impl ConnectTime {
    /// The time of a connection that is about to begin.
    pub(super) fn new(dial: &Dial<'_>, local: &Local) -> Self {
        ConnectTime {
            endpoint: Allowance::new(dial.connect_timeout()),
            ports: Allowance::new(dial.connect_timeout()),
            turns: Allowance::new(local.limits.turn_timeout),
        }
    }

    fn failure(&self, error: &io::Error) -> FailureKind {
        failure(error.kind(), self.turns.spent())
    }
}

/// The failure where an endpoint has broken off, or is not believed, once turns have been waited
/// for so long.
fn failure(kind: io::ErrorKind, waited: Duration) -> FailureKind {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let has_hung_up = matches!(
        kind,
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    );
    match has_hung_up && waited >= OWN_WAIT {
        true => FailureKind::Overloaded,
        false => FailureKind::UpstreamTls,
    }
}

/// Does the handshake with an endpoint, and tells where that is not believed. Making the keys of
/// its hello has a turn, and so has each look at what the endpoint has sent: that verifies its
/// certificates. No turn is held while the endpoint is waited for, and what is allowed for that
/// does not run while a turn is. Returns the last turn as well.
///
/// # Errors
/// The endpoint is not believed, takes too long or breaks off, or no turn came in time.
pub(super) async fn shake_hands<'a>(
    (local, dial): (&'a Local, &Dial<'_>),
    tcp: TcpStream,
    (config, name): (Arc<ClientConfig>, ServerName<'static>),
    time: &mut ConnectTime,
) -> Result<(Box<Tls>, HandshakeTurn<'a>), FailureKind> {
    let owner = owner(dial);
    let mut turn = take_turn(local, dial, owner, time).await?;
    let session = turn.step(|| Tls::client(tcp, config, name));
    let mut session = Box::new(session.map_err(|_| FailureKind::UpstreamTls)?);
    for _ in 0..PARTS_MAX {
        let polled = poll_fn(|context| {
            let go_on = || session.poll_handshake(context, &mut |step| step());
            Poll::Ready(turn.step(go_on))
        });
        match polled.await {
            Poll::Ready(Ok(())) => return Ok((session, turn)),
            Poll::Ready(Err(error)) => {
                tell(&error, dial, local);
                return Err(time.failure(&error));
            }
            Poll::Pending => {}
        }
        drop(turn);
        let heard = time.endpoint.wait(hear(&mut session)).await;
        let heard = heard.map_err(|_| FailureKind::ConnectTimeout)?;
        heard.map_err(|error| time.failure(&error))?;
        turn = take_turn(local, dial, owner, time).await?;
    }
    // It comes in too many parts.
    Err(FailureKind::UpstreamTls)
}

/// The owner of the connections to an upstream's endpoints.
pub(super) fn owner(dial: &Dial<'_>) -> Owner {
    let sealed = dial.upstream.upstream.as_ref();
    let resource = sealed.and_then(|sealed| sealed.resource());
    let owner = resource.map(|it| Owner::of_upstream(&it.origin, &dial.upstream.name));
    owner.unwrap_or_default()
}

/// Waits for the turn of an upstream: in it those for whom connections are made have theirs.
async fn take_turn<'a>(
    local: &'a Local,
    dial: &Dial<'_>,
    owner: Owner,
    time: &mut ConnectTime,
) -> Result<HandshakeTurn<'a>, FailureKind> {
    let (turns, shares) = (&local.turns, &local.fairness.handshakes);
    if let Some(turn) = turns.begin(owner, shares) {
        return Ok(turn);
    }
    if shares.is_scarce() {
        local.counts.add(Count::HandshakeQueued);
    }
    let waiting = turns.wait(owner, source_of(dial.ends.client.ip()));
    let waited = time.turns.wait(waiting).await;
    waited.map_err(|_| {
        local.counts.add_reached(Reached::TurnTimeout);
        FailureKind::Overloaded
    })
}

/// Tells of an endpoint that is not believed.
fn tell(error: &io::Error, dial: &Dial<'_>, local: &Local) {
    let Some(refusal) = PeerRefusal::of(error) else {
        return;
    };
    let side = match dial.target.tls().map(|tls| tls.mesh) {
        None | Some(MeshTls::None) => PeerSide::Endpoint,
        Some(_) => PeerSide::Mesh,
    };
    refusal.tell(dial.target.address, side, &local.counts);
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{ConnectionReset, InvalidData, UnexpectedEof};
    use std::time::Duration;

    use super::{OWN_WAIT, failure};
    use crate::failure::FailureKind::{Overloaded, UpstreamTls};

    /// A retry of what waits already would make the line longer.
    #[test]
    fn an_endpoint_that_was_kept_waiting_until_it_hung_up_is_not_blamed() {
        let short = OWN_WAIT - Duration::from_millis(1);
        for hung_up in [ConnectionReset, UnexpectedEof] {
            assert_eq!(failure(hung_up, short), UpstreamTls);
            assert_eq!(failure(hung_up, OWN_WAIT), Overloaded);
        }
        // Nobody makes it say what is wrong by keeping it waiting.
        assert_eq!(failure(InvalidData, OWN_WAIT), UpstreamTls);
    }
}
