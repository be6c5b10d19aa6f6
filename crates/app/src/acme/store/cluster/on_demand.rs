//! Certificates that were obtained on demand: Secrets in the controllers' own namespace, all of
//! which every replica follows and serves.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::{Meta, Object, ObjectKey, ObjectKind, OnDemand};
use myriad_base::{clock, task};
use myriad_model::{on_demand_host, on_demand_name};
use myriad_pki::acme::{HeldCertificate, IssuedChain, Order};
use myriad_source::kubernetes::{CallError, Texts};
use serde_json::{Value, json};

use super::certificates::Found;
use super::{ATTEMPTS_MAX, ClusterStore, failed};
use crate::acme::secret::{held_in, on_demand_in, written};
use crate::acme::store::KeptCertificate;

/// The keys in such a Secret: the certificate and its key, as everywhere, where they came from, and
/// the day of the last use that was noted.
const CHAIN: &str = "tls.crt";
const KEY: &str = "tls.key";
const FACTS: &str = "facts";
const USED_ON: &str = "used-on";

/// The longest name of a Secret.
const NAME_BYTES_MAX: usize = 253;

/// The seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// A certificate on demand as it is kept.
pub(in crate::acme) struct KeptOnDemand {
    /// The host.
    pub host: Arc<str>,
    /// The facts by which it is renewed.
    pub held: HeldCertificate,
    /// The object by which proxies serve it.
    pub object: Object,
    /// The day of the last use that was noted, since 1970.
    pub used_on: i64,
}

impl KeptOnDemand {
    /// Reads the values of a Secret; none where they are those of no certificate on demand, or it
    /// is one for other names.
    pub(in crate::acme) fn read(texts: &Texts) -> Option<KeptOnDemand> {
        let facts: Value = serde_json::from_str(texts.get(FACTS)?).ok()?;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": { "namespace": "", "name": "on-demand", "annotations": facts },
            "data": {
                CHAIN: STANDARD.encode(texts.get(CHAIN)?),
                KEY: STANDARD.encode(texts.get(KEY)?),
            },
        });
        let object = Object::from_json(ObjectKind::Secret, &secret.to_string());
        let Ok(Object::Secret(secret)) = object else {
            return None;
        };
        let host: Arc<str> = on_demand_in(&secret)?.into();
        let held = held_in(&secret)?;
        if !held.names.iter().any(|name| **name == *host) {
            return None;
        }
        let id = on_demand_name(&host).text().clone();
        let used_on = texts.get(USED_ON).and_then(|it| it.parse().ok());
        Some(KeptOnDemand {
            held,
            object: Object::OnDemand(Arc::new(OnDemand {
                meta: Meta::new(ObjectKey::from_id(ObjectKind::OnDemand, id)),
                host: (&*host).into(),
                secret,
            })),
            host,
            used_on: used_on.unwrap_or(0),
        })
    }

    /// The name of the Secret of a host: with the host in it, for people, as far as there is room.
    pub(in crate::acme) fn secret_name(host: &str) -> String {
        named("on-demand", host)
    }

    /// The values of a Secret that are written where its certificate was used on a day.
    pub(in crate::acme) fn texts_of_use(day: i64) -> Texts {
        Texts::from([(USED_ON.to_owned(), day.to_string())])
    }

    /// The values of the Secret of a certificate that was just obtained.
    pub(in crate::acme) fn texts(order: &Order, issued: &IssuedChain) -> Texts {
        let facts = &written(order, issued)["metadata"]["annotations"];
        Texts::from([
            (CHAIN.to_owned(), issued.chain_pem.clone()),
            (KEY.to_owned(), issued.expose_key_pem().to_owned()),
            (FACTS.to_owned(), facts.to_string()),
        ])
    }
}

/// The name of a Secret about a host. A long one has a hash in its place.
pub(in crate::acme) fn named(kind: &str, host: &str) -> String {
    let name = format!("{kind}.{host}");
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let hash = blake3::hash(host.as_bytes()).to_hex();
    format!("{kind}.{}", hash.get(..32).unwrap_or_default())
}

/// The day of now, since 1970.
pub(in crate::acme) fn today() -> i64 {
    clock::unix_seconds() / DAY_SECONDS
}

impl ClusterStore {
    /// The Secret of a host as it is found.
    pub(super) async fn look_on_demand(&self, host: &str) -> Result<Found, CallError> {
        let name = KeptOnDemand::secret_name(host);
        let Some(shelved) = self.0.on_demand.get(&name).await? else {
            return Ok(Found::Absent);
        };
        let kept = KeptOnDemand::read(&shelved.texts).filter(|kept| *kept.host == *host);
        Ok(match kept {
            Some(kept) => Found::Ours(shelved.version, Some(kept.held)),
            None if shelved.texts.contains_key(FACTS) => Found::Ours(shelved.version, None),
            None => Found::Foreign,
        })
    }

    /// Keeps the certificate of a host. One that is there is renewed, which is no use of it.
    pub(super) async fn keep_on_demand(
        &self,
        host: &str,
        order: &Order,
        issued: &IssuedChain,
    ) -> io::Result<KeptCertificate> {
        let mut texts = KeptOnDemand::texts(order, issued);
        let kept = KeptOnDemand::read(&texts).ok_or(io::ErrorKind::InvalidData)?;
        let name = KeptOnDemand::secret_name(host);
        for _ in 0..ATTEMPTS_MAX {
            self.lead()?;
            let version = match self.look_on_demand(host).await.map_err(failed)? {
                Found::Absent => {
                    texts.append(&mut KeptOnDemand::texts_of_use(today()));
                    None
                }
                Found::Ours(version, _) => {
                    texts.remove(USED_ON);
                    Some(version)
                }
                Found::Foreign => {
                    let text = format!("somebody else has written Secret {name}");
                    return Err(io::Error::other(text));
                }
            };
            let written = self.0.on_demand.put(&name, version.as_deref(), &texts);
            match written.await {
                Ok(_) => {
                    self.know(&order.id, &kept.held);
                    return Ok(KeptCertificate {
                        id: order.id.clone(),
                        object: None,
                        held: kept.held,
                    });
                }
                Err(CallError::Conflict | CallError::NotFound) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(CallError::Conflict))
    }

    /// Forgets the certificate of a host, without waiting for that.
    pub(in crate::acme::store) fn drop_on_demand_soon(&self, id: &Arc<str>) {
        let Some(host) = on_demand_host(id) else {
            return;
        };
        let (store, name) = (self.clone(), KeptOnDemand::secret_name(host));
        task::spawn_local("acme on demand", async move {
            if let Err(error) = store.drop_on_demand(&name).await {
                // Whoever leads next finds it over again.
                tracing::warn!(secret = name, %error, "stays, although it is over");
            }
        });
    }

    async fn drop_on_demand(&self, name: &str) -> io::Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            self.lead()?;
            let found = self.0.on_demand.get(name).await.map_err(failed)?;
            let Some(found) = found.filter(|it| it.texts.contains_key(FACTS)) else {
                return Ok(());
            };
            match self.0.on_demand.remove(name, &found.version).await {
                Err(CallError::Conflict) => {}
                removed => return removed.map_err(failed),
            }
        }
        Err(failed(CallError::Conflict))
    }
}
