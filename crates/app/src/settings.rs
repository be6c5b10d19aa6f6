//! From settings as written to settings as meant; all problems are reported, not the first.

mod acme;
mod address;
mod bounds;
mod captures;
mod console;
mod deployments;
mod endpoints;
mod engine;
mod history;
mod hold;
mod introductions;
mod limits;
mod listeners;
mod memory;
mod mesh;
mod names;
mod requests;
mod sharing;
mod sidecar;
mod texts;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use myriad_admin::Hosts;
use myriad_api::ObjectKey;
use myriad_base::hold::HoldLimits;
use myriad_base::metrics::Metrics;
use myriad_model::{Extent, Reach};
use myriad_translate::mesh_config::MeshConfig;
use myriad_translate::{Bounds, GatewayCredentials, GatewayPorts, Hsts, MAIN, Tenants};

use crate::cli::endpoints::RawEndpoints;
use crate::cli::{RawController, RawMeaning, RawProxy, RawServe, Watching};
use crate::gateways::{self, Account, Gateways};
use crate::history::HistorySettings;
use crate::mesh as mesh_file;
use crate::otlp::Otlp;
use crate::problems;
use crate::tenants::{self, Followed};
use sharing::Sharing;

use address::address;
use texts::{config_map, labels, name_pair, ranges};

pub use acme::{AcmeSettings, ISSUER, OnDemandSettings};
pub use captures::Captures;
pub use console::{ConsoleSettings, token as console_token};
pub use deployments::{GatewayTemplate, MetadataTemplate, NetworkPolicyTemplate, ServiceTemplate};
pub use listeners::Listeners;
pub use mesh::{DEFAULT_TRUST_DOMAIN, MeshAuthority, TrustDomain};
pub use requests::AccessLog;
pub use sharing::ProofSettings;
pub use sidecar::{Injection, Probes};
pub use traffic::Traffic;

/// Settings of `serve`.
#[derive(Clone, Debug)]
pub struct Serve {
    /// The directories and files.
    pub paths: Vec<PathBuf>,
    /// The addresses of listeners.
    pub listeners: Listeners,
    /// The address of the admin pages.
    pub admin: SocketAddr,
    /// How much of the past is kept; none where nothing is.
    pub history: Option<HistorySettings>,
    /// The names by which admin pages are called, beside addresses.
    pub admin_hosts: Hosts,
    /// The console, where it is asked for.
    pub console: Option<ConsoleSettings>,
    /// The collector of metrics, if there is one.
    pub otlp: Option<Otlp>,
    /// How connections are served.
    pub traffic: Traffic,
    /// How objects are read.
    pub meaning: Meaning,
    /// How certificates are obtained.
    pub acme: AcmeSettings,
    /// How hosts are proven; none where they are not.
    pub proof: Option<ProofSettings>,
}

/// Settings of `controller`.
#[derive(Clone, Debug)]
pub struct Controller {
    /// The address that proxies connect to.
    pub sync: SocketAddr,
    /// Names by which they do.
    pub sync_hosts: Vec<String>,
    /// Which view the proxies of a service account see, by its namespace and name.
    pub proxy_accounts: BTreeMap<Account, Arc<str>>,
    /// The controller's own namespace.
    pub namespace: String,
    /// Namespace and name of the proxies' Service.
    pub publish_service: Option<(String, String)>,
    /// The namespaces that are watched; empty for all.
    pub namespaces: Vec<String>,
    /// Whether Istio's kinds are watched where the cluster has them.
    pub watches_istio: bool,
    /// Whether the kinds of Gateway API are watched where the cluster has them.
    pub watches_gateway_api: bool,
    /// Whether ConfigMaps are watched, which Ingresses may name.
    pub watches_config_maps: bool,
    /// Whether Secrets that may hold anything are watched, beside those of certificates.
    pub watches_generic_secrets: bool,
    /// The authority that signs identities of the mesh.
    pub authority: MeshAuthority,
    /// Whether the keys of session tickets are made here for the proxies.
    pub keeps_tickets: bool,
    /// When much that is missing is held.
    pub hold: HoldLimits,
    /// How long the API server may not answer.
    pub lost_after: Duration,
    /// The addresses of listeners, on every proxy.
    pub listeners: Listeners,
    /// Which Pods get a proxy on their way into the cluster; none if none do.
    pub injection: Option<Injection>,
    /// How the proxies of single Gateways are deployed; none where they are not.
    pub gateway_template: Option<GatewayTemplate>,
    /// Whether Ingresses are annotated that are served.
    pub annotates_live: bool,
    /// How certificates are obtained; none where they are not.
    pub acme: Option<AcmeSettings>,
    /// How hosts are proven; none where they are not.
    pub proof: Option<ProofSettings>,
    /// The servers of DNS that are asked for that; those of the system where there is none.
    pub resolvers: Vec<SocketAddr>,
    /// The address of the admin pages.
    pub admin: SocketAddr,
    /// How much of the past is kept; none where nothing is.
    pub history: Option<HistorySettings>,
    /// The names by which admin pages are called, beside addresses.
    pub admin_hosts: Hosts,
    /// The console, where it is asked for.
    pub console: Option<ConsoleSettings>,
    /// The collector of metrics, if there is one.
    pub otlp: Option<Otlp>,
    /// How objects are read.
    pub meaning: Meaning,
}

