//! `why`: the story of a domain: whether it is served, since when, what changed then, and what to
//! do.

#[cfg(test)]
mod tests;

use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use myriad_base::clock::{self, Instant};
use serde::{Deserialize, Serialize};

use crate::ask;
use crate::cli::history::RawWhy;
use crate::explain::{Concerned, Explainer, Explanation, Question};
use crate::history::report::{EntryReport, LiveLine};
use crate::history::{HistoryEntry, Past, moment};
use crate::live::Live;

/// The path where it is served.
pub const PATH: &str = "/why";

/// The most former states that are tried for the one where the answer turned.
pub const TRIED_MAX: usize = 8;

/// The time after which no further state is tried: each is read through as a whole, and others who
/// ask for something wait meanwhile, though not for ever.
const TRYING_MAX: Duration = Duration::from_secs(5);

/// The most changes that are listed.
pub const CHANGES_SHOWN_MAX: usize = 10;

/// The story of a domain.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct WhyReport {
    /// The request that was tried.
    pub url: String,
    /// The moment that the story is told of.
    pub at: String,
    /// The answer then, in one sentence.
    pub answer: String,
    /// Whether the request got through.
    pub is_served: bool,
    /// The moment since when it is so; none where it has been since before the history.
    pub since: Option<String>,
    /// How long that was before `at`.
    pub for_ms: Option<i64>,
    /// The commit that made it so.
    pub turned_by: Option<EntryReport>,
    /// The answer before that.
    pub before: Option<String>,
    /// Where the newest change that concerns the domain is live.
    pub live: Option<LiveLine>,
    /// The changes that concern the domain, the newest first, at most [`CHANGES_SHOWN_MAX`].
    pub changes: Vec<EntryReport>,
    /// The findings about the domain, with their remedies.
    pub findings: Vec<String>,
    /// Hints: what else to know.
    pub hints: Vec<String>,
    /// Since when the history knows what was served.
    pub known_since: String,
}

