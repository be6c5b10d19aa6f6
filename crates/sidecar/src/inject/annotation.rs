//! Annotations by which a Pod sets up its proxy: Istio's names, and the same behind a prefix of our
//! own.

use clap::Parser as _;

use super::decision::Labels;
use crate::redirect::{self, RawRedirect};

/// Annotations that say what is led to the proxy: Istio's name, our name, and the setting of
/// `redirect`.
const REDIRECT: [(&str, &str, &str); 7] = [
    (
        "traffic.sidecar.istio.io/includeInboundPorts",
        "myriad.dev/inbound-ports",
        "inbound-ports",
    ),
    (
        "traffic.sidecar.istio.io/excludeInboundPorts",
        "myriad.dev/inbound-ports-excluded",
        "inbound-ports-excluded",
    ),
    (
        "traffic.sidecar.istio.io/includeOutboundIPRanges",
        "myriad.dev/outbound-cidrs",
        "outbound-cidrs",
    ),
    (
        "traffic.sidecar.istio.io/excludeOutboundIPRanges",
        "myriad.dev/outbound-cidrs-excluded",
        "outbound-cidrs-excluded",
    ),
    (
        "traffic.sidecar.istio.io/includeOutboundPorts",
        "myriad.dev/outbound-ports",
        "outbound-ports",
    ),
    (
        "traffic.sidecar.istio.io/excludeOutboundPorts",
        "myriad.dev/outbound-ports-excluded",
        "outbound-ports-excluded",
    ),
    (
        "traffic.sidecar.istio.io/excludeInterfaces",
        "myriad.dev/interfaces-excluded",
        "interfaces-excluded",
    ),
];

const INTERCEPTION: &str = "sidecar.istio.io/interceptionMode";
const REWRITE_PROBES: [&str; 2] = [
    "sidecar.istio.io/rewriteAppHTTPProbers",
    "myriad.dev/rewrite-probes",
];
const IMAGE: [&str; 2] = ["sidecar.istio.io/proxyImage", "myriad.dev/proxy-image"];
const LOG: [&str; 2] = ["sidecar.istio.io/logLevel", "myriad.dev/proxy-log"];
const CPU: [&str; 2] = ["sidecar.istio.io/proxyCPU", "myriad.dev/proxy-cpu"];
const CPU_LIMIT: [&str; 2] = [
    "sidecar.istio.io/proxyCPULimit",
    "myriad.dev/proxy-cpu-limit",
];
const MEMORY: [&str; 2] = ["sidecar.istio.io/proxyMemory", "myriad.dev/proxy-memory"];
const MEMORY_LIMIT: [&str; 2] = [
    "sidecar.istio.io/proxyMemoryLimit",
    "myriad.dev/proxy-memory-limit",
];

/// Prefixes under which a name that nobody knows is worth a warning.
const PREFIXES: [&str; 3] = [
    "sidecar.istio.io/",
    "traffic.sidecar.istio.io/",
    "myriad.dev/",
];

/// Known names that say something else than what the proxy is like.
const OTHERS: [&str; 5] = [
    "sidecar.istio.io/inject",
    "sidecar.istio.io/status",
    "myriad.dev/inject",
    "myriad.dev/injected",
    "myriad.dev/rate-limit",
];

/// The wishes of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// Settings of `redirect`; none if its connections shall be left alone.
    pub(super) redirect: Option<Vec<String>>,
    /// Whether the kubelet's checks go by way of the proxy.
    pub(super) rewrites_probes: bool,
    /// Another image.
    pub(super) image: Option<String>,
    /// Another log filter.
    pub(super) log: Option<String>,
    /// Other resources.
    pub(super) cpu: Option<String>,
    /// See `cpu`.
    pub(super) cpu_limit: Option<String>,
    /// See `cpu`.
    pub(super) memory: Option<String>,
    /// See `cpu`.
    pub(super) memory_limit: Option<String>,
    /// Warnings about what is not honoured, for the author of the Pod.
    pub(super) warnings: Vec<String>,
}

