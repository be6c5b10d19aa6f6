//! Answers of a rule's own.
//!
//! Many clients may wait for an answer at once, so that one has bounds of its own, and a rule
//! beyond them is closed.

use myriad_api::istio::virtual_service::{DirectResponse, HttpRoute};
use myriad_model::{Action, Respond};

use super::rule_problem::RuleProblem;

/// The longest body of an answer.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Whether a rule answers with more than may be sent: then it answers 503.
pub(super) fn is_closed(route: &HttpRoute) -> bool {
    let Some(rare) = route.rare.as_deref() else {
        return false;
    };
    // A redirect goes first.
    let response = rare.direct_response.as_ref();
    let response = response.filter(|_| rare.redirect.is_none());
    response.is_some_and(|response| bytes_of(response).len() > BODY_BYTES_MAX)
}

/// The body as it is written.
pub(super) fn bytes_of(written: &DirectResponse) -> &[u8] {
    let body = written.body.as_ref();
    let text = body.and_then(|body| body.string.as_ref());
    let bytes = body.and_then(|body| body.bytes.as_ref());
    match (text, bytes) {
        (Some(text), _) => text.as_bytes(),
        (None, Some(bytes)) => &bytes.0,
        (None, None) => &[],
    }
}

/// The action of a rule that answers by itself.
pub(super) fn respond(written: &DirectResponse, problems: &mut Vec<RuleProblem>) -> Action {
    let body = bytes_of(written);
    if body.len() > BODY_BYTES_MAX {
        problems.push(RuleProblem {
            field: "directResponse.body".into(),
            message: format!("is longer than {BODY_BYTES_MAX} bytes, so the rule answers 503"),
            remedy: "write a shorter body, or serve it by an endpoint",
        });
    }
    let status = match written.status {
        status @ 200..=599 => status,
        status => {
            problems.push(RuleProblem {
                field: "directResponse.status".into(),
                message: format!("is {status}, so 503 is sent"),
                remedy: "write a status from 200 to 599",
            });
            503
        }
    };
    Action::Respond(Box::new(Respond {
        status,
        body: body.into(),
    }))
}

#[cfg(test)]
mod tests {
    use myriad_api::istio::virtual_service::{Body, DirectResponse, HttpRoute, HttpRouteRare};

    use super::{BODY_BYTES_MAX, is_closed, respond};

    fn rule(direct_response: Option<DirectResponse>) -> HttpRoute {
        let rare = HttpRouteRare {
            direct_response,
            ..HttpRouteRare::default()
        };
        HttpRoute {
            rare: Some(Box::new(rare)),
            ..HttpRoute::default()
        }
    }

    #[test]
    fn a_body_beyond_the_bound_is_a_problem() {
        for (length, count) in [(BODY_BYTES_MAX, 0), (BODY_BYTES_MAX + 1, 1)] {
            let body = Body {
                string: Some("x".repeat(length).into()),
                ..Body::default()
            };
            let written = DirectResponse {
                status: 200,
                body: Some(body),
            };
            let mut problems = Vec::new();
            respond(&written, &mut problems);
            assert_eq!(problems.len(), count);
            assert_eq!(is_closed(&rule(Some(written))), count > 0);
            assert!(problems.iter().all(|it| it.field == "directResponse.body"));
        }
    }
}
