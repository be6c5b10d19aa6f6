//! The store of the mesh's authority: a Secret that people or a certificate manager write, or one
//! that the controllers make themselves and replace in time.

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::clock;
use myriad_pki::{MeshAuthority, Roots};
use myriad_source::kubernetes::{CallError, Client, Secret, Texts};
use myriad_translate::FindingsChange;
use tokio::sync::mpsc;

use super::signer::Signer;
use crate::control::Event;

/// How often the Secret is read, so that an authority that others replace is noticed.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// The interval between two looks while there is no authority.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// How often a Secret is read again that somebody else has just created or written.
const ATTEMPTS_MAX: u32 = 5;

/// How long before its end an authority is warned about that nobody here replaces.
const WARNING_SECONDS: i64 = 7 * 86_400;

/// Looks after the authority of the mesh.
pub(super) struct AuthorityKeeper {
    pub client: Client,
    pub namespace: String,
    pub name: String,
    /// Whether one is made where there is none.
    pub makes: bool,
    pub signer: Signer,
    /// The inbox of findings.
    pub inbox: mpsc::Sender<Event>,
}

/// Why there is no authority, or not the one that was meant.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    field: String,
    message: String,
    remedy: &'static str,
    severity: Severity,
}

/// The outcome of a look.
enum Look {
    Found(Box<MeshAuthority>, Option<Problem>),
    /// The Secret says something else than an authority.
    Wrong(Problem),
    /// Nobody can say; the authority that there was goes on.
    Unknown(CallError),
}

impl AuthorityKeeper {
    /// Looks after it for ever.
    pub(super) async fn keep(self) {
        let mut told: Option<Arc<Finding>> = None;
        let mut has_authority = false;
        loop {
            let problem = match self.look().await {
                Look::Found(authority, problem) => {
                    has_authority = true;
                    self.signer.see(*authority);
                    problem
                }
                Look::Wrong(problem) => Some(problem),
                Look::Unknown(error) => {
                    let (namespace, name) = (&self.namespace, &self.name);
                    tracing::warn!(%error, namespace, name, "no authority of the mesh is read");
                    unreadable(&error)
                }
            };
            self.signer.step();
            let found = problem.map(|it| Arc::new(self.finding(it)));
            if found != told {
                let change = FindingsChange {
                    added: found.iter().cloned().collect(),
                    removed: told.take().into_iter().collect(),
                };
                // A control loop that has ended tells nobody anything any more.
                if self.inbox.send(Event::Found(change)).await.is_err() {
                    return;
                }
                told = found;
            }
            tokio::time::sleep(match has_authority {
                true => LOOK_INTERVAL,
                false => RETRY_INTERVAL,
            })
            .await;
        }
    }

    async fn look(&self) -> Look {
        for _ in 0..ATTEMPTS_MAX {
            let secret = match self.client.secret(&self.namespace, &self.name).await {
                Ok(secret) => secret,
                Err(CallError::NotFound) if self.makes => match self.make().await {
                    Ok(()) | Err(CallError::Conflict) => continue,
                    Err(error) => return Look::Unknown(error),
                },
                Err(CallError::NotFound) => {
                    return Look::Wrong(Problem {
                        field: String::new(),
                        message: "is not there, and no workload is given an identity".to_owned(),
                        remedy: "create it, or leave out --mesh-ca-secret to have one made",
                        severity: Severity::Error,
                    });
                }
                Err(error) => return Look::Unknown(error),
            };
            if MeshAuthority::is_in(&secret.texts) {
                return given(&secret.texts);
            }
            match self.advance(&secret).await {
                Ok(Some(look)) => return look,
                Ok(None) | Err(CallError::Conflict) => {}
                Err(error) => return Look::Unknown(error),
            }
        }
        Look::Unknown(CallError::Conflict)
    }

