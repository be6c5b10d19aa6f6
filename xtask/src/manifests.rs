//! The plain manifests: what the Helm chart renders to, for those who do not use Helm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use myriad_lab::tool::{self, Tool};

/// Renders the chart.
const HELM: Tool = Tool {
    name: "helm",
    version: "3.22.0",
};

const CHART: &str = "deploy/helm/myriad";
const MANIFESTS: &str = "deploy/manifests/myriad.yaml";

/// The namespace where they are installed; `kubectl apply` does not make it.
pub(crate) const NAMESPACE: &str = "myriad";

const NOTE: &str = "\
# Made by `cargo xtask manifests` from the Helm chart; change that instead.
# kubectl create namespace myriad && kubectl apply --namespace myriad --filename myriad.yaml
";

/// Settings of the chart that no default renders.
struct Variant {
    /// Settings as `--set` has them; as `--set-json`, where a value is an object.
    settings: &'static [&'static str],
    /// Lines that are rendered.
    lines: &'static [&'static str],
}

/// Each has to render.
const VARIANTS: [Variant; 16] = [
    Variant {
        settings: &[
            "proxy.kind=DaemonSet",
            "podMonitor.enabled=true",
            "dashboards.enabled=true",
            "alerts.enabled=true",
            "alerts.labels.release=prometheus",
        ],
        lines: &[
            "kind: DaemonSet",
            "kind: PodMonitor",
            "grafana_dashboard: \"1\"",
            "name: myriad-dashboard-control-plane",
            "fleet.json: |",
            "kind: PrometheusRule",
            "release: prometheus",
            "- alert: MyriadErrors",
        ],
    },
    Variant {
        settings: &[
            // A file of values has no whole numbers.
            "proxy.limits={\"head_bytes\":\"32KiB\",\"requests_per_connection\":2000000}",
            "proxy.pathNormalization=MERGE_SLASHES",
            "proxy.trustedHops=2",
            "proxy.proxyProtocol.ports={8080,8443}",
            "proxy.proxyProtocol.from={10.0.0.0/24,2001:db8::/32}",
        ],
        lines: &[
            "- --limit=head_bytes=32KiB",
            "- --limit=requests_per_connection=2000000",
            "- --path-normalization=MERGE_SLASHES",
            "- --trusted-hops=2",
            "- --proxy-protocol=8080,8443",
            "- --proxy-protocol-from=10.0.0.0/24,2001:db8::/32",
        ],
    },
    Variant {
        settings: &[
            "proxy.autoscaling.enabled=true",
            "networkPolicy.enabled=false",
        ],
        lines: &["kind: HorizontalPodAutoscaler"],
    },
    Variant {
        settings: &["console.tokenSecret=shown", "console.reviews=true"],
        lines: &[
            "- --console-token-file=/etc/myriad/console/token",
            "- --console-reviews",
            "- {name: console, mountPath: /etc/myriad/console, readOnly: true}",
            "resources: [tokenreviews]",
            "- nonResourceURLs: [/myriad/console]",
        ],
    },
    Variant {
        settings: &[
            "namespaces={a,b}",
            "defaultCertificate=a/b",
            "ingressClass.default=true",
            "istio.watch=off",
            "controller.regexesPerHost=1000000",
        ],
        lines: &[
            "- --default-certificate=a/b",
            "- --gateway-api=auto",
            "- --regexes-per-host=1000000",
            "resources: [gatewayclasses]",
        ],
    },
    Variant {
        settings: &[
            "watchConfigMaps=true",
            "gatewayApi.enabled=false",
            "secrets=tls",
            "hsts=max-age=60; preload",
        ],
        lines: &[
            "- --gateway-api=off",
            "- --watch-configmaps",
            "- --secrets=tls",
            "- \"--hsts=max-age=60; preload\"",
            "resources: [configmaps]",
        ],
    },
    Variant {
        settings: &[
            "acme.email=ops@shop.example",
            "acme.directory=https://ca.example/dir",
            "acme.namespaces={shop}",
            "acme.ca=ca",
            "acme.proof=8080",
            "acme.binding.keyId=k",
            "acme.binding.secret=bound",
        ],
        lines: &[
            "- --acme",
            "- --acme-email=ops@shop.example",
            "- --acme-directory=https://ca.example/dir",
            "- --acme-ca=/etc/myriad/acme-ca/ca.crt",
            "- --acme-proof=8080",
            "- --acme-eab-key-file=/etc/myriad/acme-binding/key",
            "- {name: acme-ca, mountPath: /etc/myriad/acme-ca, readOnly: true}",
            "- {name: acme-ca, configMap: {name: ca}}",
            "- {name: acme-binding, secret: {secretName: bound, defaultMode: 0440, \
             items: [{key: key, path: key}]}}",
            "name: myriad-controller-certificates",
            "namespace: shop",
            "verbs: [create, patch]",
            "verbs: [get, list, watch, create, patch, delete]",
            "resources: [clusterissuers]",
            "resources: [issuers/status]",
            "resources: [clusterissuers/status]",
        ],
    },
    Variant {
        settings: &[
            "acme.email=ops@shop.example",
            "acme.challenge=dns-01",
            "acme.dns.server=ns1.shop.example:5353",
            "acme.dns.zone=shop.example",
            "acme.dns.tsig.name=gateway",
            "acme.dns.tsig.secret=zone",
            "acme.dns.tsig.algorithm=hmac-sha512",
            "acme.dns.proof=off",
        ],
        lines: &[
            "- --acme-challenge=dns-01",
            "- --acme-dns-server=ns1.shop.example:5353",
            "- --acme-dns-zone=shop.example",
            "- --acme-dns-key-name=gateway",
            "- --acme-dns-key-file=/etc/myriad/acme-dns/key",
            "- --acme-dns-key-algorithm=hmac-sha512",
            "- --acme-dns-proof=off",
            "- {name: acme-dns, mountPath: /etc/myriad/acme-dns, readOnly: true}",
            "- {name: acme-dns, secret: {secretName: zone, defaultMode: 0440, \
             items: [{key: key, path: key}]}}",
        ],
    },
    Variant {
        settings: &[
            "acme.enabled=true",
            "acme.dns.webhook.url=https://10.0.0.1:6443",
            "acme.dns.webhook.solver=acme.shop.example/solver",
            "acme.dns.webhook.configMap=solver",
            "acme.dns.webhook.secret=asks",
        ],
        lines: &[
            "- --acme-dns-webhook=https://10.0.0.1:6443",
            "- --acme-dns-webhook-solver=acme.shop.example/solver",
            "- --acme-dns-webhook-config=/etc/myriad/acme-webhook-config/config.json",
            "- --acme-dns-webhook-token-file=/etc/myriad/acme-webhook/token",
            "- {name: acme-webhook-config, configMap: {name: solver, \
             items: [{key: config.json, path: config.json}]}}",
            "- {name: acme-webhook, secret: {secretName: asks, defaultMode: 0440, \
             items: [{key: token, path: token}]}}",
        ],
    },
    Variant {
        settings: &[
            "hostProof=gateway.example.com",
            "acme.resolvers={192.0.2.1}",
        ],
        lines: &[
            "- --host-proof=gateway.example.com",
            "- --resolver=192.0.2.1",
            "resourceNames: [myriad-host-proofs]",
        ],
    },
    Variant {
        settings: &[
            "gatewayApi.createClass=always",
            "gatewayApi.mode=dedicated",
            "gatewayApi.deployments.enabled=true",
            "gatewayApi.deployments.proxy.replicas=3",
            "gatewayApi.deployments.autoscaling.enabled=true",
            "gatewayApi.deployments.metadata.allow={example.com/}",
            "gatewayApi.deployments.addresses={192.0.2.0/24}",
            "proxy.standardMetrics=true",
        ],
        lines: &[
            "kind: GatewayClass",
            "controllerName: myriad.dev/gateway-controller",
            "parametersRef: {group: \"\", kind: ConfigMap, name: myriad-gateway-class, namespace: \
             myriad}",
            "myriad-gateway-mode: dedicated",
            "myriad-gateway-replicas-max: \"10\"",
            "resources: [horizontalpodautoscalers]",
            "- --gateway-deployments=/etc/myriad/gateway-template/template.yaml",
            "name: myriad-controller-deployments",
            "resources: [deployments]",
            "resources: [networkpolicies]",
            "allow: [\"example.com/\"]",
            "addresses: [\"192.0.2.0/24\"]",
            "adminFrom: [{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":\
             \"monitoring\"}}}]",
            "resourceNames: [myriad-gateway-ca]",
            "roots: myriad-gateway-ca",
            "replicas: 3",
            "configMap: {name: myriad-gateway-ca}",
            "- --workload=$(POD_NAMESPACE)/$(POD_ACCOUNT)",
            "app.kubernetes.io/component: gateway-proxy",
        ],
    },
    Variant {
        settings: &["namespaces={shop}", "liveAnnotations=true"],
        lines: &[
            "- --live-annotations",
            "name: myriad-controller-live-annotations",
            "namespace: shop",
            "verbs: [patch]",
        ],
    },
    Variant {
        settings: &["nginxConfigMap=ingress-nginx/ingress-nginx-controller"],
        lines: &[
            "- --nginx-configmap=ingress-nginx/ingress-nginx-controller",
            "name: myriad-controller-nginx-configmap",
            "namespace: ingress-nginx",
            "resourceNames: [ingress-nginx-controller]",
        ],
    },
    Variant {
        settings: &[
            "gateways[0].name=egress",
            "gateways[0].labels.istio=egressgateway",
            "gateways[0].ports={9000}",
        ],
        lines: &[
            "name: myriad-gateway-egress",
            "items: [{key: egress, path: ticket.keys}]",
        ],
    },
    Variant {
        settings: &[
            "proxy.ticketKeys.secret=own",
            "gateways[0].name=egress",
            "gateways[0].labels.istio=egressgateway",
            "gateways[0].proxy.ticketKeys.secret=",
        ],
        lines: &[
            "secretName: own",
            "items: [{key: ticket.keys, path: ticket.keys}]",
            "secretName: myriad-tickets",
            "items: [{key: egress, path: ticket.keys}]",
            "- --keep-ticket-keys",
        ],
    },
    Variant {
        settings: &[
            "mesh.enabled=true",
            "sidecars.inject=true",
            "sidecars.failurePolicy=Ignore",
            "hold.percent=100",
            "hold.for=3600",
        ],
        lines: &[
            "- --mesh",
            "- --hold-percent=100",
            "- --hold-for=3600",
            "- --sidecar-hold-percent=100",
            "- --sidecar-hold-for=3600",
            "failurePolicy: Ignore",
            "resourceNames: [myriad-mesh-roots]",
        ],
    },
];

