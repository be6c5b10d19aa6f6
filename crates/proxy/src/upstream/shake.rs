//! Handshakes with endpoints: each step has a turn, as those with clients have, by the namespace of
//! the upstream. An endpoint that keeps thousands of them waiting, and lets all go on at once,
//! holds up that namespace alone.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use myriad_model::MeshTls;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::Dial;
use crate::admission::share::Owner;
use crate::admission::silent::source_of;
use crate::admission::turns::HandshakeTurn;
use crate::failure::FailureKind;
use crate::limits::Reached;
use crate::local::Local;
use crate::net::allowance::Allowance;
use crate::net::record::Tls;
use crate::net::stream::hear;
use crate::telemetry::count::Count;
use crate::telemetry::refusal::{PeerRefusal, PeerSide};

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
    allowance: &mut Allowance,
) -> Result<(Box<Tls>, HandshakeTurn<'a>), FailureKind> {
    let owner = owner(dial);
    let mut turn = take_turn(local, dial, owner).await?;
    let session = turn.step(|| Tls::client(tcp, config, name));
    let mut session = Box::new(session.map_err(|_| FailureKind::UpstreamTls)?);
    let mut is_hello = true;
    loop {
        let polled = poll_fn(|context| {
            let go_on = || session.poll_handshake(context, &mut |step| step());
            Poll::Ready(match is_hello {
                true => turn.step_on(go_on),
                false => turn.step(go_on),
            })
        });
        match polled.await {
            Poll::Ready(Ok(())) => return Ok((session, turn)),
            Poll::Ready(Err(error)) => {
                tell(&error, dial, local);
                return Err(FailureKind::UpstreamTls);
            }
            Poll::Pending => is_hello = false,
        }
        drop(turn);
        let heard = allowance.wait(hear(&mut session)).await;
        let heard = heard.map_err(|_| FailureKind::ConnectTimeout)?;
        heard.map_err(|_| FailureKind::UpstreamTls)?;
        turn = take_turn(local, dial, owner).await?;
    }
}

/// The owner of the connections to an upstream's endpoints.
fn owner(dial: &Dial<'_>) -> Owner {
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
) -> Result<HandshakeTurn<'a>, FailureKind> {
    let (turns, shares) = (&local.turns, &local.fairness.handshakes);
    if let Some(turn) = turns.begin(owner, shares) {
        return Ok(turn);
    }
    if shares.is_scarce() {
        local.counts.add(Count::HandshakeQueued);
    }
    let waiting = turns.wait(owner, source_of(dial.ends.client.ip()));
    let waited = timeout(local.limits.turn_timeout, waiting).await;
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
