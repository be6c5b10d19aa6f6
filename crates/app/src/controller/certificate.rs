//! The certificate that a controller shows to proxies: short-lived, and renewed in time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use myriad_base::clock;
use myriad_pki::Authority;
use rustls::crypto::aws_lc_rs;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// How long a certificate holds. It is renewed after two thirds of that.
const LIFETIME: Duration = Duration::from_secs(24 * 3_600);

/// How often its age is looked at: clocks jump.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The newest certificate.
#[derive(Debug)]
pub(super) struct Renewed {
    names: Vec<String>,
    newest: Mutex<Newest>,
}

/// A certificate, and who signs the next.
#[derive(Clone, Debug)]
struct Newest {
    authority: Arc<Authority>,
    key: Arc<CertifiedKey>,
    until: i64,
}

impl Renewed {
    /// A certificate for these names.
    ///
    /// # Errors
    /// A name that no certificate can have.
    pub(super) fn new(authority: &Authority, names: Vec<String>) -> anyhow::Result<Arc<Renewed>> {
        let first = Newest::issue(Arc::new(copy(authority)?), &names)?;
        Ok(Arc::new(Renewed {
            names,
            newest: Mutex::new(first),
        }))
    }

    /// Renews it whenever it is time, for ever.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.renew_if_due() {
                tracing::error!("the controller's certificate is not renewed: {error:#}");
            }
        }
    }

    /// From now on this authority signs; connections that there are stay.
    ///
    /// # Errors
    /// It cannot sign; the former certificate stays.
    pub(super) fn sign_with(&self, authority: &Authority) -> anyhow::Result<()> {
        let known = self.lock().authority.certificate().clone();
        if known == *authority.certificate() {
            return Ok(());
        }
        let next = Newest::issue(Arc::new(copy(authority)?), &self.names)?;
        *self.lock() = next;
        Ok(())
    }

    fn renew_if_due(&self) -> anyhow::Result<()> {
        let Newest {
            authority, until, ..
        } = self.lock().clone();
        let left = until - clock::unix_seconds();
        // One that holds for longer than a new one would was made before the clock was put back,
        // and to those who know the right time it may not hold yet.
        let lifetime = i64::try_from(LIFETIME.as_secs())?;
        if (lifetime / 3..=lifetime).contains(&left) {
            return Ok(());
        }
        let next = Newest::issue(authority, &self.names)?;
        *self.lock() = next;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.lock().key.clone())
    }
}

impl Newest {
    fn issue(authority: Arc<Authority>, names: &[String]) -> anyhow::Result<Newest> {
        let leaf = authority.issue(names, clock::unix_seconds(), LIFETIME)?;
        let key = CertifiedKey::from_der(leaf.chain, leaf.key, &aws_lc_rs::default_provider())?;
        Ok(Newest {
            authority,
            key: Arc::new(key),
            until: leaf.until,
        })
    }
}

fn copy(authority: &Authority) -> anyhow::Result<Authority> {
    let (pem, key) = (authority.certificate_pem(), authority.expose_key_pem());
    Ok(Authority::from_pem(pem, key)?)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use myriad_base::clock;
    use myriad_pki::Authority;

    use super::Renewed;

    #[test]
    fn another_authority_signs_at_once_and_the_same_one_not_again() {
        let authority = || Authority::new("myriad", clock::unix_seconds()).unwrap();
        let (first, second) = (authority(), authority());
        let renewed = Renewed::new(&first, vec!["localhost".to_owned()]).unwrap();
        let shown = || renewed.lock().key.clone();
        let before = shown();
        renewed.sign_with(&first).unwrap();
        renewed.renew_if_due().unwrap();
        assert!(Arc::ptr_eq(&before, &shown()));
        renewed.sign_with(&second).unwrap();
        assert!(!Arc::ptr_eq(&before, &shown()));
        renewed.lock().until = 0;
        let before = shown();
        renewed.renew_if_due().unwrap();
        assert!(!Arc::ptr_eq(&before, &shown()));
        assert_eq!(renewed.lock().authority.certificate(), second.certificate());
    }
}
