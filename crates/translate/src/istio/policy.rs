//! What a rule says beside its matches and destinations.

use std::time::Duration;

use myriad_api::istio::header::{HeaderOperations, Headers};
use myriad_api::istio::virtual_service::{
    CorsPolicy, FaultAbort, FaultDelay, HttpFault, HttpRetry, HttpRewrite, HttpRoute, Percent,
    UnmatchedPreflights,
};
use myriad_api::istio::{Labels, StringMatch};
use myriad_model::{
    Abort, AbortAnswer, Cors, Delay, Fault, HeaderEdit, HeaderEdits, PathRewrite, Policy, Retry,
    RetryConditions, Rewrite, Share,
};

use super::matching::escape;
use super::sendable::{authority, has_control, is_token};
use crate::regex::{compiles, has_groups_followed};

/// For the connection to an endpoint, as Istio has it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two reads or writes, as Envoy ends idle streams.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Istio's own rule for repetitions, where none is written.
const RETRY_ATTEMPTS: u8 = 2;

/// The most repetitions that a rule may ask for. Proxies take more of older controllers.
const ATTEMPTS_MAX: u8 = 10;

/// The wait before the first repetition, as Envoy has it.
const RETRY_BACKOFF: Duration = Duration::from_millis(25);

/// What a rule and one of its destinations may add to a request and its response in all, with
/// what separates names and values.
const HEADER_BYTES_MAX: usize = 32 << 10;

/// What separates name and value of a header, and ends it.
const SEPARATOR_BYTES: usize = 4;

/// The longest list of names that a CORS policy tells clients, and the longest authority.
const LIST_BYTES_MAX: usize = 8 << 10;

/// A part of a rule that cannot be honoured: the field below the rule, what is wrong, and what
/// becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field below the rule.
    pub field: String,
    /// What is wrong, and what becomes of it.
    pub message: String,
    /// What to do.
    pub remedy: &'static str,
}

/// The policy of a rule, but for its mirrors.
pub fn build(route: &HttpRoute, problems: &mut Vec<Problem>) -> Policy {
    let mut policy = Policy {
        connect_timeout: CONNECT_TIMEOUT,
        read_timeout: IDLE_TIMEOUT,
        send_timeout: IDLE_TIMEOUT,
        request_timeout: route.timeout.unwrap_or_default(),
        ..Policy::default()
    };
    if let Some(written) = &route.rewrite {
        policy.rewrite = rewrite(written, problems).map(Box::new);
    }
    let rare = route.rare.as_deref();
    policy.retry = Some(Box::new(
        match rare.and_then(|rare| rare.retries.as_ref()) {
            Some(written) => retry(written, problems),
            None => default_retry(),
        },
    ));
    let Some(rare) = rare else {
        return policy;
    };
    policy.fault = rare
        .fault
        .as_ref()
        .and_then(|it| fault(it, problems))
        .map(Box::new);
    policy.cors = rare
        .cors_policy
        .as_ref()
        .map(|it| Box::new(cors(it, problems)));
    policy.headers = rare
        .headers
        .as_ref()
        .and_then(|it| headers(it, "headers", HEADER_BYTES_MAX, problems));
    policy
}

/// Whether a rule rewrites as nobody can: then it forwards nothing.
pub fn is_closed(route: &HttpRoute) -> bool {
    let Some(written) = &route.rewrite else {
        return false;
    };
    if written.authority.len() > LIST_BYTES_MAX {
        return true;
    }
    let by_regex = written.uri_regex_rewrite.as_ref();
    match by_regex.filter(|it| !it.pattern.is_empty()) {
        Some(regex) => {
            is_too_large(&regex.pattern)
                || (has_control(&regex.rewrite) && compiles(&regex.pattern))
        }
        None => has_control(&written.uri),
    }
}

/// How much the destinations of a rule may add beside the headers of the rule.
pub fn bytes_left(edits: Option<&HeaderEdits>) -> usize {
    let Some(HeaderEdits { request, response }) = edits else {
        return HEADER_BYTES_MAX;
    };
    let pairs = [&request.set, &request.add, &response.set, &response.add];
    let pairs = pairs.into_iter().flat_map(|pairs| pairs.iter());
    let taken: usize = pairs.map(|(name, value)| header_bytes(name, value)).sum();
    HEADER_BYTES_MAX.saturating_sub(taken)
}

