//! Lines of the access log on their way to a collector.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use myriad_base::clock;
use myriad_base::metrics::Counter;
use tokio::sync::mpsc;

/// The most lines that wait.
const LINES_MAX: usize = 16_384;

/// The most bytes of lines that wait.
const BYTES_MAX: usize = 16 << 20;

/// The most bytes of one line; the rest of a longer one is left out.
const LINE_BYTES_MAX: usize = 256 << 10;

/// The most lines, and about the most bytes, of one message.
const MESSAGE_LINES_MAX: usize = 2_048;
const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// A line, and when it was seen, since 1970.
type SeenLine = (Duration, String);

/// The queue of lines. Cheap to clone.
#[derive(Clone)]
pub struct LineQueue(Arc<Queue>);

struct Queue {
    waiting: mpsc::Sender<SeenLine>,
    /// The other end, until somebody sends.
    inbox: Mutex<Option<mpsc::Receiver<SeenLine>>>,
    bytes: AtomicUsize,
    dropped: Counter,
}

/// The end that lines are written to.
pub struct LineWriter {
    queue: LineQueue,
    /// A line whose end has not come.
    part: Vec<u8>,
}

/// The end that lines are taken from.
pub(super) struct Lines {
    queue: LineQueue,
    inbox: mpsc::Receiver<SeenLine>,
    /// One that was waited for.
    first: Option<SeenLine>,
}

impl LineQueue {
    /// A queue of nothing.
    pub fn new() -> Self {
        let (waiting, inbox) = mpsc::channel(LINES_MAX);
        LineQueue(Arc::new(Queue {
            waiting,
            inbox: Mutex::new(Some(inbox)),
            bytes: AtomicUsize::new(0),
            dropped: Counter::default(),
        }))
    }

    /// The end that lines are written to.
    pub fn writer(&self) -> LineWriter {
        LineWriter {
            queue: self.clone(),
            part: Vec::new(),
        }
    }

    /// How many lines did not get to the collector.
    pub(super) fn dropped(&self) -> &Counter {
        &self.0.dropped
    }

    /// The end that lines are taken from; none the second time.
    pub(super) fn take_lines(&self) -> Option<Lines> {
        let mut inbox = self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Lines {
            queue: self.clone(),
            inbox: inbox.take()?,
            first: None,
        })
    }

    fn push(&self, line: &[u8]) {
        let Queue {
            waiting,
            bytes,
            dropped,
            ..
        } = &*self.0;
        let line = String::from_utf8_lossy(line).into_owned();
        let length = line.len();
        let before = bytes.fetch_add(length, Ordering::Relaxed);
        let fits = before + length <= BYTES_MAX;
        if !fits || waiting.try_send((clock::since_epoch(), line)).is_err() {
            bytes.fetch_sub(length, Ordering::Relaxed);
            dropped.inc();
        }
    }
}

impl Default for LineQueue {
    fn default() -> Self {
        LineQueue::new()
    }
}

impl fmt::Debug for LineQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("lines for a collector")
    }
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = piece.strip_suffix(b"\n");
            let text = line.unwrap_or(piece);
            let room = LINE_BYTES_MAX.saturating_sub(self.part.len());
            self.part
                .extend_from_slice(text.get(..room).unwrap_or(text));
            if line.is_some() {
                self.queue.push(&self.part);
                self.part.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Waits until there is a line. Dropping the future loses nothing.
    pub(super) async fn wait(&mut self) {
        if self.first.is_none() {
            self.first = self.inbox.recv().await;
        }
    }

    /// Whether there are as many as one message has, so that waiting for more only loses some.
    pub(super) fn fill_a_message(&self) -> bool {
        let bytes = self.queue.0.bytes.load(Ordering::Relaxed);
        self.inbox.len() >= MESSAGE_LINES_MAX || bytes >= MESSAGE_BYTES_MAX
    }

    /// The lines that are there, as many as one message has.
    pub(super) fn take(&mut self) -> Vec<SeenLine> {
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while lines.len() < MESSAGE_LINES_MAX && bytes < MESSAGE_BYTES_MAX {
            let next = self.first.take().or_else(|| self.inbox.try_recv().ok());
            let Some(next) = next else {
                break;
            };
            bytes += next.1.len();
            lines.push(next);
        }
        self.queue.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::{BYTES_MAX, LINE_BYTES_MAX, LINES_MAX, LineQueue, MESSAGE_LINES_MAX};

    #[test]
    fn lines_are_whole_however_they_are_written() {
        let queue = LineQueue::new();
        let (mut writer, mut lines) = (queue.writer(), queue.take_lines().expect("lines"));
        assert!(queue.take_lines().is_none());
        for piece in ["fir", "st\nsecond\nthi", "rd", "\n", "open"] {
            writer.write_all(piece.as_bytes()).expect("written");
        }
        let texts = |lines: Vec<super::SeenLine>| -> Vec<String> {
            lines.into_iter().map(|(_, line)| line).collect()
        };
        assert_eq!(texts(lines.take()), ["first", "second", "third"]);
        assert!(lines.take().is_empty());
        writer
            .write_all(&vec![b'x'; LINE_BYTES_MAX + 9])
            .expect("written");
        writer.write_all(b"\n").expect("written");
        assert_eq!(lines.take()[0].1.len(), LINE_BYTES_MAX);
    }

    #[test]
    fn no_more_waits_than_there_is_room_for() {
        let queue = LineQueue::new();
        let mut writer = queue.writer();
        for _ in 0..LINES_MAX + 5 {
            writer.write_all(b"x\n").expect("written");
        }
        assert_eq!(queue.dropped().get(), 5);
        let mut lines = queue.take_lines().expect("lines");
        assert!(lines.fill_a_message());
        assert_eq!(lines.take().len(), MESSAGE_LINES_MAX);
        while !lines.take().is_empty() {}
        assert!(!lines.fill_a_message());
        let long = [&vec![b'y'; LINE_BYTES_MAX][..], b"\n"].concat();
        for _ in 0..BYTES_MAX / LINE_BYTES_MAX + 3 {
            writer.write_all(&long).expect("written");
        }
        assert_eq!(queue.dropped().get(), 5 + 3);
        assert!(lines.fill_a_message());
    }
}
