//! Objects from YAML, certificates from placeholders, and engines to feed them to.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use myriad_api::{Change, HostProof, Object, ObjectKey, ObjectKind, ReadOne, Secret};
use myriad_model::{
    CheckProtocol, Extent, Form, Processing, Provider, Sealer, TraceProtocol, Writer,
};
use myriad_translate::{
    Allotment, Bounds, CatchAll, CertManager, Engine, GatewayCredentials, Holding, HostSharing,
    Hsts, MeshProvider, ProviderForm, Role, ServiceExports, Settings, SpanService,
    TelemetryProvider, Tenants, Unlisted, View,
};
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize, date_time_ymd,
};
use serde::Deserialize;

/// The time of all tests: 2027-01-15T08:00:00Z.
pub(crate) const NOW: i64 = 1_800_000_000;

/// An engine with these settings.
pub(crate) fn engine(settings: Settings) -> Engine {
    Engine::new(settings, Writer::new(Sealer::new([7; 32], Form::Value)))
}

/// Settings as a golden's first lines say: `# with NAME=VALUE`. A view beside the main one is
/// `# with view=NAME NAMESPACE KEY=VALUE,...`.
pub(crate) fn settings(text: &str) -> Settings {
    let mut settings = Settings {
        https_port: 443,
        ..Settings::default()
    };
    for line in text.lines().filter_map(|line| line.strip_prefix("# with ")) {
        let (name, value) = line.split_once('=').expect("NAME=VALUE");
        let list = || value.split(',').map(str::to_owned).collect();
        match name {
            "issuers" => {
                let names = value.split(',').filter(|name| !name.is_empty());
                settings.issuers = Some(names.map(Box::from).collect());
            }
            "controller-name" => settings.controller_name = value.into(),
            "issuer-namespace" => settings.issuer_namespace = value.into(),
            "cert-manager" => {
                settings.cert_manager = match value {
                    "absent" => CertManager::Absent,
                    "present" => CertManager::Present,
                    other => panic!("no state {other}"),
                }
            }
            "host-sharing" => {
                assert_eq!(value, "cluster");
                settings.host_sharing = HostSharing::Cluster;
            }
            "late-claims" => settings.late_claims = value == "true",
            "host-proof" => settings.host_proof = Some(value.into()),
            "catch-all-namespaces" => settings.catch_all_namespaces = CatchAll::Only(list()),
            "default-gateway-namespaces" => settings.default_gateway_namespaces = list(),
            "gateway-credentials" => settings.gateway_credentials = credentials(value),
            "wildcard-sharing" => settings.wildcard_sharing = list(),
            "ignore-annotations" => settings.ignore_annotations = list(),
            "nginx-configmap" => {
                let key = ObjectKey::from_id(ObjectKind::ConfigMap, value.into());
                settings.nginx_config_map = Some(key);
            }
            "hsts" => settings.hsts = Hsts::parse(value),
            "serve-classless" => settings.serve_classless = value == "true",
            "gateway-ports" => {
                let (from, to) = value.split_once('-').expect("FROM-TO");
                let range = from.parse().expect("a port")..=to.parse().expect("a port");
                settings.gateway_ports.ranges = vec![range];
            }
            "endpoints" => {
                assert_eq!(value, "elsewhere");
                settings.endpoints.extent = Extent::Elsewhere;
            }
            "endpoint-allow" => settings
                .endpoints
                .allowed
                .push(value.parse().expect("a block")),
            "admin" => settings.own.push(value.parse().expect("ADDRESS:PORT")),
            "bound" => bound(value, &mut settings.bounds),
            "tenants" => settings.tenants = tenants(value),
            "underscores-in-headers" => settings.passes_underscores = value == "true",
            "regexes-per-host" => settings.regexes_per_host = value.parse().expect("a number"),
            "https-port" => settings.https_port = value.parse().expect("a port"),
            "default-certificate" => {
                let (namespace, name) = value.split_once('/').expect("NAMESPACE/NAME");
                settings.default_certificate = Some((namespace.into(), name.into()));
            }
            _ => mesh_setting(name, value, &mut settings),
        }
    }
    settings
}