fn header_bytes(name: &str, value: &str) -> usize {
    name.len() + value.len() + SEPARATOR_BYTES
}

fn is_too_large(pattern: &str) -> bool {
    !has_groups_followed(pattern) && compiles(pattern)
}

fn rewrite(written: &HttpRewrite, problems: &mut Vec<Problem>) -> Option<Rewrite> {
    let by_regex = written.uri_regex_rewrite.as_ref();
    let path = match by_regex.filter(|it| !it.pattern.is_empty()) {
        Some(regex) if is_too_large(&regex.pattern) => {
            let max = PathRewrite::INSTRUCTIONS_MAX;
            problems.push(Problem {
                field: "rewrite.uriRegexRewrite.match".into(),
                message: format!(
                    "is a regex of more than {max} instructions, which rewrites no path, so the \
                     rule answers 503"
                ),
                remedy: "write fewer or smaller repetitions",
            });
            None
        }
        Some(regex) if has_control(&regex.rewrite) && compiles(&regex.pattern) => {
            problems.push(bad_rewrite("uriRegexRewrite.rewrite"));
            None
        }
        Some(regex) if compiles(&regex.pattern) => Some(PathRewrite::Substitution {
            regex: regex.pattern.clone(),
            template: template(&regex.rewrite).into(),
        }),
        Some(_) => {
            problems.push(Problem {
                field: "rewrite.uriRegexRewrite.match".into(),
                message: "is not a regex within RE2's syntax, so the path stays as it came".into(),
                remedy: "correct the regex",
            });
            None
        }
        None if written.uri.is_empty() => None,
        None if has_control(&written.uri) => {
            problems.push(bad_rewrite("uri"));
            None
        }
        None => Some(PathRewrite::Matched(written.uri.clone())),
    };
    if written.authority.len() > LIST_BYTES_MAX {
        problems.push(Problem {
            field: "rewrite.authority".into(),
            message: format!("is longer than {LIST_BYTES_MAX} bytes, so the rule answers 503"),
            remedy: "write a shorter one",
        });
    }
    let authority = match authority(&written.authority) {
        Some(_) => written.authority.clone(),
        None => {
            problems.push(Problem {
                field: "rewrite.authority".into(),
                message: "is no host with or without a port, so it stays as it came".into(),
                remedy: "write a host such as a.example.com, or a.example.com:8443",
            });
            Box::default()
        }
    };
    (path.is_some() || !authority.is_empty()).then_some(Rewrite { path, authority })
}

fn bad_rewrite(field: &str) -> Problem {
    Problem {
        field: format!("rewrite.{field}"),
        message: "has a control character, which no path has, so the rule answers 503".into(),
        remedy: "leave it out",
    }
}

/// Groups are `\1` in RE2 and `$1` in the model.
fn template(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(digit) if digit.is_ascii_digit() => {
                    out.push('$');
                    out.push(digit);
                }
                Some(other) => out.push(other),
                None => {}
            },
            other => out.push(other),
        }
    }
    out
}

fn default_retry() -> Retry {
    Retry {
        attempts: RETRY_ATTEMPTS,
        try_timeout: Duration::ZERO,
        conditions: default_conditions(),
        statuses: [503].into(),
        backoff: RETRY_BACKOFF,
    }
}

fn default_conditions() -> RetryConditions {
    RetryConditions::CONNECT_FAILURE
        | RetryConditions::REFUSED_STREAM
        | RetryConditions::GRPC_UNAVAILABLE
        | RetryConditions::GRPC_CANCELLED
}