/// Writes the manifests, or fails when those that are committed are stale.
pub(crate) fn run(root: &Path, cache: &Path, is_check: bool) -> Result<()> {
    let helm = helm(root, cache)?;
    let mut lint = Command::new(&helm);
    lint.args(["lint", "--strict", CHART]);
    tool::run_in(root, lint)?;
    for Variant { settings, lines } in VARIANTS {
        let rendered = render(root, &helm, settings)?;
        for wanted in lines {
            ensure!(
                rendered.lines().any(|line| line.trim() == *wanted),
                "the chart with {settings:?} renders no {wanted:?}"
            );
        }
    }
    let rendered = format!("{NOTE}{}", render(root, &helm, &[])?);
    let path = root.join(MANIFESTS);
    if !is_check {
        fs::create_dir_all(path.parent().context("it lies in a folder")?)?;
        return fs::write(&path, rendered).with_context(|| MANIFESTS.to_owned());
    }
    let known = fs::read_to_string(&path).with_context(|| MANIFESTS.to_owned())?;
    ensure!(
        known == rendered,
        "{MANIFESTS} is stale: run `cargo xtask manifests`"
    );
    println!("manifests: {MANIFESTS} is up to date");
    Ok(())
}

/// The path of helm, which is built where it is not there yet.
pub(crate) fn helm(root: &Path, cache: &Path) -> Result<PathBuf> {
    HELM.provide(cache, |to| {
        let program = to.join("bin").join(HELM.name);
        let module = root.join("tools/helm");
        tool::build_go(&module, "helm.sh/helm/v3/cmd/helm", &[], &program)
    })
}

/// The committed manifests.
pub(crate) fn read(root: &Path) -> Result<String> {
    fs::read_to_string(root.join(MANIFESTS)).with_context(|| MANIFESTS.to_owned())
}

fn render(root: &Path, helm: &Path, settings: &[&str]) -> Result<String> {
    let mut command = Command::new(helm);
    command.args(["template", "myriad", CHART, "--namespace", NAMESPACE]);
    // The cluster's version decides what is rendered, and there is none to ask.
    command.args(["--kube-version", "1.36"]);
    for setting in settings {
        let flag = match setting.contains("={\"") {
            true => "--set-json",
            false => "--set",
        };
        command.args([flag, setting]);
    }
    let output = command.current_dir(root).output()?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!(
            "the chart does not render with {settings:?}: {}",
            complaint.trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}
