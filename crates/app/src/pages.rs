//! The admin pages of every process that goes on.

use std::net::SocketAddr;

use anyhow::Context;
use myriad_admin::{Admin, Form, Hosts, Page};
use myriad_base::drain::Drain;
use myriad_base::metrics::Metrics;
use myriad_base::task;
use myriad_translate::MAIN;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::confirm::{self, HeldReport};
use crate::explain::{self, Explainer, Question};
use crate::resident::give_back_when_ready;
use crate::restart::{Restart, Role};
use crate::status::report::{self, Reporter};

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
    /// The names by which the pages are called, beside addresses.
    pub hosts: Hosts,
}

/// Serves the admin pages on a thread of their own: a dump of a large board must not delay a
/// change. They are served `from` when that is cancelled; until then the process before does. The
/// same thread gives back what only the start needed.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    listener: std::net::TcpListener,
    pages: Pages,
    drain: &Drain,
    from: CancellationToken,
) -> anyhow::Result<()> {
    let readiness = pages.reporter.readiness.clone();
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
            hosts,
        } = self;
        let (board, readiness) = (reporter.board.clone(), reporter.readiness.clone());
        let (of_ingress, holds) = (reporter.clone(), reporter.holds.clone());
        metrics.register_process(env!("CARGO_PKG_VERSION"));
        Admin::new(readiness, hosts)
            .page(Page {
                path: "/metrics",
                render: Box::new(move |accept| metrics.expose(accept)),
            })
            .page(Page {
                path: "/config",
                render: Box::new(move |_| (JSON, board.dump())),
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
                explainer.explain(&question, &view)
            }))
    }
}

const JSON: &str = "application/json";

/// The parameters of a question.
struct Asked(Vec<(String, String)>);

impl Asked {
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
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        let answer = answer(&Asked(pairs.collect()))?;
        serde_json::to_string_pretty(&answer).map_err(|error| error.to_string())
    };
    Form {
        path,
        content_type: JSON,
        changes: false,
        answer: Box::new(answer),
    }
}