/// Sets what a golden says of the mesh: its views, what they may reach, and its providers.
fn mesh_setting(name: &str, value: &str, settings: &mut Settings) {
    match name {
        "root-namespace" => settings.root_namespace = Some(value.into()),
        "service-exports" => {
            assert_eq!(value, "named");
            settings.service_exports = ServiceExports::Named;
        }
        "dedicated" => {
            let (namespace, name) = value.split_once('/').expect("NAMESPACE/NAME");
            settings.views.push(View::dedicated(namespace, name));
        }
        "view" => {
            let view = view(value);
            settings.sidecars |= view.role == Role::Sidecar;
            settings.views.push(view);
        }
        "mesh" => settings.sidecars = value == "true",
        "aliases" => settings.trust_domain_aliases = value.split(',').map(Into::into).collect(),
        "registry-only" => settings.allows_any = value != "true",
        "provider" => {
            let provider = provider(value, CheckProtocol::Grpc);
            settings.providers.push(provider);
        }
        "processor" => settings.providers.push(processor(value)),
        "spans" => settings.telemetry.providers.push(spans(value)),
        other => panic!("no setting {other}"),
    }
}

/// The Secrets that Gateways of other namespaces may use.
fn credentials(text: &str) -> GatewayCredentials {
    match text {
        "any" => GatewayCredentials::Any,
        "named" => GatewayCredentials::Named,
        other => panic!("no credentials {other}"),
    }
}

/// Sets what one namespace may hold, as `NAME=NUMBER` says.
fn bound(text: &str, bounds: &mut Bounds) {
    let (name, number) = text.split_once('=').expect("NAME=NUMBER");
    let number = number.parse().expect("a number");
    match name {
        "routes" => bounds.routes = number,
        "endpoints" => bounds.endpoints = number,
        "certificates" => bounds.certificates = number,
        "hash-slots" => bounds.hash_slots = number,
        "object-bytes" => bounds.object_bytes = number,
        "finding-bytes" => bounds.finding_bytes = number,
        "hosts" => bounds.hosts = number,
        "regex-kib" => bounds.regex_kib = number,
        "issuers" => bounds.issuers = number,
        "ports" => bounds.ports = number,
        "host-subsets" => bounds.host_subsets = number,
        "subset-endpoints" => bounds.subset_endpoints = number,
        "endpoint-copies" => bounds.endpoint_copies = number,
        "late-claims" => bounds.late_claims = number,
        "views" => bounds.views = number,
        other => panic!("no bound {other}"),
    }
}

/// Tenants as `NAMESPACE ENTRY... KIND=NUMBER...`, divided by semicolons: entries of its list of
/// hosts, of which `-` is an empty one, and bounds of its own. `unlisted nothing` leaves no host to
/// others.
pub(crate) fn tenants(text: &str) -> Tenants {
    let (mut listed, mut unlisted) = (BTreeMap::new(), Unlisted::Free);
    for line in text.split(';') {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else {
            continue;
        };
        let mut tenant = Allotment::default();
        for word in words {
            if (name, word) == ("unlisted", "nothing") {
                unlisted = Unlisted::Nothing;
            } else if let Some((kind, number)) = word.split_once('=') {
                let mut known = Holding::OF_TENANTS.into_iter();
                let holding = known.find(|holding| holding.name() == kind);
                let number = number.parse().expect("a number");
                tenant.quota.insert(holding.expect("a kind"), number);
            } else {
                let list = tenant.hosts.get_or_insert_default();
                if word != "-" {
                    list.add(word).expect("an entry");
                }
            }
        }
        listed.insert(name.into(), tenant);
    }
    Tenants::new(listed, unlisted)
}

