//! Settings of the mesh: its trust domain, and who signs identities.

use std::time::Duration;

use myriad_pki::{Identity, LIFETIME_MAX, LIFETIME_MIN};
use myriad_translate::mesh_config::MeshConfig;

use super::texts::name_pair;
use crate::cli::mesh::{RawMesh, RawMeshAuthority};

/// The longest time that a root is told before it signs.
const OVERLAP_MAX: Duration = Duration::from_secs(86_400);

/// The Secret of the authority where nobody names another.
const SECRET_NAME: &str = "myriad-mesh-ca";

/// The trust domain where nobody names one.
pub const DEFAULT_TRUST_DOMAIN: &str = "cluster.local";

/// The most aliases of it.
const ALIASES_MAX: usize = 31;

/// The trust domain of identities, and its aliases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomain {
    /// The trust domain.
    pub own: String,
    /// Others that are taken for it.
    pub aliases: Vec<String>,
}

/// The authority that signs identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshAuthority {
    /// Namespace and name of the Secret.
    pub secret: (String, String),
    /// Whether it is made where it is not there.
    pub makes: bool,
    /// How long an identity holds.
    pub lifetime: Duration,
    /// How long a root is told before anything is signed with it.
    pub overlap: Duration,
}

impl TrustDomain {
    /// Reads it; none where there is no mesh.
    pub fn read(
        raw: &RawMesh,
        config: &MeshConfig,
        problems: &mut Vec<String>,
    ) -> Option<TrustDomain> {
        let is_domain = |text: &str| Identity::new(text, "n", "a").is_ok();
        let written = raw.mesh_trust_domain.as_deref();
        let own = written.or(config.trust_domain.as_deref());
        let own = own.unwrap_or(DEFAULT_TRUST_DOMAIN).to_owned();
        if !is_domain(&own) {
            problems.push(format!(
                "--mesh-trust-domain is {own:?}, not 1 to 255 of a-z, 0-9, '.', '-' and '_'"
            ));
        }
        let written = raw.mesh_trust_domain_aliases.iter();
        let mut aliases: Vec<String> = written.filter(|it| !it.is_empty()).cloned().collect();
        if aliases.is_empty() {
            aliases.clone_from(&config.trust_domain_aliases);
        }
        aliases.retain(|it| *it != own);
        for alias in aliases.iter().filter(|it| !is_domain(it)) {
            let problem = format!("--mesh-trust-domain-aliases has {alias:?}, no trust domain");
            problems.push(problem);
        }
        if aliases.len() > ALIASES_MAX {
            let count = aliases.len();
            problems.push(format!(
                "--mesh-trust-domain-aliases has {count} domains, over {ALIASES_MAX}"
            ));
        }
        raw.mesh.then_some(TrustDomain { own, aliases })
    }
}

impl MeshAuthority {
    /// Reads who signs; `namespace` is the controller's own.
    pub fn read(
        raw: &RawMeshAuthority,
        namespace: &str,
        problems: &mut Vec<String>,
    ) -> MeshAuthority {
        let written = raw.mesh_ca_secret.as_ref().filter(|it| !it.is_empty());
        let named = written.and_then(|text| name_pair("--mesh-ca-secret", text, problems));
        let lifetime = Duration::from_secs(raw.mesh_certificate_lifetime);
        if !(LIFETIME_MIN..=LIFETIME_MAX).contains(&lifetime) {
            problems.push(format!(
                "--mesh-certificate-lifetime is {}, not {} to {}",
                raw.mesh_certificate_lifetime,
                LIFETIME_MIN.as_secs(),
                LIFETIME_MAX.as_secs()
            ));
        }
        let overlap = Duration::from_secs(raw.mesh_root_overlap);
        if overlap > OVERLAP_MAX {
            problems.push(format!(
                "--mesh-root-overlap is {}, over {}",
                raw.mesh_root_overlap,
                OVERLAP_MAX.as_secs()
            ));
        }
        let own = || (namespace.to_owned(), SECRET_NAME.to_owned());
        MeshAuthority {
            makes: written.is_none(),
            secret: named.unwrap_or_else(own),
            lifetime,
            overlap,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_translate::mesh_config::MeshConfig;

    use super::{MeshAuthority, TrustDomain};
    use crate::cli::mesh::{RawMesh, RawMeshAuthority};

    fn config() -> MeshConfig {
        MeshConfig {
            trust_domain: Some("old.example".to_owned()),
            trust_domain_aliases: vec!["older.example".to_owned(), "new.example".to_owned()],
            ..MeshConfig::default()
        }
    }

    #[test]
    fn the_trust_domain_is_that_of_the_settings_or_of_istios_or_the_default() {
        let mut problems = Vec::new();
        let mut raw = RawMesh::default();
        assert_eq!(TrustDomain::read(&raw, &config(), &mut problems), None);
        raw.mesh = true;
        let default = TrustDomain::read(&raw, &MeshConfig::default(), &mut problems).unwrap();
        assert_eq!((&*default.own, default.aliases.len()), ("cluster.local", 0));
        let istios = TrustDomain::read(&raw, &config(), &mut problems).unwrap();
        assert_eq!((&*istios.own, istios.aliases.len()), ("old.example", 2));
        raw.mesh_trust_domain = Some("new.example".to_owned());
        let own = TrustDomain::read(&raw, &config(), &mut problems).unwrap();
        assert_eq!(own.own, "new.example");
        assert_eq!(own.aliases, ["older.example"]);
        assert_eq!(problems, [""; 0]);
        raw.mesh_trust_domain = Some("New".to_owned());
        raw.mesh_trust_domain_aliases = vec!["a b".to_owned()];
        TrustDomain::read(&raw, &config(), &mut problems);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn a_secret_that_is_named_is_not_made() {
        let mut problems = Vec::new();
        let mut raw = RawMeshAuthority {
            mesh_ca_secret: None,
            mesh_certificate_lifetime: 3_600,
            mesh_root_overlap: 60,
        };
        let own = MeshAuthority::read(&raw, "myriad", &mut problems);
        assert!(own.makes && own.lifetime == Duration::from_secs(3_600));
        let secret = ("myriad".to_owned(), "myriad-mesh-ca".to_owned());
        assert_eq!(own.secret, secret);
        raw.mesh_ca_secret = Some("istio-system/cacerts".to_owned());
        let named = MeshAuthority::read(&raw, "myriad", &mut problems);
        assert!(!named.makes && named.secret.1 == "cacerts");
        assert_eq!(problems, [""; 0]);
        raw.mesh_ca_secret = Some("cacerts".to_owned());
        raw.mesh_certificate_lifetime = 7 * 86_400;
        raw.mesh_root_overlap = 90_000;
        MeshAuthority::read(&raw, "myriad", &mut problems);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }
}
