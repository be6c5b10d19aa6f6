//! The weights of HTTPRoutes and GRPCRoutes in their namespaces.

use std::collections::BTreeMap;

use myriad_api::gateway::http_route::PARENTS_MAX;
use myriad_api::gateway::{
    BackendRef, CorsFilter, ExternalAuth, GrpcRoute, HeaderModifier, HttpBackendRef, HttpRoute,
    ParentReference, PathMatchKind, PathModifier, RequestRedirect, RouteFilter, UrlRewrite,
    ValueMatchKind,
};

use super::super::places::DEFAULT_GATEWAYS_MAX;
use super::redirect::PORTS_MAX;
use super::written::{WrittenMatches, WrittenRule};
use crate::regex;
use crate::settings::text_rows;

/// The bytes that an entry of a list takes beside its texts.
const ENTRY_BYTES: usize = 4;

/// The bytes that a condition takes in a route beside its texts.
const TEST_BYTES: usize = 64;

/// The bytes that a backend takes beside the names that are written.
const BACKEND_BYTES: usize = 64;

/// The labels of a host that count for one: at each listener it stands below a wildcard for each.
const LABELS_OF_HOST: usize = 8;

/// The bytes that one of a path may become when it is escaped.
const ESCAPED: usize = 3;

/// The rows of an HTTPRoute: those of its matches on each host and at each parent, where they lead
/// clients to its ports at each of those, and what its regexes count for, which hosts share.
pub(crate) fn of_http(route: &HttpRoute) -> u64 {
    let spec = &route.spec;
    let rules = spec.rules.iter().map(WrittenRule::of_http);
    let places = places(&spec.parents, &spec.use_default_gateways);
    rows(rules, hosts(&spec.hostnames), &places).saturating_add(http_regex_rows(route))
}

/// The rows of a GRPCRoute, as those of an HTTPRoute.
pub(crate) fn of_grpc(route: &GrpcRoute) -> u64 {
    let spec = &route.spec;
    let rules = spec.rules.iter().map(WrittenRule::of_grpc);
    let places = places(&spec.parents, &spec.use_default_gateways);
    rows(rules, hosts(&spec.hostnames), &places).saturating_add(grpc_regex_rows(route))
}

/// The rows that the regexes of an HTTPRoute count for.
pub(crate) fn http_regex_rows(route: &HttpRoute) -> u64 {
    let rules = route.spec.rules.iter().map(WrittenRule::of_http);
    regex::rows(regexes(rules).into_iter())
}

/// The rows that the regexes of a GRPCRoute count for.
pub(crate) fn grpc_regex_rows(route: &GrpcRoute) -> u64 {
    let rules = route.spec.rules.iter().map(WrittenRule::of_grpc);
    regex::rows(regexes(rules).into_iter())
}

/// Each match is a row on each host at each Gateway, or at each of its ports that clients are led
/// to, and more where it or its rule says much.
fn rows<'a>(rules: impl Iterator<Item = WrittenRule<'a>>, hosts: usize, at: &Places) -> u64 {
    let places = at.parents.max(1);
    let by_port = at.ports.max(places);
    let of_rules = rules.map(|rule| {
        let own = of_rule(&rule);
        let of_matches: usize = matches(&rule)
            .into_iter()
            .map(|bytes| 1 + text_rows(own + bytes))
            .sum();
        let each = of_matches.max(1 + text_rows(own));
        each.saturating_mul(if is_by_port(&rule) { by_port } else { places })
    });
    let all = of_rules.fold(0, usize::saturating_add);
    // A host costs something to serve though no rule does.
    all.max(places).saturating_mul(hosts.max(1)) as u64
}

/// The hosts that names count for: one, or more where they have very many labels.
fn hosts(names: &[Box<str>]) -> usize {
    let labels = names.iter().map(|name| name.split('.').count());
    labels.map(|labels| labels.div_ceil(LABELS_OF_HOST)).sum()
}

/// The places where a route may have rows.
struct Places {
    /// Its parents, each once.
    parents: usize,
    /// Their ports.
    ports: usize,
}