/// A view as `NAME NAMESPACE KEY=VALUE,...`, with `ingress` behind it where it answers for them,
/// `sidecar` where it is one, or `dedicated` where it is for one Gateway of Gateway API.
pub(crate) fn view(text: &str) -> View {
    let mut words = text.split_whitespace();
    let mut word = || words.next().expect("NAME NAMESPACE LABELS");
    let (name, namespace, labels) = (word(), word(), word());
    let labels = labels.split(',').map(|label| {
        let (key, value) = label.split_once('=').expect("KEY=VALUE");
        (key.to_owned(), value.to_owned())
    });
    View {
        name: name.into(),
        namespace: namespace.into(),
        labels: labels.collect(),
        role: match words.next() {
            Some("ingress") => Role::Ingress,
            Some("sidecar") => Role::Sidecar,
            Some("dedicated") => Role::Dedicated,
            other => {
                assert_eq!(other, None);
                Role::Gateway
            }
        },
    }
}

/// A collector of spans at `HOST:PORT`, of the same name.
fn spans(service: &str) -> TelemetryProvider {
    let (host, port) = service.split_once(':').expect("HOST:PORT");
    TelemetryProvider {
        name: service.into(),
        form: ProviderForm::Spans(SpanService {
            service: host.into(),
            port: port.parse().expect("a port"),
            protocol: TraceProtocol::Grpc,
            timeout: Duration::from_secs(10),
            headers: Box::default(),
        }),
    }
}

fn processor(service: &str) -> MeshProvider {
    let tells_response = true;
    provider(
        service,
        CheckProtocol::Process(Processing { tells_response }),
    )
}

/// A provider at `HOST:PORT`, of the same name.
fn provider(service: &str, protocol: CheckProtocol) -> MeshProvider {
    let (host, port) = service.split_once(':').expect("HOST:PORT");
    MeshProvider {
        name: service.into(),
        service: host.into(),
        port: port.parse().expect("a port"),
        provider: Provider {
            upstream: "".into(),
            protocol,
            timeout: Duration::from_secs(600),
            fail_open: false,
            error_status: 403,
            reroutes: false,
            body: None,
            authority: service.into(),
            told: Box::default(),
        },
    }
}

/// Changes as they are written: YAML documents to put, lines `remove KIND NAMESPACE/NAME`, where
/// `GROUP/VERSION/` may stand before the kind, and lines `proven HOST NAMESPACE` for proofs, which
/// nobody writes.
pub(crate) fn changes(text: &str) -> Vec<Change> {
    let mut changes = Vec::new();
    // A whole line: a certificate written in PEM begins and ends with dashes as well.
    for document in text.split("\n---\n") {
        let document = document.strip_prefix("---\n").unwrap_or(document);
        let (removals, rest): (Vec<&str>, Vec<&str>) = document
            .lines()
            .filter(|line| !line.starts_with('#'))
            .partition(|line| line.starts_with("remove "));
        let (proofs, rest): (Vec<&str>, Vec<&str>) = rest
            .into_iter()
            .partition(|line| line.starts_with("proven "));
        for line in proofs {
            let words: Vec<&str> = line.split_whitespace().collect();
            let proof = HostProof::new(words[1], words[2]);
            changes.push(Change::Put(Object::HostProof(Arc::new(proof))));
        }
        for line in removals {
            let mut words = line.split_whitespace().skip(1);
            let (kind, id) = (words.next().expect("a kind"), words.next().expect("a name"));
            let mut kinds = ObjectKind::ALL.into_iter().chain([ObjectKind::HostProof]);
            let kind = match kind.rsplit_once('/') {
                Some((api_version, kind)) => ObjectKind::find(api_version, kind),
                None => kinds.find(|known| known.as_str() == kind),
            };
            let (namespace, name) = id.split_once('/').unwrap_or(("", id));
            let key = ObjectKey::new(kind.expect("a known kind"), namespace, name);
            changes.push(Change::Remove(key));
        }
        let body = rest.join("\n");
        if !body.trim().is_empty() {
            changes.push(Change::Put(object(&body)));
        }
    }
    changes
}

