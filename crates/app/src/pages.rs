//! The admin pages of every process that goes on.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use myriad_admin::{Admin, Form, Hosts, Page};
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_proxy::telemetry::live_trace::LiveTraces;
use myriad_proxy::{Proxy, TopReader};
use myriad_translate::MAIN;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::confirm::{self, HeldReport};
use crate::console::{ConsoleParts, ConsoleSources};
use crate::diff::{self, DiffQuestion};
use crate::explain::{self, Explainer, Question};
use crate::history::report::{self as commits, TimelineFilter};
use crate::history::{History, NOT_KEPT};
use crate::live::Live;
use crate::otlp::{Otlp, SenderName};
use crate::process;
use crate::resident::give_back_when_ready;
use crate::restart::{Restart, Role};
use crate::settings::{ConsoleSettings, Traffic};
use crate::status::report::{self, Reporter};
use crate::{top, trace, why};

/// Binds the admin address.
///
/// # Errors
/// It cannot be bound.
pub fn bind(
    address: SocketAddr,
    restart: Option<&mut Restart>,
) -> anyhow::Result<std::net::TcpListener> {
    let inherited = restart.and_then(|it| it.take(Role::Admin, address));
    let listener = match inherited {
        Some(file) => file.into(),
        None => std::net::TcpListener::bind(address)
            .with_context(|| format!("--admin {address}: cannot be bound"))?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The sources of admin pages.
pub struct Pages {
    /// The metrics of the process.
    pub metrics: Metrics,
    /// How the process is.
    pub reporter: Reporter,
    /// The explainer of requests.
    pub explainer: Explainer,
    /// The history; none where none is kept.
    pub history: Option<History>,
    /// The requests that somebody wants to see, where there is a proxy.
    pub traces: Option<LiveTraces>,
    /// The domains that have most, where there is a proxy.
    pub top: Option<TopReader>,
    /// Where metrics go beside, if anywhere.
    pub exports: Option<Otlp>,
    /// The console, where it is asked for.
    pub console: Option<ConsoleParts>,
    /// The names by which the pages are called, beside addresses.
    pub hosts: Hosts,
}

impl Pages {
    /// The pages of a process with a proxy: what is its own, and what settings say of them. It
    /// keeps no history.
    pub fn of_proxy(
        proxy: &Proxy,
        (metrics, reporter): (&Metrics, Reporter),
        traffic: &Traffic,
        (console, exports, hosts): (Option<&ConsoleSettings>, Option<&Otlp>, &Hosts),
    ) -> Pages {
        let board = reporter.board.clone();
        let console = ConsoleParts::of(console, &board);
        Pages {
            metrics: metrics.clone(),
            reporter,
            explainer: Explainer::of_proxy(proxy.reader(), traffic, board),
            history: None,
            traces: Some(proxy.live_traces()),
            top: Some(proxy.top()),
            exports: exports.cloned(),
            console: console.map(|it| it.with_tables(proxy.reader())),
            hosts: hosts.clone(),
        }
    }
}

/// Serves the admin pages on a thread of their own: a dump of a large board must not delay a
/// change. They are served `from` when that is cancelled; until then the process before does. The
/// same thread gives back what only the start needed. Metrics are sent from here, too.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    listener: std::net::TcpListener,
    pages: Pages,
    drain: &Drain,
    from: CancellationToken,
) -> anyhow::Result<()> {
    if let Some(exports) = pages.exports.clone() {
        let name = SenderName {
            role: pages.reporter.role,
            instance: process::host_name(),
            version: env!("CARGO_PKG_VERSION"),
        };
        exports.start(name, &pages.metrics, drain)?;
    }
    let readiness = pages.reporter.readiness.clone();
    let console = pages.console.as_ref();
    let recording = console.map(|console| console.recording(&pages.metrics));
    let admin = pages.into_admin();
    let drained = drain.holder();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("admin".to_owned())
        .spawn(move || {
            runtime.block_on(async move {
                drop(task::spawn("start", give_back_when_ready(readiness)));
                if let Some(recording) = recording {
                    drop(task::spawn("plots", recording));
                }
                tokio::select! {
                    () = from.cancelled() => {}
                    () = drained.signalled() => return,
                }
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => admin.serve(listener, drained).await,
                    Err(error) => tracing::error!("admin pages are not served: {error}"),
                }
            });
        })?;
    Ok(())
}

