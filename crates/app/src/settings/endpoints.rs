//! Settings of where endpoints may be.

use myriad_model::{Extent, Reach};

use super::names::blocks;
use crate::cli::endpoints::RawEndpoints;

/// Checks settings.
pub(super) fn read(raw: &RawEndpoints, extent: Extent, problems: &mut Vec<String>) -> Reach {
    Reach {
        extent,
        allowed: blocks("--endpoint-allow", &raw.endpoint_allow, problems),
        denied: blocks("--endpoint-deny", &raw.endpoint_deny, problems),
    }
}