/// Only to read the settings of `redirect` as that command will.
#[derive(clap::Parser)]
struct Probe {
    #[command(flatten)]
    raw: RawRedirect,
}

impl Wishes {
    /// Reads the annotations of a Pod.
    ///
    /// # Errors
    /// A value that does not hold, by the name of its annotation: a Pod that asked for what
    /// cannot be read must not run with something else.
    pub(super) fn read(annotations: &Labels) -> Result<Wishes, String> {
        let mut problems = Vec::new();
        let mut wishes = Wishes {
            rewrites_probes: true,
            ..Wishes::default()
        };
        wishes.warn_of_unknown(annotations);
        let redirect = redirect_arguments(annotations, &mut problems);
        wishes.redirect = match annotations.get(INTERCEPTION).map(String::as_str) {
            None | Some("REDIRECT") => Some(redirect),
            Some("NONE") => None,
            Some(other) => {
                problems.push(format!(
                    "{INTERCEPTION}: {other:?} is not honoured; write REDIRECT or NONE"
                ));
                None
            }
        };
        match find(annotations, REWRITE_PROBES) {
            None | Some((_, "true")) => {}
            Some((_, "false")) => wishes.rewrites_probes = false,
            Some((name, other)) => {
                problems.push(format!("{name}: {other:?} is neither true nor false"));
            }
        }
        let mut quantity = |names| {
            let (name, text) = find(annotations, names)?;
            if !is_quantity(text) {
                problems.push(format!(
                    "{name}: {text:?} is no quantity, such as 100m or 64Mi"
                ));
            }
            Some(text.to_owned())
        };
        wishes.cpu = quantity(CPU);
        wishes.cpu_limit = quantity(CPU_LIMIT);
        wishes.memory = quantity(MEMORY);
        wishes.memory_limit = quantity(MEMORY_LIMIT);
        let mut word = |names| {
            let (name, text) = find(annotations, names)?;
            let fits = |byte: u8| byte.is_ascii_graphic();
            if text.is_empty() || text.len() > 512 || !text.bytes().all(fits) {
                problems.push(format!("{name} has to be one word of at most 512 bytes"));
            }
            Some(text.to_owned())
        };
        wishes.image = word(IMAGE);
        wishes.log = word(LOG);
        match problems.is_empty() {
            true => Ok(wishes),
            false => Err(problems.join("; ")),
        }
    }

    fn warn_of_unknown(&mut self, annotations: &Labels) {
        let pairs = [
            REWRITE_PROBES,
            IMAGE,
            LOG,
            CPU,
            CPU_LIMIT,
            MEMORY,
            MEMORY_LIMIT,
        ];
        for name in annotations.keys() {
            let is_known = name == INTERCEPTION
                || OTHERS.contains(&&**name)
                || pairs.iter().flatten().any(|it| it == name)
                || REDIRECT
                    .iter()
                    .any(|(istio, own, _)| istio == name || own == name);
            let is_ours = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            if is_ours && !is_known {
                let warning = format!("annotation {name} is not honoured by the injected proxy");
                self.warnings.push(warning);
            }
        }
    }
}

/// `--NAME=VALUE` for what was said, checked as the command will check it.
fn redirect_arguments(annotations: &Labels, problems: &mut Vec<String>) -> Vec<String> {
    let mut arguments = Vec::new();
    for (istio, own, setting) in REDIRECT {
        let Some((name, text)) = find(annotations, [istio, own]) else {
            continue;
        };
        let argument = format!("--{setting}={text}");
        let probe = Probe::try_parse_from(["redirect", &argument]);
        let checked = match &probe {
            Ok(probe) => redirect::check(&probe.raw).map(|_| ()),
            Err(_) => Err(anyhow::anyhow!("it cannot be read")),
        };
        match checked {
            Ok(()) => arguments.push(argument),
            Err(error) => problems.push(format!("{name}: {error}")),
        }
    }
    arguments
}

