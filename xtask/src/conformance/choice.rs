//! The tests that run: those of profiles, those of these names, or a shard.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::{Context as _, Error, Result, ensure};

/// A test, as the program that runs the suite lists it.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Test {
    name: String,
    /// The profiles that it counts for; a test of the mesh may count for two.
    profiles: BTreeSet<String>,
    /// Whether it is core in one of them; otherwise it is extended.
    is_core: bool,
}

/// Tests of profiles.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) profiles: BTreeSet<String>,
    pub(super) tests: Vec<String>,
    /// Whether these are all tests of the profiles.
    pub(super) is_whole: bool,
    /// Whether these are all profiles.
    pub(super) has_all_profiles: bool,
}

/// One part of the extended tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shard {
    /// Counted from 1; the commit says it where it is not said here.
    number: Option<usize>,
    count: usize,
}

/// The word that leaves the number of a shard to the commit.
const BY_COMMIT: &str = "commit";

/// Digits of a hash that fit into a number.
const HASH_DIGITS: usize = 15;

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Shard> {
        let usage = "a shard is K/N with K from 1 to N, or commit/N";
        let (number, count) = text.split_once('/').context(usage)?;
        let count: usize = count.parse().context(usage)?;
        let number = match number {
            BY_COMMIT => None,
            number => Some(number.parse().context(usage)?),
        };
        let good = number.unwrap_or(1);
        ensure!((1..=count).contains(&good), usage);
        Ok(Shard { number, count })
    }
}

impl Shard {
    /// The part that this is, counted from 0, given the hash of a commit.
    fn index(self, commit: &str) -> Result<usize> {
        if let Some(number) = self.number {
            return Ok(number - 1);
        }
        let digits = commit.get(..HASH_DIGITS).context("the hash is too short")?;
        let hash = u64::from_str_radix(digits, 16).context("a hash has hexadecimal digits")?;
        Ok(usize::try_from(hash % u64::try_from(self.count)?)?)
    }
}

/// Chooses among all tests: those of the profiles, of the names, and of the shard, whichever are
/// given. Core tests are in each shard.
pub(super) fn choose(
    all: &[Test],
    profiles: &[String],
    names: &[String],
    shard: Option<(Shard, &str)>,
) -> Result<Chosen> {
    let known: BTreeSet<&String> = all.iter().flat_map(|test| &test.profiles).collect();
    let mut wanted = BTreeSet::new();
    for profile in profiles {
        let profile = profile.to_uppercase();
        ensure!(
            known.contains(&profile),
            "no profile {profile}; there are {known:?}"
        );
        wanted.insert(profile);
    }
    let is_of = |test: &&Test| wanted.is_empty() || !test.profiles.is_disjoint(&wanted);
    let of_profiles: Vec<&Test> = all.iter().filter(is_of).collect();
    for name in names {
        let is_known = of_profiles.iter().any(|test| test.name == *name);
        ensure!(
            is_known,
            "no test {name} in these profiles; `--list` says which there are"
        );
    }
    let is_named = |test: &&&Test| names.is_empty() || names.contains(&test.name);
    let named = of_profiles.iter().filter(is_named);
    let (core, extended): (Vec<&Test>, Vec<&Test>) = named.partition(|test| test.is_core);
    let extended = match shard {
        Some((shard, commit)) => part(&extended, shard, commit)?,
        None => extended,
    };
    let chosen: Vec<&Test> = core.into_iter().chain(extended).collect();
    if wanted.is_empty() && !names.is_empty() {
        // Nobody waits for what tests of other profiles need.
        let of_tests = chosen.iter().flat_map(|test| &test.profiles);
        wanted = of_tests.cloned().collect();
    }
    if wanted.is_empty() {
        wanted = known.iter().map(|&profile| profile.clone()).collect();
    }
    Ok(Chosen {
        is_whole: chosen.len() == of_profiles.len(),
        has_all_profiles: wanted.len() == known.len(),
        tests: chosen.into_iter().map(|test| test.name.clone()).collect(),
        profiles: wanted,
    })
}

