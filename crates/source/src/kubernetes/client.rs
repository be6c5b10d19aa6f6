//! Requests to the API server: bytes out, bounded bytes or a stream in.

mod reasons;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use myriad_api::ObjectKind;
use serde::Deserialize;

use super::core::Failure;
use super::status::edits::StatusEdits;
use super::{definitions, item, path};

/// The longest answer that says what went wrong, in bytes.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// The longest answer about a single object: etcd takes 1.5 MiB, and a little is escaping.
const OBJECT_BYTES_MAX: usize = 8 << 20;

/// The longest page of a list, in bytes; a longer one is asked for again with fewer objects.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// How long an answer may take to begin or, where it is read whole, to end.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest wait that a busy server is granted.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// The message when [`ANSWER_TIMEOUT`] is over.
const TOO_LATE: &str = "no answer within 30 s";

/// The namespace whose UID names the cluster: it cannot be deleted.
const EPOCH_NAMESPACE: &str = "kube-system";

/// The address of the API server, and the credentials of this process.
#[derive(Clone, Debug, Default)]
pub enum Access {
    /// The kubeconfig of `$KUBECONFIG` or `~/.kube/config`, else the Pod's service account.
    #[default]
    Infer,
    /// The service account of the Pod.
    InCluster,
    /// A kubeconfig.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context in it; none means the current one.
        context: Option<String>,
    },
    /// A server without authentication, for tests and for `kubectl proxy`.
    Plain(http::Uri),
}

/// Why there is no client. The texts say which part is wrong, and never repeat what is written
/// there: in a kubeconfig that may be a credential.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither a kubeconfig nor a service account was found.
    #[error("no API server was found: this is no Pod with a service account, and {0}")]
    Infer(String),
    /// The Pod has no service account, or this is no Pod.
    #[error("the service account cannot be used: {0}")]
    InCluster(#[source] Box<kube::config::InClusterError>),
    /// The kubeconfig cannot be read.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// The certificates or the identity in it cannot be used.
    #[error("the identity for the API server cannot be used: {0}")]
    Identity(String),
}

/// Why a request about one object failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// 404. There is no such object.
    #[error("there is no such object")]
    NotFound,
    /// 409. Somebody else wrote it first, or it exists; to be read again.
    #[error("somebody else wrote it first")]
    Conflict,
    /// 401 or 403. The operator has to give a right.
    #[error("the API server refuses it: {0}")]
    Forbidden(String),
    /// Another 4xx: the request is wrong and will be wrong again.
    #[error("the API server rejects it: {0}")]
    Rejected(String),
    /// The connection, or a server in trouble; to be tried again.
    #[error("the API server cannot be reached: {0}")]
    Lost(String),
    /// 429 or 503 of a server that says when to come back.
    #[error("the API server is busy: {text}")]
    Busy {
        /// How long to wait at least; at most [`RETRY_AFTER_MAX`].
        after: Duration,
        /// The message of the server.
        text: String,
    },
}

impl CallError {
    /// How long the server wants to be left alone; zero if it does not say.
    pub fn retry_after(&self) -> Duration {
        match self {
            CallError::Busy { after, .. } => *after,
            _ => Duration::ZERO,
        }
    }
}

/// The form in which objects come, all of them as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Objects as they are.
    Whole,
    /// A list of their metadata alone.
    MetadataList,
    /// A watch of their metadata alone.
    Metadata,
}

impl Form {
    /// The media types that are accepted.
    fn accepted(self) -> &'static str {
        match self {
            // The keys of tokens have a type of their own (RFC 7517).
            Form::Whole => "application/json, application/jwk-set+json",
            Form::MetadataList => {
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
            }
            Form::Metadata => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}

/// A client of one API server. Cheap to clone. It has no limit of requests per second of its
/// own: watches are few, and each writer has a budget.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    /// Namespaces that may be read when [`EPOCH_NAMESPACE`] may not.
    namespaces: Arc<[Arc<str>]>,
    definitions: definitions::Shared,
    edits: StatusEdits,
}