/// The first of two names that is there: Istio's word goes before ours.
fn find<'a>(annotations: &'a Labels, names: [&'static str; 2]) -> Option<(&'static str, &'a str)> {
    let mut found = names
        .into_iter()
        .filter_map(|name| Some((name, annotations.get(name)?.trim())));
    found.next()
}

/// Whether this is a quantity of Kubernetes: digits, perhaps with a fraction, and a suffix.
pub(super) fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let suffix = text.get(number.len()..).unwrap_or_default();
    let suffixes = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let is_number = match number.split_once('.') {
        Some((whole, part)) => digits(whole) && digits(part),
        None => digits(number),
    };
    is_number && number.len() <= 20 && suffixes.contains(&suffix)
}

#[cfg(test)]
mod tests {
    use super::{Labels, Wishes, is_quantity};

    fn read(of: &[(&str, &str)]) -> Result<Wishes, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Wishes::read(&of.iter().map(owned).collect::<Labels>())
    }

    #[test]
    fn istios_names_and_ours_say_the_same() {
        let istio = read(&[
            ("traffic.sidecar.istio.io/includeInboundPorts", ""),
            (
                "traffic.sidecar.istio.io/excludeOutboundIPRanges",
                "10.0.0.0/8",
            ),
            ("sidecar.istio.io/proxyCPU", "50m"),
            ("sidecar.istio.io/rewriteAppHTTPProbers", "false"),
        ]);
        let own = read(&[
            ("myriad.dev/inbound-ports", ""),
            ("myriad.dev/outbound-cidrs-excluded", "10.0.0.0/8"),
            ("myriad.dev/proxy-cpu", "50m"),
            ("myriad.dev/rewrite-probes", "false"),
        ]);
        let wishes = istio.unwrap();
        assert_eq!(Ok(&wishes), own.as_ref());
        let redirect = ["--inbound-ports=", "--outbound-cidrs-excluded=10.0.0.0/8"];
        assert_eq!(wishes.redirect.unwrap(), redirect);
        assert_eq!(
            (wishes.cpu.as_deref(), wishes.rewrites_probes),
            (Some("50m"), false)
        );
    }

    #[test]
    fn what_does_not_hold_is_named_by_its_annotation() {
        let error = read(&[
            ("traffic.sidecar.istio.io/includeInboundPorts", "80;443"),
            ("sidecar.istio.io/interceptionMode", "TPROXY"),
            ("sidecar.istio.io/proxyMemory", "much"),
        ]);
        let expected = "traffic.sidecar.istio.io/includeInboundPorts: --inbound-ports: \
            \"80;443\" is not a port from 1 to 65535; sidecar.istio.io/interceptionMode: \
            \"TPROXY\" is not honoured; write REDIRECT or NONE; sidecar.istio.io/proxyMemory: \
            \"much\" is no quantity, such as 100m or 64Mi";
        assert_eq!(error.unwrap_err(), expected);
    }

    #[test]
    fn a_name_that_nobody_knows_is_a_warning_and_none_of_others() {
        let wishes = read(&[
            ("sidecar.istio.io/agentLogLevel", "debug"),
            ("sidecar.istio.io/inject", "true"),
            ("prometheus.io/scrape", "true"),
        ]);
        let warning = "annotation sidecar.istio.io/agentLogLevel is not honoured by the injected \
            proxy";
        assert_eq!(wishes.unwrap().warnings, [warning]);
    }

    #[test]
    fn quantities_are_those_of_kubernetes() {
        for text in ["1", "0.5", "100m", "64Mi", "2G"] {
            assert!(is_quantity(text), "{text}");
        }
        for text in ["", "m", "1.", ".5", "-1", "1 Mi", "64MiB", "1e3x"] {
            assert!(!is_quantity(text), "{text}");
        }
    }
}