impl Pages {
    fn into_admin(self) -> Admin {
        let Pages {
            metrics,
            reporter,
            explainer,
            history,
            traces,
            top,
            exports: _,
            console,
            hosts,
        } = self;
        let (board, readiness) = (reporter.board.clone(), reporter.readiness.clone());
        let (of_ingress, holds) = (reporter.clone(), reporter.holds.clone());
        let explainer = Arc::new(explainer.with_history(history.clone()));
        let past = (history, explainer.clone(), reporter.live.clone());
        metrics.register_process(env!("CARGO_PKG_VERSION"));
        let sources = ConsoleSources {
            reporter: reporter.clone(),
            metrics: metrics.clone(),
            history: past.0.clone(),
            traces: traces.clone(),
        };
        let admin = with_console(Admin::new(readiness, hosts), console, sources);
        let admin = with_past(admin, past);
        with_top(with_traces(admin, traces), top)
            .page(Page {
                path: "/metrics",
                render: Box::new(move |accept| metrics.expose(accept)),
            })
            .page(Page {
                path: "/config",
                render: Box::new(move |_| (JSON, board.dump().into())),
            })
            .form(form(report::PATH, move |_| Ok(reporter.process())))
            .form(Form {
                changes: true,
                ..form(confirm::PATH, move |_| Ok(HeldReport::confirmed(&holds)))
            })
            .form(form(report::INGRESS_PATH, move |asked| {
                of_ingress.ingress(&asked.one("namespace")?, &asked.one("name")?)
            }))
            .form(form(explain::PATH, move |asked| {
                let (url, method) = (asked.one("url")?, asked.one("method"));
                let method = method.unwrap_or_else(|_| "GET".to_owned());
                let view = asked.one("view").unwrap_or_else(|_| MAIN.to_owned());
                let or_none = |name| asked.one(name).unwrap_or_default();
                let question = Question::new(&url, &method, &asked.all("header"))?;
                let (client, sni) = (or_none("client"), or_none("sni"));
                let question = question.of_client(&client, &sni, &or_none("claims"))?;
                explainer.explain_at(&question, &view, &or_none("at"))
            }))
    }
}

/// The console, where it is asked for.
fn with_console(admin: Admin, console: Option<ConsoleParts>, sources: ConsoleSources) -> Admin {
    match console {
        Some(console) => admin.site(console.into_site(sources)),
        None => admin,
    }
}

