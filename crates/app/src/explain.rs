//! `explain`: what a request would meet, and why not what was meant.
//!
//! The proxy's own lookups answer, over the tables that it serves from, or over tables made of
//! the resources that concern the host.

mod answer;
mod gather;
mod parts;
mod question;
mod scene;
#[cfg(test)]
mod tests;
mod text;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use myriad_api::Finding;
use myriad_base::clock;
use myriad_model::{Form, Sealer, Snapshot, Writer};
use myriad_proxy::route::tables::Tables;
use myriad_source::directory::{self, Limits, Loaded};
use myriad_translate::Engine;

pub use self::parts::Explanation;
pub use self::question::Question;
pub use self::scene::{Concerned, Scene};

use crate::ask;
use crate::board::Board;
use crate::cli::RawExplain;
use crate::history::{self, History, Past, moment};
use crate::settings::{Meaning, Traffic};

/// The path where it is served.
pub const PATH: &str = "/explain";

/// The most findings of an explanation.
const FINDINGS_SHOWN_MAX: usize = 50;

/// Finds what a question is answered from, for the view of a name, if there is one.
type Find = dyn Fn(&Question, &str) -> Option<Scene> + Send + Sync;

/// Answers questions about what a process serves.
pub struct Explainer {
    scene: Box<Find>,
    board: Board,
    /// How many proxies in front are believed.
    trusted_hops: usize,
    history: Option<History>,
}

