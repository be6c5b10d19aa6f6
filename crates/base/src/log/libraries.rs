//! Lines that libraries write: whoever sends odd packets can cause as many as it likes, and no
//! library bounds its own.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::sparse::SparseLines;
use super::suppressed::Topic;
use crate::clock;

/// The beginning of the targets of all own lines, each of which is bounded where it is written.
const OWN: &str = "myriad";

/// The place in a library that writes lines: its module and its line.
type Place = (&'static str, u32);

/// Leaves out what is too much of lines of libraries, for each place that writes some by itself.
#[derive(Default)]
pub(super) struct FewOfLibraries {
    /// No more than there are places in the libraries.
    told: Mutex<HashMap<Place, SparseLines>>,
}

impl FewOfLibraries {
    /// Makes room for a line; gives how many of its place were left out before it. None where it is
    /// left out as well.
    fn admit(&self, metadata: &'static Metadata<'static>, now: i64) -> Option<u64> {
        let place = (metadata.target(), metadata.line().unwrap_or_default());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = told.entry(place).or_insert_with(SparseLines::untold);
        lines.admit_at(now)
    }
}

impl<S: Subscriber> Layer<S> for FewOfLibraries {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if metadata.target().starts_with(OWN) {
            return true;
        }
        match self.admit(metadata, clock::unix_seconds()) {
            Some(0) => true,
            Some(left_out) => {
                let library = metadata.target();
                tracing::warn!(library, left_out, "lines like the next one were left out");
                true
            }
            None => {
                Topic::Library.suppress();
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::FewOfLibraries;
    use crate::log::sparse::LINES_MAX;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(text: &str, word: &str) -> usize {
        text.lines().filter(|line| line.contains(word)).count()
    }

    #[test]
    fn a_library_that_is_made_to_warn_without_end_writes_few_lines_of_each_kind() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish()
            .with(FewOfLibraries::default());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..1_000 {
                tracing::warn!(target: "hickory_proto::op", "an odd packet");
                tracing::warn!(target: "myriad_proxy::http", "an own line");
            }
            tracing::warn!(target: "hickory_proto::op", "another kind");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        // An interval may have ended meanwhile.
        let most = 2 * LINES_MAX as usize;
        let odd = lines(&text, "an odd packet");
        assert!((LINES_MAX as usize..=most).contains(&odd), "{odd}");
        assert_eq!(lines(&text, "an own line"), 1_000);
        assert_eq!(lines(&text, "another kind"), 1);
    }
}