/// Settings of `proxy`.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Host and port of the controllers.
    pub controller: (String, u16),
    /// The file of the token.
    pub token_file: PathBuf,
    /// The file of the roots.
    pub ca_file: PathBuf,
    /// The directory of the last good snapshot.
    pub state_dir: PathBuf,
    /// The newest schema of resources that is understood.
    pub schema_max: u32,
    /// Whether an identity of the mesh is wanted.
    pub wants_identity: bool,
    /// When much that the controller does not have any more is held.
    pub hold: HoldLimits,
    /// The checks that a sidecar answers to those outside of the mesh; `None` if it answers none.
    pub probes: Option<Probes>,
    /// The address of the admin pages.
    pub admin: SocketAddr,
    /// The names by which admin pages are called, beside addresses.
    pub admin_hosts: Hosts,
    /// The console, where it is asked for.
    pub console: Option<ConsoleSettings>,
    /// The collector of metrics, if there is one.
    pub otlp: Option<Otlp>,
    /// How connections are served.
    pub traffic: Traffic,
}

/// Settings that decide what objects mean.
#[derive(Clone, Debug)]
pub struct Meaning {
    /// The ingress class that is served.
    pub ingress_class: String,
    /// The controller that an IngressClass names to be served.
    pub controller_class: String,
    /// The controller that a GatewayClass names to be served.
    pub gateway_controller: String,
    /// Namespace and Secret of the default certificate.
    pub default_certificate: Option<(String, String)>,
    /// Annotations that are ignored on request.
    pub ignore_annotations: BTreeSet<String>,
    /// The ConfigMap of an ingress-nginx that holds for all Ingresses.
    pub nginx_config_map: Option<ObjectKey>,
    /// The `Strict-Transport-Security` that browsers are sent where no object sets one.
    pub hsts: Option<Hsts>,
    /// Whether Ingresses without a class are served.
    pub serves_classless: bool,
    /// The namespaces that have a host.
    pub sharing: Sharing,
    /// Namespaces whose objects without host take effect; none means all.
    pub catch_all_namespaces: Option<BTreeSet<String>>,
    /// Namespaces whose default Gateways take routes of all.
    pub default_gateway_namespaces: BTreeSet<String>,
    /// Labels of the gateway's workload.
    pub gateway_labels: BTreeMap<String, String>,
    /// The namespace of the gateway's workload.
    pub gateway_namespace: String,
    /// Gateways beside that one.
    pub gateways: Gateways,
    /// Istio's mesh settings.
    pub mesh: MeshConfig,
    /// The trust domain of identities; `None` where there is no mesh.
    pub trust_domain: Option<TrustDomain>,
    /// The end of the full names of Services.
    pub cluster_domain: String,
    /// Whether header fields with underscores in their names are passed on.
    pub passes_underscores: bool,
    /// The ports that Gateways may have listeners on.
    pub gateway_ports: GatewayPorts,
    /// The addresses that endpoints may have.
    pub endpoints: Reach,
    /// The bounds of what one namespace may make proxies hold.
    pub bounds: Bounds,
    /// The namespaces with hosts or bounds of their own.
    pub tenants: Tenants,
    /// The file that says so.
    pub tenants_file: Option<PathBuf>,
    /// The part of the control thread's time that one namespace may have, in percent.
    pub control_share: u32,
    /// The most different regexes of one host.
    pub regexes_per_host: usize,
}

