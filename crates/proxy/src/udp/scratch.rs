//! The memory that datagrams of a worker pass through.

use std::cell::RefCell;

/// More than the longest datagram has, so that none is cut off.
const BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Has something done with the memory, which is there from the first time on.
pub(super) fn with<R>(act: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with_borrow_mut(|bytes| {
        bytes.resize(BYTES, 0);
        act(bytes)
    })
}