fn retry(written: &HttpRetry, problems: &mut Vec<Problem>) -> Retry {
    let mut conditions = RetryConditions::default();
    let mut statuses = Vec::new();
    for word in written.retry_on.split(',').map(str::trim) {
        match (condition_of(word), word.parse::<u16>()) {
            (Some(condition), _) => conditions = conditions | condition,
            (None, Ok(status @ 200..=599)) => statuses.push(status),
            // The list of statuses says it all.
            (None, _) if word.is_empty() || word == "retriable-status-codes" => {}
            (None, _) => problems.push(Problem {
                field: "retries.retryOn".into(),
                message: format!("has the word {word}, which is not known and has no effect"),
                remedy: "use conditions of Envoy's retry policy or statuses",
            }),
        }
    }
    if conditions == RetryConditions::default() && statuses.is_empty() {
        conditions = default_conditions();
    }
    statuses.sort_unstable();
    statuses.dedup();
    let attempts = u8::try_from(written.attempts).unwrap_or(u8::MAX);
    if attempts > ATTEMPTS_MAX {
        problems.push(Problem {
            field: "retries.attempts".into(),
            message: format!(
                "is {}, and {ATTEMPTS_MAX} are the most that are made",
                written.attempts
            ),
            remedy: "write a smaller number",
        });
    }
    Retry {
        attempts: attempts.min(ATTEMPTS_MAX),
        try_timeout: written.per_try_timeout.unwrap_or_default(),
        conditions,
        statuses: statuses.into(),
        backoff: written.backoff.unwrap_or(RETRY_BACKOFF),
    }
}

fn condition_of(word: &str) -> Option<RetryConditions> {
    Some(match word {
        "connect-failure" => RetryConditions::CONNECT_FAILURE,
        "5xx" => RetryConditions::SERVER_ERROR,
        "gateway-error" => RetryConditions::GATEWAY_ERROR,
        "reset" => RetryConditions::RESET,
        "reset-before-request" => RetryConditions::RESET_BEFORE_REQUEST,
        "refused-stream" => RetryConditions::REFUSED_STREAM,
        "retriable-4xx" => RetryConditions::RETRIABLE_CLIENT_ERROR,
        "cancelled" => RetryConditions::GRPC_CANCELLED,
        "deadline-exceeded" => RetryConditions::GRPC_DEADLINE_EXCEEDED,
        "internal" => RetryConditions::GRPC_INTERNAL,
        "resource-exhausted" => RetryConditions::GRPC_RESOURCE_EXHAUSTED,
        "unavailable" => RetryConditions::GRPC_UNAVAILABLE,
        _ => return None,
    })
}

fn fault(written: &HttpFault, problems: &mut Vec<Problem>) -> Option<Fault> {
    let delay = written.delay.as_ref().and_then(|it| delay(it, problems));
    let abort = written.abort.as_ref().and_then(|it| abort(it, problems));
    (delay.is_some() || abort.is_some()).then_some(Fault { delay, abort })
}

fn delay(written: &FaultDelay, problems: &mut Vec<Problem>) -> Option<Delay> {
    let share = match (written.percentage, written.percent) {
        (Some(percent), _) => share(percent, "fault.delay.percentage", problems)?,
        (None, 0) => Share::ALL,
        (None, percent) => Share::from_ppm(percent.saturating_mul(10_000)).unwrap_or(Share::ALL),
    };
    let delay = written.fixed_delay.filter(|delay| !delay.is_zero())?;
    Some(Delay { share, delay })
}

fn abort(written: &FaultAbort, problems: &mut Vec<Problem>) -> Option<Abort> {
    let share = match written.percentage {
        Some(percent) => share(percent, "fault.abort.percentage", problems)?,
        None => Share::ALL,
    };
    let answer = match (&written.http_status, &written.grpc_status) {
        (Some(status @ 200..=599), _) => Some(AbortAnswer::Status(*status)),
        (None, Some(word)) => grpc_status(word).map(AbortAnswer::Grpc),
        _ => None,
    };
    if answer.is_none() {
        problems.push(Problem {
            field: "fault.abort".into(),
            message: "has no status that can be answered, so nothing is aborted".into(),
            remedy: "write httpStatus from 200 to 599, or grpcStatus",
        });
    }
    Some(Abort {
        share,
        answer: answer?,
    })
}