/// The problems of a set of settings, each as one short line.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct SettingsError(Vec<String>);

/// The port in redirects where the listeners are behind a Service.
const HTTPS_PORT: u16 = 443;

impl Serve {
    /// Checks settings.
    ///
    /// # Errors
    /// All problems at once, each naming its setting.
    pub fn check(raw: &RawServe) -> Result<Serve, SettingsError> {
        let mut problems = Vec::new();
        let mut settings = Serve {
            paths: raw.paths.clone(),
            listeners: Listeners::read(&raw.listeners, &mut problems),
            admin: address("--admin", &raw.process.admin, &mut problems),
            history: history::read(&raw.history, &mut problems),
            admin_hosts: Hosts::new(raw.process.admin_hosts.iter().cloned()),
            console: console::read(&raw.process, false, &mut problems),
            otlp: None,
            traffic: Traffic::read(&raw.traffic, &mut problems),
            meaning: Meaning::read(&raw.meaning, &mut problems),
            acme: AcmeSettings {
                on_demand: acme::on_demand(&raw.on_demand, &mut problems),
                ..acme::read(&raw.acme, &raw.acme_state.acme_state_dir, &mut problems)
            },
            proof: sharing::proofs(
                &raw.meaning.sharing,
                &raw.acme,
                &raw.proof_file.host_proof_file,
            ),
        };
        let access_log = Some(&settings.traffic.access_log);
        settings.otlp = requests::otlp(&raw.process.otlp, access_log, &mut problems);
        let own = [settings.admin.port()];
        settings.meaning.gateway_ports.except.extend(own);
        // A directory is written by who runs the process, beside what it leads to.
        let endpoints = endpoints::read(&raw.endpoints, Extent::Everywhere, &mut problems);
        settings.traffic.names.border.endpoints = endpoints.clone();
        settings.meaning.endpoints = endpoints;
        let edge = &settings.meaning.mesh.edge;
        settings.traffic.follow(&raw.traffic, edge);
        if raw.meaning.mesh.mesh {
            let problem = "--mesh is for a controller and its proxies: nobody signs here";
            problems.push(problem.to_owned());
        }
        if raw.meaning.gateways.is_some() {
            let problem = "--gateways is for a controller: this process is one gateway";
            problems.push(problem.to_owned());
        }
        all_or(problems, settings)
    }
}

