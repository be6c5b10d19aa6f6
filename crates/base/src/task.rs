//! Tasks with a name, whose panics are logged instead of lost.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the replacement that the ban names"
)]

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// Starts a task on the current runtime.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<Option<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tokio::spawn(Named { name, future })
}

/// Starts a task on the current thread's `LocalSet` or `LocalRuntime`.
pub fn spawn_local<F>(name: &'static str, future: F) -> JoinHandle<Option<F::Output>>
where
    F: Future + 'static,
{
    tokio::task::spawn_local(Named { name, future })
}

pin_project_lite::pin_project! {
    /// Yields `None` once the future has panicked; the panic is logged with the task's name.
    struct Named<F> {
        name: &'static str,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Named<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let named = self.project();
        match std::panic::catch_unwind(AssertUnwindSafe(|| named.future.poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_) => {
                tracing::error!(task = *named.name, "a task panicked");
                Poll::Ready(None)
            }
        }
    }
}
