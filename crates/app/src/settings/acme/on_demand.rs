//! Settings of certificates that are obtained on demand.

use std::time::Duration;

use super::is_place;
use crate::cli::acme::RawOnDemand;

/// The settings of certificates that are obtained on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandSettings {
    /// The URL that is asked whether a name may have a certificate; none where nothing is obtained
    /// on demand, unless an issuer says of whom.
    pub ask: Option<Box<str>>,
    /// The most certificates at a time.
    pub certificates_max: usize,
    /// The most new ones for one registered domain in an hour.
    pub per_domain: u32,
    /// The most questions in a second.
    pub asks_max: u32,
    /// How long after its last use a certificate is renewed.
    pub idle: Duration,
}

impl Default for OnDemandSettings {
    fn default() -> Self {
        OnDemandSettings {
            ask: None,
            certificates_max: 10_000,
            per_domain: 10,
            asks_max: 20,
            idle: days(14),
        }
    }
}

/// Checks settings.
pub(in crate::settings) fn read(raw: &RawOnDemand, problems: &mut Vec<String>) -> OnDemandSettings {
    let ask = raw.acme_on_demand_ask.as_deref();
    let ask = ask.filter(|it| !it.is_empty());
    if let Some(url) = ask
        && !is_ask(url)
    {
        problems.push(format!(
            "--acme-on-demand-ask is {url:?}, which is no URL that begins with https:// or http://"
        ));
    }
    OnDemandSettings {
        ask: ask.map(Box::from),
        certificates_max: usize::try_from(raw.acme_on_demand_max).unwrap_or(usize::MAX),
        per_domain: raw.acme_on_demand_per_domain,
        asks_max: raw.acme_on_demand_asks,
        idle: days(raw.acme_on_demand_idle),
    }
}

/// Whether a text is a URL that may be asked. What stands behind `#` is sent to nobody.
fn is_ask(url: &str) -> bool {
    let rest = url.strip_prefix("https://");
    let rest = rest.or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(is_place) && !url.contains('#')
}

fn days(days: u32) -> Duration {
    Duration::from_secs(u64::from(days) * 86_400)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{OnDemandSettings, days, read};
    use crate::cli::{Cli, Command};

    fn settings(arguments: &[&str]) -> (OnDemandSettings, Vec<String>) {
        let line = ["myriad", "serve", "d"];
        let line = line.into_iter().chain(arguments.iter().copied());
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("not serve")
        };
        let mut problems = Vec::new();
        (read(&raw.on_demand, &mut problems), problems)
    }

    #[test]
    fn nobody_is_asked_unless_somebody_says_whom_and_the_defaults_are_those_of_the_flags() {
        assert_eq!(settings(&[]), (OnDemandSettings::default(), Vec::new()));
        assert_eq!(settings(&["--acme-on-demand-ask="]).0.ask, None);
        let (set, problems) = settings(&[
            "--acme-on-demand-ask=http://127.0.0.1:8000/check",
            "--acme-on-demand-max=5",
            "--acme-on-demand-per-domain=2",
            "--acme-on-demand-asks=7",
            "--acme-on-demand-idle=30",
        ]);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(set.ask.as_deref(), Some("http://127.0.0.1:8000/check"));
        assert_eq!((set.certificates_max, set.per_domain), (5, 2));
        assert_eq!((set.asks_max, set.idle), (7, days(30)));
    }

    #[test]
    fn what_is_no_url_is_told() {
        for url in [
            "ask.example",
            "ftp://a/b",
            "http://",
            "http:///x",
            "http://a/#b",
        ] {
            let (_, problems) = settings(&[&format!("--acme-on-demand-ask={url}")]);
            assert_eq!(problems.len(), 1, "{url}: {problems:?}");
            assert!(problems[0].contains("--acme-on-demand-ask"), "{problems:?}");
        }
    }
}
