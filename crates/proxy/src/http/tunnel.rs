//! Bytes both ways, once both ends have agreed on another protocol (RFC 9110, section 7.8).

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use super::exchange::Switched;
use crate::net::buffer::Buffer;
use crate::net::deadline::Deadline;
use crate::net::stream::Stream;

/// One direction.
struct Half {
    waiting: Option<Buffer>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The reading side is at its end.
    Ended,
    /// The writing side was told so.
    Closed,
}

/// Copies until both sides have ended, one fails, or neither says anything for `idle_timeout`.
pub async fn run(
    mut client: Stream,
    said: Option<Buffer>,
    mut switched: Switched,
    deadline: &Deadline,
    idle_timeout: Duration,
) {
    let endpoint = &mut switched.link.stream;
    let mut up = Half::new(said);
    let mut down = Half::new(switched.said.take());
    deadline.set(idle_timeout);
    poll_fn(|context| {
        let polled = [
            up.poll(context, &mut client, endpoint),
            down.poll(context, endpoint, &mut client),
        ];
        let mut has_moved = false;
        for moved in polled {
            match moved {
                Ok(moved) => has_moved |= moved,
                Err(_) => return Poll::Ready(()),
            }
        }
        if up.state == State::Closed && down.state == State::Closed {
            return Poll::Ready(());
        }
        if has_moved {
            deadline.set(idle_timeout);
        }
        deadline.poll_passed(context)
    })
    .await;
}

impl Half {
    fn new(waiting: Option<Buffer>) -> Self {
        Half {
            waiting,
            state: State::Open,
        }
    }

    /// Copies as much as goes; whether anything did.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        from: &mut Stream,
        to: &mut Stream,
    ) -> io::Result<bool> {
        let mut has_moved = false;
        while self.state != State::Closed {
            if let Some(waiting) = &mut self.waiting {
                if to.poll_drain(context, waiting)?.is_pending() {
                    break;
                }
                self.waiting = None;
                has_moved = true;
            }
            if self.state == State::Ended {
                if to.poll_close(context)?.is_pending() {
                    break;
                }
                self.state = State::Closed;
                break;
            }
            match from.poll_fill(context, &mut self.waiting) {
                Poll::Ready(Ok(0)) => self.state = State::Ended,
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    // What TLS kept must not wait for the next bytes.
                    let _ = to.poll_send(context)?;
                    break;
                }
            }
        }
        Ok(has_moved)
    }
}
