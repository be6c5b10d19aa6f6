//! The store of the mesh's authority: a Secret that people or a certificate manager write, or one
//! that the controllers make themselves and replace in time. Beside it is [`store`], with the roots
//! of those that come and went.

mod store;

use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};
use myriad_base::clock;
use myriad_pki::{MeshAuthority, Roots};
use myriad_source::kubernetes::{CallError, Client, Secret, Texts};
use myriad_translate::FindingsChange;
use tokio::sync::mpsc;

use self::store::Store;
use super::signer::{LOOK_INTERVAL, Signer};
use crate::control::Event;

/// The interval between two looks while nobody is told what to trust.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// How often a Secret is read again that somebody else has just created or written.
const ATTEMPTS_MAX: u32 = 5;

/// How long before its end an authority is warned about that nobody here replaces.
const WARNING_SECONDS: i64 = 7 * 86_400;

/// Looks after the authority of the mesh.
pub(super) struct AuthorityKeeper {
    pub client: Client,
    /// The namespace of the controllers.
    pub home: String,
    pub namespace: String,
    pub name: String,
    /// Whether one is made where there is none.
    pub makes: bool,
    pub signer: Signer,
    /// The inbox of findings.
    pub inbox: mpsc::Sender<Event>,
}

/// Why there is no authority, not the one that was meant, or none that outlives the process.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// The Secret that it is about, if it is not that of the authority.
    secret: Option<ObjectKey>,
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
        let mut told: Vec<Arc<Finding>> = Vec::new();
        loop {
            let problems = self.turn().await.into_iter();
            let found: Vec<_> = problems.map(|it| Arc::new(self.finding(it))).collect();
            if found != told {
                let fresh = found.iter().filter(|it| !told.contains(it));
                let gone = told.iter().filter(|it| !found.contains(it));
                let change = FindingsChange {
                    added: fresh.cloned().collect(),
                    removed: gone.cloned().collect(),
                };
                told = found;
                // A control loop that has ended tells nobody anything any more.
                if self.inbox.send(Event::Found(change)).await.is_err() {
                    return;
                }
            }
            tokio::time::sleep(match self.signer.has_begun() {
                true => LOOK_INTERVAL,
                false => RETRY_INTERVAL,
            })
            .await;
        }
    }

    /// Takes in what is kept and what is to sign, and keeps what comes of it. Another replica may
    /// write meanwhile; what it wrote is then taken in first.
    async fn turn(&self) -> Vec<Problem> {
        let store = Store {
            client: self.client.clone(),
            namespace: self.home.clone(),
        };
        for _ in 0..ATTEMPTS_MAX {
            let read = store.read().await;
            let (authority, problem) = match self.look().await {
                Look::Found(authority, problem) => (Some(*authority), problem),
                Look::Wrong(problem) => (None, Some(problem)),
                Look::Unknown(error) => {
                    let (namespace, name) = (&self.namespace, &self.name);
                    tracing::warn!(%error, namespace, name, "no authority of the mesh is read");
                    (None, unreadable(&error))
                }
            };
            let mut problems = Vec::from_iter(problem);
            let outcome = match &read {
                Ok(read) => {
                    let roots = self.signer.learn(read.roots.as_deref(), authority);
                    problems.extend((read.unread > 0).then(|| self.unread(read.unread)));
                    store.write(read, &roots).await
                }
                Err(error) => {
                    self.signer.see(authority);
                    Err(error.clone())
                }
            };
            match outcome {
                Ok(()) => self.signer.begin(),
                Err(CallError::Conflict) => continue,
                Err(error) => {
                    tracing::warn!(%error, "the roots of the mesh are not kept");
                    problems.extend(self.unkept(&error));
                }
            }
            problems.extend(self.signer.waits().then(waiting));
            return problems;
        }
        tracing::warn!("the roots of the mesh are written by others all the time");
        Vec::new()
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
                        secret: None,
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
                secret: None,
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
        let Problem {
            secret,
            field,
            message,
            remedy,
            severity,
        } = problem;
        let own = || ObjectKey::new(ObjectKind::Secret, &self.namespace, &self.name);
        Finding::new(
            severity,
            &secret.unwrap_or_else(own),
            field,
            message,
            remedy,
        )
    }

    /// The Secret of the roots.
    fn kept(&self) -> Option<ObjectKey> {
        Some(ObjectKey::new(
            ObjectKind::Secret,
            &self.home,
            store::SECRET_NAME,
        ))
    }

    fn unread(&self, lines: usize) -> Problem {
        Problem {
            secret: self.kept(),
            field: "data[roots]".to_owned(),
            message: format!(
                "has {lines} lines that are no roots of the mesh; they are not believed, and were \
                 taken out"
            ),
            remedy: "let nobody but the controllers write it",
            severity: Severity::Warning,
        }
    }

    /// The problem to tell people of roots that are not kept; none of an error that passes.
    fn unkept(&self, error: &CallError) -> Option<Problem> {
        let (CallError::Forbidden(_) | CallError::Rejected(_)) = error else {
            return None;
        };
        let effect = match self.signer.has_begun() {
            true => "a controller that restarts does not know what workloads trust",
            false => "no workload is given an identity by this controller",
        };
        Some(Problem {
            secret: self.kept(),
            field: String::new(),
            message: format!("cannot be read or written ({error}), so that {effect}"),
            remedy: "grant create on Secrets, and get and patch on myriad-mesh-roots, to the \
                     controller's service account, as the chart does; if its content is to blame, \
                     delete it",
            severity: Severity::Error,
        })
    }
}

/// The problem of an authority that was found by a process that does not know the one before it.
fn waiting() -> Problem {
    Problem {
        secret: None,
        field: String::new(),
        message: "holds an authority whose root workloads do not know yet: nothing is signed \
                  before it was told for --mesh-root-overlap"
            .to_owned(),
        remedy: "wait, or put the former authority back",
        severity: Severity::Warning,
    }
}

/// An authority that somebody else has made.
fn given(texts: &Texts) -> Look {
    let authority = match MeshAuthority::from_texts(texts) {
        Ok(authority) => authority,
        Err(error) => {
            let key = error.key().map(|key| format!("data[{key}]"));
            return Look::Wrong(Problem {
                secret: None,
                field: key.unwrap_or_else(|| "data".to_owned()),
                message: format!("is no authority for the mesh: {error}"),
                remedy: "correct the Secret; until then the authority that there was goes on",
                severity: Severity::Error,
            });
        }
    };
    let left = authority.until() - clock::unix_seconds();
    let ending = (left < WARNING_SECONDS).then(|| Problem {
        secret: None,
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
            secret: None,
            field: String::new(),
            message: "may not be read by the controller".to_owned(),
            remedy: "grant get on this Secret to the controller's service account, as the chart \
                     does for mesh.authority.secret",
            severity: Severity::Error,
        }),
        CallError::Rejected(text) => Some(Problem {
            secret: None,
            field: String::new(),
            message: format!("cannot be read or written: {text}"),
            remedy: "correct it; until then the authority that there was goes on",
            severity: Severity::Error,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
