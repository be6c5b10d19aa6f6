//! The fields of Istio's MeshConfig that are honoured, and their meaning.
//!
//! It is the text below the key `mesh` of the ConfigMap `istio`. It is handed in once, before there
//! is an engine, and becomes settings.

mod edge;
mod telemetry;

use std::collections::BTreeMap;
use std::time::Duration;

use myriad_api::istio::scalar::parse_duration;
use myriad_model::{
    CheckBody, CheckProtocol, HttpCheck, Name, NameMatch, Processing, Provider, is_token,
};
use serde::Deserialize;
use serde_json::Value;

pub use edge::{Edge, PathNormalization};
pub use telemetry::log_format;

use crate::settings::{MeshProvider, MeshTelemetry, ProviderForm, TelemetryProvider};

/// The most providers.
const PROVIDERS_MAX: usize = 64;

/// The longest that an answer is waited for, and what Istio has where nothing is written.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// The longest that an answer of a processor is waited for where nobody wrote it, as in Envoy.
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(200);

/// The mesh's settings.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// Services that are asked whether requests may pass.
    pub providers: Vec<MeshProvider>,
    /// The namespace whose policies and DestinationRules are for all.
    pub root_namespace: Option<Box<str>>,
    /// The trust domain of identities, and others that are taken for it.
    pub trust_domain: Option<String>,
    /// See `trust_domain`.
    pub trust_domain_aliases: Vec<String>,
    /// Whether sidecars may connect to what no object names.
    pub allows_any: bool,
    /// The settings of what is recorded.
    pub telemetry: MeshTelemetry,
    /// How connections and paths are taken.
    pub edge: Edge,
    /// Fields that have no effect here.
    pub unheard: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawMesh {
    root_namespace: Option<String>,
    trust_domain: Option<String>,
    trust_domain_aliases: Vec<String>,
    outbound_traffic_policy: RawOutbound,
    extension_providers: Vec<RawProvider>,
    path_normalization: edge::RawPaths,
    default_config: RawConfig,
    /// Read and left: tracing follows from providers.
    #[serde(rename = "enableTracing")]
    _enable_tracing: Option<bool>,
    #[serde(flatten)]
    telemetry: telemetry::RawTelemetry,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawOutbound {
    /// ALLOW_ANY where nothing is written.
    mode: Option<String>,
}

/// The settings that proxies are started with.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawConfig {
    tracing: telemetry::RawSampling,
    gateway_topology: edge::RawTopology,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawProvider {
    name: String,
    envoy_ext_authz_http: Option<RawCheck>,
    envoy_ext_authz_grpc: Option<RawCheck>,
    /// Myriad's own: Istio has no field for processors.
    myriad_ext_proc_grpc: Option<RawProcessor>,
    #[serde(flatten)]
    telemetry: telemetry::RawForms,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCheck {
    service: String,
    port: u16,
    timeout: Option<String>,
    path_prefix: Option<String>,
    #[serde(default)]
    fail_open: bool,
    status_on_error: Option<String>,
    #[serde(default)]
    clear_route_cache: bool,
    #[serde(default)]
    include_headers_in_check: Vec<String>,
    #[serde(default)]
    include_request_headers_in_check: Vec<String>,
    #[serde(default)]
    include_additional_headers_in_check: BTreeMap<String, String>,
    include_request_body_in_check: Option<RawBody>,
    #[serde(default)]
    headers_to_upstream_on_allow: Vec<String>,
    #[serde(default)]
    headers_to_downstream_on_allow: Vec<String>,
    #[serde(default)]
    headers_to_downstream_on_deny: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawProcessor {
    service: String,
    port: u16,
    timeout: Option<String>,
    #[serde(default)]
    fail_open: bool,
    status_on_error: Option<String>,
    include_request_body: Option<RawProcessorBody>,
    include_response_headers: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawProcessorBody {
    max_request_bytes: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawBody {
    #[serde(default)]
    max_request_bytes: u32,
    #[serde(default)]
    allow_partial_message: bool,
    #[serde(default)]
    pack_as_bytes: bool,
}

impl Default for MeshConfig {
    fn default() -> Self {
        MeshConfig {
            providers: Vec::new(),
            root_namespace: None,
            trust_domain: None,
            trust_domain_aliases: Vec::new(),
            allows_any: true,
            telemetry: MeshTelemetry::default(),
            edge: Edge::default(),
            unheard: Vec::new(),
        }
    }
}

/// Whether what no object names is let through.
fn allows_any(raw: &RawOutbound, problems: &mut Vec<String>) -> bool {
    match raw.mode.as_deref() {
        None | Some("ALLOW_ANY") => true,
        Some("REGISTRY_ONLY") => false,
        Some(mode) => {
            problems.push(format!(
                "--mesh-config: outboundTrafficPolicy.mode is {mode:?}, not ALLOW_ANY or \
                 REGISTRY_ONLY"
            ));
            false
        }
    }
}

/// Reads the text. What is wrong with it is added to `problems`.
pub fn parse(text: &str, problems: &mut Vec<String>) -> MeshConfig {
    let raw: RawMesh = match serde_saphyr::from_str(text) {
        Ok(raw) => raw,
        Err(error) => {
            problems.push(format!("--mesh-config: {}", error.without_snippet()));
            return MeshConfig::default();
        }
    };
    let mut mesh = MeshConfig {
        allows_any: allows_any(&raw.outbound_traffic_policy, problems),
        root_namespace: raw
            .root_namespace
            .filter(|it| !it.is_empty())
            .map(Into::into),
        trust_domain: raw.trust_domain.filter(|it| !it.is_empty()),
        trust_domain_aliases: raw.trust_domain_aliases,
        unheard: raw.rest.into_keys().collect(),
        ..MeshConfig::default()
    };
    let (config, unheard) = (raw.default_config, &mut mesh.unheard);
    unheard.extend(config.rest.keys().map(|key| format!("defaultConfig.{key}")));
    mesh.edge = edge::read(
        &raw.path_normalization,
        config.gateway_topology,
        unheard,
        problems,
    );
    mesh.telemetry = telemetry::settings(raw.telemetry, config.tracing, unheard, problems);
    providers(raw.extension_providers, &mut mesh, problems);
    mesh
}

fn providers(raw: Vec<RawProvider>, mesh: &mut MeshConfig, problems: &mut Vec<String>) {
    if raw.len() > PROVIDERS_MAX {
        let problem = format!("--mesh-config has more than {PROVIDERS_MAX} extensionProviders");
        problems.push(problem);
    }
    for (at, raw) in raw.into_iter().take(PROVIDERS_MAX).enumerate() {
        let place = format!("extensionProviders[{at}]");
        let is_grpc = raw.envoy_ext_authz_grpc.is_some();
        let (name, rest) = (raw.name, raw.rest);
        match telemetry::provider(&name, &place, raw.telemetry, &mut mesh.unheard) {
            Ok(Some(provider)) => {
                mesh.telemetry.providers.push(provider);
                continue;
            }
            Ok(None) => {}
            Err(problem) => problems.push(format!("--mesh-config: {place}: {problem}")),
        }
        mesh.unheard
            .extend(rest.keys().map(|key| format!("{place}.{key}")));
        if let Some(raw) = raw.myriad_ext_proc_grpc {
            match processor(&name, &raw) {
                Ok(provider) => mesh.providers.push(provider),
                Err(problem) => problems.push(format!("--mesh-config: {place}.{problem}")),
            }
            continue;
        }
        let Some(check) = raw.envoy_ext_authz_http.or(raw.envoy_ext_authz_grpc) else {
            if let Some(form) = rest.into_keys().next() {
                mesh.telemetry.providers.push(TelemetryProvider {
                    name: name.into(),
                    form: ProviderForm::Other(form.into()),
                });
            }
            continue;
        };
        match provider(&name, &check, is_grpc) {
            Ok(provider) => mesh.providers.push(provider),
            Err(problem) => problems.push(format!("--mesh-config: {place}.{problem}")),
        }
    }
}

fn processor(name: &str, raw: &RawProcessor) -> Result<MeshProvider, String> {
    let timeout = timeout(raw.timeout.as_deref(), MESSAGE_TIMEOUT)?;
    let error_status = error_status(raw.status_on_error.as_deref().unwrap_or("500"))?;
    let body = raw.include_request_body.as_ref().map(|body| CheckBody {
        bytes_max: body.max_request_bytes.clamp(1, Provider::BODY_BYTES_MAX),
        allows_part: false,
        is_raw: true,
    });
    let protocol = CheckProtocol::Process(Processing {
        tells_response: raw.include_response_headers.unwrap_or(true),
    });
    let provider = Provider {
        upstream: Name::from(""),
        authority: authority(&raw.service, raw.port),
        timeout,
        fail_open: raw.fail_open,
        reroutes: false,
        error_status,
        body,
        protocol,
        told: Box::default(),
    };
    placed(name, &raw.service, raw.port, provider)
}

/// A provider of a name at a place.
fn placed(
    name: &str,
    service: &str,
    port: u16,
    provider: Provider,
) -> Result<MeshProvider, String> {
    if name.is_empty() || service.is_empty() || port == 0 {
        return Err("has no name, service or port".to_owned());
    }
    Ok(MeshProvider {
        name: name.into(),
        service: service.into(),
        port,
        provider,
    })
}

fn authority(service: &str, port: u16) -> Box<str> {
    let host = service.rsplit('/').next().unwrap_or_default();
    format!("{host}:{port}").into()
}

fn timeout(text: Option<&str>, default: Duration) -> Result<Duration, String> {
    let timeout = match text {
        None => default,
        Some(text) => {
            parse_duration(text).ok_or_else(|| format!("timeout {text:?} is no duration"))?
        }
    };
    Ok(timeout.clamp(Duration::from_millis(1), TIMEOUT_MAX))
}

/// The name of a header, or a part of it, in lower case.
fn name_of_header(text: &str) -> Option<Box<str>> {
    is_token(text).then(|| text.to_ascii_lowercase().into())
}

fn error_status(text: &str) -> Result<u16, String> {
    let status = text.parse().ok();
    let status = status.filter(|status| (400..600).contains(status));
    status.ok_or_else(|| format!("statusOnError {text:?} is not 400 to 599"))
}

fn provider(name: &str, raw: &RawCheck, is_grpc: bool) -> Result<MeshProvider, String> {
    let error_status = error_status(raw.status_on_error.as_deref().unwrap_or("403"))?;
    let body = raw
        .include_request_body_in_check
        .as_ref()
        .map(|body| CheckBody {
            bytes_max: body.max_request_bytes.clamp(1, Provider::BODY_BYTES_MAX),
            allows_part: body.allow_partial_message,
            is_raw: body.pack_as_bytes,
        });
    let provider = Provider {
        upstream: Name::from(""),
        authority: authority(&raw.service, raw.port),
        timeout: timeout(raw.timeout.as_deref(), TIMEOUT_MAX)?,
        fail_open: raw.fail_open,
        reroutes: raw.clear_route_cache,
        error_status,
        body,
        protocol: match is_grpc {
            true => CheckProtocol::Grpc,
            false => CheckProtocol::Http(Box::new(http_check(raw)?)),
        },
        told: Box::default(),
    };
    placed(name, &raw.service, raw.port, provider)
}

fn http_check(raw: &RawCheck) -> Result<HttpCheck, String> {
    let prefix = raw.path_prefix.clone().unwrap_or_default();
    let is_path = prefix.is_empty() || prefix.starts_with('/');
    if !is_path || prefix.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(format!("pathPrefix {prefix:?} is no path"));
    }
    let mut request = names(&raw.include_request_headers_in_check)?.to_vec();
    request.extend(names(&raw.include_headers_in_check)?);
    let additional = raw.include_additional_headers_in_check.iter();
    let additional = additional.map(|(name, value)| {
        let is_text = value.bytes().all(|byte| byte >= b' ' && byte != 0x7f);
        let known = name_of_header(name).filter(|name| is_text && !is_framing(name));
        known
            .map(|name| (name, value.as_str().into()))
            .ok_or_else(|| {
                format!("includeAdditionalHeadersInCheck has {name:?}, which is none to be told")
            })
    });
    Ok(HttpCheck {
        path_prefix: prefix.trim_end_matches('/').into(),
        request: request.into(),
        additional: additional.collect::<Result<_, _>>()?,
        upstream_on_allow: names(&raw.headers_to_upstream_on_allow)?,
        downstream_on_allow: names(&raw.headers_to_downstream_on_allow)?,
        downstream_on_deny: names(&raw.headers_to_downstream_on_deny)?,
    })
}

/// Whether a header, in lower case, frames a question or tells of gateways.
fn is_framing(name: &str) -> bool {
    let framing = [
        "cdn-loop",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    framing.contains(&name)
}

/// Names with a `*` at one of their ends, as Istio has them.
fn names(texts: &[String]) -> Result<Box<[NameMatch]>, String> {
    let one = |text: &String| {
        let read = match (text.strip_suffix('*'), text.strip_prefix('*')) {
            (Some(start), _) => name_of_header(start).map(NameMatch::Start),
            (None, Some(end)) => name_of_header(end).map(NameMatch::End),
            (None, None) => name_of_header(text).map(NameMatch::Exact),
        };
        read.ok_or_else(|| format!("{text:?} is no name of a header"))
    };
    texts.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use myriad_model::{CheckProtocol, NameMatch, Processing};

    use super::{MeshConfig, parse};

    fn read(text: &str) -> (MeshConfig, Vec<String>) {
        let mut problems = Vec::new();
        (parse(text, &mut problems), problems)
    }

    #[test]
    fn providers_are_read_and_what_else_is_there_is_told() {
        let (mesh, problems) = read(
            "accessLogFile: /dev/stdout\nrootNamespace: root\nextensionProviders:\n- name: http\n  \
             envoyExtAuthzHttp:\n    service: check.auth.svc.cluster.local\n    port: 8000\n    \
             timeout: 1.5s\n    failOpen: true\n    statusOnError: \"503\"\n    \
             pathPrefix: /check\n    includeRequestHeadersInCheck: [X-Let-In, 'x-a-*']\n    \
             headersToUpstreamOnAllow: ['*-user']\n    includeRequestBodyInCheck:\n      \
             maxRequestBytes: 99999999\n      allowPartialMessage: true\n- name: grpc\n  \
             envoyExtAuthzGrpc:\n    service: auth/check.local\n    port: 9000\n\
             - name: filter\n  myriadExtProcGrpc:\n    service: filter.local\n    port: 9001\n    \
             includeRequestBody: {maxRequestBytes: 4096}\n    includeResponseHeaders: false\n\
             - name: traces\n  zipkin:\n    service: z\n    port: 1\n",
        );
        assert_eq!(problems, [""; 0]);
        assert_eq!(mesh.root_namespace.as_deref(), Some("root"));
        assert_eq!(mesh.unheard, ["extensionProviders[3].zipkin"]);
        let [http, grpc, filter] = &mesh.providers[..] else {
            panic!("{:?}", mesh.providers);
        };
        let provider = &http.provider;
        assert_eq!(provider.timeout, Duration::from_millis(1_500));
        assert_eq!((provider.fail_open, provider.error_status), (true, 503));
        assert_eq!(provider.body.unwrap().bytes_max, 1 << 20);
        let CheckProtocol::Http(check) = &provider.protocol else {
            panic!("not over HTTP");
        };
        assert_eq!(check.request[1], NameMatch::Start("x-a-".into()));
        assert_eq!(check.upstream_on_allow[0], NameMatch::End("-user".into()));
        assert_eq!(grpc.provider.timeout, Duration::from_secs(600));
        assert_eq!(&*grpc.provider.authority, "check.local:9000");
        let processing = CheckProtocol::Process(Processing {
            tells_response: false,
        });
        assert_eq!(filter.provider.protocol, processing);
        assert_eq!(filter.provider.timeout, Duration::from_millis(200));
        assert_eq!(filter.provider.error_status, 500);
        assert_eq!(filter.provider.body.map(|body| body.bytes_max), Some(4_096));
    }

    #[test]
    fn a_provider_that_cannot_be_asked_is_a_problem() {
        let with = |rest: &str| {
            let head = "extensionProviders:\n- name: a\n  envoyExtAuthzHttp:\n";
            read(&format!("{head}    service: s\n    port: 1\n{rest}")).1
        };
        assert!(with("").is_empty());
        for rest in [
            "    timeout: soon\n",
            "    statusOnError: \"200\"\n",
            "    pathPrefix: check\n",
            "    headersToUpstreamOnAllow: ['a b']\n",
            "    includeAdditionalHeadersInCheck: {Transfer-Encoding: chunked}\n",
            "    includeAdditionalHeadersInCheck: {CDN-Loop: none}\n",
            "    misspelt: 1\n",
        ] {
            assert_eq!(with(rest).len(), 1, "{rest}");
        }
    }
}
