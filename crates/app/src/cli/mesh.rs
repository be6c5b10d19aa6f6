//! Settings of the mesh, as written.

use clap::Args;

/// Settings of what the mesh is, as written.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Mesh")]
pub struct RawMesh {
    /// There is a mesh: proxies are given identities, by which ISTIO_MUTUAL works.
    #[arg(long, env = "MYRIAD_MESH")]
    pub mesh: bool,
    /// The trust domain of identities [default: trustDomain of --mesh-config, or cluster.local].
    #[arg(long, env = "MYRIAD_MESH_TRUST_DOMAIN", value_name = "DOMAIN")]
    pub mesh_trust_domain: Option<String>,
    /// Trust domains whose identities are taken for those of this one [default:
    /// trustDomainAliases of --mesh-config].
    #[arg(
        long,
        env = "MYRIAD_MESH_TRUST_DOMAIN_ALIASES",
        value_delimiter = ',',
        value_name = "DOMAIN,..."
    )]
    pub mesh_trust_domain_aliases: Vec<String>,
}

/// Settings of the authority that signs identities, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Mesh")]
pub struct RawMeshAuthority {
    /// The Secret of the mesh's authority, with the keys of Istio's `cacerts` or of type
    /// kubernetes.io/tls [default: myriad-mesh-ca in the controller's namespace, which is made
    /// where it is not there].
    #[arg(long, env = "MYRIAD_MESH_CA_SECRET", value_name = "NAMESPACE/NAME")]
    pub mesh_ca_secret: Option<String>,
    /// Seconds that an identity holds, 60 to 518400. It is renewed after two thirds of that.
    #[arg(
        long,
        env = "MYRIAD_MESH_CERTIFICATE_LIFETIME",
        default_value_t = 86_400,
        value_name = "SECONDS"
    )]
    pub mesh_certificate_lifetime: u64,
    /// Seconds that every controller tells a new root to proxies before anything is signed with
    /// it, at most 86400.
    #[arg(
        long,
        env = "MYRIAD_MESH_ROOT_OVERLAP",
        default_value_t = 600,
        value_name = "SECONDS"
    )]
    pub mesh_root_overlap: u64,
}
