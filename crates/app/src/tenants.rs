//! The file of `--tenants`: the hosts that namespaces may claim, and what each may hold where that
//! differs from `--bound`.
//!
//! It is YAML, read at the start and again whenever it is another:
//!
//! ```yaml
//! namespaces:
//!   team-a:
//!     hosts: ["*.team-a.example", "shop.example"]
//!     quota: {hosts: 100, routes: 1000}
//! unlisted: free
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use myriad_base::file;
use myriad_base::metrics::{Counter, Metrics};
use myriad_translate::{Allotment, Holding, HostList, Tenants, Unlisted};
use serde::Deserialize;
use serde_json::Value;
use tokio::signal::unix::Signal;

use crate::problems;
use crate::signals;

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The largest file in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// The most namespaces.
const NAMESPACES_MAX: usize = 10_000;

/// The most hosts of one namespace.
const HOSTS_MAX: usize = 1_000;

/// The longest name of a namespace (RFC 1123).
const NAME_BYTES_MAX: usize = 63;

#[derive(Default, Deserialize)]
struct RawTenants {
    #[serde(default)]
    namespaces: BTreeMap<String, RawTenant>,
    unlisted: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct RawTenant {
    hosts: Option<Vec<String>>,
    #[serde(default)]
    quota: BTreeMap<String, u64>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// The file, as it is from now on.
pub struct Followed {
    path: PathBuf,
    tenants: Tenants,
    hangup: Signal,
    failures: Counter,
    /// The problems that were told last, until the file is well again.
    told: Vec<String>,
}

impl Followed {
    /// The file that had these tenants; none where there is no file.
    ///
    /// # Errors
    /// Signals cannot be listened to.
    pub fn of(
        path: Option<PathBuf>,
        tenants: &Tenants,
        metrics: &Metrics,
    ) -> std::io::Result<Option<Self>> {
        let path = path.map(|path| Followed::new(path, tenants.clone(), metrics));
        path.transpose()
    }

    fn new(path: PathBuf, tenants: Tenants, metrics: &Metrics) -> std::io::Result<Self> {
        let failures = Counter::default();
        let help = "Looks at the file of --tenants that found something wrong";
        metrics.register("tenants_file_failures", help, failures.clone());
        Ok(Followed {
            path,
            tenants,
            hangup: signals::hangup()?,
            failures,
            told: Vec::new(),
        })
    }

    /// The tenants, once they are others; SIGHUP looks at once. As long as anything is wrong with
    /// the file, the former ones hold.
    pub async fn next(&mut self) -> Tenants {
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                _ = self.hangup.recv() => {}
            }
            if let Some(tenants) = self.look() {
                return tenants;
            }
        }
    }

    fn look(&mut self) -> Option<Tenants> {
        let mut problems = Vec::new();
        let tenants = read(&self.path, &mut problems);
        if !problems.is_empty() {
            self.failures.inc();
            let problems = problems::told(problems);
            if self.told != problems {
                tracing::error!("{}; the former tenants hold", problems.join("; "));
                self.told = problems;
            }
            return None;
        }
        self.told.clear();
        if tenants == self.tenants {
            return None;
        }
        tracing::info!(file = %self.path.display(), "namespaces have other hosts or quotas");
        self.tenants = tenants.clone();
        Some(tenants)
    }
}

/// Reads the file.
pub fn read(path: &Path, problems: &mut Vec<String>) -> Tenants {
    match file::whole(path, BYTES_MAX) {
        Ok(text) => parse(&text, problems),
        Err(error) => {
            problems.push(format!("--tenants {}: {error}", path.display()));
            Tenants::default()
        }
    }
}

fn parse(text: &str, problems: &mut Vec<String>) -> Tenants {
    if text.trim().is_empty() {
        return Tenants::default();
    }
    let raw: RawTenants = match serde_saphyr::from_str(text) {
        Ok(raw) => raw,
        Err(error) => {
            problems.push(format!("--tenants: {}", error.without_snippet()));
            return Tenants::default();
        }
    };
    let mut tell = |problem: String| problems.push(format!("--tenants: {problem}"));
    for field in raw.rest.keys() {
        tell(format!("{field} is no field of it"));
    }
    let count = raw.namespaces.len();
    if count > NAMESPACES_MAX {
        tell(format!(
            "namespaces has {count} entries, and {NAMESPACES_MAX} are the most"
        ));
    }
    let unlisted = match raw.unlisted.as_deref() {
        None | Some("free") => Unlisted::Free,
        Some("nothing") => Unlisted::Nothing,
        Some(other) => {
            tell(format!("unlisted is {other:?}, not free or nothing"));
            Unlisted::Free
        }
    };
    let namespaces = raw.namespaces.into_iter().take(NAMESPACES_MAX);
    let namespaces = namespaces.map(|(name, raw)| {
        let mut tell = |problem: String| tell(format!("namespaces.{name}{problem}"));
        if !is_name(&name) {
            tell(" is no name of a namespace".to_owned());
        }
        let tenant = tenant(raw, &mut tell);
        (name.into_boxed_str(), tenant)
    });
    Tenants::new(namespaces.collect(), unlisted)
}

