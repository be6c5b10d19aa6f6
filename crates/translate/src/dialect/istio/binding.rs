//! The Gateways that a VirtualService is bound to, as far as they take effect.
//!
//! A VirtualService is found under every pair of a Gateway and a host that it names, whether they
//! are there or not. The pairs of one object are bounded, so that a small object costs little, and
//! so are the ways in to each of its hosts.

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};

use crate::settings::NAMES_MAX;

/// The most Gateways that one VirtualService is bound to.
const GATEWAYS_MAX: usize = 64;

/// The most pairs of a Gateway and a host under which one VirtualService is found.
const PAIRS_MAX: usize = 1 << 16;

/// The most pairs of a host and a way in to it of one VirtualService.
const WAYS_MAX: usize = 1 << 17;

/// The most ways in to a host of one VirtualService, where it has few hosts.
const WAYS_OF_FEW: usize = 256;

/// The same where it has many.
const WAYS_OF_MANY: usize = 16;

/// The entries of `spec.gateways` that take effect: the first ones, so many that they and the hosts
/// are within the bound. At least one is left.
pub(super) fn gateways(service: &VirtualService) -> &[Box<str>] {
    let all = &*service.spec.gateways;
    let max = (PAIRS_MAX / hosts(service)).clamp(1, GATEWAYS_MAX);
    all.get(..max).unwrap_or(all)
}

/// The most ways in to each host of a VirtualService.
pub(super) fn ways_max(service: &VirtualService) -> usize {
    (WAYS_MAX / hosts(service)).clamp(WAYS_OF_MANY, WAYS_OF_FEW)
}

/// The number of hosts and names of a VirtualService, at least one.
fn hosts(service: &VirtualService) -> usize {
    let matches = service.spec.tls.iter().flat_map(|tls| tls.matches.iter());
    let names: usize = matches.map(|matched| matched.sni_hosts.len()).sum();
    service.spec.hosts.len().saturating_add(names).max(1)
}

/// Whether a match lists more Gateways than have an effect. It is for all of them then, and closed:
/// a rule behind it may let through what it kept from some.
pub(super) fn is_beyond(written: &[Box<str>]) -> bool {
    written.len() > NAMES_MAX
}

/// The problems of matches that list more Gateways than have an effect.
pub(super) fn judge_matches(service: &VirtualService) -> Vec<Finding> {
    let spec = &service.spec;
    let http = spec.http.iter().map(|rule| {
        let lists = rule.matches.iter().map(|matched| &matched.rare().gateways);
        lists.collect::<Vec<_>>()
    });
    let tls = spec.tls.iter().map(|rule| {
        let lists = rule.matches.iter().map(|matched| &matched.gateways);
        lists.collect::<Vec<_>>()
    });
    let tcp = spec.tcp.iter().map(|rule| {
        let lists = rule.matches.iter().map(|matched| &matched.gateways);
        lists.collect::<Vec<_>>()
    });
    let http = http.enumerate().map(|(at, lists)| ("http", at, lists));
    let tls = tls.enumerate().map(|(at, lists)| ("tls", at, lists));
    let tcp = tcp.enumerate().map(|(at, lists)| ("tcp", at, lists));
    let mut findings = Vec::new();
    for (kind, rule, lists) in http.chain(tls).chain(tcp) {
        let beyond = lists.iter().enumerate().filter(|(_, list)| is_beyond(list));
        findings.extend(beyond.map(|(at, _)| {
            let field = format!("spec.{kind}[{rule}].match[{at}].gateways");
            lists_too_many(service, field)
        }));
    }
    findings
}

fn lists_too_many(service: &VirtualService, field: String) -> Finding {
    let does = "so what the match takes by any Gateway is led nowhere";
    Finding::new(
        Severity::Error,
        &service.meta.key,
        field,
        format!("has more than {NAMES_MAX} entries, {does}"),
        "list fewer, or none for all of spec.gateways",
    )
}

/// The problem of ways in to a host beyond the bound.
pub(super) fn beyond_ways(service: &VirtualService, max: usize) -> Finding {
    Finding::new(
        Severity::Error,
        &service.meta.key,
        "spec.gateways",
        format!(
            "leads by more than {max} ports of its Gateways to one host, which is the most with as \
             many hosts: those of the youngest Gateways have no effect"
        ),
        "bind the hosts to fewer Gateways, or divide them among several VirtualServices",
    )
}

/// The problem of Gateways that are beyond the bound.
pub(super) fn judge(service: &VirtualService) -> Option<Finding> {
    let count = gateways(service).len();
    let left = service.spec.gateways.len() - count;
    (left > 0).then(|| {
        Finding::new(
            Severity::Error,
            &service.meta.key,
            format!("spec.gateways[{count}]"),
            format!(
                "has no effect, nor have those behind it: with as many hosts a VirtualService is \
                 bound to at most {count} Gateways"
            ),
            "bind the hosts to fewer Gateways, or divide them among several VirtualServices",
        )
    })
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::VirtualServiceSpec;
    use myriad_api::{Meta, ObjectKey, ObjectKind};

    use super::*;
    use crate::dialect::istio::touch;

    fn service(hosts: usize, gateways: usize) -> VirtualService {
        let key = ObjectKey::new(ObjectKind::VirtualService, "n", "v");
        let texts = |count: usize, end: &str| -> Box<[Box<str>]> {
            let texts = (0..count).map(|number| Box::from(format!("x{number}{end}")));
            texts.collect()
        };
        VirtualService {
            meta: Meta::new(key),
            spec: VirtualServiceSpec {
                hosts: texts(hosts, ".example"),
                gateways: texts(gateways, ""),
                ..VirtualServiceSpec::default()
            },
            notes: Box::default(),
            bytes: 0,
        }
    }

    #[test]
    fn the_pairs_of_hosts_and_gateways_are_no_product() {
        for (hosts, count, kept) in [(2, 64, 64), (2, 65, 64), (2_048, 2_048, 32), (70_000, 9, 1)] {
            let service = service(hosts, count);
            assert_eq!(gateways(&service).len(), kept, "{hosts} hosts");
            assert_eq!(judge(&service).is_some(), count > kept, "{hosts} hosts");
            assert_eq!(touch::bound(&service).len(), hosts * kept);
        }
        assert!(gateways(&service(2, 0)).is_empty());
    }

    #[test]
    fn the_pairs_of_hosts_and_ways_in_are_no_product() {
        for (hosts, kept) in [(1, 256), (512, 256), (2_048, 64), (70_000, 16)] {
            assert_eq!(ways_max(&service(hosts, 1)), kept, "{hosts} hosts");
        }
    }
}
