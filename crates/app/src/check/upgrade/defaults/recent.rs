//! The changed defaults that nothing in a cluster shows, and that stand last in CHANGELOG.md.

use super::super::{ChangedDefault, Sign};

/// These defaults, in the order of CHANGELOG.md.
pub(super) const RECENT: &[ChangedDefault] = &[
    ChangedDefault {
        line: "At ports of a workload that nobody has declared",
        change: "a connection that goes on as bytes at a port without a declared protocol is \
                 closed where it begins with a request",
        setting: "`appProtocol: http`",
        sign: Sign::Look("look for bad_protocol in access logs of sidecars"),
    },
    ChangedDefault {
        line: "Clients of `PROXY UNKNOWN`",
        change: "clients that a load balancer does not tell are unknown",
        setting: "",
        sign: Sign::Look("look at balancers that send PROXY UNKNOWN, and at lists of addresses"),
    },
    ChangedDefault {
        line: "gets protobuf of `/metrics`",
        change: "Prometheus with native histograms keeps myriad_live_seconds as one",
        setting: "",
        sign: Sign::Look("look for queries of myriad_live_seconds_bucket"),
    },
    ChangedDefault {
        line: "the right to read the kinds of Gateway API",
        change: "controllers may read Gateway API, all ConfigMaps and all Namespaces",
        setting: "gatewayApi.enabled=false",
        sign: Sign::Look("look whether anybody else serves Gateway API in the cluster"),
    },
    ChangedDefault {
        line: "edited to name a port of a Gateway",
        change: "ports, plain TCP and names of ServiceEntries belong to who had them first",
        setting: "",
        sign: Sign::Look("look for findings about ports and names that others have"),
    },
    ChangedDefault {
        line: "may name 256 ports beside 80 and 443",
        change: "the Gateways and ListenerSets of a namespace may name 256 ports",
        setting: "--bound ports=0",
        sign: Sign::Look("look for findings about --bound ports"),
    },
    ChangedDefault {
        line: "Light slices that a namespace has for itself",
        change: "many light changes of a namespace are charged to it while others wait",
        setting: "--bound control-share=0",
        sign: Sign::Look("look for findings about changes that wait"),
    },
    ChangedDefault {
        line: "Sessions of TLS with an endpoint are resumed",
        change: "sessions with endpoints end with the certificates that began them",
        setting: "",
        sign: Sign::Look("look for endpoints whose certificates have ended"),
    },
    ChangedDefault {
        line: "Tables that idle connections of HTTP/2 keep",
        change: "tables of idle connections of HTTP/2 count in held_bytes",
        setting: "--limit held_bytes",
        sign: Sign::Look("look at limits_reached_total{limit=held_bytes}"),
    },
    ChangedDefault {
        line: "The sidecars of a namespace have at most 1,024 views",
        change: "sidecars of a namespace have at most 1,024 views",
        setting: "--bound views=0",
        sign: Sign::Look("look for namespaces with more than 1,024 kinds of Pods in the mesh"),
    },
    ChangedDefault {
        line: "`sourceLabels` that name a label in which each Pod differs",
        change: "rules for callers of other namespaces by labels of single Pods are closed",
        setting: "",
        sign: Sign::Look("look for VirtualServices with sourceLabels such as pod-template-hash"),
    },
    ChangedDefault {
        line: "However small they are, Services, ConfigMaps",
        change: "small objects count in bounds of namespaces",
        setting: "--bound object-bytes=0",
        sign: Sign::Look("look for namespaces with more than 100,000 Services and Pods"),
    },
    ChangedDefault {
        line: "a ServiceEntry has no effect for `*`",
        change: "wide and local names and addresses of ServiceEntries, and names that callers \
                 declare, are nothing to callers of other namespaces",
        setting: "",
        sign: Sign::Look("look for ServiceEntries for everybody outside of the root namespace"),
    },
    ChangedDefault {
        line: "endpoints that are Pods of its own",
        change: "Services without an address lead callers of other namespaces to their Pods alone",
        setting: "",
        sign: Sign::Look("look for EndpointSlices that are written by hand"),
    },
    ChangedDefault {
        line: "HTTP of other namespaces at ports other than 80 and 8080",
        change: "HTTP and TLS of other namespaces at unusual ports are told by address",
        setting: "",
        sign: Sign::Look("look for Services with clusterIP None and HTTP at other ports"),
    },
    ChangedDefault {
        line: "holds on ports of plain TCP as well",
        change: "streams of plain TCP begin with a header where --proxy-protocol names their port",
        setting: "--proxy-protocol",
        sign: Sign::Look("look for ports of plain TCP behind --proxy-protocol=all"),
    },
    ChangedDefault {
        line: "Of several certificates of a host",
        change: "of several certificates of a host, clients that can verify ECDSA get that",
        setting: "",
        sign: Sign::Look("look for hosts in two entries of tls, and for credentialNames"),
    },
    ChangedDefault {
        line: "Authorities in a `ca.crt` with RSA keys longer",
        change: "authorities and issuers with RSA keys beyond 4,096 bits verify nobody",
        setting: "",
        sign: Sign::Look("look for RSA keys of 8,192 bits in ca.crt and in chains of peers"),
    },
    ChangedDefault {
        line: "that sets records of DNS (`dns-01`",
        change: "issuers for all set records of DNS for the older of a name and the wildcard below \
                 it, and not below older wildcards of others",
        setting: "--tenants",
        sign: Sign::Look("look for findings about issuers and records of DNS"),
    },
    ChangedDefault {
        line: "A TLS name that nobody has is closed without an alert",
        change: "names that nobody has are closed without an alert at ports where handshakes are \
                 handed on",
        setting: "",
        sign: Sign::Look("look for TLSRoutes, and for tls rules of VirtualServices"),
    },
    ChangedDefault {
        line: "The proxy of a Pod with more than 256 labels",
        change: "proxies of Pods with very many labels get no view in the mesh",
        setting: "",
        sign: Sign::Look("look for findings about labels of Pods"),
    },
    ChangedDefault {
        line: "sends by an exact name of `headersToUpstreamOnAllow`",
        change: "fields that an authorizer may set reach endpoints from authorizers alone",
        setting: "",
        sign: Sign::Look("look for authorizers that leave fields of clients as they are"),
    },
    ChangedDefault {
        line: "A block of addresses of a ServiceEntry counts as 64",
        change: "a block of addresses of a ServiceEntry counts as 64 endpoints",
        setting: "--bound endpoints=0",
        sign: Sign::Look("look for findings about --bound endpoints"),
    },
    ChangedDefault {
        line: "Statuses of Gateway API count in",
        change: "statuses and notes of fields that are not read count in the memory of objects",
        setting: "--bound object-bytes=0",
        sign: Sign::Look("look for namespaces with very many Gateways, routes and policies"),
    },
    ChangedDefault {
        line: "Of what DNS says an upstream has 1,024 addresses",
        change: "an upstream has 1,024 addresses of DNS, which its names share",
        setting: "",
        sign: Sign::Look("look at dns_upstreams_reduced_total, and for more than 16 names of DNS"),
    },
    ChangedDefault {
        line: "What an edit leads to beside its own object",
        change: "what an edit leads to beside its own object may follow in turns of namespaces",
        setting: "",
        sign: Sign::Look("look for Gateways with thousands of routes, and for changes that wait"),
    },
];
