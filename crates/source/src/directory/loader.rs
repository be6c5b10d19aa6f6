//! Reads many files on several threads, for the first load.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::file::{Disk, FileState, Files};
use super::parsed::{Known, Parsed};
use super::{Counters, Limits};

/// A thread hands over what it has read when it has so many files or bytes of text.
const CHUNK_FILES: usize = 64;
const CHUNK_BYTES: usize = 4 << 20;
/// More threads than these would wait for the one that takes their results.
const THREADS_MAX: usize = 8;

/// How many chunks may wait for the taker.
pub(crate) const CHUNKS_WAITING_MAX: usize = 4;

/// Starts to read the files, each as one that nothing is known of. The order of the chunks is
/// not defined. The threads end with the last file, or once `send` returns false.
pub(crate) fn start(
    files: Vec<Arc<str>>,
    limits: &Limits,
    counters: &Counters,
    send: impl Fn(Vec<Parsed>) -> bool + Clone + Send + 'static,
) -> std::io::Result<()> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let shared = Arc::new((files, AtomicUsize::new(0)));
    for _ in 0..threads.clamp(1, THREADS_MAX) {
        let (shared, limits) = (shared.clone(), limits.clone());
        let (counters, send) = (counters.clone(), send.clone());
        let run = move || {
            let (files, next) = &*shared;
            while let Some(chunk) = read_chunk(files, next, &limits, &counters) {
                if !send(chunk) {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("source-load".into())
            .spawn(run)?;
    }
    Ok(())
}

fn read_chunk(
    files: &[Arc<str>],
    next: &AtomicUsize,
    limits: &Limits,
    counters: &Counters,
) -> Option<Vec<Parsed>> {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    while chunk.len() < CHUNK_FILES
        && bytes < CHUNK_BYTES
        && let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed))
    {
        let state = Disk { limits, counters }.read(path);
        if let FileState::Text(_, text) = &state {
            bytes += text.len();
        }
        chunk.push(Parsed::new(path, state, &Known::new(), limits, counters));
    }
    (!chunk.is_empty()).then_some(chunk)
}