impl Client {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// When what it needs to know cannot be read.
    pub async fn new(access: &Access, namespaces: Arc<[Arc<str>]>) -> Result<Self, ConnectError> {
        let mut config = read_config(access).await?;
        config.connect_timeout = Some(ANSWER_TIMEOUT);
        // Watches are silent for long; who reads an answer sets its timeout itself.
        config.read_timeout = None;
        config.write_timeout = Some(ANSWER_TIMEOUT);
        let identity = |error| ConnectError::Identity(reasons::of_identity(&error));
        let inner = kube::Client::try_from(config).map_err(identity)?;
        Ok(Client {
            inner,
            namespaces,
            definitions: definitions::Shared::new(),
            edits: StatusEdits::default(),
        })
    }

    /// The definitions of kinds that the watches of this server share.
    pub(super) fn definitions(&self) -> &definitions::Shared {
        &self.definitions
    }

    /// The place where watches of this server show objects whose status may be another.
    pub(super) fn edits(&self) -> &StatusEdits {
        &self.edits
    }

    /// The namespaces that are watched; none means all.
    pub(super) fn namespaces(&self) -> &[Arc<str>] {
        &self.namespaces
    }

    /// The group and version in which objects of a kind are read.
    pub(super) fn api_version(&self, kind: ObjectKind) -> &'static str {
        let newest = self.definitions.newest();
        let found = newest.and_then(|newest| newest.version(kind));
        found.unwrap_or(kind.api_version())
    }

    /// The path of a kind in all namespaces or in one.
    pub(super) fn collection(&self, kind: ObjectKind, namespace: Option<&str>) -> String {
        path::collection(kind, self.api_version(kind), namespace)
    }

    /// A number that differs between clusters: a hash of the UID of `kube-system` or, where that
    /// may not be read, of the first watched namespace; 0 where neither may.
    ///
    /// # Errors
    /// When the server cannot be asked.
    pub(super) async fn epoch(&self) -> Result<u64, Failure> {
        let names = [EPOCH_NAMESPACE]
            .into_iter()
            .chain(self.namespaces.first().map(|name| &**name));
        for name in names {
            let path = format!("/api/v1/namespaces/{}", path::escape(name));
            match self.call(Method::GET, &path, None).await {
                Ok(body) => {
                    let uid = serde_json::from_slice::<WithUid>(&body)
                        .map_err(|_| Failure::Lost("a namespace has no UID".to_owned()))?;
                    return Ok(item::first_bytes(&blake3::hash(
                        uid.metadata.uid.as_bytes(),
                    )));
                }
                // A server creates it a moment after its own start; an epoch without it would
                // change a moment later, and with it everything that counts on it.
                Err(CallError::NotFound) if name == EPOCH_NAMESPACE => {
                    return Err(Failure::Lost(format!("there is no {name} yet")));
                }
                Err(CallError::Lost(text)) => return Err(Failure::Lost(text)),
                Err(CallError::Busy { after, text }) => return Err(Failure::Busy { after, text }),
                Err(_) => {}
            }
        }
        Ok(0)
    }

    /// Whether the server answers who asks, and can look up what it keeps.
    ///
    /// # Errors
    /// A message for people: why it does not.
    pub async fn reach(&self) -> Result<(), String> {
        let path = format!("/api/v1/namespaces/{EPOCH_NAMESPACE}");
        match self.page(&path, Form::Whole).await {
            Err(Failure::Lost(text) | Failure::Unauthorized(text)) => Err(text),
            // A refusal is an answer.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Reads a page of a list.
    pub(super) async fn page(&self, path: &str, form: Form) -> Result<Bytes, Failure> {
        let body = self.open(path, form).await?;
        let read =
            tokio::time::timeout(ANSWER_TIMEOUT, Limited::new(body, PAGE_BYTES_MAX).collect());
        match read.await {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Failure::TooLarge)
            }
            Ok(Err(error)) => Err(Failure::Lost(error.to_string())),
            Err(_) => Err(Failure::Lost(TOO_LATE.to_owned())),
        }
    }

    /// Begins to read a watch.
    pub(super) async fn open(&self, path: &str, form: Form) -> Result<Body, Failure> {
        let sent = self.send(Method::GET, path, form, None);
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Failure::Lost(describe(&error))),
            Err(_) => return Err(Failure::Lost(TOO_LATE.to_owned())),
        };
        let (head, body) = answer.into_parts();
        if head.status.is_success() {
            return Ok(body);
        }
        let read = read_whole(body, STATUS_BYTES_MAX).await;
        let text = message(&read.unwrap_or_default());
        Err(failure(head.status, &text, retry_after(&head.headers)))
    }

    /// A request about one object; a body comes with its content type.
    ///
    /// # Errors
    /// See [`CallError`].
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<Bytes, CallError> {
        let exchange = async {
            let answer = self.send(method, path, Form::Whole, body).await;
            let (head, body) = answer
                .map_err(|e| CallError::Lost(describe(&e)))?
                .into_parts();
            let read = read_whole(body, OBJECT_BYTES_MAX).await;
            if head.status.is_success() {
                return read.map_err(CallError::Lost);
            }
            let text = message(&read.unwrap_or_default());
            let text = format!("{} {text}", head.status.as_u16());
            if is_busy(head.status)
                && let Some(after) = retry_after(&head.headers)
            {
                return Err(CallError::Busy { after, text });
            }
            Err(match head.status {
                StatusCode::NOT_FOUND => CallError::NotFound,
                StatusCode::CONFLICT => CallError::Conflict,
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CallError::Forbidden(text),
                StatusCode::TOO_MANY_REQUESTS => CallError::Lost(text),
                status if status.is_client_error() => CallError::Rejected(text),
                _ => CallError::Lost(text),
            })
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, exchange).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Lost(TOO_LATE.to_owned())),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        form: Form,
        body: Option<(&'static str, Vec<u8>)>,
    ) -> Result<http::Response<Body>, kube::Error> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(ACCEPT, form.accepted());
        let body = match body {
            Some((content_type, bytes)) => {
                request = request.header(CONTENT_TYPE, content_type);
                Body::from(bytes)
            }
            None => Body::empty(),
        };
        self.inner
            .send(request.body(body).map_err(kube::Error::HttpError)?)
            .await
    }
}