/// The parents: where a route names no part of one, at as many ports as have rows of their own.
/// Default Gateways count for as many as it may have.
fn places(parents: &[ParentReference], defaults: &str) -> Places {
    let mut ports: BTreeMap<(Option<&str>, &str), usize> = BTreeMap::new();
    for parent in parents {
        let is_part = parent.section_name.is_some() || parent.port.is_some();
        let key = (parent.namespace.as_deref(), &*parent.name);
        let count = ports.entry(key).or_default();
        *count = PORTS_MAX.min(*count + if is_part { 1 } else { PORTS_MAX });
    }
    let defaults = match defaults {
        "All" => DEFAULT_GATEWAYS_MAX.min(PARENTS_MAX.saturating_sub(parents.len())),
        _ => 0,
    };
    Places {
        parents: ports.len() + defaults,
        ports: ports.values().sum::<usize>() + defaults * PORTS_MAX,
    }
}

/// Whether a rule leads clients to the port of the listener.
fn is_by_port(rule: &WrittenRule<'_>) -> bool {
    let of_shares = rule.backends.iter().flat_map(|share| share.filters.iter());
    let mut filters = rule.filters.iter().chain(of_shares);
    filters.any(|filter| match filter {
        RouteFilter::RequestRedirect(redirect) => {
            let scheme = redirect.scheme.as_deref();
            redirect.port.is_none() && scheme.is_none_or(str::is_empty)
        }
        _ => false,
    })
}

/// The bytes of each match of a rule.
fn matches(rule: &WrittenRule<'_>) -> Vec<usize> {
    match rule.matches {
        WrittenMatches::Http(matches) => matches
            .iter()
            .map(|matched| {
                let path = matched.path.as_ref().map_or(0, |path| path.value().len());
                let headers = matched.headers.iter().map(|it| test(&it.name, &it.value));
                let queries = matched.query_params.iter();
                let queries = queries.map(|it| test(&it.name, &it.value));
                path + headers.chain(queries).sum::<usize>()
            })
            .collect(),
        WrittenMatches::Grpc(matches) => matches
            .iter()
            .map(|matched| {
                let names = matched.method.iter();
                let names = names.flat_map(|it| it.service.iter().chain(&it.method));
                let headers = matched.headers.iter().map(|it| test(&it.name, &it.value));
                names.map(|name| name.len()).chain(headers).sum()
            })
            .collect(),
    }
}

/// The bytes of what each row of a rule says, beside those of its match.
fn of_rule(rule: &WrittenRule<'_>) -> usize {
    let shares = rule.backends.iter().map(|share: &HttpBackendRef| {
        let filters = share.filters.iter().map(filter);
        backend(&share.reference) + filters.sum::<usize>()
    });
    let session = rule.session.and_then(|it| it.session_name.as_deref());
    shares.chain(rule.filters.iter().map(filter)).sum::<usize>()
        + rule.name.map_or(0, str::len)
        + session.map_or(0, str::len)
        + rule
            .retry
            .map_or(0, |retry| retry.codes.len() * ENTRY_BYTES)
}

fn filter(written: &RouteFilter) -> usize {
    match written {
        RouteFilter::RequestHeaderModifier(it) | RouteFilter::ResponseHeaderModifier(it) => {
            headers(it)
        }
        RouteFilter::RequestMirror(it) => backend(&it.backend),
        RouteFilter::RequestRedirect(it) => redirect(it),
        RouteFilter::UrlRewrite(it) => rewrite(it),
        RouteFilter::Cors(it) => cors(it),
        RouteFilter::ExternalAuth(it) => asked(it),
        RouteFilter::ExtensionRef(_) | RouteFilter::Other(_) => 0,
    }
}

fn headers(written: &HeaderModifier) -> usize {
    let pairs = written.set.iter().chain(&written.add);
    let pairs = pairs.map(|it| it.name.len() + it.value.len() + 2 * ENTRY_BYTES);
    pairs.sum::<usize>() + list(&written.remove)
}

fn redirect(written: &RequestRedirect) -> usize {
    let host = written.hostname.as_ref().map_or(0, |host| host.len());
    host + written.path.as_ref().map_or(0, path)
}

fn rewrite(written: &UrlRewrite) -> usize {
    let host = written.hostname.as_ref().map_or(0, |host| host.len());
    host + written.path.as_ref().map_or(0, path)
}