impl Controller {
    /// Checks settings.
    ///
    /// # Errors
    /// All problems at once, each naming its setting.
    pub fn check(raw: &RawController) -> Result<Controller, SettingsError> {
        let mut problems = Vec::new();
        let mut listeners = Listeners::read(&raw.listeners, &mut problems);
        listeners.redirect_port.get_or_insert(HTTPS_PORT);
        let mut meaning = Meaning::read(&raw.meaning, &mut problems);
        meaning.serves_classless = false;
        // What is wrong with them is told above.
        meaning.bounds = bounds::read(&raw.meaning.bounds, Bounds::of_tenants(), &mut Vec::new());
        if raw.meaning.catch_all_namespaces.is_none() {
            meaning.catch_all_namespaces = Some(BTreeSet::new());
        }
        let credentials = &mut meaning.sharing.credentials;
        credentials.get_or_insert(GatewayCredentials::Named);
        meaning.endpoints = endpoints::read(&raw.endpoints, Extent::Elsewhere, &mut problems);
        let mut proxy_accounts = meaning.gateways.accounts.clone();
        for text in &raw.proxy_accounts {
            let Some(account) = name_pair("--proxy-accounts", text, &mut problems) else {
                continue;
            };
            // What an account may see must not depend on which of two settings is read last.
            let before = proxy_accounts.insert(account, MAIN.into());
            if before.is_some_and(|view| *view != *MAIN) {
                problems.push(format!("--proxy-accounts has {text:?}, as --gateways has"));
            }
        }
        let mut settings = Controller {
            sync: address("--sync", &raw.sync, &mut problems),
            sync_hosts: raw.sync_hosts.clone(),
            proxy_accounts,
            namespace: raw.namespace.clone(),
            publish_service: raw
                .publish_service
                .as_ref()
                .and_then(|text| name_pair("--publish-service", text, &mut problems)),
            namespaces: raw.namespaces.clone(),
            watches_istio: raw.istio == Watching::Auto,
            watches_gateway_api: raw.gateway_api == Watching::Auto,
            watches_config_maps: raw.watch_configmaps,
            watches_generic_secrets: raw.secrets.are_all(),
            authority: MeshAuthority::read(&raw.authority, &raw.namespace, &mut problems),
            keeps_tickets: raw.tickets.keep_ticket_keys,
            hold: hold::read(&raw.hold),
            lost_after: Duration::from_secs(raw.contact.lost_after.into()),
            listeners,
            injection: Injection::read(&raw.injection, raw.meaning.mesh.mesh, &mut problems),
            gateway_template: GatewayTemplate::read(&raw.deployments, &mut problems),
            annotates_live: raw.deployments.live_annotations,
            acme: acme::of_cluster(
                (&raw.acme, &raw.on_demand),
                &raw.cluster_acme,
                &mut problems,
            ),
            proof: sharing::proofs(&raw.meaning.sharing, &raw.acme, Path::new("")),
            resolvers: names::servers(&raw.cluster_acme.resolver, &mut problems),
            admin: address("--admin", &raw.process.admin, &mut problems),
            history: history::read(&raw.history, &mut problems),
            admin_hosts: Hosts::new(raw.process.admin_hosts.iter().cloned()),
            console: console::read(&raw.process, raw.console.console_reviews, &mut problems),
            otlp: requests::otlp(&raw.process.otlp, None, &mut problems),
            meaning,
        };
        let rule = settings.meaning.mesh.edge.paths;
        if let Some(injection) = &mut settings.injection {
            injection.sidecar.path_normalization = rule.map(|rule| rule.as_str().into());
        }
        let own = [settings.admin.port(), settings.sync.port()];
        settings.meaning.gateway_ports.except.extend(own);
        all_or(problems, settings)
    }
}

impl Proxy {
    /// Checks settings.
    ///
    /// # Errors
    /// All problems at once, each naming its setting.
    pub fn check(raw: &RawProxy) -> Result<Proxy, SettingsError> {
        let mut problems = Vec::new();
        let parts = raw.controller.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        if parts.as_ref().is_none_or(|(host, _)| host.is_empty()) {
            let text = &raw.controller;
            problems.push(format!("--controller is {text:?}, not HOST:PORT"));
        }
        let mut traffic = Traffic::read(&raw.traffic, &mut problems);
        // What a sidecar reaches, its workload reaches without it.
        let extent = match traffic.captures.sockets.is_empty() {
            true => Extent::Elsewhere,
            false => Extent::Everywhere,
        };
        traffic.names.border.endpoints = endpoints::read(&raw.endpoints, extent, &mut problems);
        let settings = Proxy {
            controller: parts.unwrap_or_default(),
            token_file: raw.token_file.clone(),
            ca_file: raw.ca_file.clone(),
            state_dir: raw.state_dir.clone(),
            schema_max: raw.schema_max,
            wants_identity: raw.mesh,
            hold: hold::read(&raw.hold),
            probes: Probes::read(&raw.probes, &mut problems),
            admin: address("--admin", &raw.process.admin, &mut problems),
            admin_hosts: Hosts::new(raw.process.admin_hosts.iter().cloned()),
            console: console::read(&raw.process, false, &mut problems),
            otlp: requests::otlp(&raw.process.otlp, Some(&traffic.access_log), &mut problems),
            traffic,
        };
        all_or(problems, settings)
    }
}