/// One object from YAML.
pub(crate) fn object(yaml: &str) -> Object {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        api_version: String,
        kind: String,
    }
    struct Yaml<'a>(&'a str);
    impl ReadOne for Yaml<'_> {
        type Error = String;
        fn read<T: serde::de::DeserializeOwned>(self) -> Result<T, String> {
            serde_saphyr::from_str(self.0).map_err(|error| error.to_string())
        }
    }
    let yaml = fill_in(yaml);
    let head: Head = serde_saphyr::from_str(&yaml).unwrap_or_else(|e| panic!("{e} in:\n{yaml}"));
    let kind = ObjectKind::find(&head.api_version, &head.kind);
    let kind = kind.unwrap_or_else(|| panic!("no kind {} {}", head.api_version, head.kind));
    Object::read(kind, Yaml(&yaml)).unwrap_or_else(|error| panic!("{error} in:\n{yaml}"))
}

/// A Secret with the certificate and the key of two placeholders, and an issuer behind them.
pub(crate) fn secret(certificate: &str, key: &str, issuer: Option<Bytes>) -> Secret {
    let yaml = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\ntype: kubernetes.io/tls\n\
         stringData:\n  tls.crt: {certificate}\n  tls.key: {key}\n"
    );
    let Object::Secret(secret) = object(&yaml) else {
        panic!("a Secret");
    };
    let mut secret = Secret::clone(&secret);
    if let (Ok(pair), Some(issuer)) = (&mut secret.tls, issuer) {
        let chain = pair.chain.iter().cloned().chain([issuer]);
        pair.chain = chain.collect();
    }
    secret
}

/// A certificate that stands as issuer behind others, in memory of its own at every call.
pub(crate) fn issuer() -> Bytes {
    let secret = secret("<certificate issuer.example>", "<key issuer.example>", None);
    Bytes::copy_from_slice(&secret.tls.unwrap().chain[0])
}

/// Replaces `<certificate [rsa:]NAME[,NAME] [AGE]>` and `<key [rsa:]NAME[,NAME]>` by PEM.
fn fill_in(yaml: &str) -> String {
    let mut filled = String::new();
    let mut rest = yaml;
    while let Some((before, behind)) = rest.split_once('<') {
        let (words, after) = behind.split_once('>').expect("a placeholder ends in '>'");
        let words: Vec<&str> = words.split_whitespace().collect();
        let (certificate, key) = pair(words[1], words.get(2).copied().unwrap_or(""));
        let pem = if words[0] == "key" { key } else { certificate };
        filled.push_str(before);
        filled.push_str(&format!("{pem:?}"));
        rest = after;
    }
    filled.push_str(rest);
    filled
}

type Pems = (String, String);

/// A self-signed certificate and its key, made once per names and age. A key depends on the
/// names alone, so that certificates of other ages fit it too.
fn pair(names: &str, age: &str) -> Pems {
    static KEYS: LazyLock<Mutex<BTreeMap<String, Arc<KeyPair>>>> = LazyLock::new(Mutex::default);
    static MADE: LazyLock<Mutex<BTreeMap<String, Pems>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap();
    let entry = made.entry(format!("{names} {age}"));
    let pems = entry.or_insert_with(|| {
        let mut keys = KEYS.lock().unwrap();
        let bare = names.strip_prefix("rsa:");
        let key = keys.entry(names.to_owned()).or_insert_with(|| {
            let made = match bare {
                Some(_) => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
                None => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            };
            Arc::new(made.unwrap())
        });
        let names = bare.unwrap_or(names);
        let names: Vec<String> = names.split(',').map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = match age {
            "expired" => (date_time_ymd(2020, 1, 1), date_time_ymd(2026, 6, 1)),
            "ending" => (date_time_ymd(2020, 1, 1), date_time_ymd(2027, 1, 20)),
            "future" => (date_time_ymd(2028, 1, 1), date_time_ymd(2040, 1, 1)),
            _ => (date_time_ymd(2020, 1, 1), date_time_ymd(2040, 1, 1)),
        };
        let certificate = params.self_signed(key.as_ref()).unwrap();
        (certificate.pem(), key.serialize_pem())
    });
    pems.clone()
}
