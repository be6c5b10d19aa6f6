//! Where API servers ask what becomes of a Pod on its way into the cluster: admission review `v1`
//! over HTTPS, answered with a patch.
//!
//! Which namespaces and Pods are asked about stands in the MutatingWebhookConfiguration, whose
//! selectors read labels that this process has no right to. The path says which of them led here.
//!
//! Anyone at the port may send a review, so an answer has no effect but itself. The roots
//! that proxies mount are published for Pods that are there (`roots`). Reviews are answered one at
//! a time, beside the thread that reads them and in turns of the addresses that they come from.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_admin::server::{Answer, Answering, Question, Server, source, text, typed};
use myriad_admin::turns::Turns;
use myriad_base::drain::Drain;
use myriad_base::metrics::{Counter, Metrics};
use myriad_sidecar::inject::{Decision, Labels, Sidecar, decide, inject};
use rustls::ServerConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::settings::Injection;

/// The largest review: that of the largest object that an API server takes, with its frame.
const BODY_BYTES_MAX: usize = 4 << 20;

/// The paths of reviews whose namespace asks for proxies, and of those whose Pod does.
const OF_NAMESPACE: &str = "/inject/namespace";
const OF_POD: &str = "/inject/pod";

/// The longest warning and the most of them: API servers cut what is beyond.
const WARNING_BYTES_MAX: usize = 256;
const WARNINGS_MAX: usize = 16;

/// A socket that API servers reach.
pub(super) struct Bound<'a> {
    injection: &'a Injection,
    listener: TcpListener,
}

/// Answers reviews.
struct Webhook {
    sidecar: Sidecar,
    turns: Turns,
    injected: Counter,
    refused: Counter,
}

#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    dry_run: bool,
    object: Value,
}

/// The verdict on one Pod.
enum Verdict {
    Leave,
    Inject { patch: Value, warnings: Vec<String> },
    Refuse(String),
}

/// Binds the address, where Pods get proxies at all.
///
/// # Errors
/// It cannot be bound.
pub(super) fn bind(injection: Option<&Injection>) -> anyhow::Result<Option<Bound<'_>>> {
    let Some(injection) = injection else {
        return Ok(None);
    };
    let address = injection.webhook;
    let listener = TcpListener::bind(address)
        .with_context(|| format!("--webhook {address}: cannot be bound"))?;
    listener.set_nonblocking(true)?;
    Ok(Some(Bound {
        injection,
        listener,
    }))
}

impl Bound<'_> {
    /// Answers on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(
        self,
        tls: Arc<ServerConfig>,
        metrics: &Metrics,
        drain: &Drain,
    ) -> anyhow::Result<()> {
        let Bound {
            injection,
            listener,
        } = self;
        let (injected, refused) = (Counter::default(), Counter::default());
        let help = "Pods that got a proxy on their way into the cluster";
        metrics.register("injections", help, injected.clone());
        let help = "Pods that were refused, since what they say about their proxy does not hold";
        metrics.register("injections_refused", help, refused.clone());
        let webhook = Arc::new(Webhook {
            sidecar: injection.sidecar.clone(),
            turns: Turns::default(),
            injected,
            refused,
        });
        let server = Server {
            tls: Some(tls),
            body_bytes_max: BODY_BYTES_MAX,
            answerer: Arc::new(move |question| -> Answering {
                let webhook = webhook.clone();
                Box::pin(webhook.answer_in_turn(question))
            }),
        };
        let drained = drain.holder();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("webhook".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    match tokio::net::TcpListener::from_std(listener) {
                        Ok(listener) => server.serve(listener, drained).await,
                        Err(error) => tracing::error!("the webhook does not answer: {error}"),
                    }
                });
            })?;
        Ok(())
    }
}

impl Webhook {
    /// Answers once it is the turn of the address that asks.
    async fn answer_in_turn(self: Arc<Self>, question: Question) -> Answer {
        let turn = self.turns.take(source(&question)).await;
        let work = tokio::task::spawn_blocking(move || {
            let answer = self.answer(&question);
            drop(turn);
            answer
        });
        let answer = work.await;
        answer.unwrap_or_else(|_| text(500, "the review could not be answered\n"))
    }

    fn answer(&self, question: &Question) -> Answer {
        let labels = match question.uri().path() {
            OF_NAMESPACE => Labels::from([("istio-injection".to_owned(), "enabled".to_owned())]),
            OF_POD => Labels::new(),
            _ => return text(404, "reviews come to /inject/namespace and /inject/pod\n"),
        };
        let Ok(Review { request }) = serde_json::from_slice(question.body()) else {
            return text(400, "this is no AdmissionReview of admission.k8s.io/v1\n");
        };
        let verdict = judge(&request, &labels, &self.sidecar);
        match &verdict {
            Verdict::Inject { .. } if !request.dry_run => drop(self.injected.inc()),
            Verdict::Refuse(_) => drop(self.refused.inc()),
            _ => {}
        }
        let response = response(&request.uid, verdict);
        typed(200, "application/json", response.to_string())
    }
}

fn judge(request: &Request, labels: &Labels, sidecar: &Sidecar) -> Verdict {
    match decide(&request.object, &request.namespace, labels) {
        Decision::Leave(_) => Verdict::Leave,
        Decision::Inject => match inject(&request.object, &owner(&request.object), sidecar) {
            Ok(injected) => Verdict::Inject {
                patch: patch(&request.object, &injected.pod),
                warnings: injected.warnings,
            },
            Err(problem) => Verdict::Refuse(problem),
        },
    }
}

/// The owner of the Pod, as people know it: a Deployment by its own name, although its Pods
/// belong to a ReplicaSet.
fn owner(pod: &Value) -> String {
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str);
    let owner = text("/metadata/ownerReferences/0/name");
    let hash = text("/metadata/labels/pod-template-hash");
    let name = owner.or(text("/metadata/name"));
    let name = name.or(text("/metadata/generateName")).unwrap_or_default();
    let of_set = hash.and_then(|hash| name.strip_suffix(hash));
    of_set.unwrap_or(name).trim_end_matches('-').to_owned()
}

/// The operations (RFC 6902) that make one Pod of the other. Only what injection touches.
fn patch(before: &Value, after: &Value) -> Value {
    let touched = ["/metadata/labels", "/metadata/annotations", "/spec"];
    let changed = touched
        .iter()
        .filter(|at| before.pointer(at) != after.pointer(at));
    let operations = changed.map(|at| json!({"op": "add", "path": at, "value": after.pointer(at)}));
    operations.collect()
}

fn response(uid: &str, verdict: Verdict) -> Value {
    let response = match verdict {
        Verdict::Leave => json!({"uid": uid, "allowed": true}),
        Verdict::Inject { patch, warnings } => {
            let warnings = warnings.iter().take(WARNINGS_MAX);
            json!({
                "uid": uid,
                "allowed": true,
                "patchType": "JSONPatch",
                "patch": STANDARD.encode(patch.to_string()),
                "warnings": warnings.map(|it| cut(it)).collect::<Vec<_>>(),
            })
        }
        Verdict::Refuse(problem) => json!({
            "uid": uid,
            "allowed": false,
            "status": {"code": 400, "message": format!("myriad: {problem}")},
        }),
    };
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    })
}

fn cut(warning: &str) -> &str {
    warning
        .get(..warning.floor_char_boundary(WARNING_BYTES_MAX))
        .unwrap_or(warning)
}

#[cfg(test)]
mod tests;