/// Runs the command: exit code 1 where the request would not get through, which is to an endpoint,
/// or to a redirect or an answer that a route wants.
///
/// # Errors
/// A URL that is none, a directory that cannot be read, or nobody answers.
pub fn run(raw: &RawExplain) -> anyhow::Result<ExitCode> {
    let explanation: Explanation = if raw.paths.is_empty() {
        let mut parameters = vec![
            ("url", &*raw.url),
            ("method", &*raw.method),
            ("view", &*raw.view),
            ("client", &*raw.client),
            ("sni", &*raw.sni),
            ("claims", &*raw.claims),
            ("at", &*raw.at),
        ];
        parameters.extend(raw.header.iter().map(|header| ("header", &**header)));
        ask::ask(&raw.question, PATH, &parameters)?
    } else if raw.at.is_empty() {
        explain_files(raw)?
    } else {
        bail!("--at asks what a running process has served: leave out the files")
    };
    ask::print(&raw.question, &explanation)?;
    Ok(match explanation.is_served {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn explain_files(raw: &RawExplain) -> anyhow::Result<Explanation> {
    let question = Question::new(&raw.url, &raw.method, &raw.header)
        .and_then(|it| it.of_client(&raw.client, &raw.sni, &raw.claims));
    let question = match question {
        Ok(question) => question,
        Err(problem) => bail!("{problem}"),
    };
    let meaning = Meaning::check(&raw.meaning, &raw.endpoints)?;
    let Loaded { batch, locator, .. } = directory::load(&raw.paths, &Limits::default())?;
    let writer = Writer::new(Sealer::new([0; 32], Form::Value));
    let mut engine = Engine::new(meaning.translate(), writer);
    engine.apply(batch.changes, clock::unix_seconds());
    let Some(snapshot) = engine.snapshot_of(&raw.view) else {
        bail!("--view: {}", no_view(&raw.view));
    };
    let scene = gather::gather(&snapshot, &question.names());
    let reported = batch.reports.into_iter().flat_map(|it| it.findings);
    let mut findings: Vec<Finding> = engine.findings().cloned().chain(reported).collect();
    for finding in &mut findings {
        if finding.place.is_none() {
            finding.place = finding.object.as_ref().and_then(|key| locator.locate(key));
        }
    }
    Ok(answer::explain(&scene, &question, &|is_wanted| {
        let wanted = findings.iter().filter(|finding| is_wanted(finding));
        wanted.take(FINDINGS_SHOWN_MAX).cloned().collect()
    }))
}

impl Explainer {
    /// An explainer for a process with a proxy, which knows how many proxies in front of it are
    /// believed.
    pub fn of_proxy(
        tables: impl Fn() -> Arc<Tables> + Send + Sync + 'static,
        traffic: &Traffic,
        board: Board,
    ) -> Explainer {
        let trusted_hops = traffic.trusted_hops;
        // A proxy is asked about itself, whatever its view is.
        let scene = move |_: &Question, _: &str| Some(Scene::of_tables(tables(), trusted_hops));
        let scene = Box::new(scene);
        Explainer {
            scene,
            board,
            trusted_hops,
            history: None,
        }
    }

    /// The explainer of a process that has resources alone.
    pub fn of_board(board: Board) -> Explainer {
        let shown = board.clone();
        let scene = Box::new(move |question: &Question, view: &str| {
            let snapshot = shown.snapshot_of(view)?;
            Some(gather::gather(&snapshot, &question.names()))
        });
        Explainer {
            scene,
            board,
            trusted_hops: 0,
            history: None,
        }
    }

    /// The same, which knows the past where there is a history.
    #[must_use]
    pub fn with_history(self, history: Option<History>) -> Explainer {
        Explainer { history, ..self }
    }

    /// Answers one question as it would have been answered at a moment, as somebody wrote it; the
    /// present where none is written.
    ///
    /// # Errors
    /// The reason why the question cannot be answered.
    pub fn explain_at(
        &self,
        question: &Question,
        view: &str,
        at: &str,
    ) -> Result<Explanation, String> {
        if at.is_empty() {
            return self.explain(question, view);
        }
        let at = moment::parse(at, moment::now())?;
        let past = self.past(view, at)?;
        Ok(self.explain_past(question, &past))
    }

    /// The state of a view at a moment.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn past(&self, view: &str, at: i64) -> Result<Past, String> {
        let history = self.history.as_ref().ok_or(history::NOT_KEPT)?;
        history.past(view, at)
    }

    /// Answers one question out of a former state. Reads through all of it.
    pub fn explain_past(&self, question: &Question, past: &Past) -> Explanation {
        let scene = self.scene_of(past, &question.names());
        let mut explanation = answer::explain(&scene, question, &|is_wanted| {
            past.findings(&self.board, FINDINGS_SHOWN_MAX, is_wanted)
        });
        explanation.at = Some(moment::text(past.at()));
        explanation
    }

    /// Answers questions about the same names out of a former state, without findings, and says
    /// what concerns them there. Reads through all of it once.
    pub fn try_past(&self, questions: &[Question], past: &Past) -> (Vec<Explanation>, Concerned) {
        let names = questions.first().map(Question::names).unwrap_or_default();
        let scene = self.scene_of(past, &names);
        let explain = |question| answer::explain(&scene, question, &|_| Vec::new());
        let explanations = questions.iter().map(explain).collect();
        (explanations, scene.concerned)
    }

    fn scene_of(&self, past: &Past, names: &[String]) -> Scene {
        let mut scene = gather::gather(past.snapshot(), names);
        scene.trusted_hops = self.trusted_hops;
        scene.at_unix = Some(past.at().div_euclid(1_000));
        scene
    }

    /// Answers one question, of a view where there are several.
    ///
    /// # Errors
    /// The reason why the question cannot be answered.
    pub fn explain(&self, question: &Question, view: &str) -> Result<Explanation, String> {
        let scene = (self.scene)(question, view).ok_or_else(|| no_view(view))?;
        Ok(answer::explain(&scene, question, &|is_wanted| {
            self.board.findings_where(FINDINGS_SHOWN_MAX, is_wanted)
        }))
    }
}

/// The resources of a snapshot that concern some names, and the objects that they came from. Reads
/// through all of it.
pub fn concerned(snapshot: &Snapshot, names: &[String]) -> Concerned {
    gather::gather(snapshot, names).concerned
}

fn no_view(name: &str) -> String {
    format!("there is no gateway {name}; --gateways lists them")
}
