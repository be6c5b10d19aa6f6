//! The settings of translation, already checked by their reader.

mod bounds;
mod hsts;
mod mesh;
mod tenants;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use myriad_api::ObjectKey;
use myriad_api::meta::DEFAULT_NAMESPACE;
use myriad_model::reach::{Reach, Unreachable, is_loopback_name, is_met};
use myriad_model::{Host, TlsSettings, Underscores};

pub use bounds::{Bounds, Holding};
pub(crate) use bounds::{
    CERTIFICATE_BYTES, NAMES_MAX, REDUCED_POINTS, ROW_TEXT_BYTES, SELECTOR_LABELS_MAX, first_names,
    text_rows,
};
pub use hsts::Hsts;
pub use mesh::{MeshProvider, MeshTelemetry, ProviderForm, SpanService, TelemetryProvider};
pub use tenants::{Allotment, BadEntry, HostList, Tenants, Unlisted};

use crate::regex;
use crate::view::{MAIN, Role, View};

/// The resources that one object changes in all views of sidecars together, within some 20 ms.
const RESOURCES_AT_ONCE: usize = 1 << 14;

/// The controller that objects are for which name none, where somebody has to be it.
pub(crate) const CONTROLLER_NAME: &str = "myriad.dev/ingress-controller";

/// The controller of GatewayClasses, where nobody says otherwise.
pub const GATEWAY_CONTROLLER: &str = "myriad.dev/gateway-controller";

/// The settings that hold for all objects.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address of plain HTTP.
    pub http: SocketAddr,
    /// The address of HTTPS.
    pub https: SocketAddr,
    /// The port that clients reach HTTPS at, for redirects; 443 is left out of URLs.
    pub https_port: u16,
    /// `spec.controller` of the IngressClasses and the issuers that are ours.
    pub controller_name: Box<str>,
    /// `spec.controllerName` of the GatewayClasses that are ours.
    pub gateway_controller: Box<str>,
    /// The class that is ours even without an IngressClass object, and in files without a
    /// GatewayClass object.
    pub class_name: Box<str>,
    /// Whether Ingresses that name no class are ours, and issuers that name no controller, whatever
    /// ours is called.
    pub serve_classless: bool,
    /// The namespaces that may add to a host that another claimed first.
    pub host_sharing: HostSharing,
    /// The name of this installation in the records of DNS by which namespaces prove that a host is
    /// theirs; none where age alone says whose a host is.
    pub host_proof: Option<Box<str>>,
    /// Whether an object that comes to a host after its creation claims it from then on, so that
    /// nobody takes a host that is served by an edit of an old object. It takes a source whose
    /// history is seen, and somebody who keeps [`crate::LateClaims`].
    pub late_claims: bool,
    /// The Secrets beside the gateway's workload that Gateways and DestinationRules of other
    /// namespaces may use.
    pub gateway_credentials: GatewayCredentials,
    /// Namespaces whose hosts may be served with the certificates of wildcards of others; `*` for
    /// all.
    pub wildcard_sharing: BTreeSet<String>,
    /// The namespaces whose rules without host and default backends take effect for unmatched
    /// hosts.
    pub catch_all_namespaces: CatchAll,
    /// The namespaces whose default Gateways take routes of all namespaces that name no parent,
    /// beside those of the route's own.
    pub default_gateway_namespaces: BTreeSet<String>,
    /// Annotations that are left without effect and without finding: whole keys, or the part
    /// behind the prefix.
    pub ignore_annotations: BTreeSet<String>,
    /// The ConfigMap of an ingress-nginx whose restrictions hold for all Ingresses.
    pub nginx_config_map: Option<ObjectKey>,
    /// The `Strict-Transport-Security` of hosts of Ingresses with a certificate of their own, where
    /// neither that ConfigMap nor an annotation sets one.
    pub hsts: Option<Hsts>,
    /// Namespace and name of the Secret for names that no domain covers.
    pub default_certificate: Option<(String, String)>,
    /// The issuers that provide certificates beside those that objects make; none where it is not
    /// known which there are.
    pub issuers: Option<BTreeSet<Box<str>>>,
    /// The issuers among them that provide two certificates for a host, of ECDSA and of RSA.
    pub pairing_issuers: BTreeSet<Box<str>>,
    /// The issuers among them that prove every name by a record of DNS.
    pub dns_issuers: BTreeSet<Box<str>>,
    /// The namespace of the Secrets that ClusterIssuers name.
    pub issuer_namespace: Box<str>,
    /// Whether cert-manager provides certificates in the same cluster.
    pub cert_manager: CertManager,
    /// How handshakes are done.
    pub tls: TlsSettings,
    /// Labels of the main gateway's workload, by which Istio's selectors and `sourceLabels` find
    /// it.
    pub gateway_labels: BTreeMap<String, String>,
    /// The namespace of the main gateway's workload, where Istio looks for credentials.
    pub gateway_namespace: Box<str>,
    /// Further views that are there from the start.
    pub views: Vec<View>,
    /// The namespace whose policies and DestinationRules are for all; none for that of the main
    /// gateway.
    pub root_namespace: Option<Box<str>>,
    /// The end of the full names of Services.
    pub cluster_domain: Box<str>,
    /// Services that are asked whether requests may pass.
    pub providers: Vec<MeshProvider>,
    /// Istio's mesh settings of what is recorded.
    pub telemetry: MeshTelemetry,
    /// Whether there may be views of sidecars. Without it nobody pays for what they would read.
    pub sidecars: bool,
    /// The start of identities of the mesh, behind `spiffe://`.
    pub trust_domain: Box<str>,
    /// Trust domains whose workloads are the same as those of its own.
    pub trust_domain_aliases: Vec<Box<str>>,
    /// Whether sidecars may connect to what no object of their scope names, where no Sidecar says
    /// otherwise.
    pub allows_any: bool,
    /// The Services that rules of other namespaces may lead to at gateways.
    pub service_exports: ServiceExports,
    /// The ports that Istio's Gateways may have listeners on, beside the two that are there.
    pub gateway_ports: GatewayPorts,
    /// Whether header fields with underscores in their names are passed on.
    pub passes_underscores: bool,
    /// The addresses that gateways may lead to. Sidecars are for whatever their workload could
    /// reach itself.
    pub endpoints: Reach,
    /// The addresses that the serving process listens on beside its listeners, where it is this
    /// one.
    pub own: Vec<SocketAddr>,
    /// The bounds of what one namespace may make proxies hold.
    pub bounds: Bounds,
    /// The namespaces with hosts or bounds of their own.
    pub tenants: Tenants,
    /// The most different regexes of one host, of each dialect.
    pub regexes_per_host: usize,
    /// The most resources that one object changes in views of sidecars at once, each counted in
    /// each view. Where they are more, views follow one after the other.
    pub resources_at_once: usize,
}