    /// Makes the first authority of the mesh. Another replica may be first.
    async fn make(&self) -> Result<(), CallError> {
        let mut texts = Texts::new();
        match Roots::new(clock::unix_seconds()) {
            Ok(roots) => roots.expose_into(&mut texts),
            Err(error) => return Err(CallError::Rejected(error.to_string())),
        }
        let (namespace, name) = (&self.namespace, &self.name);
        self.client.create_secret(namespace, name, &texts).await?;
        tracing::info!(namespace, name, "the authority of the mesh was made");
        Ok(())
    }

    /// Does one step of the own authorities, if one is due; none if the Secret is to be read
    /// again. Whoever is first does it, and the others find it done.
    async fn advance(&self, secret: &Secret) -> Result<Option<Look>, CallError> {
        let wrong = |message: String| {
            Look::Wrong(Problem {
                field: "data".to_owned(),
                message,
                remedy: "write the keys of Istio's cacerts or of a kubernetes.io/tls Secret, or \
                         delete it to have an authority made",
                severity: Severity::Error,
            })
        };
        let mut roots = match Roots::from_texts(&secret.texts) {
            Ok(roots) => roots,
            Err(error) => return Ok(Some(wrong(format!("holds no authority: {error}")))),
        };
        // The roots are told to every proxy by whoever reads them, long before the next step.
        let authority = match MeshAuthority::of_roots(&roots) {
            Ok(authority) => authority,
            Err(error) => return Ok(Some(wrong(format!("holds no authority: {error}")))),
        };
        let step = match roots.step(clock::unix_seconds()) {
            Ok(None) => return Ok(Some(Look::Found(Box::new(authority), None))),
            Ok(Some(step)) => step,
            Err(error) => return Ok(Some(wrong(error.to_string()))),
        };
        let mut texts = secret.texts.clone();
        roots.expose_into(&mut texts);
        let (namespace, name) = (&self.namespace, &self.name);
        self.client
            .update_secret(namespace, name, secret, &texts)
            .await?;
        tracing::info!(?step, "the authority of the mesh is being replaced");
        Ok(None)
    }

    fn finding(&self, problem: Problem) -> Finding {
        let object = ObjectKey::new(ObjectKind::Secret, &self.namespace, &self.name);
        let Problem {
            field,
            message,
            remedy,
            severity,
        } = problem;
        Finding::new(severity, &object, field, message, remedy)
    }
}

/// An authority that somebody else has made.
fn given(texts: &Texts) -> Look {
    let authority = match MeshAuthority::from_texts(texts) {
        Ok(authority) => authority,
        Err(error) => {
            let key = error.key().map(|key| format!("data[{key}]"));
            return Look::Wrong(Problem {
                field: key.unwrap_or_else(|| "data".to_owned()),
                message: format!("is no authority for the mesh: {error}"),
                remedy: "correct the Secret; until then the authority that there was goes on",
                severity: Severity::Error,
            });
        }
    };
    let left = authority.until() - clock::unix_seconds();
    let ending = (left < WARNING_SECONDS).then(|| Problem {
        field: String::new(),
        message: match left > 0 {
            true => "holds an authority that ends within a week".to_owned(),
            false => "holds an authority that has ended, so that nothing is signed".to_owned(),
        },
        remedy: "write its successor into the Secret",
        severity: match left > 0 {
            true => Severity::Warning,
            false => Severity::Error,
        },
    });
    Look::Found(Box::new(authority), ending)
}

/// The problem to tell people of a Secret that the API server does not give.
fn unreadable(error: &CallError) -> Option<Problem> {
    match error {
        CallError::Forbidden(_) => Some(Problem {
            field: String::new(),
            message: "may not be read by the controller".to_owned(),
            remedy: "grant get on this Secret to the controller's service account, as the chart \
                     does for mesh.authority.secret",
            severity: Severity::Error,
        }),
        CallError::Rejected(text) => Some(Problem {
            field: String::new(),
            message: format!("cannot be read or written: {text}"),
            remedy: "correct it; until then the authority that there was goes on",
            severity: Severity::Error,
        }),
        _ => None,
    }
}
