//! The parts of a rule beside its matches and destinations.

use std::time::Duration;

use myriad_api::istio::virtual_service::{HttpRetry, HttpRewrite, HttpRoute};
use myriad_model::{PathRewrite, Policy, Retry, RetryConditions, Rewrite};

use super::headers::{EditsLeft, headers};
use super::rule_problem::RuleProblem;
use super::{cors, fault};
use crate::regex::{COSTLY, COSTLY_REMEDY, compiles, has_groups_followed, is_costly};
use crate::resolve::sendable::{authority, has_control};

/// The longest time to connect to an endpoint, as Istio has it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two reads or writes, as Envoy ends idle streams.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Istio's own rule for repetitions, where none is written.
const RETRY_ATTEMPTS: u8 = 2;

/// The most repetitions that a rule may ask for. Proxies take more of older controllers.
const ATTEMPTS_MAX: u8 = 10;

/// The wait before the first repetition, as Envoy has it.
const RETRY_BACKOFF: Duration = Duration::from_millis(25);

/// The longest authority.
const AUTHORITY_BYTES_MAX: usize = 8 << 10;

/// The policy of a rule, but for its mirrors.
pub(crate) fn build(route: &HttpRoute, problems: &mut Vec<RuleProblem>) -> Policy {
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
        .and_then(|it| fault::build(it, problems))
        .map(Box::new);
    policy.cors = rare
        .cors_policy
        .as_ref()
        .map(|it| Box::new(cors::build(it, problems)));
    policy.headers = rare
        .headers
        .as_ref()
        .and_then(|it| headers(it, "headers", EditsLeft::ALL, problems));
    policy
}

/// Whether a rule rewrites as nobody can: then it forwards nothing.
pub(crate) fn is_closed(route: &HttpRoute) -> bool {
    let Some(written) = &route.rewrite else {
        return false;
    };
    if written.authority.len() > AUTHORITY_BYTES_MAX {
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

fn is_too_large(pattern: &str) -> bool {
    !has_groups_followed(pattern) && compiles(pattern)
}

fn rewrite(written: &HttpRewrite, problems: &mut Vec<RuleProblem>) -> Option<Rewrite> {
    let by_regex = written.uri_regex_rewrite.as_ref();
    let path = match by_regex.filter(|it| !it.pattern.is_empty()) {
        Some(regex) if is_too_large(&regex.pattern) => {
            let max = PathRewrite::INSTRUCTIONS_MAX;
            problems.push(RuleProblem {
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
        Some(regex) if is_costly(&regex.pattern) => {
            problems.push(RuleProblem {
                field: "rewrite.uriRegexRewrite.match".into(),
                message: format!("{COSTLY}, so the path stays as it came"),
                remedy: COSTLY_REMEDY,
            });
            None
        }
        Some(_) => {
            problems.push(RuleProblem {
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
    if written.authority.len() > AUTHORITY_BYTES_MAX {
        problems.push(RuleProblem {
            field: "rewrite.authority".into(),
            message: format!("is longer than {AUTHORITY_BYTES_MAX} bytes, so the rule answers 503"),
            remedy: "write a shorter one",
        });
    }
    let authority = match authority(&written.authority) {
        Some(_) => written.authority.clone(),
        None => {
            problems.push(RuleProblem {
                field: "rewrite.authority".into(),
                message: "is no host with or without a port, so it stays as it came".into(),
                remedy: "write a host such as a.example.com, or a.example.com:8443",
            });
            Box::default()
        }
    };
    (path.is_some() || !authority.is_empty()).then_some(Rewrite { path, authority })
}

fn bad_rewrite(field: &str) -> RuleProblem {
    RuleProblem {
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

fn retry(written: &HttpRetry, problems: &mut Vec<RuleProblem>) -> Retry {
    let mut conditions = RetryConditions::default();
    let mut statuses = Vec::new();
    for word in written.retry_on.split(',').map(str::trim) {
        match (condition_of(word), word.parse::<u16>()) {
            (Some(condition), _) => conditions = conditions | condition,
            (None, Ok(status @ 200..=599)) => statuses.push(status),
            // The list of statuses says it all.
            (None, _) if word.is_empty() || word == "retriable-status-codes" => {}
            (None, _) => problems.push(RuleProblem {
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
        problems.push(RuleProblem {
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

#[cfg(test)]
mod tests {
    use super::template;

    #[test]
    fn groups_are_written_as_the_model_has_them() {
        assert_eq!(template(r"/\1/x\2"), "/$1/x$2");
        assert_eq!(template(r"/a\\b"), r"/a\b");
        assert_eq!(template("/plain"), "/plain");
    }
}
