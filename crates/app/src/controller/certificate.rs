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
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// The newest certificate.
#[derive(Debug)]
pub struct Renewed {
    authority: Authority,
    names: Vec<String>,
    newest: Mutex<(Arc<CertifiedKey>, i64)>,
}

impl Renewed {
    /// A certificate for these names.
    ///
    /// # Errors
    /// A name that no certificate can have.
    pub fn new(authority: Authority, names: Vec<String>) -> anyhow::Result<Arc<Renewed>> {
        let first = issue(&authority, &names)?;
        Ok(Arc::new(Renewed {
            authority,
            names,
            newest: Mutex::new(first),
        }))
    }

    /// Renews it whenever it is time, for ever.
    pub async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            if let Err(error) = self.renew_if_due() {
                tracing::error!("the controller's certificate is not renewed: {error:#}");
            }
        }
    }

    fn renew_if_due(&self) -> anyhow::Result<()> {
        let until = self.lock().1;
        let left = until - clock::unix_seconds();
        if left > i64::try_from(LIFETIME.as_secs() / 3)? {
            return Ok(());
        }
        let next = issue(&self.authority, &self.names)?;
        *self.lock() = next;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Arc<CertifiedKey>, i64)> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.lock().0.clone())
    }
}

fn issue(authority: &Authority, names: &[String]) -> anyhow::Result<(Arc<CertifiedKey>, i64)> {
    let leaf = authority.issue(names, clock::unix_seconds(), LIFETIME)?;
    let key = CertifiedKey::from_der(leaf.chain, leaf.key, &aws_lc_rs::default_provider())?;
    Ok((Arc::new(key), leaf.until))
}