/// The number of a gRPC status, by its name or number (gRPC's status codes).
fn grpc_status(word: &str) -> Option<u8> {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    let upper = word.to_ascii_uppercase();
    let named = NAMES.iter().position(|name| *name == upper);
    let number = named.or_else(|| word.parse().ok())?;
    u8::try_from(number)
        .ok()
        .filter(|number| (1..=16).contains(number))
}

/// A share; none, and nothing is done, where it is 0 or no share.
pub fn share(percent: Percent, field: &str, problems: &mut Vec<Problem>) -> Option<Share> {
    let ppm = percent.value * 10_000.0;
    if !(0.0..=1_000_000.0).contains(&ppm) {
        problems.push(Problem {
            field: field.into(),
            message: format!(
                "is {}, which is no percentage and has no effect",
                percent.value
            ),
            remedy: "write a number from 0 to 100",
        });
        return None;
    }
    Share::from_ppm(ppm.round() as u32).filter(|share| share.ppm() > 0)
}

fn cors(written: &CorsPolicy, problems: &mut Vec<Problem>) -> Cors {
    let (origins, patterns) = origins(written, problems);
    let mut listed = |written: &[Box<str>], field: &str| names(written, field, problems);
    let age = written.max_age.unwrap_or_default().as_secs();
    Cors {
        origins,
        methods: listed(&written.allow_methods, "allowMethods"),
        headers_allowed: listed(&written.allow_headers, "allowHeaders"),
        headers_exposed: listed(&written.expose_headers, "exposeHeaders"),
        credentials: written.allow_credentials.unwrap_or_default(),
        age_max_s: u32::try_from(age).unwrap_or(u32::MAX),
        origin_patterns: patterns,
        forwards_unmatched: written.unmatched_preflights != UnmatchedPreflights::Ignore,
    }
}

/// A list of texts.
type Texts = Box<[Box<str>]>;

/// The origins that are allowed to the letter, and the regexes of others.
fn origins(written: &CorsPolicy, problems: &mut Vec<Problem>) -> (Texts, Texts) {
    let mut origins: Vec<Box<str>> = Vec::new();
    let mut patterns: Vec<Box<str>> = Vec::new();
    let bad = |field: String| Problem {
        field,
        message: "has a control character, so it allows no origin".into(),
        remedy: "write an origin such as https://a.example.com",
    };
    for (at, origin) in written.allow_origin.iter().enumerate() {
        match has_control(origin) {
            true => problems.push(bad(format!("corsPolicy.allowOrigin[{at}]"))),
            false => origins.push(origin.clone()),
        }
    }
    for (at, origin) in written.allow_origins.iter().enumerate() {
        match origin {
            StringMatch::Exact(text) if has_control(text) => {
                problems.push(bad(format!("corsPolicy.allowOrigins[{at}].exact")));
            }
            StringMatch::Exact(text) => origins.push(text.clone()),
            StringMatch::Prefix(text) => patterns.push(format!("{}.*", escape(text)).into()),
            StringMatch::Regex(text) if compiles(text) => patterns.push(text.clone()),
            StringMatch::Regex(_) => problems.push(Problem {
                field: format!("corsPolicy.allowOrigins[{at}].regex"),
                message: "is not a regex within RE2's syntax, so it allows no origin".into(),
                remedy: "correct the regex",
            }),
            StringMatch::Present => patterns.push(".*".into()),
        }
    }
    (origins.into(), patterns.into())
}

/// The names that answers list; an entry may be a list of its own.
fn names(written: &[Box<str>], field: &str, problems: &mut Vec<Problem>) -> Box<str> {
    let mut kept: Vec<Box<str>> = Vec::new();
    for (at, entry) in written.iter().enumerate() {
        let names = || entry.split(',').map(|name| name.trim_matches([' ', '\t']));
        match names().all(is_token) {
            true => kept.extend(names().map(Into::into)),
            false => problems.push(Problem {
                field: format!("corsPolicy.{field}[{at}]"),
                message: "is no name that can be sent, so it has no effect".into(),
                remedy: "write a method such as GET, a header such as x-token, or *",
            }),
        }
    }
    joined(&kept, field, problems)
}

