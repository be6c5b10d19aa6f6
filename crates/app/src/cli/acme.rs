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
    /// The proof of names: `http-01`, `tls-alpn-01`, `dns-01` or `dns-persist-01`. Wildcards are
    /// proven by `dns-01` beside the first two where --acme-dns-server or --acme-dns-webhook is
    /// given.
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
    /// The server of DNS that takes updates of the zones of names (RFC 2136): an address or a name,
    /// with a port where that is not 53. Needs --acme-dns-key-name and --acme-dns-key-file.
    #[arg(long, env = "MYRIAD_ACME_DNS_SERVER", value_name = "HOST")]
    pub acme_dns_server: Option<String>,
    /// The zone that is updated [default: the one that a record turns out to be in].
    #[arg(long, env = "MYRIAD_ACME_DNS_ZONE", value_name = "NAME")]
    pub acme_dns_zone: Option<String>,
    /// The name of the key that updates are signed with.
    #[arg(long, env = "MYRIAD_ACME_DNS_KEY_NAME", value_name = "NAME")]
    pub acme_dns_key_name: Option<String>,
    /// The file of that key, in base64.
    #[arg(long, env = "MYRIAD_ACME_DNS_KEY_FILE", value_name = "FILE")]
    pub acme_dns_key_file: Option<PathBuf>,
    /// The algorithm of that key: `hmac-sha256` or `hmac-sha512`.
    #[arg(
        long,
        env = "MYRIAD_ACME_DNS_KEY_ALGORITHM",
        default_value = "hmac-sha256",
        value_name = "NAME"
    )]
    pub acme_dns_key_algorithm: String,
    /// The URL of a webhook that sets records by the protocol of cert-manager's solvers, or of the
    /// API server that knows it by --acme-dns-webhook-solver.
    #[arg(long, env = "MYRIAD_ACME_DNS_WEBHOOK", value_name = "URL")]
    pub acme_dns_webhook: Option<String>,
    /// The group and the name of the webhook's solver among those of an API server.
    #[arg(
        long,
        env = "MYRIAD_ACME_DNS_WEBHOOK_SOLVER",
        value_name = "GROUP/SOLVER"
    )]
    pub acme_dns_webhook_solver: Option<String>,
    /// The file of the settings that the webhook is given, in JSON.
    #[arg(long, env = "MYRIAD_ACME_DNS_WEBHOOK_CONFIG", value_name = "FILE")]
    pub acme_dns_webhook_config: Option<PathBuf>,
    /// The file of the token that the webhook is asked with, which is read each time.
    #[arg(long, env = "MYRIAD_ACME_DNS_WEBHOOK_TOKEN_FILE", value_name = "FILE")]
    pub acme_dns_webhook_token_file: Option<PathBuf>,
    /// The port at which the servers of zones are asked whether a record is there, before an
    /// authority looks for it. `off` asks none of them: then names are looked up at the servers of
    /// --resolver alone, and a record counts as there once it is set.
    #[arg(
        long,
        env = "MYRIAD_ACME_DNS_PROOF",
        default_value = "53",
        value_name = "PORT"
    )]
    pub acme_dns_proof: String,
    /// The keys of certificates: `ecdsa-p256`, `rsa-2048` for clients that know nothing else, or
    /// `ecdsa-and-rsa` for a certificate of each.
    #[arg(
        long,
        env = "MYRIAD_ACME_KEY",
        default_value = "ecdsa-p256",
        value_name = "KIND"
    )]
    pub acme_key: String,
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
    /// The list of public suffixes (<https://publicsuffix.org/list/>), by which authorities tell
    /// registered domains. Without one they are told by the shape of names, more strictly.
    #[arg(long, env = "MYRIAD_ACME_SUFFIXES", value_name = "FILE")]
    pub acme_suffixes: Option<PathBuf>,
    /// The longest time in seconds between two looks at when an authority wants a certificate
    /// renewed. Authorities say how often they want to be asked, usually every few hours.
    #[arg(
        long,
        env = "MYRIAD_ACME_LOOK",
        default_value_t = 86_400,
        value_parser = clap::value_parser!(u32).range(1..=86_400),
        value_name = "SECONDS"
    )]
    pub acme_look: u32,
}

/// Settings of certificates that are obtained on demand, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates by ACME")]
pub struct RawOnDemand {
    /// Obtain a certificate at the first handshake of a name that has none, of the issuer
    /// `default`, where this URL answers 200 to `?domain=NAME`.
    #[arg(long, env = "MYRIAD_ACME_ON_DEMAND_ASK", value_name = "URL")]
    pub acme_on_demand_ask: Option<String>,
    /// The most certificates that are obtained so and kept at a time.
    #[arg(
        long,
        env = "MYRIAD_ACME_ON_DEMAND_MAX",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        value_name = "N"
    )]
    pub acme_on_demand_max: u32,
    /// The most new ones for one registered domain in an hour.
    #[arg(
        long,
        env = "MYRIAD_ACME_ON_DEMAND_PER_DOMAIN",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        value_name = "N"
    )]
    pub acme_on_demand_per_domain: u32,
    /// The most questions to that URL in a second.
    #[arg(
        long,
        env = "MYRIAD_ACME_ON_DEMAND_ASKS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000),
        value_name = "N"
    )]
    pub acme_on_demand_asks: u32,
    /// How many days after its last handshake a name is still renewed.
    #[arg(
        long,
        env = "MYRIAD_ACME_ON_DEMAND_IDLE",
        default_value_t = 14,
        value_parser = clap::value_parser!(u32).range(1..=3_650),
        value_name = "DAYS"
    )]
    pub acme_on_demand_idle: u32,
}

/// The setting of what is kept of that in files, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates by ACME")]
pub struct RawAcmeState {
    /// Where accounts, orders and certificates are kept, for the owner of the process alone.
    #[arg(
        long,
        env = "MYRIAD_ACME_STATE_DIR",
        default_value = "/var/lib/myriad/acme",
        value_name = "DIR"
    )]
    pub acme_state_dir: PathBuf,
}

/// Settings of certificates that a controller obtains, beside those of `serve`, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Certificates by ACME")]
pub struct RawClusterAcme {
    /// Obtain certificates in this cluster, also where no other flag says of whom: of the issuers
    /// that objects make. Each flag that does say so implies it.
    #[arg(long, env = "MYRIAD_ACME")]
    pub acme: bool,
    /// Servers of DNS that are asked for authorities, and for names that are to be proven, as
    /// ADDRESS or ADDRESS:PORT [default: those of /etc/resolv.conf].
    #[arg(
        long,
        env = "MYRIAD_RESOLVER",
        value_delimiter = ',',
        value_name = "ADDRESS,..."
    )]
    pub resolver: Vec<String>,
}
