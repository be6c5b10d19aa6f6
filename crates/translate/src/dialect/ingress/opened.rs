//! An Ingress as units read it: with the places of its hosts, where they are many, and with what
//! its texts say.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use myriad_api::{Ingress, IngressBackend, IngressPath, IngressTls};
use myriad_model::{HeaderEdit, Host, host::Pattern};

use super::annotations::{self, Further, Options};
use super::host_name::{self, is_host};
use crate::resolve::{SEVERAL_MAX, wildcard_above};

/// Up to here hosts in ASCII are looked for one by one, which costs less than an index of them.
const LINEAR_MAX: usize = 32;

/// Up to so many hosts, an Ingress is opened again for each of them rather than kept open.
const FEW_HOSTS: usize = 4;

/// The bytes of memory that an entry of a list takes beside its texts, about.
const ENTRY_BYTES: usize = 160;

/// An Ingress that was read. Each of its hosts asks where it stands and what it says, so that an
/// Ingress of ten thousand would be walked ten thousand times, if it were not done once for all.
pub struct Opened {
    ingress: Arc<Ingress>,
    further: Further,
    /// How many hosts its `tls` entries name.
    tls_hosts: usize,
    /// Whether a host is written in letters beyond ASCII, so that comparing it takes a conversion.
    is_international: bool,
    /// The `tls` entries that name none: the first with each Secret, as many as are used and one
    /// more.
    bare_tls: Box<[usize]>,
    places: OnceLock<Places>,
    /// The options that its annotations ask for, once they were read.
    pub options: OnceLock<Arc<Options>>,
    /// The change that its ConfigMap of header fields makes to responses, once that was read.
    pub response_fields: OnceLock<HeaderEdit>,
}

/// The places of hosts.
#[derive(Default)]
struct Places {
    /// The rules of each host.
    rules: HashMap<Host, Vec<usize>>,
    /// The first `tls` entry that names a host, and where in it.
    tls: HashMap<Host, (usize, usize)>,
    /// The further ones, where there are any.
    tls_more: HashMap<Host, Vec<usize>>,
}

impl Opened {
    /// An Ingress of which nothing is known yet but its further hosts. `ignored` are the
    /// annotations that are ignored on request.
    pub fn new(ingress: Arc<Ingress>, ignored: &BTreeSet<String>) -> Opened {
        let of_rules = ingress.rules.iter().filter_map(|rule| rule.host.as_deref());
        let of_tls = ingress.tls.iter().flat_map(|entry| entry.hosts.iter());
        let mut hosts = of_rules.chain(of_tls.map(|host| &**host));
        Opened {
            further: Further::read(&ingress.meta, ignored),
            is_international: hosts.any(|host| !host.is_ascii()),
            tls_hosts: ingress.tls.iter().map(|entry| entry.hosts.len()).sum(),
            bare_tls: bare_tls(&ingress.tls),
            ingress,
            places: OnceLock::new(),
            options: OnceLock::new(),
            response_fields: OnceLock::new(),
        }
    }

    /// Whether so many hosts read it that it is worth keeping open.
    pub fn is_of_many(&self) -> bool {
        let of_rules = self.rules.len();
        let led = self.further.www_key.as_ref().map_or(0, |_| of_rules);
        of_rules + led + self.tls_hosts + self.further.aliases.len() > FEW_HOSTS
    }

    /// The bytes of memory that it takes while it is open, about.
    pub fn bytes(&self) -> usize {
        let annotations = self.meta.annotations.iter();
        // What they say stands in the options again.
        let annotations = annotations.map(|(key, value)| key.len() + 2 * value.len() + ENTRY_BYTES);
        // The names of hosts stand in the index again.
        let host = |host: &str| 2 * host.len() + ENTRY_BYTES;
        let rules = self.rules.iter().map(|rule| {
            let paths: usize = rule.paths.iter().map(bytes_of_path).sum();
            paths + host(rule.host.as_deref().unwrap_or_default())
        });
        let tls = self.tls.iter().map(|entry| {
            let hosts: usize = entry.hosts.iter().map(|text| host(text)).sum();
            hosts + entry.secret_name.as_ref().map_or(0, |name| name.len()) + ENTRY_BYTES
        });
        annotations.chain(rules).chain(tls).sum()
    }