impl Settings {
    /// The trust domain and its aliases.
    pub fn trust_domains(&self) -> impl Iterator<Item = &str> {
        let aliases = self.trust_domain_aliases.iter().map(|it| &**it);
        std::iter::once(&*self.trust_domain).chain(aliases)
    }

    /// The bounds of what a namespace may make proxies hold.
    pub fn bounds_of(&self, namespace: &str) -> Bounds {
        self.tenants.bounds_of(namespace, self.bounds)
    }

    /// The setting by which a namespace may hold more than this bound, as remedies say it.
    pub(crate) fn raise(&self, namespace: &str, holding: Holding, bound: u64) -> String {
        let name = holding.name();
        match self.tenants.has_quota(namespace, holding) {
            true => format!("{name}: {bound} of namespace {namespace} in --tenants"),
            false => format!("--bound {name}={bound}"),
        }
    }

    /// Whether objects of a namespace may claim a host. The namespace of the gateway's workload is
    /// its operator's, whom no list of others keeps from a host.
    pub fn may_claim(&self, namespace: &str, host: &Host) -> bool {
        let is_operator =
            || *namespace == *self.gateway_namespace && !self.tenants.is_listed(namespace);
        self.tenants.admits(namespace, host) || is_operator()
    }

    /// Why no gateway leads to an address; `None` where it may.
    pub fn refusal(&self, at: SocketAddr) -> Option<Unreachable> {
        let ip = at.ip().to_canonical();
        let is_here = ip.is_loopback() || ip.is_unspecified();
        let is_own =
            |own: SocketAddr| at.port() > 0 && is_met(own, at) && (is_here || own.ip() == ip);
        let own = [self.http, self.https];
        let mut own = own.into_iter().chain(self.own.iter().copied());
        let refused = self.endpoints.refusal(at.ip());
        refused.or_else(|| own.any(is_own).then_some(Unreachable::Own))
    }

    /// Why no gateway leads to a host, as far as it can be told without DNS; `None` where it may.
    pub fn refusal_of_host(&self, host: &str, port: u16) -> Option<Unreachable> {
        if let Ok(ip) = host.trim_matches(['[', ']']).parse() {
            return self.refusal(SocketAddr::new(ip, port));
        }
        let ends = is_loopback_name(host);
        ends.then(|| self.refusal((Ipv4Addr::LOCALHOST, port).into()))?
    }

    /// The view that is always there.
    pub fn main_view(&self) -> View {
        View {
            name: MAIN.into(),
            role: Role::Ingress,
            labels: self.gateway_labels.clone(),
            namespace: self.gateway_namespace.clone(),
        }
    }

    /// Whether an issuer is there that no object makes.
    pub fn has_issuer(&self, name: &str) -> bool {
        let issuers = self.issuers.as_ref();
        issuers.is_some_and(|issuers| issuers.contains(name))
    }

