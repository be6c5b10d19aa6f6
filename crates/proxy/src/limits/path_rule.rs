//! The rule for paths that servers understand differently.

/// The treatment of paths that servers understand differently. The names are those of Istio's
/// `pathNormalization`, but for the first and the strictest, which Istio does not have. Whatever
/// the rule, no path has a zero byte or a dot segment once the rule was followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathRule {
    /// Each route reads them as its dialect documents. Endpoints get them as they came, but for
    /// dot segments, which are followed, and backslashes, which are slashes.
    #[default]
    Dialect,
    /// They go on as they came. Those with backslashes and dot segments are refused.
    AsIs,
    /// Escapes of letters, digits, `-`, `.`, `_` and `~` mean these, backslashes are slashes, and
    /// dot segments are followed.
    Base,
    /// As `Base`, and many slashes are one.
    MergeSlashes,
    /// As `MergeSlashes`, and escaped slashes and backslashes are slashes.
    DecodeAndMergeSlashes,
    /// All that any of these would change is refused.
    Strict,
}

impl PathRule {
    /// Every rule, by the name that it is set by.
    pub const ALL: [(&'static str, PathRule); 6] = [
        ("DIALECT", PathRule::Dialect),
        ("NONE", PathRule::AsIs),
        ("BASE", PathRule::Base),
        ("MERGE_SLASHES", PathRule::MergeSlashes),
        ("DECODE_AND_MERGE_SLASHES", PathRule::DecodeAndMergeSlashes),
        ("STRICT", PathRule::Strict),
    ];
}
