//! Settings of when much that is missing is held.

use std::time::Duration;

use myriad_base::hold::HoldLimits;

use crate::cli::RawHold;

/// Reads settings, all of which hold.
pub(super) fn read(raw: &RawHold) -> HoldLimits {
    HoldLimits {
        percent: raw.hold_percent,
        count: raw.hold_domains as usize,
        time: raw
            .hold_for
            .map(|seconds| Duration::from_secs(seconds.into())),
    }
}
