//! Settings of what objects mean, as written.

use std::path::PathBuf;

use clap::Args;
use myriad_translate::Hsts;

use super::bounds::RawBounds;
use super::mesh::RawMesh;
use super::regexes::RawRegexes;
use super::sharing::RawSharing;
use super::trust::RawTrust;

/// Settings that decide what objects mean, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Objects")]
pub struct RawMeaning {
    /// The ingress class that is served; `serve` serves objects without a class too.
    #[arg(
        long,
        env = "MYRIAD_INGRESS_CLASS",
        default_value = "myriad",
        value_name = "NAME"
    )]
    pub ingress_class: String,
    /// The controller that an IngressClass names to be served here too; two installations in
    /// one cluster differ in it, or each serves and reports the other's Ingresses.
    #[arg(
        long,
        env = "MYRIAD_CONTROLLER_CLASS",
        default_value = "myriad.dev/ingress-controller",
        value_name = "NAME"
    )]
    pub controller_class: String,
    /// The controller that a GatewayClass of Gateway API names to be served here; two installations
    /// in one cluster differ in it.
    #[arg(
        long,
        env = "MYRIAD_GATEWAY_CONTROLLER",
        default_value = "myriad.dev/gateway-controller",
        value_name = "NAME"
    )]
    pub gateway_controller: String,
    /// The certificate for names that no other covers.
    #[arg(
        long,
        env = "MYRIAD_DEFAULT_CERTIFICATE",
        value_name = "NAMESPACE/SECRET"
    )]
    pub default_certificate: Option<String>,
    /// Annotations, and keys of the ConfigMap below, that restrict access and shall be ignored all
    /// the same, by full name.
    #[arg(
        long,
        env = "MYRIAD_IGNORE_ANNOTATIONS",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub ignore_annotations: Vec<String>,
    /// The ConfigMap of an ingress-nginx, whose restrictions hold for all Ingresses. While it is
    /// not there, their paths answer 503.
    #[arg(long, env = "MYRIAD_NGINX_CONFIGMAP", value_name = "NAMESPACE/NAME")]
    pub nginx_configmap: Option<String>,
    /// Ask browsers for HTTPS alone on hosts of Ingresses with a certificate of their own, by this
    /// value of Strict-Transport-Security. They keep to it for as long as it says.
    #[arg(
        long,
        env = "MYRIAD_HSTS",
        value_parser = hsts,
        value_name = "VALUE"
    )]
    pub hsts: Option<Hsts>,
    /// The namespaces that have a host.
    #[command(flatten)]
    pub sharing: RawSharing,
    /// Namespaces whose objects without host take effect; `*` for all [default: all; for a
    /// controller none].
    #[arg(
        long,
        env = "MYRIAD_CATCH_ALL_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAME,..."
    )]
    pub catch_all_namespaces: Option<Vec<String>>,
    /// Namespaces whose Gateways with `defaultScope: All` take routes of all namespaces that name
    /// no parent. Those of a route's own namespace take it anyway.
    #[arg(
        long,
        env = "MYRIAD_DEFAULT_GATEWAY_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAME,...",
        help_heading = "Gateways"
    )]
    pub default_gateway_namespaces: Vec<String>,
    /// Labels of the gateway's workload, which selectors of Istio's Gateways and `sourceLabels`
    /// are compared with.
    #[arg(
        long,
        env = "MYRIAD_GATEWAY_LABELS",
        default_value = "istio=ingressgateway",
        value_delimiter = ',',
        value_name = "KEY=VALUE,...",
        help_heading = "Gateways"
    )]
    pub gateway_labels: Vec<String>,
    /// Namespace of the gateway's workload, where Secrets that Istio's Gateways name are looked
    /// for first.
    #[arg(
        long,
        env = "MYRIAD_GATEWAY_NAMESPACE",
        default_value = "istio-system",
        value_name = "NAME",
        help_heading = "Gateways"
    )]
    pub gateway_namespace: String,
    /// A file that lists further gateways, each with its name, namespace, labels and the service
    /// accounts of its proxies. Read once, at the start.
    #[arg(
        long,
        env = "MYRIAD_GATEWAYS",
        value_name = "FILE",
        help_heading = "Gateways"
    )]
    pub gateways: Option<PathBuf>,
    /// A file with Istio's MeshConfig, such as the key `mesh` of the ConfigMap `istio`, mounted.
    /// Its extension providers and what it says of telemetry are honoured. Read once, at the
    /// start.
    #[arg(
        long,
        env = "MYRIAD_MESH_CONFIG",
        value_name = "FILE",
        help_heading = "Mesh"
    )]
    pub mesh_config: Option<PathBuf>,
    /// Settings of the mesh.
    #[command(flatten)]
    pub mesh: RawMesh,
    /// Trust in properties of requests.
    #[command(flatten)]
    pub trust: RawTrust,
    /// End of the full names of Services.
    #[arg(
        long,
        env = "MYRIAD_CLUSTER_DOMAIN",
        default_value = "cluster.local",
        value_name = "DOMAIN"
    )]
    pub cluster_domain: String,
    /// Ports that Istio's Gateways may have listeners on, beside those of HTTP and HTTPS; those
    /// of the admin pages and of proxies are never among them.
    #[arg(
        long,
        env = "MYRIAD_GATEWAY_PORTS",
        default_value = "1-65535",
        value_delimiter = ',',
        value_name = "FROM-TO,...",
        help_heading = "Gateways"
    )]
    pub gateway_ports: Vec<String>,
    /// Bounds of what one namespace may hold.
    #[command(flatten)]
    pub bounds: RawBounds,
    /// How many regexes objects may have.
    #[command(flatten)]
    pub regexes: RawRegexes,
}

fn hsts(text: &str) -> Result<Hsts, String> {
    let read = Hsts::parse(text);
    read.ok_or_else(|| "write such as \"max-age=31536000; includeSubDomains\"".to_owned())
}
