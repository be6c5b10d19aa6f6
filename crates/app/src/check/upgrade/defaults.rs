//! The changed defaults of this release: here those that an operator has to look for, and in
//! [`shown`] those that objects or findings show.

use super::{ChangedDefault, Sign};

mod shown;

/// All changed defaults.
pub(super) fn all() -> impl Iterator<Item = &'static ChangedDefault> {
    LOOKED_FOR.iter().chain(shown::SHOWN)
}

/// The changed defaults that nothing in a cluster shows, in the order of CHANGELOG.md.
const LOOKED_FOR: &[ChangedDefault] = &[
    ChangedDefault {
        line: "refuse a `Host` that is neither",
        change: "admin addresses are asked by IP address or localhost alone",
        setting: "--admin-hosts",
        sign: Sign::Look("look for scrapers and checks that ask them by another name"),
    },
    ChangedDefault {
        line: "lets the namespace `monitoring`",
        change: "the chart admits the namespace monitoring alone to admin addresses",
        setting: "networkPolicy.adminFrom",
        sign: Sign::Look("look where scrapers run"),
    },
    ChangedDefault {
        line: "deciding entry in `X-Forwarded-For`",
        change: "a client whose deciding entry in X-Forwarded-For is no address is unknown",
        setting: "--trusted-hops=0",
        sign: Sign::Look("look at what the proxies in front write, where there are allow lists"),
    },
    ChangedDefault {
        line: "`X-Forwarded-Proto: https` counts",
        change: "X-Forwarded-Proto of trusted proxies decides redirects to HTTPS",
        setting: "--trusted-hops=0",
        sign: Sign::Look("look for proxies in front that say https of plain requests"),
    },
    ChangedDefault {
        line: "fields with underscores",
        change: "header fields with underscores in their names are dropped",
        setting: "--underscores-in-headers",
        sign: Sign::Look("look for backends that read such fields"),
    },
    ChangedDefault {
        line: "beyond 2^63 - 1",
        change: "a Content-Length beyond 2^63 - 1 is refused",
        setting: "",
        sign: Sign::Look("no client is known to send one"),
    },
    ChangedDefault {
        line: "get `X-Request-ID`",
        change: "endpoints get X-Request-ID",
        setting: "--request-id=pass",
        sign: Sign::Look("look for backends that make their own where there is none"),
    },
    ChangedDefault {
        line: "`Server: myriad`",
        change: "responses without Date get one, and own answers say Server",
        setting: "",
        sign: Sign::Look("look for tests that compare whole heads"),
    },
    ChangedDefault {
        line: "have a second line",
        change: "bodies of the proxy's own failures have the id of the request",
        setting: "",
        sign: Sign::Look("look for tests that compare them"),
    },
    ChangedDefault {
        line: "word that is no level",
        change: "--log with a word that is no level is an error",
        setting: "",
        sign: Sign::Look("look at how the process is started"),
    },
    ChangedDefault {
        line: "Connections that have not said enough",
        change: "silent connections are at most 16,384 of a worker",
        setting: "--limit silent=65536",
        sign: Sign::Look("look for clients that connect long before they ask"),
    },
    ChangedDefault {
        line: "beyond `handshakes` wait",
        change: "handshakes beyond the limit wait for their turn",
        setting: "--limit turn_timeout=500ms",
        sign: Sign::Look("look for clients that rely on being refused at once"),
    },
    ChangedDefault {
        line: "names no format with",
        change: "/metrics answers in text 0.0.4 whoever names no format",
        setting: "Accept: application/openmetrics-text",
        sign: Sign::Look("look for scrapers that rely on OpenMetrics without asking for it"),
    },
    ChangedDefault {
        line: "131,072 steps",
        change: "a request may spend 131,072 steps on regexes",
        setting: "",
        sign: Sign::Look("look for regexes with nested repetitions"),
    },
    ChangedDefault {
        line: "idle connection goes once a newcomer",
        change: "idle connections are closed for newcomers that have said enough alone",
        setting: "",
        sign: Sign::Look("look for myriad_connections_evicted_total"),
    },
    ChangedDefault {
        line: "divided among namespaces first",
        change: "shares are divided among namespaces and then among their domains",
        setting: "",
        sign: Sign::Look("look for namespaces with very many busy hosts"),
    },
    ChangedDefault {
        line: "take 128 MiB together",
        change: "hash rings and Maglev tables of a proxy take 128 MiB together",
        setting: "--limit hash_table_bytes=65536MiB",
        sign: Sign::Look("look for myriad_hash_tables_reduced_total"),
    },
    ChangedDefault {
        line: "Sidecars pass on the `X-Forwarded-Proto`",
        change: "sidecars pass on X-Forwarded-Proto of their workload and of the mesh's peers",
        setting: "",
        sign: Sign::Look("look for workloads that redirect by it"),
    },
    ChangedDefault {
        line: "Streams (TCP, and TLS that is",
        change: "streams have shares of connections as HTTP has",
        setting: "--limit connections=N",
        sign: Sign::Look("look for namespaces with very many streams at a time"),
    },
    ChangedDefault {
        line: "a quarter of the questions to DNS",
        change: "a namespace has at most a quarter of the questions to DNS",
        setting: "",
        sign: Sign::Look("look for namespaces with very many names that DNS resolves"),
    },
    ChangedDefault {
        line: "once 1 MiB was read of it",
        change: "an endpoint's connection that floods without a request is closed",
        setting: "",
        sign: Sign::Look("look for upstream_connections_total with the event evicted"),
    },
    ChangedDefault {
        line: "hold more than 1 MiB in DER",
        change: "authorities beyond 1 MiB verify nobody",
        setting: "",
        sign: Sign::Look("look for findings about ca.crt"),
    },
    ChangedDefault {
        line: "refuses the unspecified address",
        change: "denied loopback covers the unspecified address",
        setting: "",
        sign: Sign::Look("look for endpoints at 0.0.0.0 or ::"),
    },
    ChangedDefault {
        line: "to a `uri` that is no path from",
        change: "texts that would end a field are refused in redirects, CORS, cookies and rewrites",
        setting: "",
        sign: Sign::Look("look for findings about redirect, corsPolicy, httpCookie and rewrite"),
    },
    ChangedDefault {
        line: "Trailers of requests with underscores",
        change: "trailers with underscores, or of use only before a body, are left out",
        setting: "",
        sign: Sign::Look("look for servers that read such trailers"),
    },
    ChangedDefault {
        line: "The request field `Proxy`",
        change: "the request field Proxy is not passed on",
        setting: "",
        sign: Sign::Look("look for servers that read it"),
    },
    ChangedDefault {
        line: "longer than 8 KiB, a `directResponse`",
        change: "answers and headers of VirtualServices have bounds",
        setting: "",
        sign: Sign::Look("look for findings about redirect, directResponse and headers"),
    },
    ChangedDefault {
        line: "Gateways with PASSTHROUGH for a wildcard",
        change: "wildcards that hand handshakes on keep names below them",
        setting: "--wildcard-sharing",
        sign: Sign::Look("look for findings about names below wildcards"),
    },
    ChangedDefault {
        line: "counts once for each of its hosts",
        change: "endpoints of a ServiceEntry count for each of its hosts",
        setting: "--bound endpoints=0",
        sign: Sign::Look("look for ServiceEntries with many hosts and many endpoints"),
    },
    ChangedDefault {
        line: "a quarter of the listeners",
        change: "Gateways of one namespace open at most a quarter of the listeners",
        setting: "--limit listeners=4096",
        sign: Sign::Look("look for namespaces whose Gateways name more than 256 ports"),
    },
    ChangedDefault {
        line: "A listener where a claimed host has no routes",
        change: "wildcards answer no requests for older hosts, nor does `*` for claimed ones",
        setting: "--wildcard-sharing='*'",
        sign: Sign::Look("look for hosts of HTTPS alone whose plain HTTP a wildcard answered"),
    },
    ChangedDefault {
        line: "take at most nine tenths of",
        change: "WebSockets and streams leave a tenth of `connections`",
        setting: "--limit connections",
        sign: Sign::Look("look for gateways that serve hardly anything but WebSockets or streams"),
    },
    ChangedDefault {
        line: "whose handshake named no domain gets 421",
        change: "the host of a domain is not served after a handshake for an unknown name",
        setting: "",
        sign: Sign::Look("look for clients whose handshakes name another host than their requests"),
    },
    ChangedDefault {
        line: "is neither `http` nor `https` get 400",
        change: "schemes of HTTP/2 that are not those of HTTP are refused",
        setting: "",
        sign: Sign::Look("look for clients that send another `:scheme`"),
    },
    ChangedDefault {
        line: "frames without a use in 10 s",
        change: "endpoints that flood frames lose their connection",
        setting: "",
        sign: Sign::Look("look for endpoints that send frames without end"),
    },
    ChangedDefault {
        line: "Rings of few points",
        change: "rings beyond the budget of hash tables are bounded as well",
        setting: "--limit hash_table_bytes",
        sign: Sign::Look("look for hundreds of upstreams with consistent hashing"),
    },
    ChangedDefault {
        line: "Admin addresses serve at most 128 connections",
        change: "admin addresses bound connections, idle time and bodies",
        setting: "",
        sign: Sign::Look("look for clients that keep connections to admin addresses idle"),
    },
    ChangedDefault {
        line: "A host stays with who had it first",
        change: "an edited object claims a host from the edit on; ConfigMaps keep that",
        setting: "--host-sharing=cluster",
        sign: Sign::Look(
            "look for the right to get and patch the ConfigMaps myriad-claims-0 to -7",
        ),
    },
    ChangedDefault {
        line: "in the `tls` of an Ingress alone is claimed",
        change: "a host in the tls of an Ingress alone is claimed like one of its rules",
        setting: "--wildcard-sharing='*'",
        sign: Sign::Look(
            "look for names in tls without a rule, below wildcards of other namespaces",
        ),
    },
    ChangedDefault {
        line: "broader than its server's hosts",
        change: "rules for broader wildcards, for TLS and for TCP have an age of their own",
        setting: "--host-sharing=cluster",
        sign: Sign::Look("look for such rules behind a Gateway of the operator"),
    },
    ChangedDefault {
        line: "names of Services in a cluster's domain",
        change: "names of Services are claimed by their own namespace alone",
        setting: "",
        sign: Sign::Look("look for ServiceEntries that name Services of other namespaces"),
    },
    ChangedDefault {
        line: "several tokens gets 401",
        change: "one invalid token refuses a request, even beside a valid one",
        setting: "",
        sign: Sign::Look("look for clients that send a stale cookie beside a fresh header"),
    },
    ChangedDefault {
        line: "`OPTIONS *` is held",
        change: "OPTIONS * is held against policies and routes as /",
        setting: "",
        sign: Sign::Look("look for clients that send OPTIONS *"),
    },
    ChangedDefault {
        line: "only get answers of the proxy itself",
        change: "the last tenth of connections is for namespaces with few",
        setting: "",
        sign: Sign::Look("look at connections in the busiest hours"),
    },
    ChangedDefault {
        line: "waits at most 10 s for a client to read",
        change: "admin addresses wait 10 s for a client to read, and serve 100 requests",
        setting: "",
        sign: Sign::Look("look for scrapers on slow lines"),
    },
    ChangedDefault {
        line: "use a Secret of the gateway's namespace only",
        change: "Secrets of the gateway's namespace are used by the namespaces that they name",
        setting: "--gateway-credentials=any",
        sign: Sign::Look("myriad check --gateway-credentials=named lists them"),
    },
    ChangedDefault {
        line: "may trickle for one `body_timeout`",
        change: "bodies of requests that trickle get 408",
        setting: "--limit min_body_rate=0",
        sign: Sign::Look("look for clients that send slower than 64 bytes in a second"),
    },
    ChangedDefault {
        line: "handshakes of a listener below a wildcard",
        change: "the oldest VirtualService has the handshakes of a listener below a wildcard",
        setting: "",
        sign: Sign::Look("look for VirtualServices with the same sniHosts"),
    },
    ChangedDefault {
        line: "`bind` of a Gateway is honoured",
        change: "bind is for the workload's namespace, and a port is of its oldest Gateway",
        setting: "--host-sharing=cluster",
        sign: Sign::Look("look for Gateways with bind, and for ports of several namespaces"),
    },
    ChangedDefault {
        line: "TCP rules of a VirtualService for `*`",
        change: "plain connections of a port belong to the namespace of its Gateway",
        setting: "",
        sign: Sign::Look("look for TCP servers of several namespaces on one port"),
    },
    ChangedDefault {
        line: "by at most 256 ports",
        change: "a VirtualService leads to a host by at most 256 ports",
        setting: "",
        sign: Sign::Look("look for Gateways with hundreds of ports"),
    },
    ChangedDefault {
        line: "Conditions of routes (query",
        change: "conditions of routes are paid for from the steps of a request",
        setting: "",
        sign: Sign::Look("look for hosts with thousands of conditions"),
    },
    ChangedDefault {
        line: "leave endpoints of a Service out",
        change: "errors of routes of other namespaces leave no endpoint out",
        setting: "",
        sign: Sign::Look(
            "look for outlierDetection of Services that VirtualServices elsewhere lead to",
        ),
    },
    ChangedDefault {
        line: "`X-Scheme`, `X-Forwarded-Scheme`",
        change: "X-Scheme, SSL-Client-* and the like of clients reach no endpoint",
        setting: "--trusted-hops=N",
        sign: Sign::Look("look for backends that read such fields of a proxy in front"),
    },
    ChangedDefault {
        line: "The streams of one HTTP/2 connection hold",
        change: "the streams of one HTTP/2 connection hold at most 2 MiB",
        setting: "--limit http2_held_bytes=256MiB",
        sign: Sign::Look("look at limits_reached_total{limit=http2_held_bytes}"),
    },
    ChangedDefault {
        line: "wait for their own client give way",
        change: "requests that wait for their own client give way",
        setting: "",
        sign: Sign::Look("look at myriad_requests_evicted_total"),
    },
    ChangedDefault {
        line: "behind a semicolon of the query",
        change: "tokens behind a semicolon are seen, and drafts of HTTP/2 are not passed on",
        setting: "",
        sign: Sign::Look("look for clients that send parameters so"),
    },
    ChangedDefault {
        line: "All that is held for a client of HTTP/2",
        change: "answers, kept heads and gathered bodies count for http2_held_bytes",
        setting: "--limit http2_held_bytes=256MiB",
        sign: Sign::Look("look at limits_reached_total{limit=http2_held_bytes}"),
    },
    ChangedDefault {
        line: "bounds what is held for all clients together",
        change: "what is held for all clients has a bound",
        setting: "--limit held_bytes=1048576MiB",
        sign: Sign::Look("look at limits_reached_total{limit=held_bytes}"),
    },
    ChangedDefault {
        line: "has a place among `requests` while",
        change: "requests that are asked about count among requests whatever their answer",
        setting: "",
        sign: Sign::Look("look for providers that are slow"),
    },
    ChangedDefault {
        line: "Lines of the access log, and spans",
        change: "lines of the access log and spans that wait take 32 MiB each",
        setting: "",
        sign: Sign::Look("look for collectors that lag behind"),
    },
    ChangedDefault {
        line: "Trailers of requests leave out",
        change: "trailers leave out fields that a route sets or removes in the head",
        setting: "",
        sign: Sign::Look("look for backends that read such fields in trailers"),
    },
    ChangedDefault {
        line: "Errors of requests of the gateway's own namespace",
        change: "errors of the operator's routes count in outlierDetection",
        setting: "",
        sign: Sign::Look("look for VirtualServices of the gateway's namespace that lead to others"),
    },
    ChangedDefault {
        line: "The subject in `X-Forwarded-Client-Cert`",
        change: "subjects of client certificates are written as RFC 2253 has them",
        setting: "",
        sign: Sign::Look("look for backends that parse them"),
    },
    ChangedDefault {
        line: "Controllers read authorities, users and credentials",
        change: "Opaque Secrets are read too",
        setting: "--secrets=tls",
        sign: Sign::Look("look for credentialName of Gateways that names one"),
    },
    ChangedDefault {
        line: "A namespace has a quarter of `hash_table_bytes`",
        change: "a namespace has a quarter of the memory for hash tables",
        setting: "--limit hash_table_bytes=512MiB",
        sign: Sign::Look("look at myriad_hash_tables_reduced_total"),
    },
    ChangedDefault {
        line: "Requests carry `CDN-Loop: myriad`",
        change: "endpoints get CDN-Loop, and requests led in a circle get 508",
        setting: "--limit loop_hops=0",
        sign: Sign::Look("look at myriad_request_failures_total{reason=loop_detected}"),
    },
    ChangedDefault {
        line: "leave out fields that their `Connection` names",
        change: "deny lists see IPv4 addresses within those of IPv6",
        setting: "",
        sign: Sign::Look("look for clients by way of NAT64"),
    },
    ChangedDefault {
        line: "`session-cookie-path` is of ASCII",
        change: "paths of session cookies are of ASCII",
        setting: "",
        sign: Sign::Look("look for Ingresses with other paths"),
    },
    ChangedDefault {
        line: "Rings by `upstream-hash-by` count",
        change: "rings by upstream-hash-by and addresses of ServiceEntries count for bounds",
        setting: "--bound hash-slots=0",
        sign: Sign::Look("look for namespaces with over 4,096 upstreams by upstream-hash-by"),
    },
    ChangedDefault {
        line: "may say less on each narrower host",
        change: "VirtualServices for wildcards may say less, the more hosts there are below",
        setting: "--bound routes=0",
        sign: Sign::Look("look for wildcards with over 256 hosts of Gateways below them"),
    },
    ChangedDefault {
        line: "carry the entry of `CDN-Loop`",
        change: "questions about requests that were led in a circle are not asked",
        setting: "--limit loop_hops=0",
        sign: Sign::Look("look for providers whose includeAdditionalHeadersInCheck names CDN-Loop"),
    },
];