/// Runs the command: exit code 1 where the domain was not served.
///
/// # Errors
/// Nobody answers, or the question cannot be answered.
pub fn run(raw: &RawWhy) -> anyhow::Result<ExitCode> {
    let parameters = [
        ("host", &*raw.domain),
        ("view", &*raw.view),
        ("at", &*raw.at),
    ];
    let report: WhyReport = ask::ask(&raw.question, PATH, &parameters)?;
    ask::print(&raw.question, &report)?;
    Ok(match report.is_served {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Tells the story of a domain, or of a URL, as of a moment; of the present where none is given.
///
/// # Errors
/// A text for people: there is no history, or none of that moment, or no such name.
pub fn answer(
    explainer: &Explainer,
    live: Option<&Live>,
    (domain, view, at): (&str, &str, &str),
) -> Result<WhyReport, String> {
    let questions = questions(domain)?;
    let now = moment::now();
    let moment_asked = if at.is_empty() { "now" } else { at };
    let at = moment::parse(moment_asked, now)?;
    let mut past = explainer.past(view, at)?;
    let (tried, concerned) = explainer.try_past(&questions, &past);
    let chosen = choose(&tried);
    let Some(question) = questions.get(chosen) else {
        return Err("there is nothing to ask about".to_owned());
    };
    let Explanation {
        url,
        answer,
        is_served,
        findings,
        mut hints,
        ..
    } = explainer.explain_past(question, &past);
    // By HTTP there is mostly a redirect, of which nobody wants to hear.
    let others = tried.iter().enumerate().filter(|(at, _)| *at != chosen);
    for (_, other) in others.filter(|_| chosen > 0 || !is_served) {
        hints.push(format!("{}: {}", other.url, other.answer));
    }
    let end = past.at();
    let mut report = WhyReport {
        url,
        at: moment::text(end),
        answer,
        is_served,
        findings,
        hints,
        known_since: moment::text(past.known_since()),
        ..WhyReport::default()
    };
    let mut story = Story {
        explainer,
        live,
        questions: &questions,
        host: question.host.clone(),
        concerned,
        tried: 0,
        until: clock::now() + TRYING_MAX,
    };
    story.tell(&mut past, &mut report, end);
    // As far back as it was looked at.
    report.hints.extend(past.not_kept());
    Ok(report)
}

/// The search for what made it so.
struct Story<'a> {
    explainer: &'a Explainer,
    live: Option<&'a Live>,
    questions: &'a [Question],
    host: String,
    concerned: Concerned,
    tried: usize,
    /// When no further state is tried.
    until: Instant,
}

impl Story<'_> {
    /// Goes back commit by commit, and notes what concerns the domain and where the answer turned.
    fn tell(&mut self, past: &mut Past, report: &mut WhyReport, end: i64) {
        // The newest change of the answer counts where none is found by which it began or ceased
        // to be served.
        let mut turn: Option<(Arc<HistoryEntry>, String)> = None;
        let mut is_found = false;
        while let Some(entry) = past.step_back() {
            if !self.is_concerned_by(&entry, past.view()) {
                continue;
            }
            if report.changes.len() < CHANGES_SHOWN_MAX {
                report.changes.push(entry.report(self.live));
            }
            if is_found || self.tried >= TRIED_MAX || clock::now() >= self.until {
                match report.changes.len() < CHANGES_SHOWN_MAX {
                    true => continue,
                    false => break,
                }
            }
            self.tried += 1;
            let (tried, concerned) = self.explainer.try_past(self.questions, past);
            self.concerned.join(concerned);
            let Some(before) = tried.get(choose(&tried)) else {
                break;
            };
            is_found = before.is_served != report.is_served;
            if is_found || (turn.is_none() && before.answer != report.answer) {
                turn = Some((entry, before.answer.clone()));
            }
        }
        report.live = report.changes.first().and_then(|newest| newest.live);
        if let Some((entry, before)) = turn {
            report.since = Some(moment::text(entry.at));
            report.for_ms = Some(end.saturating_sub(entry.at));
            report.turned_by = Some(entry.report(self.live));
            report.before = Some(before);
        }
    }

    fn is_concerned_by(&self, entry: &HistoryEntry, view: &str) -> bool {
        let concerned = &self.concerned;
        let mut findings = entry.appeared.iter().chain(&entry.gone);
        let mut touches = entry.touches.iter();
        entry.touches_resource(view, &self.host, &|key| concerned.has_resource(key))
            || touches.any(|touch| concerned.has_object(&touch.key))
            || findings.any(|finding| {
                let object = finding.object.as_ref();
                object.is_some_and(|object| concerned.has_object(object))
                    || finding.message.contains(&self.host)
            })
    }
}

/// The requests by which a domain is tried: that of a URL, or those by HTTPS and by HTTP.
fn questions(domain: &str) -> Result<Vec<Question>, String> {
    let urls = match domain.contains("://") {
        true => vec![domain.to_owned()],
        false => vec![format!("https://{domain}"), format!("http://{domain}")],
    };
    let questions = urls.iter().map(|url| Question::new(url, "GET", &[]));
    questions.collect()
}

/// The index of the answer that matters: that by HTTPS where it is wanted, for a redirect to it
/// says little.
fn choose(tried: &[Explanation]) -> usize {
    match tried {
        [https, http] => {
            let is_wanted = https.is_served || https.domain.is_some();
            let is_plain = http.is_served || http.route.is_some();
            usize::from(!is_wanted && is_plain)
        }
        _ => 0,
    }
}

impl fmt::Display for WhyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} at {}", self.url, self.at)?;
        let word = if self.is_served {
            "served"
        } else {
            "NOT SERVED"
        };
        writeln!(f, "{word}: {}", self.answer)?;
        match (&self.since, self.for_ms) {
            (Some(since), Some(span)) => {
                writeln!(f, "since {since}, for {}", moment::span(span))?;
            }
            _ => writeln!(f, "since before {}", self.known_since)?,
        }
        if let Some(before) = &self.before {
            writeln!(f, "before that: {before}")?;
        }
        if let Some(entry) = &self.turned_by {
            writeln!(f, "what changed then:")?;
            write!(f, "{entry}")?;
        }
        for finding in &self.findings {
            writeln!(f, "finding: {finding}")?;
        }
        for hint in &self.hints {
            writeln!(f, "hint: {hint}")?;
        }
        let turned_by = self.turned_by.as_ref().map(|entry| entry.number);
        let others = self.changes.iter();
        let others = others.filter(|entry| Some(entry.number) != turned_by);
        let others: Vec<&EntryReport> = others.collect();
        if !others.is_empty() {
            writeln!(f, "other changes that concern it, the newest first:")?;
        }
        for entry in others {
            write!(f, "{entry}")?;
        }
        Ok(())
    }
}
