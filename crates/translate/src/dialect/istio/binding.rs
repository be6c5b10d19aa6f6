//! The Gateways that a VirtualService is bound to, as far as they take effect.
//!
//! A VirtualService is found under every pair of a Gateway and a host that it names, whether they
//! are there or not. The pairs of one object are bounded, so that a small object costs little.

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};

/// The most Gateways that one VirtualService is bound to.
const GATEWAYS_MAX: usize = 64;

/// The most pairs of a Gateway and a host under which one VirtualService is found.
const PAIRS_MAX: usize = 1 << 16;

/// The entries of `spec.gateways` that take effect: the first ones, so many that they and the hosts
/// are within the bound. At least one is left.
pub fn gateways(service: &VirtualService) -> &[Box<str>] {
    let all = &*service.spec.gateways;
    let matches = service.spec.tls.iter().flat_map(|tls| tls.matches.iter());
    let names: usize = matches.map(|matched| matched.sni_hosts.len()).sum();
    let hosts = service.spec.hosts.len().saturating_add(names).max(1);
    let max = (PAIRS_MAX / hosts).clamp(1, GATEWAYS_MAX);
    all.get(..max).unwrap_or(all)
}

/// The problem of Gateways that are beyond the bound.
pub fn judge(service: &VirtualService) -> Option<Finding> {
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
}