fn path(written: &PathModifier) -> usize {
    match written {
        PathModifier::Full(text) | PathModifier::Prefix(text) => text.len() * ESCAPED,
        PathModifier::Other(_) => 0,
    }
}

fn cors(written: &CorsFilter) -> usize {
    let lists = [
        &written.allow_origins,
        &written.allow_methods,
        &written.allow_headers,
        &written.expose_headers,
    ];
    lists.map(|texts| list(texts)).iter().sum()
}

fn asked(written: &ExternalAuth) -> usize {
    let http = written.http.iter().map(|http| {
        let lists = list(&http.allowed_headers) + list(&http.allowed_response_headers);
        http.path.len() + lists
    });
    let grpc = written.grpc.iter().map(|grpc| list(&grpc.allowed_headers));
    backend(&written.backend) + http.chain(grpc).sum::<usize>()
}

fn backend(written: &BackendRef) -> usize {
    let namespace = written.namespace.as_ref().map_or(0, |it| it.len());
    written.name.len() + namespace + BACKEND_BYTES
}

fn list(texts: &[Box<str>]) -> usize {
    texts.iter().map(|text| text.len() + ENTRY_BYTES).sum()
}

fn test(name: &str, value: &str) -> usize {
    name.len() + value.len() + TEST_BYTES
}

