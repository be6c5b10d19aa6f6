//! Limits of what clients can make grow, and what becomes of their paths.

use myriad_proxy::{Limits, PathRule};
use myriad_translate::mesh_config::PathNormalization;

use crate::cli::RawTraffic;

/// The rule of a name.
fn path_rule(name: &str) -> Option<PathRule> {
    let mut rules = PathRule::ALL.into_iter();
    rules
        .find(|(known, _)| *known == name)
        .map(|(_, rule)| rule)
}

/// The rule that does what MeshConfig says.
pub(super) fn rule_of(paths: PathNormalization) -> PathRule {
    match paths {
        PathNormalization::None => PathRule::AsIs,
        PathNormalization::Base => PathRule::Base,
        PathNormalization::MergeSlashes => PathRule::MergeSlashes,
        PathNormalization::DecodeAndMergeSlashes => PathRule::DecodeAndMergeSlashes,
    }
}

/// Checks settings.
pub(super) fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> Limits {
    let mut limits = Limits::default();
    for text in &raw.limits {
        if let Err(error) = limits.set(text) {
            problems.push(format!("--limit: {error}"));
        }
    }
    let Some(written) = &raw.path_normalization else {
        return limits;
    };
    match path_rule(written) {
        Some(rule) => limits.paths = rule,
        None => {
            let names = PathRule::ALL.map(|(name, _)| name).join(", ");
            problems.push(format!(
                "--path-normalization is {written:?}, not one of {names}"
            ));
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use myriad_translate::mesh_config::PathNormalization;

    use super::{path_rule, rule_of};

    #[test]
    fn a_rule_of_mesh_config_is_that_of_its_name() {
        for paths in PathNormalization::ALL {
            assert_eq!(path_rule(paths.as_str()), Some(rule_of(paths)), "{paths:?}");
        }
    }
}
