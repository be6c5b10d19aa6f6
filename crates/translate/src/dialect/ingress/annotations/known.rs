//! Lists of networks that were read once for all hosts of an Ingress.

use std::sync::OnceLock;

use myriad_model::SourceRanges;

/// The names of the annotations with a list of networks.
pub const LISTS: [&str; 5] = [
    "allowlist-source-range",
    "denylist-source-range",
    "limit-allowlist",
    "limit-whitelist",
    "whitelist-source-range",
];

/// The lists of networks of an Ingress, as far as they were read; none for one that cannot be.
#[derive(Default)]
pub struct KnownNetworks {
    lists: [OnceLock<Option<SourceRanges>>; LISTS.len()],
}

impl KnownNetworks {
    /// The list of an annotation by its name without a prefix.
    pub fn of(&self, name: &str) -> Option<&OnceLock<Option<SourceRanges>>> {
        let at = LISTS.iter().position(|list| *list == name)?;
        self.lists.get(at)
    }
}
