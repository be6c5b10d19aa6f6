//! Counts the bytes that one thread allocates, whatever it frees.
#![allow(
    unsafe_code,
    reason = "a global allocator is an unsafe trait; each call is passed on"
)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tikv_jemallocator::Jemalloc;

/// The allocator of the product, with a count for the threads that asked for it.
pub struct Counting;

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

static BYTES: AtomicU64 = AtomicU64::new(0);

/// Counts the allocations of the calling thread from now on.
pub fn count_this_thread() {
    IS_COUNTED.set(true);
}

/// The bytes that counted threads have allocated so far.
pub fn bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

fn note(size: usize) {
    // A thread that is ending has no flag any more, and is not counted.
    if IS_COUNTED.try_with(Cell::get).unwrap_or(false) {
        BYTES.fetch_add(size as u64, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to jemalloc with the caller's own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's contract.
        unsafe { Jemalloc.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's contract.
        unsafe { Jemalloc.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { Jemalloc.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size.saturating_sub(layout.size()));
        // SAFETY: the caller's contract.
        unsafe { Jemalloc.realloc(pointer, layout, size) }
    }
}
