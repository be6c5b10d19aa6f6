//! The changed defaults that affect objects by their content, or that findings tell of.

use myriad_api::Object;

use super::super::{ChangedDefault, Sign};

/// These defaults, in the order of CHANGELOG.md.
pub(super) const SHOWN: &[ChangedDefault] = &[
    ChangedDefault {
        line: "Texts of DestinationRules have bounds",
        change: "texts of DestinationRules and ports of EndpointSlices are bounded",
        setting: "",
        sign: Sign::Finding(&[
            "and so is no name of a host",
            "bytes together",
            "a name of at most 256 bytes",
            "bytes of localities",
            "entries; divide the Service",
        ]),
    },
    ChangedDefault {
        line: "refuse endpoints at loopback",
        change: "endpoints of the gateway's own machine, its link or its cloud are refused",
        setting: "--endpoint-allow",
        sign: Sign::Finding(&[
            "--endpoint-allow",
            "the gateway's own machine",
            "gives credentials",
            "listens itself",
        ]),
    },
    ChangedDefault {
        line: "routes of Ingresses compare",
        change: "paths are compared decoded, and what restricts one holds for every spelling",
        setting: "--path-normalization=NONE",
        sign: Sign::Object(restricts_paths),
    },
    ChangedDefault {
        line: "no longer takes a host",
        change: "a host belongs to the namespace of the oldest object of any API",
        setting: "--host-sharing=cluster",
        sign: Sign::Finding(&["--host-sharing", "which belongs to namespace"]),
    },
    ChangedDefault {
        line: "below a wildcard of another",
        change: "hosts below a wildcard of another namespace are not served with its certificate",
        setting: "--wildcard-sharing='*'",
        sign: Sign::Finding(&["is served over plain HTTP only"]),
    },
    ChangedDefault {
        line: "snippets with a directive",
        change: "snippets that may restrict, and proxy-ssl-verify, close their paths",
        setting: "--ignore-annotations",
        sign: Sign::Finding(&["-snippet]", "proxy-ssl-verify]"]),
    },
    ChangedDefault {
        line: "at most 256 different regexes",
        change: "a host has at most 256 different regexes",
        setting: "--regexes-per-host",
        sign: Sign::Finding(&["that a host may have"]),
    },
    ChangedDefault {
        line: "`minimumRingSize` and `tableSize` beyond",
        change: "a hash ring or Maglev table has at most 65,537 slots",
        setting: "--bound upstream-hash-slots=1048576",
        sign: Sign::Finding(&["--bound upstream-hash-slots"]),
    },
    ChangedDefault {
        line: "slots together",
        change: "a namespace may ask for 4,194,304 slots of hash tables",
        setting: "--bound hash-slots=0",
        sign: Sign::Finding(&["--bound hash-slots"]),
    },
    ChangedDefault {
        line: "may have 250,000 rows",
        change: "a namespace may have 250,000 routes in front of a controller",
        setting: "--bound routes=0",
        sign: Sign::Finding(&["--bound routes"]),
    },
    ChangedDefault {
        line: "may have 250,000 endpoints",
        change: "a namespace may have 250,000 endpoints in front of a controller",
        setting: "--bound endpoints=0",
        sign: Sign::Finding(&["--bound endpoints"]),
    },
    ChangedDefault {
        line: "150,000 Secrets",
        change: "a namespace may have 150,000 certificates in front of a controller",
        setting: "--bound certificates=0",
        sign: Sign::Finding(&["--bound certificates"]),
    },
    ChangedDefault {
        line: "RSA key of more than 4,096",
        change: "certificates with RSA keys beyond 4,096 bits are refused",
        setting: "",
        sign: Sign::Finding(&["4096 bits"]),
    },
    ChangedDefault {
        line: "Names in `tls[].match[].sniHosts`",
        change: "names in sniHosts are claimed like hosts",
        setting: "--host-sharing=cluster",
        sign: Sign::Finding(&["sniHosts"]),
    },
    ChangedDefault {
        line: "`networking.istio.io/exportTo` of a Service",
        change: "exportTo of Services holds for destinations",
        setting: "",
        sign: Sign::Finding(&["is not exported to namespace"]),
    },
    ChangedDefault {
        line: "A host has at most 256 subsets",
        change: "a host has at most 256 subsets",
        setting: "--bound host-subsets=0",
        sign: Sign::Finding(&["--bound host-subsets"]),
    },
    ChangedDefault {
        line: "copied into the subsets of a host",
        change: "the endpoints that all subsets of a host have are bounded together",
        setting: "--bound subset-endpoints=0",
        sign: Sign::Finding(&["--bound subset-endpoints"]),
    },
    ChangedDefault {
        line: "has at most 8 mirrors",
        change: "a rule has at most 8 mirrors",
        setting: "",
        sign: Sign::Finding(&["mirrors that a rule may have"]),
    },
    ChangedDefault {
        line: "`retries.attempts` is at most 10",
        change: "a rule makes at most 10 repetitions",
        setting: "",
        sign: Sign::Finding(&["are the most that are made"]),
    },
    ChangedDefault {
        line: "only where it is older than they are",
        change: "a wildcard keeps the HTTPS of hosts of others only where it is older",
        setting: "--wildcard-sharing='*'",
        sign: Sign::Finding(&["of the younger"]),
    },
    ChangedDefault {
        line: "Endpoints in the subsets of one namespace",
        change: "the endpoints that subsets of a namespace have are bounded together",
        setting: "--bound endpoint-copies=0",
        sign: Sign::Finding(&["--bound endpoint-copies"]),
    },
    ChangedDefault {
        line: "holds for Gateways with a server for `*`",
        change: "--catch-all-namespaces holds for Gateways",
        setting: "--catch-all-namespaces=NAMESPACE,...",
        sign: Sign::Finding(&["--catch-all-namespaces does not list"]),
    },
    ChangedDefault {
        line: "binds to at most 64 Gateways",
        change: "a VirtualService binds to at most 64 Gateways",
        setting: "",
        sign: Sign::Finding(&["a VirtualService is bound to at most"]),
    },
    ChangedDefault {
        line: "matches of a delegate's rules",
        change: "the matches of a delegate's rules are bounded",
        setting: "",
        sign: Sign::Finding(&["may have from delegates together"]),
    },
    ChangedDefault {
        line: "path parameters that hide escapes",
        change: "what restricts a path holds for readings between the raw and the decoded one",
        setting: "",
        sign: Sign::Object(restricts_paths),
    },
    ChangedDefault {
        line: "repeat on each of their hosts",
        change: "texts that hosts repeat count for routes, and lists hold 4,096 networks",
        setting: "--bound routes=0",
        sign: Sign::Finding(&[
            "has more than 4096 networks",
            "shorten what its rules say",
            "name those hosts in spec.hosts",
        ]),
    },
    ChangedDefault {
        line: "Annotations of ingress-nginx that had no effect",
        change: "annotations that had no effect have one",
        setting: "--ignore-annotations",
        sign: Sign::Object(has_new_annotation),
    },
    ChangedDefault {
        line: "with a usable Secret asks for passwords",
        change: "passwords are asked for and deny lists refuse, where both answered 503",
        setting: "--ignore-annotations",
        sign: Sign::Object(has_password_or_deny_list),
    },
    ChangedDefault {
        line: "Hashes that no password has",
        change: "hashes that no password has are findings, and bcrypt takes at most 72 bytes",
        setting: "",
        sign: Sign::Finding(&["the user is not admitted"]),
    },
    ChangedDefault {
        line: "`auth-tls-*` annotations",
        change: "hosts with auth-tls ask for certificates, where they answered 503",
        setting: "--ignore-annotations",
        sign: Sign::Object(has_client_certificates),
    },
    ChangedDefault {
        line: "ask the service that it names",
        change: "hosts with auth-url ask the service, where they answered 503",
        setting: "--ignore-annotations",
        sign: Sign::Object(has_asked_service),
    },
    ChangedDefault {
        line: "with its issuers has more than 64 KiB",
        change: "long certificates, snippets and lists have no effect, or close",
        setting: "",
        sign: Sign::Finding(&[
            "a certificate of more than 64 KiB",
            "a chain of more than 64 KiB",
        ]),
    },
    ChangedDefault {
        line: "waits for four times as long",
        change: "changes of a namespace that is costly to translate wait",
        setting: "--bound control-share=0",
        sign: Sign::Finding(&["--bound control-share"]),
    },
    ChangedDefault {
        line: "steps to read, such as",
        change: "regexes with classes that take much to read have no effect",
        setting: "",
        sign: Sign::Finding(&["steps to read"]),
    },
    ChangedDefault {
        line: "claim a host in vain the 16 oldest",
        change: "of many objects that claim a host in vain 16 have findings of their own",
        setting: "",
        sign: Sign::Finding(&["more objects without effect"]),
    },
    ChangedDefault {
        line: "Lists have bounds, with findings",
        change: "lists of names, labels and TLS settings have bounds",
        setting: "",
        sign: Sign::Finding(&["has more than 256 entries", "are more than 256"]),
    },
    ChangedDefault {
        line: "authorities of one subject in a `ca.crt`",
        change: "4 authorities of one subject count",
        setting: "",
        sign: Sign::Finding(&["verify nobody"]),
    },
    ChangedDefault {
        line: "at most 256 header fields",
        change: "edits of headers and destinationSubnets are bounded by their number",
        setting: "",
        sign: Sign::Finding(&[
            "that a rule and one of its destinations may",
            "has more than 4096 entries",
        ]),
    },
    ChangedDefault {
        line: "what a VirtualService says of the host of a Service",
        change: "hosts and addresses in the mesh are of their owners, callers and the operator",
        setting: "",
        sign: Sign::Finding(&["for callers outside of namespace"]),
    },
    ChangedDefault {
        line: "a block of addresses of a ServiceEntry, and one of TCP",
        change: "blocks of ServiceEntries have no effect where Services stand",
        setting: "",
        sign: Sign::Finding(&["covers addresses of Services in"]),
    },
    ChangedDefault {
        line: "The findings about the objects of a namespace take",
        change: "findings about a namespace take 32 MiB, and about 32,768 of them are told",
        setting: "--bound finding-bytes=0",
        sign: Sign::Finding(&["--bound finding-bytes"]),
    },
];

