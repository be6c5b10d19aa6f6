//! Certificates in Secrets beside the objects that ask for them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use myriad_api::{Object, ObjectKind};
use myriad_base::clock;
use myriad_model::on_demand_host;
use myriad_pki::acme::{HeldCertificate, IssuedChain, Order, StepTrouble};
use myriad_source::kubernetes::CallError;
use serde_json::{Value, json};

use super::{ATTEMPTS_MAX, ClusterStore, failed, lost};
use crate::acme::secret::{ISSUER, held_in, written};
use crate::acme::steps::now;
use crate::acme::store::KeptCertificate;

/// How long it is remembered whether Secrets may be written in a namespace.
const RIGHTS_AGE_MAX: Duration = Duration::from_secs(60);

/// The most namespaces of which that is remembered.
const RIGHTS_MAX: usize = 4_096;

/// The rights that a certificate needs: it is created, and renewed by a patch.
const VERBS: [&str; 2] = ["create", "patch"];

/// The Secret of a certificate as it is found.
pub(super) enum Found {
    /// There is none.
    Absent,
    /// Somebody else has written it.
    Foreign,
    /// An issuer has provided it: its version, and the certificate in it.
    Ours(Box<str>, Option<HeldCertificate>),
}

impl ClusterStore {
    /// The certificates that issuers have provided, as the watch sees them.
    pub(in crate::acme::store) fn certificates(&self) -> Vec<KeptCertificate> {
        let all = self.0.site.issued.begin();
        *self.0.known.borrow_mut() = all.iter().cloned().collect();
        let kept = all.into_iter().map(|(id, held)| KeptCertificate {
            id,
            object: None,
            held: (*held).clone(),
        });
        kept.collect()
    }

    /// Whether the certificate of an order may be kept; notes which one is known by now.
    pub(in crate::acme::store) async fn admit(&self, order: &Order) -> Result<(), StepTrouble> {
        let known = self.0.known.borrow().get(&order.id).cloned();
        self.0.begun.borrow_mut().insert(order.id.clone(), known);
        if on_demand_host(&order.id).is_some() {
            // It is kept where orders are.
            return Ok(());
        }
        let (namespace, _) = parts(&order.id);
        let may = self.may_write(namespace).await;
        match may.map_err(|error| StepTrouble::Local(error.to_string()))? {
            true => Ok(()),
            false => Err(StepTrouble::Unproven(
                format!("is not ordered: this controller may not write Secrets in {namespace}"),
                format!(
                    "name {namespace} in acme.namespaces of the chart, or grant create and patch \
                     on Secrets there to the controller's service account"
                ),
            )),
        }
    }

    /// The certificate of an order that is to be placed, where one is there that was not known
    /// when it began. The watch may be behind: without this, a leader that takes over could order
    /// once more what the one before has just obtained.
    pub(in crate::acme::store) async fn find(
        &self,
        order: &Order,
    ) -> Result<Option<HeldCertificate>, StepTrouble> {
        // One that was kept by a leader before is placed: nothing has come of it yet.
        let begun = self.0.begun.borrow().get(&order.id).cloned();
        let found = self.look(&order.id).await;
        let found = found.map_err(|error| StepTrouble::Local(error.to_string()))?;
        let held = match found {
            Found::Absent | Found::Ours(_, None) => return Ok(None),
            Found::Foreign => {
                return Err(StepTrouble::Unproven(
                    format!(
                        "is not ordered, since somebody else has written Secret {}",
                        order.id
                    ),
                    "delete the Secret, or take the annotation myriad.dev/issuer away".to_owned(),
                ));
            }
            Found::Ours(_, Some(held)) => held,
        };
        let is_news = begun.is_some_and(|known| known.as_deref() != Some(&held));
        let fits = held.names == order.names && held.until > now();
        if !is_news || !fits {
            return Ok(None);
        }
        self.know(&order.id, &held);
        Ok(Some(held))
    }

