//! Bytes both ways, once both ends have agreed on another protocol (RFC 9110, section 7.8; over
//! HTTP/2 RFC 8441).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::upstream::retry::{Far, Switched};
use super::worker::Worker;
use crate::admission::spaces::NOBODY;
use crate::admission::tunnel::TunnelHeld;
use crate::codec::buffer::Buffer;
use crate::limits::Reached;
use crate::net::deadline::Deadline;
use crate::net::duplex::{Duplex, Flow};

/// Copies until both sides have ended, one fails, neither says anything for as long as there is
/// patience, or too much is held for clients and this is one of those that hold most.
pub async fn run<C: Flow>(
    worker: Rc<Worker>,
    client: C,
    said: Option<Buffer>,
    mut switched: Switched,
    patience: (&Deadline, Duration),
) {
    let duplex = Duplex::new(said, switched.said.take());
    let space = switched
        .share
        .as_ref()
        .map_or(NOBODY, |share| share.space());
    let held = TunnelHeld::new(&worker.local.fairness.holdings, space, C::COUNTS);
    let ended = match &mut switched.far {
        Far::H1(connection) => {
            let ended = copy(client, &mut *connection.stream, duplex, held, patience).await;
            if ended == TunnelEnd::Whole {
                connection.stream.end();
            }
            ended
        }
        Far::H2(_, carrier) => copy(client, carrier, duplex, held, patience).await,
    };
    if ended == TunnelEnd::Evicted {
        worker.local.counts.add_reached(Reached::AllHeldBytes);
    }
}

/// How a tunnel ended.
#[derive(PartialEq, Eq)]
enum TunnelEnd {
    /// Both sides have ended, or nobody has said anything for long.
    Whole,
    /// One side has failed.
    Broken,
    /// It has to make room.
    Evicted,
}

/// Copies until the end, and tells which one.
async fn copy(
    mut client: impl Flow,
    endpoint: &mut impl Flow,
    mut duplex: Duplex,
    mut held: TunnelHeld,
    (deadline, idle_timeout): (&Deadline, Duration),
) -> TunnelEnd {
    deadline.set(idle_timeout);
    poll_fn(|context| {
        loop {
            let room = held.room();
            let polled = duplex.poll(context, &mut client, endpoint, room);
            if let Poll::Ready(ended) = polled {
                return Poll::Ready(ended.map_or(TunnelEnd::Broken, |()| TunnelEnd::Whole));
            }
            let bytes = duplex.memory() + client.kept() + endpoint.kept();
            client.hold(bytes);
            let has_moved = duplex.take_moved();
            if has_moved {
                deadline.set(idle_timeout);
            }
            if deadline.poll_passed(context).is_ready() {
                return Poll::Ready(TunnelEnd::Whole);
            }
            held.note(bytes, has_moved, duplex.is_held_up());
            if held.is_evicted() {
                return Poll::Ready(TunnelEnd::Evicted);
            }
            if held.poll_again(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}