/// The regexes of rules.
fn regexes<'a>(rules: impl Iterator<Item = WrittenRule<'a>>) -> Vec<&'a str> {
    let is_regex = |kind: Option<ValueMatchKind>| kind == Some(ValueMatchKind::RegularExpression);
    let mut found = Vec::new();
    for rule in rules {
        match rule.matches {
            WrittenMatches::Http(matches) => {
                for matched in matches {
                    let path = matched.path.iter();
                    let of_paths = path
                        .filter(|it| it.kind.known() == Some(PathMatchKind::RegularExpression))
                        .map(|it| it.value());
                    found.extend(of_paths);
                    let headers = matched.headers.iter();
                    let headers = headers.filter(|it| is_regex(it.kind.known()));
                    found.extend(headers.map(|it| &*it.value));
                    let queries = matched.query_params.iter();
                    let queries = queries.filter(|it| is_regex(it.kind.known()));
                    found.extend(queries.map(|it| &*it.value));
                }
            }
            WrittenMatches::Grpc(matches) => {
                for matched in matches {
                    let method = matched.method.iter();
                    let method = method.filter(|it| is_regex(it.kind.known()));
                    let names = method.flat_map(|it| it.service.iter().chain(&it.method));
                    found.extend(names.map(|it| &**it));
                    let headers = matched.headers.iter();
                    let headers = headers.filter(|it| is_regex(it.kind.known()));
                    found.extend(headers.map(|it| &*it.value));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use myriad_api::gateway::{GrpcRoute, HttpRoute};

    use super::super::tests::object;
    use super::{grpc_regex_rows, http_regex_rows, of_grpc, of_http};

    fn http(spec: &str) -> HttpRoute {
        object(spec)
    }

    #[test]
    fn a_route_counts_for_its_matches_on_each_host_at_each_parent() {
        let weight = |spec: &str| of_http(&http(spec));
        assert_eq!(weight("{}"), 1);
        assert_eq!(weight("{rules: [{matches: [{}, {}, {}]}, {}]}"), 4);
        let spec = "{hostnames: [a.example, b.example], \
                     parentRefs: [{name: a, sectionName: x}, {name: a, sectionName: y}, \
                                  {name: b}], \
                     rules: [{matches: [{}, {}, {}]}, {}]}";
        assert_eq!(weight(spec), 4 * 2 * 2);
    }

    #[test]
    fn default_gateways_count_for_as_many_as_a_route_may_have() {
        let weight = |named: usize, rest: &str| {
            let named: Vec<String> = (0..named).map(|it| format!("{{name: g{it}}}")).collect();
            let spec = format!(
                "{{parentRefs: [{}], {rest}rules: [{{}}]}}",
                named.join(", ")
            );
            of_http(&http(&spec))
        };
        assert_eq!(weight(0, "useDefaultGateways: All, "), 4);
        assert_eq!(weight(2, "useDefaultGateways: All, "), 2 + 4);
        assert_eq!(weight(30, "useDefaultGateways: All, "), 30 + 2);
        assert_eq!(weight(2, "useDefaultGateways: None, "), 2);
        assert_eq!(weight(32, "useDefaultGateways: All, "), 32);
    }

    #[test]
    fn a_host_of_very_many_labels_counts_for_several() {
        let weight = |host: &str| of_http(&http(&format!("{{hostnames: ['{host}', b.example]}}")));
        assert_eq!(weight("*.a.b.c.d.e.f.g"), 2);
        assert_eq!(weight("*.a.b.c.d.e.f.g.h"), 3);
        assert_eq!(weight(&["a"; 126].join(".")), 17);
    }

    #[test]
    fn a_redirect_without_a_port_counts_at_each_port() {
        let weight = |parents: &str, redirect: &str| {
            let filter = format!("{{type: RequestRedirect, requestRedirect: {{{redirect}}}}}");
            of_http(&http(&format!(
                "{{hostnames: [a.example, b.example], parentRefs: [{parents}], rules: \
                 [{{matches: [{{}}, {{}}, {{}}], filters: [{filter}]}}, {{}}]}}"
            )))
        };
        // A Gateway may have so many ports, and each part of one has a single one.
        for (parents, places, ports) in [
            ("", 1, 1),
            ("{name: a}", 1, 8),
            ("{name: a, sectionName: x}", 1, 1),
            ("{name: a, port: 80}, {name: a, sectionName: x}", 1, 2),
            ("{name: a, sectionName: x}, {name: a}", 1, 8),
            ("{name: a}, {name: b}, {name: c, sectionName: x}", 3, 17),
        ] {
            let by_port = weight(parents, "hostname: c.example");
            assert_eq!(by_port, 2 * (3 * ports + places), "{parents}");
            for told in ["port: 80", "scheme: https"] {
                assert_eq!(weight(parents, told), 2 * 4 * places, "{parents}");
            }
        }
        let defaults = "{useDefaultGateways: All, rules: [{filters: [{type: RequestRedirect, \
                        requestRedirect: {hostname: c.example}}]}]}";
        assert_eq!(of_http(&http(defaults)), 4 * 8);
        let share = "{rules: [{backendRefs: [{name: a, filters: [{type: RequestRedirect, \
                     requestRedirect: {}}]}]}], parentRefs: [{name: a}]}";
        let plain = share.replace("requestRedirect: {}", "requestRedirect: {port: 80}");
        assert_eq!(of_http(&http(share)), 8 * of_http(&http(&plain)));
    }

    #[test]
    fn long_texts_count_for_more_with_each_match() {
        let value = "x".repeat(1_024);
        let filters = format!(
            "filters: [{{type: RequestHeaderModifier, \
             requestHeaderModifier: {{set: [{{name: a, value: {value}}}]}}}}]"
        );
        let weight = |matches: &str| {
            of_http(&http(&format!(
                "{{rules: [{{{filters}, matches: [{matches}]}}]}}"
            )))
        };
        let once = weight("{}");
        assert_eq!(once, 1 + (1_024 + 9 - 512_u64).div_ceil(256));
        assert_eq!(weight("{}, {}"), 2 * once);
    }

    #[test]
    fn regexes_count_once_for_all_hosts() {
        let spec = "rules: [{matches: [\
                    {path: {type: RegularExpression, value: '/a{500}'}, \
                     headers: [{name: a, type: RegularExpression, value: 'b{500}'}], \
                     queryParams: [{name: a, type: RegularExpression, value: 'c{500}'}]}]}]";
        let route = http(&format!("{{hostnames: [a.example, b.example], {spec}}}"));
        let regexes = http_regex_rows(&route);
        assert!(regexes >= 9, "{regexes}");
        assert_eq!(of_http(&route), 2 + regexes);
        let route: GrpcRoute = object(
            "{hostnames: [a.example, b.example], \
              rules: [{matches: [{method: {type: RegularExpression, \
                                           service: 'a{500}', method: 'b{500}'}}]}]}",
        );
        let regexes = grpc_regex_rows(&route);
        assert!(regexes >= 6, "{regexes}");
        assert_eq!(of_grpc(&route), 2 + regexes);
    }
}