#[derive(Deserialize)]
struct WithUid {
    metadata: Uid,
}

#[derive(Deserialize)]
struct Uid {
    uid: Box<str>,
}

/// A `v1` Status, as answers and watches carry it.
#[derive(Deserialize)]
pub(super) struct Status {
    #[serde(default)]
    pub(super) code: u16,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    details: Option<Details>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(default)]
    retry_after_seconds: u64,
}

impl Status {
    /// How long the server wants to be left alone, if it says so.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
    }
}

/// The failure that a status code means to a watch, with the wait that the server asks for.
pub(super) fn failure(status: StatusCode, message: &str, after: Option<Duration>) -> Failure {
    let text = format!("{} {message}", status.as_u16());
    if let Some(after) = after.filter(|_| is_busy(status)) {
        return Failure::Busy { after, text };
    }
    match status {
        StatusCode::GONE => Failure::Gone,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => Failure::Unsupported(text),
        StatusCode::UNAUTHORIZED => Failure::Unauthorized(text),
        StatusCode::FORBIDDEN => Failure::Refused(text),
        StatusCode::NOT_FOUND => Failure::Missing(text),
        _ => Failure::Lost(text),
    }
}

/// Whether the server may say when to come back.
fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// `Retry-After` in seconds; API servers write no dates.
fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse();
    let seconds = Duration::from_secs(seconds.ok()?);
    Some(seconds.min(RETRY_AFTER_MAX))
}

async fn read_config(access: &Access) -> Result<kube::Config, ConnectError> {
    let wrong = |error| ConnectError::Kubeconfig(reasons::of_kubeconfig(&error));
    match access {
        Access::Infer => kube::Config::infer()
            .await
            .map_err(|error| ConnectError::Infer(reasons::of_inference(&error))),
        Access::InCluster => {
            kube::Config::incluster().map_err(|error| ConnectError::InCluster(Box::new(error)))
        }
        Access::Kubeconfig { path, context } => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
            let options = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            let read = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
            read.await.map_err(wrong)
        }
        Access::Plain(uri) => Ok(kube::Config::new(uri.clone())),
    }
}

async fn read_whole(body: Body, bytes_max: usize) -> Result<Bytes, String> {
    let collected = Limited::new(body, bytes_max).collect().await;
    collected
        .map(|whole| whole.to_bytes())
        .map_err(|error| error.to_string())
}

/// The message of a failed answer: that of its Status, else nothing.
fn message(body: &[u8]) -> String {
    serde_json::from_slice::<Status>(body).map_or_else(|_| String::new(), |status| status.message)
}

/// An error with its causes: the outermost text of a client says only that it failed. One about
/// credentials says nothing of them.
fn describe(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(reason) = reasons::of_credentials(error) {
        return reason;
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