    /// Keeps a certificate, unless somebody else has written its Secret.
    pub(in crate::acme::store) async fn keep_certificate(
        &self,
        order: &Order,
        issued: &IssuedChain,
    ) -> io::Result<KeptCertificate> {
        if let Some(host) = on_demand_host(&order.id) {
            return self.keep_on_demand(host, order, issued).await;
        }
        let (namespace, name) = parts(&order.id);
        let (secret, client) = (written(order, issued), &self.0.site.client);
        let held = Object::from_json(ObjectKind::Secret, &secret.to_string());
        let held = held.ok().and_then(|object| match &object {
            Object::Secret(secret) => held_in(secret),
            _ => None,
        });
        let held = held.ok_or(io::ErrorKind::InvalidData)?;
        for _ in 0..ATTEMPTS_MAX {
            self.lead()?;
            let outcome = match self.look(&order.id).await.map_err(failed)? {
                Found::Absent => client.create_secret_json(namespace, &secret).await,
                Found::Foreign => {
                    let text = format!("somebody else has written Secret {}", order.id);
                    return Err(io::Error::other(text));
                }
                Found::Ours(version, _) => {
                    let patch = json!({
                        "metadata": {
                            "resourceVersion": version,
                            "annotations": secret["metadata"]["annotations"],
                        },
                        "data": secret["data"],
                    });
                    client.patch_secret_json(namespace, name, &patch).await
                }
            };
            match outcome {
                Ok(()) => {
                    self.know(&order.id, &held);
                    return Ok(KeptCertificate {
                        id: order.id.clone(),
                        object: None,
                        held,
                    });
                }
                Err(CallError::Conflict | CallError::NotFound) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(CallError::Conflict))
    }

    /// Notes a certificate, so that the watch tells nothing new of it.
    pub(super) fn know(&self, id: &Arc<str>, held: &HeldCertificate) {
        let held = Arc::new(held.clone());
        self.0.known.borrow_mut().insert(id.clone(), held);
    }

    async fn look(&self, id: &str) -> Result<Found, CallError> {
        if let Some(host) = on_demand_host(id) {
            return self.look_on_demand(host).await;
        }
        let (namespace, name) = parts(id);
        let body = match self.0.site.client.secret_json(namespace, name).await {
            Ok(body) => body,
            Err(CallError::NotFound) => return Ok(Found::Absent),
            Err(error) => return Err(error),
        };
        let unreadable = || lost("the answer is no Secret");
        let text = std::str::from_utf8(&body).map_err(|_| unreadable())?;
        let value: Value = serde_json::from_str(text).map_err(|_| unreadable())?;
        let version = value["metadata"]["resourceVersion"].as_str();
        let version = version.ok_or_else(unreadable)?.into();
        if value["metadata"]["annotations"][ISSUER].is_null() {
            return Ok(Found::Foreign);
        }
        let held = match Object::from_json(ObjectKind::Secret, text) {
            Ok(Object::Secret(secret)) => held_in(&secret),
            _ => None,
        };
        Ok(Found::Ours(version, held))
    }

    /// Whether Secrets may be written in a namespace.
    async fn may_write(&self, namespace: &str) -> Result<bool, CallError> {
        let now = clock::now();
        let known = self.0.rights.borrow().get(namespace).copied();
        if let Some((may, at)) = known
            && now.saturating_duration_since(at) < RIGHTS_AGE_MAX
        {
            return Ok(may);
        }
        let mut may = true;
        for verb in VERBS {
            may &= match self.0.site.client.may_with_secrets(verb, namespace).await {
                // Who may not even ask finds out by trying.
                Err(CallError::Forbidden(_) | CallError::NotFound) => true,
                answered => answered?,
            };
        }
        let mut rights = self.0.rights.borrow_mut();
        if rights.len() >= RIGHTS_MAX {
            rights.clear();
        }
        rights.insert(namespace.into(), (may, now));
        Ok(may)
    }
}

/// Namespace and name.
fn parts(id: &str) -> (&str, &str) {
    id.split_once('/').unwrap_or(("", id))
}