    /// The first `tls` entry without hosts, which stands for all rules.
    pub fn bare_tls(&self) -> Option<usize> {
        self.bare_tls.first().copied()
    }

    /// The hosts that it has beside those that it names.
    pub fn further(&self) -> &Further {
        &self.further
    }

    /// Whether a host is an alias that none of its rules names.
    pub fn is_alias(&self, host: &Host) -> bool {
        self.lists(host) && self.rules_naming(host).is_empty()
    }

    /// The host whose `tls` entry holds for one that has none of its own.
    pub fn leading(&self, host: &Host) -> Option<Host> {
        if !self.is_alias(host) {
            return self.led_to(host);
        }
        let first = self.rules.iter().find_map(|rule| rule.host.as_deref())?;
        Some(host_name::read(first).ok()?.host)
    }

    /// The host that its counterpart, with or without `www.`, is redirected to.
    pub fn led_to(&self, host: &Host) -> Option<Host> {
        self.further.www_key.as_ref()?;
        let to = annotations::counterpart(host)?;
        let is_led = self.rules_of(host).is_empty() && !self.rules_naming(&to).is_empty();
        is_led.then_some(to)
    }

    /// The indices of the rules for a host, in their order: all for an alias.
    pub fn rules_of(&self, host: &Host) -> Vec<usize> {
        let naming = self.rules_naming(host);
        match naming.is_empty() && self.lists(host) {
            true => (0..self.rules.len()).collect(),
            false => naming,
        }
    }

    fn lists(&self, host: &Host) -> bool {
        self.further.aliases.binary_search(host).is_ok()
    }

    /// The indices of the rules that name a host, in their order.
    pub fn rules_naming(&self, host: &Host) -> Vec<usize> {
        if self.is_indexed() {
            return self.places().rules.get(host).cloned().unwrap_or_default();
        }
        let is_any = host.pattern() == Pattern::Any;
        let rules = self.rules.iter().enumerate();
        let of_host = rules.filter(|(_, rule)| match &rule.host {
            Some(text) => !is_any && is_host(text, host),
            None => is_any,
        });
        of_host.map(|(at, _)| at).collect()
    }

    /// The first `tls` entry that names a host, and where in it.
    pub fn tls_naming(&self, host: &Host) -> Option<(usize, usize)> {
        if self.is_indexed() {
            return self.places().tls.get(host).copied();
        }
        let mut entries = self.tls.iter().enumerate();
        entries.find_map(|(at, entry)| {
            let mut hosts = entry.hosts.iter();
            Some((at, hosts.position(|text| is_host(text, host))?))
        })
    }

    /// The first `tls` entry with a wildcard that covers a host without naming it.
    pub fn tls_covering(&self, host: &Host) -> Option<usize> {
        // A wildcard stands for one label, so there is one that can.
        self.tls_naming(&wildcard_above(host)?).map(|(at, _)| at)
    }

    /// The `tls` entries behind the first that holds for a host, which hold for it just as that
    /// one does: by the same name, or as entries without any.
    pub fn tls_beside(&self, host: &Host, first: usize) -> Vec<usize> {
        let is_bare = self.tls.get(first).is_some_and(|it| it.hosts.is_empty());
        if is_bare || self.tls.len() < 2 {
            return self.bare_tls.iter().skip(1).copied().collect();
        }
        let leading = self.leading(host);
        let above = leading.as_ref().and_then(wildcard_above);
        let mut names = [Some(host.clone()), wildcard_above(host), leading, above]
            .into_iter()
            .flatten();
        let is_of_first = |name: &Host| self.tls_naming(name).is_some_and(|(at, _)| at == first);
        let name = names.find(is_of_first);
        name.map_or_else(Vec::new, |name| self.tls_behind(&name, first))
    }