/// Names as clients are told them, as far as they fit.
fn joined(names: &[Box<str>], field: &str, problems: &mut Vec<Problem>) -> Box<str> {
    let mut text = String::new();
    let mut beyond = 0;
    for name in names {
        if text.len() + name.len() + 1 > LIST_BYTES_MAX {
            beyond += 1;
            continue;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
    }
    if beyond > 0 {
        problems.push(Problem {
            field: format!("corsPolicy.{field}"),
            message: format!(
                "is longer than {LIST_BYTES_MAX} bytes, so {beyond} of its words have no effect"
            ),
            remedy: "write fewer or shorter ones",
        });
    }
    text.into()
}

/// What is changed about headers; none where nothing is. No more than `left` bytes are added.
pub fn headers(
    written: &Headers,
    field: &str,
    mut left: usize,
    problems: &mut Vec<Problem>,
) -> Option<Box<HeaderEdits>> {
    let mut edit = |written: &Option<HeaderOperations>, direction: &str| {
        let field = format!("{field}.{direction}");
        let written = written.as_ref();
        let edit = |it| header_edit(it, &field, &mut left, problems);
        written.map_or_else(HeaderEdit::default, edit)
    };
    let edits = HeaderEdits {
        request: edit(&written.request, "request"),
        response: edit(&written.response, "response"),
    };
    let is_empty = edits.request.is_empty() && edits.response.is_empty();
    (!is_empty).then(|| Box::new(edits))
}

fn header_edit(
    written: &HeaderOperations,
    field: &str,
    left: &mut usize,
    problems: &mut Vec<Problem>,
) -> HeaderEdit {
    let mut pairs = |written: &Labels, end: &str| {
        let (mut kept, mut beyond) = (Vec::new(), 0);
        for (name, value) in written.iter() {
            if !is_token(name) || has_control(value) {
                problems.push(bad_header(format!("{field}.{end}[{name}]")));
                continue;
            }
            match left.checked_sub(header_bytes(name, value)) {
                Some(rest) => {
                    *left = rest;
                    kept.push((name.to_ascii_lowercase().into(), value.clone()));
                }
                None => beyond += 1,
            }
        }
        if beyond > 0 {
            problems.push(too_many_headers(format!("{field}.{end}"), beyond));
        }
        kept.into()
    };
    let (set, add) = (pairs(&written.set, "set"), pairs(&written.add, "add"));
    let mut remove = Vec::new();
    for (at, name) in written.remove.iter().enumerate() {
        match is_token(name) {
            true => remove.push(name.to_ascii_lowercase().into()),
            false => problems.push(bad_header(format!("{field}.remove[{at}]"))),
        }
    }
    HeaderEdit {
        remove: remove.into(),
        set,
        add,
    }
}

fn too_many_headers(field: String, count: usize) -> Problem {
    Problem {
        field,
        message: format!(
            "has {count} beyond the {HEADER_BYTES_MAX} bytes that a rule and one of its \
             destinations may add in all, which have no effect"
        ),
        remedy: "write fewer or shorter ones",
    }
}

fn bad_header(field: String) -> Problem {
    Problem {
        field,
        message: "is no header that can be sent, so it has no effect".into(),
        remedy: "write a header name, and a value without control characters",
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::Labels;
    use myriad_api::istio::header::{HeaderOperations, Headers};

    use super::{
        CorsPolicy, HEADER_BYTES_MAX, LIST_BYTES_MAX, UnmatchedPreflights, bytes_left, cors,
        grpc_status, headers, joined, template,
    };

    fn labels(pairs: &[(&str, usize)]) -> Labels {
        let pair = |(name, length): &(&str, usize)| -> (Box<str>, Box<str>) {
            ((*name).into(), "x".repeat(*length).into())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_a_rule_adds_is_bounded_with_what_its_destinations_add() {
        let written = Headers {
            request: Some(HeaderOperations {
                set: labels(&[("a", 20 << 10)]),
                ..HeaderOperations::default()
            }),
            response: Some(HeaderOperations {
                add: labels(&[("b", 20 << 10), ("c", 4 << 10)]),
                ..HeaderOperations::default()
            }),
        };
        let mut problems = Vec::new();
        let edits = headers(&written, "headers", HEADER_BYTES_MAX, &mut problems).unwrap();
        assert_eq!(edits.request.set.len(), 1);
        let added: Vec<&str> = edits.response.add.iter().map(|(name, _)| &**name).collect();
        assert_eq!(added, ["c"]);
        let fields: Vec<&str> = problems.iter().map(|it| &*it.field).collect();
        assert_eq!(fields, ["headers.response.add"]);
        assert!(
            problems[0]
                .message
                .starts_with("has 1 beyond the 32768 bytes")
        );
        let left = bytes_left(Some(&edits));
        assert_eq!(left, HEADER_BYTES_MAX - (24 << 10) - 10);
        let of_share = headers(&written, "route[0].headers", left, &mut problems).unwrap();
        assert!(of_share.request.is_empty());
        assert_eq!(of_share.response.add.len(), 1);
        assert_eq!(problems.len(), 3);
        assert_eq!(bytes_left(None), HEADER_BYTES_MAX);
    }

    #[test]
    fn lists_of_a_cors_policy_are_bounded() {
        let name: Box<str> = "x".repeat(LIST_BYTES_MAX / 2 - 1).into();
        let mut problems = Vec::new();
        let text = joined(&[name], "allowHeaders", &mut problems);
        assert!(problems.is_empty());
        let names = [text.clone(), text.clone(), text, "y".into()];
        let text = joined(&names, "allowHeaders", &mut problems);
        assert_eq!(text.len(), LIST_BYTES_MAX - 1);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, "corsPolicy.allowHeaders");
        assert!(
            problems[0]
                .message
                .ends_with("so 2 of its words have no effect")
        );
    }

    #[test]
    fn preflights_that_fit_no_origin_are_forwarded_unless_it_is_said_otherwise() {
        let forwards = |unmatched_preflights| {
            let written = CorsPolicy {
                unmatched_preflights,
                ..CorsPolicy::default()
            };
            let mut problems = Vec::new();
            let forwards = cors(&written, &mut problems).forwards_unmatched;
            assert!(problems.is_empty());
            forwards
        };
        assert!(forwards(UnmatchedPreflights::Unspecified));
        assert!(forwards(UnmatchedPreflights::Forward));
        assert!(!forwards(UnmatchedPreflights::Ignore));
    }

    #[test]
    fn names_that_would_end_their_field_are_left_out_and_told() {
        let list = |texts: &[&str]| -> Box<[Box<str>]> {
            texts.iter().map(|text| (*text).into()).collect()
        };
        let written = CorsPolicy {
            allow_origin: list(&["https://a", "https://b\r\n"]),
            allow_methods: list(&["GET", "PUT\r\nx: y", "*"]),
            allow_headers: list(&["x-a, x-b", "", "x c"]),
            expose_headers: list(&["x-d\n"]),
            ..CorsPolicy::default()
        };
        let mut problems = Vec::new();
        let made = cors(&written, &mut problems);
        assert_eq!(made.origins.join(" "), "https://a");
        assert_eq!(&*made.methods, "GET,*");
        assert_eq!(&*made.headers_allowed, "x-a,x-b");
        assert_eq!(&*made.headers_exposed, "");
        let fields: Vec<&str> = problems.iter().map(|it| &*it.field).collect();
        assert_eq!(
            fields,
            [
                "corsPolicy.allowOrigin[1]",
                "corsPolicy.allowMethods[1]",
                "corsPolicy.allowHeaders[1]",
                "corsPolicy.allowHeaders[2]",
                "corsPolicy.exposeHeaders[0]",
            ]
        );
    }

    #[test]
    fn groups_are_written_as_the_model_has_them() {
        assert_eq!(template(r"/\1/x\2"), "/$1/x$2");
        assert_eq!(template(r"/a\\b"), r"/a\b");
        assert_eq!(template("/plain"), "/plain");
    }

    #[test]
    fn a_grpc_status_has_a_name_and_a_number() {
        assert_eq!(grpc_status("UNAVAILABLE"), Some(14));
        assert_eq!(grpc_status("14"), Some(14));
        assert_eq!(grpc_status("OK"), None);
        assert_eq!(grpc_status("99"), None);
    }
}
