//! Hosts that an Ingress has beside those that it names.

use std::collections::BTreeSet;

use myriad_api::Meta;
use myriad_model::{Host, host::Pattern};

use super::sheet::Sheet;
use super::{PREFIXES, values};
use crate::dialect::ingress::host_name;

/// The most aliases of an Ingress.
const ALIASES_MAX: usize = 64;

/// The longest list of aliases that is read, in bytes: with blanks there is room for twice as many.
const ALIASES_BYTES_MAX: usize = 32 << 10;

/// The name of the annotation that lists aliases.
pub(super) const ALIAS: &str = "server-alias";

/// The name of the switch of redirects between names with and without `www.`.
const WWW: &str = "from-to-www-redirect";

/// Hosts that an Ingress has beside those that it names.
#[derive(Debug, Default)]
pub struct Further {
    /// Other names of what all of its rules serve, sorted.
    pub aliases: Box<[Host]>,
    /// The annotation that lists them.
    pub alias_key: Box<str>,
    /// The annotation by which each host is led to from its name with `www.`, or without it where
    /// it has it.
    pub www_key: Option<Box<str>>,
}

impl Further {
    /// Reads them alone; what cannot be read adds none.
    pub fn read(meta: &Meta, ignored: &BTreeSet<String>) -> Further {
        let alias = written(meta, ignored, ALIAS);
        let alias = alias.and_then(|(key, text)| Some((key, aliases(text.trim())?)));
        let (alias_key, aliases) = alias.unwrap_or_default();
        let www = written(meta, ignored, WWW);
        let www = www.filter(|(_, text)| values::boolean(text.trim()) == Some(true));
        Further {
            aliases,
            alias_key: alias_key.into(),
            www_key: www.map(|(key, _)| key.into()),
        }
    }
}

/// Tells what of them cannot be read.
pub(super) fn judge(sheet: &mut Sheet<'_>) {
    let expected = "write at most 64 names such as b.example or *.b.example, separated by commas";
    sheet.read(ALIAS, expected, aliases);
    sheet.flag(WWW);
}

/// The name of a host with `www.` before it, or without it where it has it.
pub(crate) fn counterpart(host: &Host) -> Option<Host> {
    let Pattern::Exact(name) = host.pattern() else {
        return None;
    };
    let other = match name.strip_prefix("www.") {
        Some(bare) if bare.starts_with("www.") => return None,
        Some(bare) => bare.to_owned(),
        None => format!("www.{name}"),
    };
    Some(host_name::read(&other).ok()?.host)
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
    if text.len() > ALIASES_BYTES_MAX {
        return None;
    }
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

    use myriad_model::Host;

    use super::{ALIASES_BYTES_MAX, ALIASES_MAX, Further, aliases, counterpart};

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
    fn a_name_and_its_counterpart_are_each_others() {
        for (name, other) in [
            ("a.example", Some("www.a.example")),
            ("www.a.example", Some("a.example")),
            ("www.www.a.example", None),
            ("*.a.example", None),
            ("www.10.0.0.1", None),
        ] {
            let found = counterpart(&Host::parse(name).unwrap());
            assert_eq!(found.as_ref().map(Host::as_str), other, "{name}");
        }
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
        // Commas alone are none, and too many of them are not even looked through.
        let commas = |count: usize| aliases(&",".repeat(count)).map(|it| it.len());
        assert_eq!(commas(ALIASES_BYTES_MAX), Some(0));
        assert_eq!(commas(ALIASES_BYTES_MAX + 1), None);
    }
}
