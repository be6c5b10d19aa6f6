//! Hosts that an Ingress has beside those that it names.

use std::collections::BTreeSet;

use myriad_api::Meta;
use myriad_model::Host;

use super::PREFIXES;
use super::sheet::Sheet;
use crate::dialect::ingress::host_name;

/// The most aliases of an Ingress.
const ALIASES_MAX: usize = 64;

/// The name of the annotation that lists aliases.
const ALIAS: &str = "server-alias";

/// Hosts that an Ingress has beside those that it names.
#[derive(Debug, Default)]
pub struct Further {
    /// Other names of what all of its rules serve, sorted.
    pub aliases: Box<[Host]>,
    /// The annotation that lists them.
    pub alias_key: Box<str>,
}

impl Further {
    /// Reads them alone; what cannot be read adds none.
    pub fn read(meta: &Meta, ignored: &BTreeSet<String>) -> Further {
        let found = written(meta, ignored, ALIAS);
        let Some((key, hosts)) = found.and_then(|(key, text)| Some((key, aliases(text.trim())?)))
        else {
            return Further::default();
        };
        Further {
            aliases: hosts,
            alias_key: key.into(),
        }
    }
}

/// Tells what of them cannot be read.
pub(super) fn judge(sheet: &mut Sheet<'_>) {
    let expected = "write at most 64 names such as b.example or *.b.example, separated by commas";
    sheet.read(ALIAS, expected, aliases);
}

/// The annotation of a name that holds, key and value.
fn written<'a>(
    meta: &'a Meta,
    ignored: &BTreeSet<String>,
    name: &str,
) -> Option<(&'a str, &'a str)> {
    let is_ignored = |key: &str| ignored.contains(key) || ignored.contains(name);
    PREFIXES.iter().find_map(|prefix| {
        let mut all = meta.annotations.iter();
        let (key, value) = all.find(|(key, _)| key.strip_prefix(*prefix) == Some(name))?;
        (!is_ignored(key)).then_some((&**key, &**value))
    })
}

/// Names separated by commas, sorted.
fn aliases(text: &str) -> Option<Box<[Host]>> {
    let names = text.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty()).take(ALIASES_MAX + 1);
    let hosts = names.map(|name| Some(host_name::read(name).ok()?.host));
    let mut hosts: Vec<Host> = hosts.collect::<Option<_>>()?;
    if hosts.len() > ALIASES_MAX {
        return None;
    }
    hosts.sort_unstable();
    hosts.dedup();
    Some(hosts.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use myriad_api::{Meta, ObjectKey, ObjectKind};

    use super::{ALIASES_MAX, Further, aliases};

    fn read(annotations: &[(&str, &str)], ignored: &[&str]) -> Vec<String> {
        let mut meta = Meta::new(ObjectKey::new(ObjectKind::Ingress, "n", "i"));
        let pairs = annotations.iter();
        meta.annotations = pairs
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect();
        let ignored: BTreeSet<String> = ignored.iter().map(|it| (*it).to_owned()).collect();
        let further = Further::read(&meta, &ignored);
        let mut names: Vec<String> = further.aliases.iter().map(ToString::to_string).collect();
        names.sort();
        names
    }

    #[test]
    fn aliases_are_names_of_the_best_prefix_and_all_or_none() {
        let key = "nginx.ingress.kubernetes.io/server-alias";
        assert_eq!(
            read(&[(key, " *.b.example, A.example.,,a.example")], &[]),
            ["*.b.example", "a.example"]
        );
        assert!(read(&[(key, "a.example, 10.0.0.1")], &[]).is_empty());
        assert!(read(&[(key, "~^a.*")], &[]).is_empty());
        assert!(read(&[(key, "a.example")], &["server-alias"]).is_empty());
        assert!(read(&[(key, "a.example")], &[key]).is_empty());
        let own = ("myriad.dev/server-alias", "b.example");
        assert_eq!(read(&[own, (key, "a.example")], &[]), ["b.example"]);
        assert_eq!(read(&[own, (key, "a.example")], &[own.0]), ["a.example"]);
    }

    #[test]
    fn aliases_have_a_bound() {
        let list = |count: usize| {
            let names: Vec<String> = (0..count).map(|it| format!("{it}.example")).collect();
            names.join(",")
        };
        assert_eq!(
            aliases(&list(ALIASES_MAX)).map(|it| it.len()),
            Some(ALIASES_MAX)
        );
        assert!(aliases(&list(ALIASES_MAX + 1)).is_none());
        assert_eq!(aliases("").map(|it| it.len()), Some(0));
    }
}