fn tenant(raw: RawTenant, tell: &mut impl FnMut(String)) -> Allotment {
    for field in raw.rest.keys() {
        tell(format!(".{field} is no field of a namespace"));
    }
    let hosts = raw.hosts.map(|entries| {
        if entries.len() > HOSTS_MAX {
            tell(format!(
                ".hosts has {} entries, and {HOSTS_MAX} are the most",
                entries.len()
            ));
        }
        let mut list = HostList::default();
        for (at, text) in entries.iter().take(HOSTS_MAX).enumerate() {
            if let Err(error) = list.add(text) {
                tell(format!(".hosts[{at}] is {text:?}, which {error}"));
            }
        }
        list
    });
    let mut quota = BTreeMap::new();
    for (name, bound) in raw.quota {
        let mut known = Holding::OF_TENANTS.into_iter();
        match known.find(|holding| holding.name() == name) {
            Some(holding) => drop(quota.insert(holding, bound)),
            None => {
                let names = Holding::OF_TENANTS.map(Holding::name).join(", ");
                tell(format!(".quota.{name} is none of {names}"));
            }
        }
    }
    Allotment { hosts, quota }
}

fn is_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

#[cfg(test)]
mod tests {
    use myriad_base::metrics::Metrics;
    use myriad_model::Host;
    use myriad_translate::{Settings, Tenants};

    use super::{Followed, parse};

    const SOUND: &str = "namespaces:
  team-a:
    hosts: [\"*.team-a.example\"]
    quota: {hosts: 7, regex-kib: 0}
  team-b: {quota: {routes: 5}}
unlisted: free
";

    fn read(text: &str) -> (Tenants, Vec<String>) {
        let mut problems = Vec::new();
        let tenants = parse(text, &mut problems);
        (tenants, problems)
    }

    #[test]
    fn tenants_are_read_with_their_hosts_and_quotas() {
        let (tenants, problems) = read(SOUND);
        assert_eq!(problems, [""; 0]);
        let host = Host::parse("x.team-a.example").unwrap();
        assert!(tenants.admits("team-a", &host) && !tenants.admits("team-b", &host));
        assert!(tenants.is_listed("team-a") && !tenants.is_listed("team-b"));
        let settings = Settings {
            tenants,
            ..Settings::default()
        };
        assert_eq!(settings.bounds_of("team-a").hosts, 7);
        assert_eq!(settings.bounds_of("team-b").routes, 5);
        assert_eq!(settings.bounds_of("team-c"), settings.bounds);
        let (closed, problems) = read("unlisted: nothing\n");
        assert_eq!(problems, [""; 0]);
        assert!(!closed.admits("team-b", &host));
        assert_eq!(read("").0, Tenants::default());
    }

    #[test]
    fn what_is_wrong_names_the_entry_and_the_field() {
        for (from, to, told) in [
            ("  team-a", "  Team_A", "namespaces.Team_A is no name"),
            ("*.team-a", "**.team-a", "namespaces.team-a.hosts[0] is"),
            (
                "    hosts",
                "    host",
                "namespaces.team-a.host is no field",
            ),
            (
                "{hosts: 7",
                "{hash-slots: 7",
                "namespaces.team-a.quota.hash-slots is none of",
            ),
            ("unlisted: free", "unlisted: all", "unlisted is \"all\""),
            ("unlisted", "others", "others is no field"),
            ("hosts: 7", "hosts: -7", "--tenants"),
        ] {
            let problems = read(&SOUND.replacen(from, to, 1)).1.join("; ");
            assert!(problems.contains(told), "{told} is not in: {problems}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_another_is_told_and_a_broken_one_changes_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), SOUND).unwrap();
        let before = read(SOUND).0;
        let path = file.path().to_owned();
        let metrics = Metrics::new();
        let mut followed = Followed::new(path, before, &metrics).unwrap();
        assert_eq!(followed.look(), None);
        std::fs::write(file.path(), SOUND.replace("hosts: 7", "hosts: 8")).unwrap();
        let tenants = followed.look().expect("it is another");
        let settings = Settings {
            tenants,
            ..Settings::default()
        };
        assert_eq!(settings.bounds_of("team-a").hosts, 8);
        assert_eq!(followed.look(), None);
        for broken in ["namespaces: [", "others: 1\n"] {
            std::fs::write(file.path(), broken).unwrap();
            assert_eq!(followed.look(), None);
        }
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!((followed.look(), followed.failures.get()), (None, 3));
        std::fs::write(file.path(), SOUND).unwrap();
        assert!(
            followed
                .look()
                .is_some_and(|tenants| tenants == read(SOUND).0)
        );
    }

    #[test]
    fn a_file_has_bounds() {
        let hosts: Vec<String> = (0..1_001)
            .map(|number| format!("h{number}.example"))
            .collect();
        let text = format!("namespaces: {{a: {{hosts: [{}]}}}}", hosts.join(", "));
        let problems = read(&text).1.join("; ");
        assert!(
            problems.contains("namespaces.a.hosts has 1001 entries"),
            "{problems}"
        );
        let names: Vec<String> = (0..10_001)
            .map(|number| format!("n{number}: {{}}"))
            .collect();
        let text = format!("namespaces: {{{}}}", names.join(", "));
        let problems = read(&text).1.join("; ");
        assert!(
            problems.contains("namespaces has 10001 entries"),
            "{problems}"
        );
    }
}