fn part<'a>(tests: &[&'a Test], shard: Shard, commit: &str) -> Result<Vec<&'a Test>> {
    let index = shard.index(commit)?;
    Ok(tests
        .iter()
        .skip(index)
        .step_by(shard.count)
        .copied()
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four extended tests and one that is core, of HTTP, and one of the mesh.
    fn all() -> Vec<Test> {
        let of = |name: &str, profile: &str, is_core| Test {
            name: name.to_owned(),
            profiles: BTreeSet::from([profile.to_owned()]),
            is_core,
        };
        let mut all: Vec<Test> = ["a", "b", "c", "d"]
            .map(|name| of(name, "GATEWAY-HTTP", false))
            .into();
        all.push(of("core", "GATEWAY-HTTP", true));
        all.push(of("mesh", "MESH-HTTP", true));
        all
    }

    fn chosen(profiles: &[&str], names: &[&str], shard: Option<&str>) -> Result<Chosen> {
        let owned = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let shard = shard.map(|text| text.parse().expect("a shard"));
        let shard = shard.map(|shard| (shard, "00000000000000542"));
        choose(&all(), &owned(profiles), &owned(names), shard)
    }

    #[test]
    fn each_extended_test_is_in_one_shard_and_core_tests_are_in_all() {
        let mut seen = Vec::new();
        for shard in ["1/3", "2/3", "3/3"] {
            let chosen = chosen(&[], &[], Some(shard)).expect("chosen");
            assert!(!chosen.is_whole && chosen.has_all_profiles);
            let (core, extended): (Vec<String>, Vec<String>) =
                chosen.tests.into_iter().partition(|name| name.len() > 1);
            assert_eq!(core, ["core", "mesh"]);
            seen.extend(extended);
        }
        seen.sort();
        assert_eq!(seen, ["a", "b", "c", "d"]);
    }

    #[test]
    fn the_commit_says_which_shard() {
        // The first 15 digits are 5.
        let by_commit = chosen(&[], &[], Some("commit/3")).expect("chosen");
        let by_number = chosen(&[], &[], Some("3/3")).expect("chosen");
        assert_eq!(by_commit, by_number);
        let shard: Shard = "commit/3".parse().expect("a shard");
        assert!(shard.index("abc").is_err());
        assert!(shard.index("not the hash of a commit").is_err());
        for text in ["0/3", "4/3", "1/0", "commit/0", "3", "/", "a/3"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_test_brings_its_profiles_and_a_profile_its_tests() {
        let named = chosen(&[], &["mesh"], None).expect("chosen");
        assert_eq!(named.tests, ["mesh"]);
        assert_eq!(named.profiles, BTreeSet::from(["MESH-HTTP".to_owned()]));
        assert!(!named.is_whole && !named.has_all_profiles);

        let of_profile = chosen(&["gateway-http"], &[], None).expect("chosen");
        assert_eq!(of_profile.tests, ["core", "a", "b", "c", "d"]);
        assert!(of_profile.is_whole && !of_profile.has_all_profiles);

        let whole = chosen(&[], &[], None).expect("chosen");
        assert_eq!(whole.tests.len(), 6);
        assert!(whole.is_whole && whole.has_all_profiles);
    }

    #[test]
    fn an_unknown_profile_or_test_is_refused_and_so_is_one_of_another_profile() {
        for (profiles, names) in [
            (&["GATEWAY-QUIC"][..], &[][..]),
            (&[][..], &["e"][..]),
            (&["MESH-HTTP"][..], &["a"][..]),
        ] {
            let error = chosen(profiles, names, None).expect_err("refused");
            assert!(error.to_string().starts_with("no "), "{error}");
        }
    }

    #[test]
    fn a_list_of_the_suite_is_read() {
        let text = r#"[{"name": "a", "profiles": ["MESH-HTTP"], "isCore": true}]"#;
        let tests: Vec<Test> = serde_json::from_str(text).expect("a list");
        assert!(tests[0].is_core && tests[0].name == "a");
    }
}
