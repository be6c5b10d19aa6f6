//! The lines that panics print, apart from what their tasks say of them: few in a time, lest a
//! fault that somebody can cause again and again fills the disk.

use std::panic;
use std::sync::Once;

use super::sparse::SparseLines;
use super::suppressed::Topic;

/// The thread whose panic ends the process, which is always told.
const MAIN: &str = "main";

static PRINTED: SparseLines = SparseLines::untold();

/// Bounds what panics print from now on.
pub(super) fn bound() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let is_last = std::thread::current().name() == Some(MAIN);
            match is_last || PRINTED.admit().is_some() {
                true => print(panic),
                false => Topic::Panic.suppress(),
            }
        }));
    });
}
