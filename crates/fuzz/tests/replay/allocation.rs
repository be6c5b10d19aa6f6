//! Counts what a thread has of memory at a time.
#![allow(
    unsafe_code,
    reason = "a global allocator is an unsafe trait; each call is passed on"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The allocator of the system, with a count for each thread.
pub(crate) struct Counting;

thread_local! {
    /// Bytes that the thread has allocated, less those that it has freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// The most of them so far.
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// Runs something, and tells how many bytes it had at most beside those that were there before.
pub(crate) fn most<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    MOST.set(before);
    let done = run();
    (done, usize::try_from(MOST.get() - before).unwrap_or(0))
}

fn note(change: isize) {
    // A thread that is ending has no count any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = MOST.try_with(|most| most.set(most.get().max(live.get())));
    });
}

fn size(layout: Layout) -> isize {
    isize::try_from(layout.size()).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(size(layout));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(size(layout));
        // SAFETY: the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-size(layout));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(isize::try_from(bytes).unwrap_or(isize::MAX) - size(layout));
        // SAFETY: the caller's contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}
