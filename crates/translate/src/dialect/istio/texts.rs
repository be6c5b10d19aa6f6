//! The bytes of what a rule says: each of its rows repeats them, on every host.

use myriad_api::istio::header::{HeaderOperations, Headers};
use myriad_api::istio::virtual_service::{
    CorsPolicy, Destination, HttpMatch, HttpRedirect, HttpRewrite, HttpRoute, RouteDestination,
    TcpMatch, TlsMatch,
};
use myriad_api::istio::{Labels, Map, StringMatch};

use super::answer;

/// The bytes that an entry of a list takes beside its text.
const ENTRY_BYTES: usize = 4;

/// The bytes that a condition on a field or a parameter counts for beside its texts: about what it
/// takes in a route.
const TEST_BYTES: usize = 64;

/// The bytes that a destination takes beside the names that are written.
const DESTINATION_BYTES: usize = 32;

/// The bytes that one of a path may become when it is escaped.
const ESCAPED: usize = 3;

/// The bytes of all rows of a rule together.
pub(super) fn of_rows(route: &HttpRoute) -> usize {
    let own = of_rule(route);
    let matches = route.matches.iter();
    let of_matches = matches.map(|matched| own.saturating_add(of_match(matched)));
    of_matches.fold(0, usize::saturating_add).max(own)
}

/// The bytes of what each row of a rule says, beside those of its match.
pub(super) fn of_rule(route: &HttpRoute) -> usize {
    let shares = route.route.iter().map(|share| {
        let headers = share.headers.as_deref().map_or(0, headers);
        destination(&share.destination) + headers
    });
    let rewritten = route.rewrite.as_deref().map_or(0, rewrite);
    let Some(rare) = route.rare.as_deref() else {
        return shares.sum::<usize>() + rewritten;
    };
    let mirrors = rare.mirrors.iter().map(|mirror| &mirror.destination);
    let mirrors = mirrors.chain(&rare.mirror).map(destination);
    let retries = rare.retries.as_ref();
    shares.chain(mirrors).sum::<usize>()
        + rewritten
        + rare.redirect.as_ref().map_or(0, redirect)
        + rare
            .direct_response
            .as_ref()
            .map_or(0, |it| answer::bytes_of(it).len())
        + rare.cors_policy.as_ref().map_or(0, cors)
        + rare.headers.as_ref().map_or(0, headers)
        + retries.map_or(0, |retries| retries.retry_on.len())
}

/// The bytes of what a match says.
pub(super) fn of_match(matched: &HttpMatch) -> usize {
    let rare = matched.rare();
    let single = [&matched.uri, &rare.scheme, &rare.method, &rare.authority];
    let single = single.into_iter().flatten().map(of_test);
    let maps = [&matched.headers, &rare.query_params, &rare.without_headers];
    let of_source = rare.source_namespace.len() + list(&rare.gateways);
    single.chain(maps.map(of_tests)).sum::<usize>() + of_source
}

/// The bytes of a match of streams of TLS, and of its destinations.
pub(super) fn of_tls(matched: &TlsMatch, shares: &[RouteDestination]) -> usize {
    list(&matched.destination_subnets) + list(&matched.gateways) + of_shares(shares)
}

/// The bytes of a match of streams, and of its destinations.
pub(super) fn of_tcp(matched: &TcpMatch, shares: &[RouteDestination]) -> usize {
    let lists = list(&matched.destination_subnets) + list(&matched.gateways);
    lists + matched.source_subnet.len() + of_shares(shares)
}

/// The bytes of the destinations of streams.
pub(super) fn of_shares(shares: &[RouteDestination]) -> usize {
    let shares = shares.iter().map(|share| destination(&share.destination));
    shares.sum()
}

fn destination(written: &Destination) -> usize {
    written.host.len() + written.subset.len() + DESTINATION_BYTES
}

fn rewrite(written: &HttpRewrite) -> usize {
    let by_regex = written.uri_regex_rewrite.as_deref();
    let by_regex = by_regex.map_or(0, |regex| regex.pattern.len() + regex.rewrite.len());
    written.uri.len() + written.authority.len() + by_regex
}

fn redirect(written: &HttpRedirect) -> usize {
    let path = written.uri.len().max(written.prefix_rewrite.len());
    path * ESCAPED + written.authority.len()
}

fn cors(written: &CorsPolicy) -> usize {
    let origins = written.allow_origins.iter();
    let origins = origins.map(|origin| of_test(origin) + ENTRY_BYTES);
    let lists = [
        &written.allow_origin,
        &written.allow_methods,
        &written.allow_headers,
        &written.expose_headers,
    ];
    origins.chain(lists.map(|names| list(names))).sum()
}

fn headers(written: &Headers) -> usize {
    let both = [&written.request, &written.response];
    both.into_iter().flatten().map(operations).sum()
}

fn operations(written: &HeaderOperations) -> usize {
    pairs(&written.set) + pairs(&written.add) + list(&written.remove)
}

fn pairs(written: &Labels) -> usize {
    let pairs = written.iter();
    pairs
        .map(|(name, value)| name.len() + value.len() + ENTRY_BYTES)
        .sum()
}

fn list(written: &[Box<str>]) -> usize {
    written.iter().map(|text| text.len() + ENTRY_BYTES).sum()
}

fn of_tests(written: &Map<StringMatch>) -> usize {
    let tests = written.iter();
    tests
        .map(|(name, test)| name.len() + of_test(test) + TEST_BYTES)
        .sum()
}

fn of_test(test: &StringMatch) -> usize {
    match test {
        StringMatch::Present => 0,
        StringMatch::Exact(text) | StringMatch::Regex(text) => text.len(),
        // It may become a regex, in which some letters are escaped.
        StringMatch::Prefix(text) => 2 * text.len(),
    }
}
