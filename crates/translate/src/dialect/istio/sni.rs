//! Names in the rules for TLS of a VirtualService.

use myriad_model::Host;

use crate::resolve::names::broader;

/// Whether a pattern covers nothing that another does not.
pub(super) fn is_within(inner: &Host, outer: &Host) -> bool {
    inner == outer || broader(inner).contains(outer)
}
