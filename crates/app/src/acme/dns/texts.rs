//! Texts of records, for whoever decides by what the owner of a zone says there.

use std::time::Duration;

use myriad_base::metrics::Metrics;
use myriad_pki::acme::StepTrouble;
use myriad_proxy::{NameSettings, Names};

use super::zone::Finder;

/// How long a look may take in all: through aliases, and at servers that do not answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Finds texts of records at the servers of their zones. What is not there is never kept.
pub struct TextFinder {
    looking: Finder,
    /// The same over TCP, which knows nothing that was heard over UDP.
    confirming: Finder,
}

impl TextFinder {
    /// Asks the servers of zones at a port; those of the settings, or the system's, where there is
    /// none.
    pub fn new(names: NameSettings, port: Option<u16>) -> TextFinder {
        let recursors = names.servers.clone();
        // Counted by nobody: those of endpoints are others.
        let names = Names::new(names, &Metrics::new());
        TextFinder {
            looking: Finder::new(names.clone(), recursors.clone(), port),
            confirming: Finder::new(names, recursors, port).over_tcp(),
        }
    }

    /// The texts of a name, behind its aliases.
    ///
    /// # Errors
    /// Words about why nobody says.
    pub async fn texts(&self, name: &str) -> Result<Vec<Box<[u8]>>, String> {
        texts(&self.looking, name).await
    }

    /// The same, and nothing of it is heard over UDP: for what others would like to forge.
    ///
    /// # Errors
    /// Words about why nobody says.
    pub async fn confirmed_texts(&self, name: &str) -> Result<Vec<Box<[u8]>>, String> {
        let found = texts(&self.confirming, name).await;
        found.map_err(|words| format!("over TCP: {words}"))
    }
}

async fn texts(finder: &Finder, name: &str) -> Result<Vec<Box<[u8]>>, String> {
    let looking = async {
        let spot = finder.find(name).await?;
        finder.texts(&spot).await
    };
    match tokio::time::timeout(TIMEOUT, looking).await {
        Ok(Ok(texts)) => Ok(texts),
        Ok(Err(StepTrouble::Unproven(words, _))) => Err(words),
        Ok(Err(other)) => Err(format!("{other:?}")),
        Err(_) => Err(format!("{name} is not found in DNS in 15 s")),
    }
}