/// Whether an object restricts who reaches a path, so that another spelling of it matters.
fn restricts_paths(object: &Object) -> bool {
    match object {
        Object::Ingress(ingress) => {
            let mut names = ingress.meta.annotations.iter().map(|(name, _)| name);
            names.any(|name| {
                let name = name.rsplit('/').next().unwrap_or_default();
                name.ends_with("-source-range") || name.starts_with("auth-")
            })
        }
        Object::AuthorizationPolicy(policy) => policy.spec.as_ref().is_ok_and(|spec| {
            let to = spec.rules.iter().flat_map(|rule| &*rule.to);
            let mut operations = to.filter_map(|to| to.operation.as_deref());
            operations.any(|it| !it.paths.is_empty() || !it.not_paths.is_empty())
        }),
        _ => false,
    }
}

/// Whether an Ingress has an annotation by one of some names, whatever its prefix.
fn has_annotation(object: &Object, names: &[&str]) -> bool {
    let Object::Ingress(ingress) = object else {
        return false;
    };
    let mut keys = ingress.meta.annotations.iter().map(|(key, _)| key);
    keys.any(|key| names.contains(&key.rsplit('/').next().unwrap_or_default()))
}

fn has_new_annotation(object: &Object) -> bool {
    has_annotation(
        object,
        &[
            "custom-headers",
            "custom-http-errors",
            "from-to-www-redirect",
            "limit-connections",
            "mirror-target",
            "server-alias",
            "upstream-hash-by",
        ],
    )
}

fn has_password_or_deny_list(object: &Object) -> bool {
    has_annotation(object, &["auth-type", "denylist-source-range"])
}

fn has_client_certificates(object: &Object) -> bool {
    has_annotation(
        object,
        &[
            "auth-tls-secret",
            "auth-tls-verify-client",
            "auth-tls-match-cn",
        ],
    )
}

fn has_asked_service(object: &Object) -> bool {
    has_annotation(object, &["auth-url"])
}
