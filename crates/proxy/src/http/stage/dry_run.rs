//! The stages run for a request that is only asked about: each says what it would do, and nothing
//! is counted, drawn, sent or asked.

use super::{RequestState, STAGES, Scene, Stage, TakenRoute, Token};
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::policy::token::{HeadMemory, KeptToken};

/// The verdict of a stage on a request.
pub enum StageVerdict {
    /// Nothing.
    Silent,
    /// The request goes on, and this is worth knowing.
    Passes(String),
    /// The request goes no further.
    Ends(DryRunEnd),
}

/// Where a request ends.
#[derive(Debug)]
pub struct DryRunEnd {
    /// The status, where the proxy answers by itself.
    pub status: Option<u16>,
    /// The failure, if there is one.
    pub failure: Option<FailureKind>,
    /// The outcome, in one sentence.
    pub text: String,
}

impl DryRunEnd {
    /// A refusal, for a reason.
    pub fn refused(kind: FailureKind, reason: impl std::fmt::Display) -> StageVerdict {
        let status = kind.verdict().status;
        StageVerdict::Ends(DryRunEnd {
            status: Some(status),
            failure: Some(kind),
            text: format!("{status}: {reason}"),
        })
    }

    /// An answer that somebody wants the proxy to give.
    pub fn answered(status: u16, what: impl std::fmt::Display) -> StageVerdict {
        StageVerdict::Ends(DryRunEnd {
            status: Some(status),
            failure: None,
            text: format!("{status}: {what}"),
        })
    }

    /// An endpoint.
    pub fn forwarded(text: String) -> StageVerdict {
        StageVerdict::Ends(DryRunEnd {
            status: None,
            failure: None,
            text,
        })
    }
}

/// The words of one stage.
#[derive(Debug)]
pub struct DryRunStep {
    /// The stage.
    pub stage: Stage,
    /// Its effect on the request, in words.
    pub text: String,
}

/// The way of a request that is only asked about.
pub struct DryRun<'a> {
    /// The words of the stages, in their order.
    pub steps: Vec<DryRunStep>,
    /// The route that the request would take, as far as it was looked for.
    pub taken: Option<TakenRoute<'a>>,
    /// Where the request ends.
    pub end: DryRunEnd,
}

/// Runs all stages. `token` stands for one that is said to be valid, in place of those that the
/// head bears.
pub fn run<'a, 'h>(
    scene: &Scene<'a>,
    (head, room): (&'a Head<'h>, &'h mut HeadMemory),
    token: Option<&'a KeptToken>,
) -> DryRun<'a> {
    let mut request = RequestState::new(head, room);
    if let Some(token) = token {
        request.token = Token::Kept(token);
    }
    let mut steps = Vec::new();
    let mut end = None;
    for stage in STAGES {
        // What is refused, or answered by the proxy, is recorded as well.
        if end.is_some() && stage != Stage::Record {
            continue;
        }
        let text = match stage.explain(&mut request, scene) {
            StageVerdict::Silent => continue,
            StageVerdict::Passes(text) => text,
            StageVerdict::Ends(reached) => {
                let text = reached.text.clone();
                end = Some(reached);
                text
            }
        };
        steps.push(DryRunStep { stage, text });
    }
    DryRun {
        steps,
        taken: request.taken,
        end: end.unwrap_or_else(|| DryRunEnd {
            status: None,
            failure: Some(FailureKind::Internal),
            text: "the proxy contradicts itself".to_owned(),
        }),
    }
}

impl Stage {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Challenge => "challenge",
            Stage::Misdirected => "connection",
            Stage::Tokens => "tokens",
            Stage::External => "outside authorization",
            Stage::Authorization => "authorization",
            Stage::Route => "route",
            Stage::Redirect => "HTTPS redirect",
            Stage::Certificate => "client certificate",
            Stage::Sources => "source ranges",
            Stage::RateLimit => "rate limit",
            Stage::Cors => "CORS",
            Stage::Hsts => "HSTS",
            Stage::BodyLimit => "body limit",
            Stage::Passwords => "password",
            Stage::Inquiry => "outside authentication",
            Stage::Authorizer => "outside authorization by the route",
            Stage::Fault => "fault",
            Stage::Processors => "processor",
            Stage::Forward => "action",
            Stage::Record => "record",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{STAGES, Stage};
    use crate::http::stage::REROUTED;

    #[test]
    fn each_stage_is_in_the_list_once_and_a_changed_request_begins_at_its_route() {
        let mut names: Vec<&str> = STAGES.iter().map(|stage| stage.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STAGES.len());
        assert_eq!(REROUTED.first(), Some(&Stage::Route));
        assert_eq!(REROUTED.last(), Some(&Stage::Record));
    }
}
