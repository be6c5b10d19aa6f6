//! Bytes both ways, once both ends have agreed on another protocol (RFC 9110, section 7.8; over
//! HTTP/2 RFC 8441).

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use super::upstream::retry::{Far, Switched};
use crate::codec::buffer::Buffer;
use crate::net::deadline::Deadline;
use crate::net::duplex::{Duplex, Flow};

/// Copies until both sides have ended, one fails, or neither says anything for `idle_timeout`.
pub async fn run(
    client: impl Flow,
    said: Option<Buffer>,
    mut switched: Switched,
    deadline: &Deadline,
    idle_timeout: Duration,
) {
    let duplex = Duplex::new(said, switched.said.take());
    match &mut switched.far {
        Far::H1(connection) => {
            copy(
                client,
                &mut connection.stream,
                duplex,
                deadline,
                idle_timeout,
            )
            .await
        }
        Far::H2(_, carrier) => copy(client, carrier, duplex, deadline, idle_timeout).await,
    }
}

async fn copy(
    mut client: impl Flow,
    endpoint: &mut impl Flow,
    mut duplex: Duplex,
    deadline: &Deadline,
    idle_timeout: Duration,
) {
    deadline.set(idle_timeout);
    poll_fn(|context| {
        if duplex.poll(context, &mut client, endpoint).is_ready() {
            return Poll::Ready(());
        }
        client.hold(duplex.memory());
        if duplex.take_moved() {
            deadline.set(idle_timeout);
        }
        deadline.poll_passed(context)
    })
    .await;
}
