//! The precedence of matches, as numbers.
//!
//! The specification says which of two matches goes first, also where they are of several routes.
//! All of it but the names of the routes, which the names of rows bring, is in the rank: what the
//! match asks for, and then the age of its object. So it depends on nothing else, and a route that
//! comes or goes changes no other.

/// The ranks begin here: behind those of VirtualServices, and before the usual routes of Services
/// at sidecars.
const RULE_RANK: u64 = (6 << 56) | (1 << 55);

/// The bits for an age in seconds.
const AGE_BITS: u32 = 34;

/// The longest paths and regexes in characters, as their definitions allow.
const LENGTH_MAX: u32 = 1_024;

/// The most conditions on header fields, and on parameters.
const CONDITIONS_MAX: u32 = 16;

/// The places of paths in their order.
const PATHS: u32 = 2 * (LENGTH_MAX + 1) + 1;

/// The highest place of a name of gRPC: that of one that is written out.
const NAME_MAX: u32 = 127;

/// The precedences of matches, the lowest of which goes first. They and ages leave ranks below
/// those of sidecars.
const PRECEDENCES: u32 = 1 << 21;

const _: () = {
    assert!(PATHS * 2 * (CONDITIONS_MAX + 1) * (CONDITIONS_MAX + 1) <= PRECEDENCES);
    assert!((NAME_MAX + 1) * (NAME_MAX + 1) * (CONDITIONS_MAX + 1) <= PRECEDENCES);
    assert!(RULE_RANK + ((PRECEDENCES as u64) << AGE_BITS) <= 7 << 56);
};

/// The path that a match asks for, as far as it matters to its precedence. Lengths are in
/// characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathLength {
    /// One path.
    Exact,
    /// A regex. Its place among others is for implementations to say: it is behind paths that are
    /// written out and before prefixes, which `/` would hide it behind otherwise.
    Regex(usize),
    /// A prefix.
    Prefix(usize),
}

/// The name that a match of gRPC asks for, as far as it matters to its precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameLength {
    /// One name. Those that fit the same call are as long as each other.
    Exact,
    /// A regex.
    Regex(usize),
    /// Every name.
    Any,
}

/// The precedence of a match of an HTTPRoute: a path that is written out, the longer prefix, a
/// method, more header fields, more parameters.
pub(super) fn of_http(path: PathLength, has_method: bool, headers: usize, queries: usize) -> u32 {
    let path = match path {
        PathLength::Exact => 0,
        PathLength::Regex(length) => 1 + LENGTH_MAX - at_most(length, LENGTH_MAX),
        PathLength::Prefix(length) => 2 * LENGTH_MAX + 2 - at_most(length, LENGTH_MAX),
    };
    let conditions = CONDITIONS_MAX + 1;
    let missing = |count: usize| CONDITIONS_MAX - at_most(count, CONDITIONS_MAX);
    let with_method = path * 2 + u32::from(!has_method);
    (with_method * conditions + missing(headers)) * conditions + missing(queries)
}

/// The precedence of a match of a GRPCRoute: more of the service, more of the method, more header
/// fields.
pub(super) fn of_grpc(service: NameLength, method: NameLength, headers: usize) -> u32 {
    let missing = |name: NameLength| match name {
        NameLength::Exact => 0,
        NameLength::Regex(length) => NAME_MAX - at_most(length.max(1), NAME_MAX - 1),
        NameLength::Any => NAME_MAX,
    };
    let names = missing(service) * (NAME_MAX + 1) + missing(method);
    names * (CONDITIONS_MAX + 1) + CONDITIONS_MAX - at_most(headers, CONDITIONS_MAX)
}

/// The rank of a match of this precedence, whose object was created so many seconds after the
/// epoch. One of unknown age is as the youngest.
pub(super) fn rank(precedence: u32, created: i64) -> u64 {
    let age_max = (1 << AGE_BITS) - 1;
    let created = u64::try_from(created).unwrap_or(0).min(age_max);
    let precedence = precedence.min(PRECEDENCES - 1);
    RULE_RANK + (u64::from(precedence) << AGE_BITS) + created
}

fn at_most(number: usize, max: u32) -> u32 {
    u32::try_from(number).map_or(max, |number| number.min(max))
}

#[cfg(test)]
mod tests {
    use super::{NameLength, PathLength, RULE_RANK, of_grpc, of_http, rank};

    #[test]
    fn matches_of_http_go_by_path_method_headers_and_parameters() {
        use PathLength::{Exact, Prefix, Regex};
        let ordered = [
            of_http(Exact, true, 16, 16),
            of_http(Exact, true, 16, 0),
            of_http(Exact, true, 0, 16),
            of_http(Exact, true, 0, 0),
            of_http(Exact, false, 16, 16),
            of_http(Exact, false, 0, 0),
            of_http(Regex(1_024), false, 0, 0),
            of_http(Regex(7), true, 0, 0),
            of_http(Regex(7), false, 1, 0),
            of_http(Regex(0), false, 0, 0),
            of_http(Prefix(1_024), false, 0, 0),
            of_http(Prefix(9), false, 0, 0),
            of_http(Prefix(8), true, 16, 16),
            of_http(Prefix(1), true, 0, 0),
            of_http(Prefix(1), false, 2, 0),
            of_http(Prefix(1), false, 1, 16),
            of_http(Prefix(1), false, 0, 1),
            of_http(Prefix(1), false, 0, 0),
            of_http(Prefix(0), false, 0, 0),
        ];
        assert!(
            ordered.is_sorted_by(|one, other| one < other),
            "{ordered:?}"
        );
        // No definition allows more.
        assert_eq!(
            of_http(Prefix(5_000), false, 99, 99),
            of_http(Prefix(1_024), false, 16, 16)
        );
    }

    #[test]
    fn matches_of_grpc_go_by_service_method_and_headers() {
        use NameLength::{Any, Exact, Regex};
        let ordered = [
            of_grpc(Exact, Exact, 16),
            of_grpc(Exact, Exact, 0),
            of_grpc(Exact, Regex(9), 16),
            of_grpc(Exact, Any, 16),
            of_grpc(Exact, Any, 0),
            of_grpc(Regex(126), Regex(3), 0),
            of_grpc(Regex(5), Any, 0),
            of_grpc(Regex(1), Any, 0),
            of_grpc(Any, Exact, 16),
            of_grpc(Any, Exact, 0),
            of_grpc(Any, Regex(0), 0),
            of_grpc(Any, Any, 1),
            of_grpc(Any, Any, 0),
        ];
        assert!(
            ordered.is_sorted_by(|one, other| one < other),
            "{ordered:?}"
        );
        assert_eq!(of_grpc(Regex(1_024), Any, 0), of_grpc(Regex(126), Any, 0));
    }

    #[test]
    fn the_older_goes_first_where_matches_are_alike_and_only_there() {
        let (first, second) = (of_http(PathLength::Exact, false, 0, 0), 1 << 20);
        assert!(rank(first, 10) < rank(first, 11));
        assert!(rank(first, i64::MAX) < rank(second, 0));
        assert_eq!(rank(first, -5), rank(first, 0));
        // Until the year 2514.
        assert!(rank(first, 17_000_000_000) < rank(first, i64::MAX));
        assert!(rank(0, 0) >= RULE_RANK && rank(u32::MAX, i64::MAX) < 7 << 56);
    }
}