    /// The treatment of header fields with underscores in their names, where nobody says that they
    /// pass: `usual`, which is the dialect's.
    pub fn underscores(&self, usual: Underscores) -> Underscores {
        match self.passes_underscores {
            true => Underscores::Passed,
            false => usual,
        }
    }

    /// The namespace whose policies and DestinationRules are for all.
    pub fn root_namespace(&self) -> &str {
        self.root_namespace
            .as_deref()
            .unwrap_or(&self.gateway_namespace)
    }
}

/// Ports that Gateways may have listeners on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayPorts {
    /// Ports that they may use.
    pub ranges: Vec<RangeInclusive<u16>>,
    /// Ports that they may not use although a range has them: what the process listens on itself.
    pub except: BTreeSet<u16>,
}

impl GatewayPorts {
    /// Whether a Gateway may have a listener on a port.
    pub fn admits(&self, port: u16) -> bool {
        let mut ranges = self.ranges.iter();
        port > 0 && !self.except.contains(&port) && ranges.any(|range| range.contains(&port))
    }
}

impl Default for GatewayPorts {
    fn default() -> Self {
        GatewayPorts {
            ranges: vec![1..=u16::MAX],
            except: BTreeSet::new(),
        }
    }
}

/// The namespaces that may add to a host that another claimed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostSharing {
    /// Nobody: a host belongs to the namespace of the oldest object that claims it.
    Namespace,
    /// Everybody: objects of all namespaces merge.
    Cluster,
}

/// The Secrets beside the gateway's workload that Gateways and DestinationRules of other namespaces
/// may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayCredentials {
    /// Every Secret, as in Istio; below an older wildcard of others only those of the other kind.
    Any,
    /// The Secrets whose annotation names the namespace of the object.
    Named,
}

/// The Services that VirtualServices of other namespaces may lead to at gateways, whatever
/// restricts the hosts of the Services' own namespace there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceExports {
    /// Services that keep nothing back, as in Istio.
    All,
    /// Services whose annotation names the namespace, or `*`. The root namespace leads to all.
    Named,
}

/// Whether cert-manager provides certificates in the same cluster. Its annotations are hints for
/// issuers of ours only where it does not: two would write one Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertManager {
    /// Nobody knows yet.
    Unknown,
    /// The server has none of its kinds.
    Absent,
    /// It has.
    Present,
}

/// The namespaces whose objects may answer for hosts that nobody names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatchAll {
    /// Every namespace.
    All,
    /// These namespaces.
    Only(BTreeSet<String>),
}

impl CatchAll {
    /// Whether objects of a namespace may.
    pub fn admits(&self, namespace: &str) -> bool {
        match self {
            CatchAll::All => true,
            CatchAll::Only(known) => known.contains(namespace),
        }
    }
}

impl Default for Settings {
    /// The settings of `myriad serve`: every class-less Ingress, ports 8080 and 8443.
    fn default() -> Self {
        let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Settings {
            http: SocketAddr::new(everywhere, 8080),
            https: SocketAddr::new(everywhere, 8443),
            https_port: 8443,
            controller_name: CONTROLLER_NAME.into(),
            gateway_controller: GATEWAY_CONTROLLER.into(),
            class_name: "myriad".into(),
            serve_classless: true,
            host_sharing: HostSharing::Namespace,
            host_proof: None,
            late_claims: false,
            gateway_credentials: GatewayCredentials::Any,
            wildcard_sharing: BTreeSet::new(),
            catch_all_namespaces: CatchAll::All,
            default_gateway_namespaces: BTreeSet::new(),
            ignore_annotations: BTreeSet::new(),
            nginx_config_map: None,
            hsts: None,
            default_certificate: None,
            issuers: None,
            pairing_issuers: BTreeSet::new(),
            dns_issuers: BTreeSet::new(),
            issuer_namespace: DEFAULT_NAMESPACE.into(),
            cert_manager: CertManager::Unknown,
            tls: TlsSettings::default(),
            gateway_labels: [("istio".to_owned(), "ingressgateway".to_owned())].into(),
            gateway_namespace: "istio-system".into(),
            views: Vec::new(),
            root_namespace: None,
            cluster_domain: "cluster.local".into(),
            providers: Vec::new(),
            telemetry: MeshTelemetry::default(),
            sidecars: false,
            trust_domain: "cluster.local".into(),
            trust_domain_aliases: Vec::new(),
            allows_any: true,
            service_exports: ServiceExports::All,
            gateway_ports: GatewayPorts::default(),
            passes_underscores: false,
            endpoints: Reach::default(),
            own: Vec::new(),
            bounds: Bounds::default(),
            tenants: Tenants::default(),
            regexes_per_host: regex::PER_HOST_MAX,
            resources_at_once: RESOURCES_AT_ONCE,
        }
    }
}