impl Meaning {
    /// The file of tenants as it is from now on; `None` where no setting names one.
    ///
    /// # Errors
    /// Signals cannot be listened to.
    pub fn tenants_followed(&self, metrics: &Metrics) -> io::Result<Option<Followed>> {
        Followed::of(self.tenants_file.clone(), &self.tenants, metrics)
    }

    /// Checks settings of commands that read files and serve nothing.
    ///
    /// # Errors
    /// All problems at once, each naming its setting.
    pub fn check(raw: &RawMeaning, endpoints: &RawEndpoints) -> Result<Meaning, SettingsError> {
        let mut problems = Vec::new();
        let mut meaning = Meaning::read(raw, &mut problems);
        // As `serve` reads them, which may be served from the same files.
        meaning.endpoints = endpoints::read(endpoints, Extent::Everywhere, &mut problems);
        all_or(problems, meaning)
    }

    fn read(raw: &RawMeaning, problems: &mut Vec<String>) -> Meaning {
        let default_certificate = raw.default_certificate.as_ref();
        let default_certificate =
            default_certificate.and_then(|text| name_pair("--default-certificate", text, problems));
        if raw.controller_class.is_empty() {
            problems.push("--controller-class is empty".to_owned());
        }
        if raw.ingress_class.is_empty() {
            problems.push("--ingress-class is empty".to_owned());
        }
        if raw.gateway_controller.is_empty() {
            problems.push("--gateway-controller is empty".to_owned());
        }
        let named = raw.catch_all_namespaces.as_ref();
        let named = named.filter(|names| names.iter().all(|name| name != "*"));
        let named = named.map(|names| names.iter().filter(|name| !name.is_empty()));
        let defaults = raw.default_gateway_namespaces.iter();
        let defaults = defaults.filter(|name| !name.is_empty());
        let mesh = raw.mesh_config.as_ref();
        let mesh = mesh.map(|path| mesh_file::read(path, problems));
        let mut meaning = Meaning {
            ingress_class: raw.ingress_class.clone(),
            controller_class: raw.controller_class.clone(),
            gateway_controller: raw.gateway_controller.clone(),
            default_certificate,
            ignore_annotations: raw.ignore_annotations.iter().cloned().collect(),
            nginx_config_map: config_map(raw.nginx_configmap.as_deref(), problems),
            hsts: raw.hsts,
            serves_classless: true,
            sharing: sharing::read(&raw.sharing, problems),
            catch_all_namespaces: named.map(|names| names.cloned().collect()),
            default_gateway_namespaces: defaults.cloned().collect(),
            gateway_labels: labels(&raw.gateway_labels, problems),
            gateway_namespace: raw.gateway_namespace.clone(),
            gateways: Gateways::default(),
            mesh: mesh.unwrap_or_default(),
            trust_domain: None,
            cluster_domain: raw.cluster_domain.trim_end_matches('.').to_owned(),
            passes_underscores: raw.trust.underscores_in_headers,
            gateway_ports: GatewayPorts {
                ranges: ranges(&raw.gateway_ports, problems),
                except: BTreeSet::new(),
            },
            endpoints: Reach::default(),
            bounds: bounds::read(&raw.bounds, Bounds::default(), problems),
            tenants: match &raw.bounds.tenants {
                Some(path) => tenants::read(path, problems),
                None => Tenants::default(),
            },
            tenants_file: raw.bounds.tenants.clone(),
            control_share: bounds::control_share(&raw.bounds),
            regexes_per_host: raw.regexes.regexes_per_host,
        };
        meaning.trust_domain = TrustDomain::read(&raw.mesh, &meaning.mesh, problems);
        if let Some(path) = &raw.gateways {
            let main = meaning.translate().main_view();
            meaning.gateways = gateways::read(path, &main, problems);
        }
        meaning
    }
}

fn all_or<T>(problems: Vec<String>, settings: T) -> Result<T, SettingsError> {
    if problems.is_empty() {
        Ok(settings)
    } else {
        Err(SettingsError(problems::told(problems)))
    }
}

#[cfg(test)]
mod tests;
