//! The state that all replicas of a controller share: the authorities that proxies know them by,
//! and the key of versions. The first replica makes them; each of them sees to it that one
//! authority follows another in time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use myriad_base::clock;
use myriad_pki::Roots;
use myriad_source::kubernetes::{CallError, Client, Texts};
use tokio::sync::watch;

use super::certificate::Renewed;
use crate::process::random_key;

/// The Secret and the ConfigMap that hold it; the latter has the roots alone.
pub(super) const AUTHORITY_NAME: &str = "myriad-ca";

/// The key of the bundle that proxies mount: all roots to be trusted.
const BUNDLE: &str = "ca.crt";
const VERSION_KEY: &str = "version.key";

/// How often a Secret is read again that somebody else has just created or written.
const ATTEMPTS_MAX: u32 = 5;

/// How often it is looked whether something is due, and whether the roots are still published.
const LOOK_INTERVAL: Duration = Duration::from_secs(600);

/// The shared trust of a cluster's controllers.
#[derive(Debug)]
pub(super) struct Trust {
    /// The authorities.
    pub roots: Roots,
    /// The key of versions: equal content has equal versions, whatever replica sealed it.
    pub version_key: VersionKey,
}

/// A key without a way to be printed.
pub(super) struct VersionKey(pub [u8; 32]);

impl std::fmt::Debug for VersionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VersionKey")
    }
}

/// Reads what is shared, or creates it where there is none yet.
///
/// # Errors
/// The API server cannot be asked or refuses, or what is kept cannot be read.
pub(super) async fn provide(client: &Client, namespace: &str) -> anyhow::Result<Trust> {
    for _ in 0..ATTEMPTS_MAX {
        match client.secret(namespace, AUTHORITY_NAME).await {
            Ok(secret) => return read(&secret.texts),
            Err(CallError::NotFound) => {}
            Err(error) => return Err(error).with_context(|| place(namespace)),
        }
        let texts = make()?;
        match client
            .create_secret(namespace, AUTHORITY_NAME, &texts)
            .await
        {
            Ok(()) => return read(&texts),
            // Another replica was first; what it made holds.
            Err(CallError::Conflict) => {}
            Err(error) => return Err(error).with_context(|| place(namespace)),
        }
    }
    anyhow::bail!("{} comes and goes", place(namespace))
}

/// Publishes the roots, for proxies to mount.
///
/// # Errors
/// The API server cannot be asked or refuses.
pub(super) async fn publish(
    client: &Client,
    namespace: &str,
    roots: &Roots,
) -> Result<(), CallError> {
    publish_bundle(client, namespace, AUTHORITY_NAME, &roots.bundle()).await
}

/// Publishes roots, as PEM, in a ConfigMap of this name.
///
/// # Errors
/// The API server cannot be asked or refuses.
pub(super) async fn publish_bundle(
    client: &Client,
    namespace: &str,
    name: &str,
    bundle: &str,
) -> Result<(), CallError> {
    let texts = Texts::from([(BUNDLE.to_owned(), bundle.to_owned())]);
    client.put_config_map(namespace, name, &texts).await
}

/// Publishes them in all namespaces that want them. A ConfigMap of this name elsewhere may be that
/// of another gateway, and is left alone.
///
/// # Errors
/// The API server cannot be asked or refuses; the first refusal, once all have been tried.
pub(super) async fn publish_everywhere(
    client: &Client,
    name: &str,
    bundle: &str,
    wanted: &BTreeSet<Box<str>>,
) -> Result<(), CallError> {
    let texts = Texts::from([(BUNDLE.to_owned(), bundle.to_owned())]);
    let known = client.config_maps_named(name, &texts).await?;
    let stale = wanted.iter().filter(|it| known.get(&***it) != Some(&true));
    let mut outcome = Ok(());
    for namespace in stale {
        // One that ends takes nothing more, and keeps nobody else waiting.
        let published = publish_bundle(client, namespace, name, bundle).await;
        outcome = outcome.and(published);
    }
    outcome
}

/// Lets one authority follow another when it is time, and the certificate with it, for ever; all
/// roots to be trusted are told, as PEM.
pub(super) async fn keep(
    client: Client,
    namespace: String,
    certificate: Arc<Renewed>,
    bundle: watch::Sender<String>,
) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let look = async {
            let roots = advance(&client, &namespace).await?;
            let newest = roots.bundle();
            bundle.send_if_modified(|known| {
                let is_new = *known != newest;
                *known = newest;
                is_new
            });
            certificate.sign_with(roots.current())
        };
        if let Err(error) = look.await {
            tracing::warn!("the authority of the cluster is not looked after: {error:#}");
        }
    }
}

/// Publishes the roots, and does the steps that are due. Whoever is first does them; the others
/// find them done.
async fn advance(client: &Client, namespace: &str) -> anyhow::Result<Roots> {
    for _ in 0..ATTEMPTS_MAX {
        let secret = client.secret(namespace, AUTHORITY_NAME).await;
        let secret = secret.with_context(|| place(namespace))?;
        let mut roots = Roots::from_texts(&secret.texts).with_context(|| place(namespace))?;
        match publish(client, namespace, &roots).await {
            Err(CallError::Conflict) => continue,
            published => published.context("the roots cannot be published")?,
        }
        let Some(step) = roots.step(clock::unix_seconds())? else {
            return Ok(roots);
        };
        let mut texts = secret.texts.clone();
        roots.expose_into(&mut texts);
        let written = client.update_secret(namespace, AUTHORITY_NAME, &secret, &texts);
        match written.await {
            Ok(()) => tracing::info!(?step, "the authority of the cluster is being replaced"),
            Err(CallError::Conflict) => {}
            Err(error) => return Err(error).with_context(|| place(namespace)),
        }
    }
    anyhow::bail!("{} is written by others all the time", place(namespace))
}

fn place(namespace: &str) -> String {
    format!("Secret {namespace}/{AUTHORITY_NAME}")
}

fn make() -> anyhow::Result<Texts> {
    let version_key = random_key()?;
    let hexadecimal = version_key.iter().map(|byte| format!("{byte:02x}"));
    let mut texts = Texts::from([(VERSION_KEY.to_owned(), hexadecimal.collect())]);
    Roots::new(clock::unix_seconds())?.expose_into(&mut texts);
    Ok(texts)
}

fn read(texts: &Texts) -> anyhow::Result<Trust> {
    let roots = Roots::from_texts(texts).with_context(|| format!("Secret {AUTHORITY_NAME}"))?;
    let digits = texts.get(VERSION_KEY);
    let digits = digits.with_context(|| format!("Secret {AUTHORITY_NAME} has no {VERSION_KEY}"))?;
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    let key = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let key = key.with_context(|| format!("{VERSION_KEY} is not 64 hexadecimal digits"))?;
    Ok(Trust {
        roots,
        version_key: VersionKey(key),
    })
}

#[cfg(test)]
mod tests {
    use super::{VERSION_KEY, make, read};

    #[test]
    fn what_was_made_is_read_and_anything_else_is_not() {
        let mut texts = make().unwrap();
        let trust = read(&texts).unwrap();
        assert_ne!(trust.version_key.0, [0; 32]);
        assert!(!format!("{trust:?}").contains(&texts[VERSION_KEY]));
        texts.insert(VERSION_KEY.to_owned(), "zz".repeat(32));
        assert!(read(&texts).is_err());
        texts.remove(VERSION_KEY);
        assert!(read(&texts).is_err());
    }
}
