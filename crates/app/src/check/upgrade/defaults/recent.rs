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
        line: "Places of routes of Gateway API",
        change: "a route has its hosts at eight listeners of a parent, or at those that it names, \
                 and counts for them in the memory of objects",
        setting: "--bound object-bytes=0",
        sign: Sign::Look("look for routes without sectionName at Gateways of many listeners"),
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
    ChangedDefault {
        line: "has at a listener of another namespace",
        change: "routes have the hosts at listeners of other namespaces that their own may claim",
        setting: "--tenants",
        sign: Sign::Look("look for findings about hostnames of routes and --tenants"),
    },
    ChangedDefault {
        line: "for all hosts at such a listener of shared proxies",
        change: "routes for all hosts and wildcards at listeners of other namespaces answer for no \
                 host that others claim",
        setting: "--catch-all-namespaces",
        sign: Sign::Look("look for routes without hostnames at Gateways of other namespaces"),
    },
    ChangedDefault {
        line: "A VirtualService for `*` answers for hosts that nobody names",
        change: "VirtualServices for `*` answer at Gateways of other namespaces where their own \
                 namespace may answer for hosts that nobody names",
        setting: "--catch-all-namespaces",
        sign: Sign::Look("look for VirtualServices for `*` at Gateways of other namespaces"),
    },
    ChangedDefault {
        line: "Rules for TLS of a VirtualService at a server with `PASSTHROUGH`",
        change: "rules for TLS at Gateways of other namespaces hand on no handshakes of hosts that \
                 others claim",
        setting: "--catch-all-namespaces",
        sign: Sign::Look("look for rules for TLS by wildcards at Gateways of other namespaces"),
    },
    ChangedDefault {
        line: "Keys of an issuer to which its OpenID configuration leads",
        change: "keys of issuers without jwksUri are fetched where endpoints may be, and not over \
                 HTTP where the issuer has HTTPS",
        setting: "`jwksUri`",
        sign: Sign::Look("look for RequestAuthentications without jwks and jwksUri"),
    },
    ChangedDefault {
        line: "Answers of gRPC authorizers without the media type",
        change: "calls of gRPC authorizers that do not end with grpc-status 0 are no answers",
        setting: "",
        sign: Sign::Look("look at authorizers of gRPC that are not of a library of gRPC"),
    },
    ChangedDefault {
        line: "changes no header field by which the proxy tells whom a request comes from",
        change: "VirtualServices tell Services of other namespaces nothing of clients",
        setting: "",
        sign: Sign::Look("look for findings about fields that tell whom requests come from"),
    },
    ChangedDefault {
        line: "By a delegate of another namespace a VirtualService reaches",
        change: "VirtualServices reach by delegates what their own namespace sees",
        setting: "`exportTo` of the delegate",
        sign: Sign::Look("look for findings about spec.http[].delegate and exportTo"),
    },
    ChangedDefault {
        line: "Documents of YAML in a directory that is served",
        change: "documents of YAML have 50,000 nodes, 1,024 aliases, and lists 16,384 items",
        setting: "",
        sign: Sign::Look("look for findings about documents and lists of which more is not read"),
    },
    ChangedDefault {
        line: "A directory in the root of `myriad serve`",
        change: "a directory in the root of a served directory has a quarter of what the root has",
        setting: "",
        sign: Sign::Look("look for directories of 250,000 files or 16,384 directories"),
    },
    ChangedDefault {
        line: "Links to directories below a directory in the root",
        change: "links to directories are followed within their root, and to each directory once",
        setting: "a link in the root",
        sign: Sign::Look("look for findings about links to directories"),
    },
];
