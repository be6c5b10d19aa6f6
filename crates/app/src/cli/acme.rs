//! Settings of certificates that are obtained by ACME, as written.

use std::path::PathBuf;

use clap::Args;

/// Settings of the issuer `default`, as written.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Certificates by ACME")]
pub struct RawAcme {
    /// Obtain certificates for objects with the annotation `myriad.dev/issuer: default`, and let
    /// the authority write to this address.
    #[arg(long, env = "MYRIAD_ACME_EMAIL", value_name = "ADDRESS")]
    pub acme_email: Option<String>,
    /// Directories of authorities, the first that is not in trouble first: URLs, `letsencrypt` or
    /// `letsencrypt-staging` [default: letsencrypt, where --acme-email is given].
    #[arg(
        long,
        env = "MYRIAD_ACME_DIRECTORY",
        value_delimiter = ',',
        value_name = "URL,..."
    )]
    pub acme_directory: Vec<String>,
    /// The roots that directories are verified by, as PEM, in place of the system's: for an
    /// authority of one's own.
    #[arg(long, env = "MYRIAD_ACME_CA", value_name = "FILE")]
    pub acme_ca: Option<PathBuf>,
    /// The proof of names: `http-01` or `tls-alpn-01`.
    #[arg(
        long,
        env = "MYRIAD_ACME_CHALLENGE",
        default_value = "http-01",
        value_name = "KIND"
    )]
    pub acme_challenge: String,
    /// The profile of certificates, of those that the authority offers, such as `shortlived`.
    #[arg(long, env = "MYRIAD_ACME_PROFILE", value_name = "NAME")]
    pub acme_profile: Option<String>,
    /// The name of the key that binds the account to one elsewhere; needs --acme-eab-key-file.
    #[arg(long, env = "MYRIAD_ACME_EAB_KEY_ID", value_name = "NAME")]
    pub acme_eab_key_id: Option<String>,
    /// The file of that key, in base64url.
    #[arg(long, env = "MYRIAD_ACME_EAB_KEY_FILE", value_name = "FILE")]
    pub acme_eab_key_file: Option<PathBuf>,
    /// The port at which names are asked over HTTP whether they lead here, before an authority is
    /// asked for anything: where it will ask itself. `off` asks this process alone.
    #[arg(
        long,
        env = "MYRIAD_ACME_PROOF",
        default_value = "80",
        value_name = "PORT"
    )]
    pub acme_proof: String,
    /// The most new orders at one authority in three hours.
    #[arg(
        long,
        env = "MYRIAD_ACME_ORDERS",
        default_value_t = 300,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000),
        value_name = "N"
    )]
    pub acme_orders: u32,
    /// The most new orders for one registered domain in a week.
    #[arg(
        long,
        env = "MYRIAD_ACME_ORDERS_PER_DOMAIN",
        default_value_t = 50,
        value_parser = clap::value_parser!(u32).range(1..=10_000_000),
        value_name = "N"
    )]
    pub acme_orders_per_domain: u32,
    /// Where accounts, orders and certificates are kept, for the owner of the process alone.
    #[arg(
        long,
        env = "MYRIAD_ACME_STATE_DIR",
        default_value = "/var/lib/myriad/acme",
        value_name = "DIR"
    )]
    pub acme_state_dir: PathBuf,
}
