//! The console: pages for people, under `/console` of the admin address, about what is live, what
//! is not and why, and what changed. It is off where nobody asks for it, and changes nothing.
//!
//! Every page is made of a bounded part of what the process knows, whatever there is of it, by one
//! thread beside the one that says how the process is. It holds no secret, since nothing that it is
//! made of does.

mod access;
mod changes;
mod chart;
mod dashboards;
mod domain;
mod domains;
mod edges;
mod findings;
mod fleet;
mod graph;
mod html;
mod layout;
mod memory;
mod mesh;
mod overview;
mod panels;
mod plots;
mod recorder;
pub mod reviews;
mod samples;
#[cfg(test)]
mod tests;
mod traces;
mod upstreams;

use std::sync::{Arc, Mutex};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use myriad_admin::site::{Reply, Site};
use myriad_base::metrics::Metrics;
use myriad_proxy::route::tables::Tables;
use myriad_proxy::telemetry::live_trace::LiveTraces;

use crate::board::Board;
use crate::history::History;
use crate::process;
use crate::settings::ConsoleSettings;
use crate::status::report::Reporter;
use access::Access;
use edges::Rates;
use layout::PageDraft;
use recorder::Recorder;
use reviews::Reviews;

/// The path of the console.
pub const PATH: &str = "/console";

/// The most parameters of a question that are read.
const PARAMETERS_MAX: usize = 16;

/// The most characters of one of them.
const PARAMETER_CHARS_MAX: usize = 1_024;

/// A console that is asked for, and what it has of its own.
pub struct ConsoleParts {
    settings: ConsoleSettings,
    reviews: Option<Reviews>,
    tables: Option<TablesReader>,
    recorder: Recorder,
}

/// Reads the tables that requests are answered from.
pub type TablesReader = Box<dyn Fn() -> Arc<Tables> + Send + Sync>;

/// The sources of the pages.
pub struct ConsoleSources {
    /// How the process is, with its board and the proxies that follow it.
    pub reporter: Reporter,
    /// The metrics of the process.
    pub metrics: Metrics,
    /// The commits of the last day; none where nobody keeps them.
    pub history: Option<History>,
    /// The requests that are traced; none where no request comes.
    pub traces: Option<LiveTraces>,
}

/// A console that makes pages.
struct Console {
    sources: ConsoleSources,
    tables: Option<TablesReader>,
    instance: String,
    rates: Mutex<Rates>,
    recorder: Recorder,
}

/// The parameters of a question.
struct Asked(Vec<(String, String)>);

impl ConsoleParts {
    /// The console of settings; none where they ask for none. To be called before the first
    /// change, since from now on the board keeps what pages search.
    pub fn of(settings: Option<&ConsoleSettings>, board: &Board) -> Option<ConsoleParts> {
        let settings = settings?.clone();
        board.catalog().keep();
        Some(ConsoleParts {
            settings,
            reviews: None,
            tables: None,
            recorder: Recorder::default(),
        })
    }

    /// The same in a process with a proxy, whose tables know the health of endpoints.
    #[must_use]
    pub fn with_tables(self, tables: impl Fn() -> Arc<Tables> + Send + Sync + 'static) -> Self {
        let tables: Option<TablesReader> = Some(Box::new(tables));
        ConsoleParts { tables, ..self }
    }

    /// The same where the API server is asked who may see it, if settings say so.
    #[must_use]
    pub fn with_reviews(self, reviews: Reviews) -> Self {
        let reviews = self.settings.reviews.then_some(reviews);
        ConsoleParts { reviews, ..self }
    }

    /// Records what plots are made of, for as long as somebody waits.
    pub fn recording(&self, metrics: &Metrics) -> impl Future<Output = ()> + Send + use<> {
        self.recorder.clone().record(metrics.clone())
    }

    /// The console as a site of the admin pages.
    pub fn into_site(self, sources: ConsoleSources) -> Site {
        let ConsoleParts {
            settings,
            reviews,
            tables,
            recorder,
        } = self;
        let console = Console {
            sources,
            tables,
            instance: process::host_name(),
            rates: Mutex::default(),
            recorder,
        };
        Site {
            path: PATH,
            guard: Access::new(settings.token_file, reviews).into_guard(),
            render: Box::new(move |path, query| console.answer(path, query)),
            policy: policy(),
        }
    }
}

impl Console {
    fn answer(&self, path: &str, query: &str) -> Reply {
        let asked = Asked::read(query);
        let page = match path {
            "" | "/" => self.overview(),
            "/domains" => self.domains(&asked),
            "/domain" => self.domain(&asked),
            "/findings" => self.findings(&asked),
            "/changes" => self.changes(&asked),
            "/change" => self.change(&asked),
            "/traces" => self.traces(),
            "/plots" => self.plots(&asked),
            "/trace" => self.trace(&asked),
            "/mesh" => self.mesh(),
            "/fleet" => self.fleet(),
            "/memory" => self.memory(),
            _ => PageDraft::missing(PATH, "The console has no such page."),
        };
        page.finish(self.sources.reporter.role, &self.instance)
    }

    fn board(&self) -> &Board {
        &self.sources.reporter.board
    }
}

impl Asked {
    fn read(query: &str) -> Asked {
        let pairs = form_urlencoded::parse(query.as_bytes()).take(PARAMETERS_MAX);
        let cut = |text: &str| text.chars().take(PARAMETER_CHARS_MAX).collect();
        Asked(
            pairs
                .map(|(name, value)| (cut(&name), cut(&value)))
                .collect(),
        )
    }

    /// The value of a parameter without spaces around it; empty where it is not there.
    fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.trim())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }
}

/// The few things that browsers may do with a page: show it, with its own style, and send its
/// forms here.
fn policy() -> HeaderValue {
    let hash = digest::digest(&digest::SHA256, layout::STYLE.as_bytes());
    let hash = STANDARD.encode(hash);
    let text = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'"
    );
    // Base64 is text that a header may hold.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}