    /// The `tls` entries behind one that name the same host.
    fn tls_behind(&self, host: &Host, first: usize) -> Vec<usize> {
        if self.is_indexed() {
            let found = self.places().tls_more.get(host);
            return found.cloned().unwrap_or_default();
        }
        let entries = self.tls.iter().enumerate().skip(first + 1);
        let naming = entries.filter(|(_, entry)| entry.hosts.iter().any(|it| is_host(it, host)));
        naming.map(|(at, _)| at).collect()
    }

    /// Whether hosts are looked for in an index.
    fn is_indexed(&self) -> bool {
        let count = self.rules.len() + self.tls_hosts.max(self.tls.len());
        count > LINEAR_MAX || self.is_international
    }

    fn places(&self) -> &Places {
        self.places.get_or_init(|| {
            let mut places = Places::default();
            for (at, rule) in self.rules.iter().enumerate() {
                let host = match &rule.host {
                    Some(text) => host_name::read(text).ok().map(|written| written.host),
                    None => Some(Host::any()),
                };
                if let Some(host) = host {
                    places.rules.entry(host).or_default().push(at);
                }
            }
            for (at, entry) in self.tls.iter().enumerate() {
                for (host_at, text) in entry.hosts.iter().enumerate() {
                    if let Ok(written) = host_name::read(text) {
                        places.add_tls(written.host, (at, host_at));
                    }
                }
            }
            places
        })
    }
}

impl Places {
    fn add_tls(&mut self, host: Host, place: (usize, usize)) {
        let known = match self.tls.entry(host) {
            Entry::Vacant(vacant) => {
                vacant.insert(place);
                return;
            }
            Entry::Occupied(known) => known,
        };
        if known.get().0 == place.0 {
            return;
        }
        let more = self.tls_more.entry(known.key().clone()).or_default();
        if more.last() != Some(&place.0) {
            more.push(place.0);
        }
    }
}

/// The entries without hosts: see [`Opened`].
fn bare_tls(entries: &[IngressTls]) -> Box<[usize]> {
    let mut found: Vec<(usize, Option<&str>)> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let secret = entry.secret_name.as_deref();
        let is_known = || found.iter().any(|(_, known)| *known == secret);
        if entry.hosts.is_empty() && !is_known() {
            found.push((at, secret));
        }
        if found.len() > SEVERAL_MAX {
            break;
        }
    }
    found.into_iter().map(|(at, _)| at).collect()
}

fn bytes_of_path(path: &IngressPath) -> usize {
    let backend = match &path.backend {
        IngressBackend::Service { name, .. } => name.len(),
        IngressBackend::Resource { kind, name } => kind.len() + name.len(),
    };
    path.path.as_ref().map_or(0, |text| text.len()) + backend + ENTRY_BYTES
}

impl Deref for Opened {
    type Target = Ingress;

