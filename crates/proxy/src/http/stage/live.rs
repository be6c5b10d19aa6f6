//! The stages of a request whose way somebody asked to see: each is asked what it would do, does
//! it, and both are told.
//!
//! The words are those of the dry run, over the request as the stages before have left it. What
//! really came of it decides where the two differ, as with a rate limit that is used up.

use myriad_base::clock;

use super::dry_run::StageVerdict;
use super::{Flow, RequestState, Scene, Serving, Stage, Token};
use crate::failure::FailureKind;
use crate::pattern::Budget;
use crate::telemetry::live_trace::{StageOutcome, TracedRequest};

/// A witness of the parts that stages do.
pub(super) trait Witness {
    /// Lets a stage do its part.
    ///
    /// # Errors
    /// The failure of the stage.
    fn apply<'a>(
        &mut self,
        stage: Stage,
        request: &mut RequestState<'a, '_>,
        scene: &Scene<'a>,
        serving: &mut Serving<'_>,
    ) -> Result<Flow, FailureKind>;
}

/// Nobody looks on, as nearly always.
pub(super) struct Unseen;

impl Witness for Unseen {
    #[inline]
    fn apply<'a>(
        &mut self,
        stage: Stage,
        request: &mut RequestState<'a, '_>,
        scene: &Scene<'a>,
        serving: &mut Serving<'_>,
    ) -> Result<Flow, FailureKind> {
        stage.apply(request, scene, serving)
    }
}

/// The record of the request is told.
pub(super) struct Told {
    record: TracedRequest,
    /// The budget for the regexes of the words: the request has its own.
    budget: Budget,
}

impl Told {
    pub(super) fn new(record: &TracedRequest, scene: &Scene<'_>) -> Self {
        Told {
            record: record.clone(),
            budget: scene.budget.clone(),
        }
    }
}

impl Witness for Told {
    fn apply<'a>(
        &mut self,
        stage: Stage,
        request: &mut RequestState<'a, '_>,
        scene: &Scene<'a>,
        serving: &mut Serving<'_>,
    ) -> Result<Flow, FailureKind> {
        let words = words(stage, request, scene, &self.budget);
        let began = clock::now();
        let step = stage.apply(request, scene, serving);
        let took = clock::now().duration_since(began);
        let (outcome, text) = match &step {
            Ok(Flow::Continue) => (StageOutcome::Passed, passed(stage, request, words)),
            Ok(Flow::Answer(reply)) => match reply.failure {
                Some(kind) => (StageOutcome::Refused, refused(kind, reply.status, words)),
                None => (StageOutcome::Answered, answered(reply.status, words)),
            },
            Ok(Flow::Forward(plan)) => (
                StageOutcome::Forwarded,
                forwarded(&plan.upstream.name, words),
            ),
            Err(kind) => {
                let status = kind.verdict().status;
                (StageOutcome::Refused, refused(*kind, status, words))
            }
        };
        self.record.stage(stage.name(), outcome, &text, took);
        step
    }
}

/// The words of a stage about a request as it is before it. They change nothing.
fn words(
    stage: Stage,
    request: &RequestState<'_, '_>,
    scene: &Scene<'_>,
    budget: &Budget,
) -> StageVerdict {
    let verified = request.token.kept();
    let token = match (&request.token, &verified) {
        (Token::Kept(kept), _) => Token::Kept(kept),
        (_, Some(verified)) => Token::Kept(verified),
        (_, None) => Token::None,
    };
    let mut asked = RequestState {
        taken: request.taken,
        is_counted: true,
        ..RequestState::with(request.head.get(), token)
    };
    let around = Scene {
        tables: scene.tables,
        visit: scene.visit,
        budget,
        trusted_hops: scene.trusted_hops,
    };
    stage.explain(&mut asked, &around)
}

fn passed(stage: Stage, request: &RequestState<'_, '_>, words: StageVerdict) -> String {
    if let StageVerdict::Passes(text) = words {
        return text;
    }
    let taken = request.taken.filter(|_| stage == Stage::Route);
    let origin = taken.and_then(|taken| taken.entry.origin());
    origin.map_or_else(String::new, |origin| format!("the route is of {origin}"))
}

fn answered(status: u16, words: StageVerdict) -> String {
    match words {
        StageVerdict::Ends(end) => end.text,
        StageVerdict::Passes(text) => format!("{status}: {text}"),
        StageVerdict::Silent => format!("{status}: the proxy answers"),
    }
}

fn refused(kind: FailureKind, status: u16, words: StageVerdict) -> String {
    let verdict = kind.verdict();
    let reason = match verdict.text.trim_end() {
        "" => verdict.flag.replace('_', " "),
        text => text.to_owned(),
    };
    match words {
        StageVerdict::Ends(end) if end.failure == Some(kind) => end.text,
        StageVerdict::Passes(text) => format!("{status}: {reason} ({text})"),
        StageVerdict::Ends(_) | StageVerdict::Silent => format!("{status}: {reason}"),
    }
}

fn forwarded(upstream: &str, words: StageVerdict) -> String {
    match words {
        StageVerdict::Ends(end) => format!("{}, of {upstream}", end.text),
        StageVerdict::Passes(text) => format!("{text}, of {upstream}"),
        StageVerdict::Silent => format!("is sent to {upstream}"),
    }
}
