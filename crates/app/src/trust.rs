//! What all replicas of a controller share: the authority that proxies know them by, and the key
//! of versions. The first replica makes both.

use anyhow::Context;
use myriad_base::clock;
use myriad_pki::Authority;
use myriad_source::kubernetes::{CallError, Client, Texts};

use crate::process::random_key;

/// The Secret and the ConfigMap that hold it; the latter has the root alone.
pub const AUTHORITY_NAME: &str = "myriad-ca";

const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
const VERSION_KEY: &str = "version.key";

/// How often a Secret is looked for that somebody else has just created.
const ATTEMPTS_MAX: u32 = 5;

/// The shared trust of a cluster's controllers.
#[derive(Debug)]
pub struct Trust {
    /// Signs the certificates of controllers.
    pub authority: Authority,
    /// The key of versions: equal content has equal versions, whatever replica sealed it.
    pub version_key: VersionKey,
}

/// A key without a way to be printed.
pub struct VersionKey(pub [u8; 32]);

impl std::fmt::Debug for VersionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VersionKey")
    }
}

/// Reads what is shared, or creates it where there is none yet.
///
/// # Errors
/// The API server cannot be asked or refuses, or what is kept cannot be read.
pub async fn provide(client: &Client, namespace: &str) -> anyhow::Result<Trust> {
    for _ in 0..ATTEMPTS_MAX {
        match client.secret(namespace, AUTHORITY_NAME).await {
            Ok(texts) => return read(&texts),
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

/// Publishes the root, for proxies to mount.
///
/// # Errors
/// The API server cannot be asked or refuses.
pub async fn publish(client: &Client, namespace: &str, trust: &Trust) -> Result<(), CallError> {
    let root = trust.authority.certificate_pem().to_owned();
    let texts = Texts::from([(CERTIFICATE.to_owned(), root)]);
    client
        .put_config_map(namespace, AUTHORITY_NAME, &texts)
        .await
}

fn place(namespace: &str) -> String {
    format!("Secret {namespace}/{AUTHORITY_NAME}")
}

fn make() -> anyhow::Result<Texts> {
    let authority = Authority::new("myriad", clock::unix_seconds())?;
    let version_key = random_key()?;
    let hexadecimal = version_key.iter().map(|byte| format!("{byte:02x}"));
    Ok(Texts::from([
        (
            CERTIFICATE.to_owned(),
            authority.certificate_pem().to_owned(),
        ),
        (KEY.to_owned(), authority.expose_key_pem().to_owned()),
        (VERSION_KEY.to_owned(), hexadecimal.collect()),
    ]))
}

fn read(texts: &Texts) -> anyhow::Result<Trust> {
    let text = |key: &str| {
        let text = texts.get(key).map(String::as_str);
        text.with_context(|| format!("Secret {AUTHORITY_NAME} has no {key}"))
    };
    let authority = Authority::from_pem(text(CERTIFICATE)?, text(KEY)?)?;
    let digits = text(VERSION_KEY)?;
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    let key = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let key = key.with_context(|| format!("{VERSION_KEY} is not 64 hexadecimal digits"))?;
    Ok(Trust {
        authority,
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
