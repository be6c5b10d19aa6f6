//! Bytes both ways, once both ends have agreed on another protocol (RFC 9110, section 7.8).

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use super::exchange::Switched;
use crate::net::buffer::Buffer;
use crate::net::deadline::Deadline;
use crate::net::duplex::Duplex;
use crate::net::stream::Stream;

/// Copies until both sides have ended, one fails, or neither says anything for `idle_timeout`.
pub async fn run(
    mut client: Stream,
    said: Option<Buffer>,
    mut switched: Switched,
    deadline: &Deadline,
    idle_timeout: Duration,
) {
    let endpoint = &mut switched.link.stream;
    let mut duplex = Duplex::new(said, switched.said.take());
    deadline.set(idle_timeout);
    poll_fn(|context| {
        if duplex.poll(context, &mut client, endpoint).is_ready() {
            return Poll::Ready(());
        }
        if duplex.take_moved() {
            deadline.set(idle_timeout);
        }
        deadline.poll_passed(context)
    })
    .await;
}
