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

use crate::log::sparse::SparseLines;
use crate::log::suppressed::Topic;

/// The lines about tasks that panicked.
static LINES: SparseLines = SparseLines::untold();

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

/// A future within a task of another name: it yields `None` once it has panicked, which is logged
/// with the name, and the task goes on.
pub fn guarded<F: Future>(
    name: &'static str,
    future: F,
) -> impl Future<Output = Option<F::Output>> {
    Named { name, future }
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
                match LINES.admit() {
                    Some(0) => tracing::error!(task = *named.name, "a task panicked"),
                    Some(left_out) => tracing::error!(
                        task = *named.name,
                        left_out,
                        "a task panicked, after others of which nothing was said"
                    ),
                    None => Topic::Panic.suppress(),
                }
                Poll::Ready(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::{guarded, spawn};

    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let ends = bytes.iter().filter(|byte| **byte == b'\n');
            self.0.fetch_add(ends.count(), Relaxed);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn faulty() {
        panic!("on purpose");
    }

    #[test]
    fn tasks_that_panic_without_end_are_few_lines_and_each_is_noticed() {
        const TASKS: usize = 200;
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone());
        let mut building = tokio::runtime::Builder::new_current_thread();
        let runtime = building.build().unwrap();
        let panicked = tracing::subscriber::with_default(subscriber.finish(), || {
            runtime.block_on(async {
                let mut panicked = 0;
                for _ in 0..TASKS {
                    let ended = spawn("faulty", faulty()).await;
                    panicked += usize::from(ended.unwrap().is_none());
                }
                // A task goes on behind a future of it that panics.
                assert_eq!(guarded("faulty", faulty()).await, None);
                assert_eq!(guarded("well", async { 7 }).await, Some(7));
                panicked
            })
        });
        assert_eq!(panicked, TASKS);
        let told = lines.0.load(Relaxed);
        assert!((1..TASKS / 2).contains(&told), "{told}");
    }
}