/// The pages of what was served before.
fn with_past(
    admin: Admin,
    (history, explainer, live): (Option<History>, Arc<Explainer>, Option<Live>),
) -> Admin {
    let (listed, compared, seen) = (history.clone(), history.clone(), live.clone());
    let with_default = |asked: &Asked, name: &str, default: &str| {
        asked.one(name).unwrap_or_else(|_| default.to_owned())
    };
    let list = move |asked: &Asked| -> Result<_, String> {
        let history = history.as_ref().ok_or(NOT_KEPT)?;
        let number = |name: &str| match asked.one(name) {
            Ok(text) => text
                .parse::<u64>()
                .map(Some)
                .map_err(|_| format!("{name} is {text:?}, no number")),
            Err(_) => Ok(None),
        };
        let count_max = number("count")?.unwrap_or_default();
        let filter = TimelineFilter {
            host: asked.one("host").ok(),
            namespace: asked.one("namespace").ok(),
            before: number("before")?,
            count_max: usize::try_from(count_max).unwrap_or(usize::MAX),
        };
        Ok(history.timeline(&filter, live.as_ref()))
    };
    let entry_live = seen.clone();
    let entry = move |asked: &Asked| -> Result<_, String> {
        let history = listed.as_ref().ok_or(NOT_KEPT)?;
        let number = asked.one("number")?;
        let found = number.parse().ok();
        let found = found.and_then(|number| history.entry(number, entry_live.as_ref()));
        found.ok_or_else(|| {
            format!(
                "commit {number} is not kept; {} lists those that are",
                commits::PATH
            )
        })
    };
    let compare = move |asked: &Asked| -> Result<_, String> {
        let question = DiffQuestion {
            view: with_default(asked, "view", MAIN),
            from: asked.one("from")?,
            to: with_default(asked, "to", ""),
            host: with_default(asked, "host", ""),
        };
        diff::answer(compared.as_ref(), &question)
    };
    let tell = move |asked: &Asked| -> Result<_, String> {
        let (view, at) = (
            with_default(asked, "view", MAIN),
            with_default(asked, "at", ""),
        );
        why::answer(&explainer, seen.as_ref(), (&asked.one("host")?, &view, &at))
    };
    admin
        .form(form(commits::PATH, list))
        .form(form(commits::ENTRY_PATH, entry))
        .form(form(diff::PATH, compare))
        .form(form(why::PATH, tell))
}

/// The pages of requests that somebody wants to see.
fn with_traces(admin: Admin, traces: Option<LiveTraces>) -> Admin {
    let Some(traces) = traces else {
        return admin;
    };
    let ordered = traces.clone();
    let order = move |asked: &Asked| {
        let (count, seconds) = (asked.one("count")?, asked.one("seconds")?);
        let headers = asked.all("header");
        trace::start(&ordered, &asked.one("url")?, &headers, (&count, &seconds))
    };
    admin
        .form(Form {
            changes: true,
            ..form(trace::PATH, order)
        })
        .form(form(trace::FOUND_PATH, move |asked| {
            trace::found(&traces, asked.one("id").ok().as_deref())
        }))
}

/// The pages of the domains that have most.
fn with_top(admin: Admin, top: Option<TopReader>) -> Admin {
    let Some(reader) = top else {
        return admin;
    };
    let answer = move |asked: &Asked| {
        let or_none = |name| asked.one(name).ok();
        let (of, by, count) = (or_none("of"), or_none("by"), or_none("n"));
        top::report(&reader, of.as_deref(), by.as_deref(), count.as_deref())
    };
    let as_text = answer.clone();
    admin
        .form(Form {
            path: top::PATH,
            content_type: "text/plain; charset=utf-8",
            changes: false,
            answer: Box::new(move |query| Ok(as_text(&Asked::read(query))?.to_text())),
        })
        .form(form(top::JSON_PATH, answer))
}

const JSON: &str = "application/json";

/// The parameters of a question.
struct Asked(Vec<(String, String)>);

impl Asked {
    fn read(query: &str) -> Asked {
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        Asked(pairs.collect())
    }

    fn all(&self, name: &str) -> Vec<String> {
        let named = self.0.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.clone()).collect()
    }

    fn one(&self, name: &str) -> Result<String, String> {
        let mut values = self.all(name).into_iter();
        values.next().ok_or_else(|| format!("give a {name}"))
    }
}

/// A form that answers in JSON.
fn form<T: Serialize>(
    path: &'static str,
    answer: impl Fn(&Asked) -> Result<T, String> + Send + Sync + 'static,
) -> Form {
    let answer = move |query: &str| {
        let answer = answer(&Asked::read(query))?;
        serde_json::to_string_pretty(&answer).map_err(|error| error.to_string())
    };
    Form {
        path,
        content_type: JSON,
        changes: false,
        answer: Box::new(answer),
    }
}