    fn deref(&self) -> &Ingress {
        &self.ingress
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use myriad_api::{Ingress, IngressRule, IngressTls, Meta, ObjectKey, ObjectKind};
    use myriad_model::Host;

    use super::{FEW_HOSTS, LINEAR_MAX, Opened};

    fn ingress(padding: usize) -> Opened {
        let annotations = [
            ("myriad.dev/from-to-www-redirect".into(), "true".into()),
            (
                "myriad.dev/server-alias".into(),
                "a.example, x.example".into(),
            ),
        ];
        let rule = |host: Option<&str>| IngressRule {
            host: host.map(Box::from),
            paths: Box::default(),
        };
        let mut rules = vec![
            rule(Some("a.example")),
            rule(None),
            rule(Some("A.Example.")),
        ];
        rules.extend((0..padding).map(|number| rule(Some(&format!("{number}.example")))));
        let tls = |hosts: &[&str]| IngressTls {
            hosts: hosts.iter().map(|host| (*host).into()).collect(),
            secret_name: None,
        };
        let ingress = Arc::new(Ingress {
            meta: Meta {
                key: ObjectKey::new(ObjectKind::Ingress, "n", "i"),
                created: 0,
                annotations: annotations.into(),
            },
            class_name: None,
            default_backend: None,
            tls: [
                tls(&["not a host", "*.example"]),
                tls(&["b.example", "a.example"]),
                tls(&["a.example", "a.example", "*.example"]),
            ]
            .into(),
            rules: rules.into(),
        });
        Opened::new(ingress, &BTreeSet::new())
    }

    #[test]
    fn entries_without_hosts_are_walked_once() {
        let of = |entries: usize| {
            let bare = IngressTls {
                hosts: Box::default(),
                secret_name: None,
            };
            let mut ingress = (*ingress(0).ingress).clone();
            ingress.tls = ingress
                .tls
                .iter()
                .cloned()
                .chain(vec![bare; entries])
                .collect();
            Opened::new(Arc::new(ingress), &BTreeSet::new())
        };
        assert_eq!(of(0).bare_tls(), None);
        assert_eq!(of(1).bare_tls(), Some(3));
        assert!(of(LINEAR_MAX).tls_beside(&Host::any(), 3).is_empty());
        assert!(!of(1).is_indexed() && of(LINEAR_MAX).is_indexed());
        let host = Host::parse("a.example").unwrap();
        assert_eq!(of(LINEAR_MAX).tls_naming(&host), Some((1, 1)));
    }

    #[test]
    fn hosts_beyond_ascii_are_converted_once() {
        let mut few = (*ingress(0).ingress).clone();
        few.rules[0].host = Some("bücher.example".into());
        let opened = Opened::new(Arc::new(few), &BTreeSet::new());
        assert!(opened.is_indexed());
        let host = |text| Host::parse(text).unwrap();
        assert_eq!(opened.rules_of(&host("xn--bcher-kva.example")), [0]);
        assert_eq!(opened.rules_of(&host("a.example")), [2]);
        assert_eq!(opened.tls_naming(&host("a.example")), Some((1, 1)));
    }

    #[test]
    fn one_of_few_hosts_is_not_kept_open() {
        let of = |rules: usize| {
            let mut ingress = (*ingress(0).ingress).clone();
            ingress.meta.annotations = Box::default();
            ingress.tls = Box::default();
            ingress.rules = vec![ingress.rules[0].clone(); rules].into();
            Opened::new(Arc::new(ingress), &BTreeSet::new())
        };
        assert!(!of(FEW_HOSTS).is_of_many() && of(FEW_HOSTS + 1).is_of_many());
        assert!(of(20).bytes() > of(10).bytes() && of(10).bytes() > 10 * "a.example".len());
    }

    #[test]
    fn an_index_finds_what_a_walk_finds() {
        for opened in [ingress(0), ingress(LINEAR_MAX)] {
            let host = |text| Host::parse(text).unwrap();
            assert_eq!(opened.rules_of(&host("a.example")), [0, 2]);
            assert_eq!(opened.rules_of(&Host::any()), [1]);
            assert!(opened.rules_of(&host("z.example")).is_empty());
            assert_eq!(opened.tls_naming(&host("a.example")), Some((1, 1)));
            assert_eq!(opened.tls_naming(&host("z.example")), None);
            assert_eq!(opened.tls_covering(&host("z.example")), Some(0));
            assert_eq!(opened.tls_covering(&host("z.a.example")), None);
            assert_eq!(opened.tls_covering(&host("*.example")), None);
            assert_eq!(opened.tls_beside(&host("a.example"), 1), [2]);
            assert!(opened.tls_beside(&host("b.example"), 1).is_empty());
            // By the same wildcard, and for an alias by the host that it stands for.
            assert_eq!(opened.tls_beside(&host("z.example"), 0), [2]);
            assert_eq!(opened.tls_beside(&host("www.a.example"), 1), [2]);
            let all: Vec<usize> = (0..opened.rules.len()).collect();
            assert_eq!(opened.rules_of(&host("x.example")), all);
            assert!(opened.rules_naming(&host("x.example")).is_empty());
            assert_eq!(opened.leading(&host("x.example")), Some(host("a.example")));
            assert!(!opened.is_alias(&host("a.example")));
            assert_eq!(opened.leading(&host("a.example")), None);
            let www = opened.led_to(&host("www.a.example"));
            assert_eq!(www, Some(host("a.example")));
            for name in ["a.example", "www.x.example", "www.www.a.example"] {
                assert_eq!(opened.led_to(&host(name)), None, "{name}");
            }
        }
    }
}
