//! The part of MeshConfig that says what proxies record.

use std::collections::BTreeMap;
use std::time::Duration;

use myriad_api::istio::scalar::parse_duration;
use myriad_model::{AccessLog, FormatPart, LogFormat, LogSink, Share, TraceProtocol};
use serde::Deserialize;
use serde_json::Value;

use super::name_of_header;
use crate::dialect::istio::telemetry::{self, format};
use crate::settings::{MeshTelemetry, ProviderForm, SpanService, TelemetryProvider};

/// The longest that a collector is waited for, where nothing shorter is written.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The fields of the mesh's settings themselves.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawTelemetry {
    access_log_file: String,
    access_log_encoding: Option<String>,
    access_log_format: String,
    default_providers: RawDefaults,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawDefaults {
    access_logging: Vec<String>,
    metrics: Option<Vec<String>>,
    tracing: Vec<String>,
}

/// Which requests are traced where nobody says more.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct RawSampling {
    sampling: Option<f64>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// The forms of providers that are honoured here.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawForms {
    envoy_file_access_log: Option<RawFile>,
    prometheus: Option<Value>,
    opentelemetry: Option<RawCollector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    path: String,
    log_format: Option<RawFormat>,
    #[serde(default)]
    omit_empty_values: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFormat {
    text: Option<String>,
    labels: Option<BTreeMap<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCollector {
    service: String,
    port: u16,
    http: Option<RawHttp>,
    grpc: Option<RawGrpc>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHttp {
    path: String,
    timeout: Option<String>,
    #[serde(default)]
    headers: Vec<RawHeader>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawGrpc {
    timeout: Option<String>,
    #[serde(default)]
    initial_metadata: Vec<RawHeader>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawHeader {
    name: String,
    value: Option<String>,
}

/// Reads the fields of the mesh's settings. What has no effect is named in `unheard`.
pub(super) fn settings(
    raw: RawTelemetry,
    sampling: RawSampling,
    unheard: &mut Vec<String>,
    problems: &mut Vec<String>,
) -> MeshTelemetry {
    let mut read = MeshTelemetry::default();
    let texts = |names: Vec<String>| names.into_iter().map(Into::into).collect();
    read.logging = texts(raw.default_providers.access_logging);
    read.tracing = texts(raw.default_providers.tracing);
    if let Some(metrics) = raw.default_providers.metrics {
        read.metrics = texts(metrics);
    }
    let rest = sampling.rest.keys();
    unheard.extend(rest.map(|key| format!("defaultConfig.tracing.{key}")));
    if let Some(percent) = sampling.sampling {
        match (0.0..=100.0).contains(&percent) {
            true => {
                let ppm = (percent * 10_000.0).round() as u32;
                read.sampled = Share::from_ppm(ppm).unwrap_or(read.sampled);
            }
            false => problems.push("--mesh-config: sampling is not from 0 to 100".to_owned()),
        }
    }
    if raw.access_log_file.is_empty() {
        return read;
    }
    let format = match raw.access_log_encoding.as_deref() {
        None | Some("TEXT" | "0") if raw.access_log_format.is_empty() => Ok(usual()),
        None | Some("TEXT" | "0") => text(&raw.access_log_format, "accessLogFormat", unheard),
        Some("JSON" | "1") if raw.access_log_format.is_empty() => Ok(usual_json()),
        Some("JSON" | "1") => match serde_json::from_str(&raw.access_log_format) {
            Ok(labels) => members(labels, "accessLogFormat", unheard),
            Err(error) => Err(format!("accessLogFormat: {error}")),
        },
        Some(other) => Err(format!("accessLogEncoding {other:?} is not known")),
    };
    let log = format.and_then(|format| log(&raw.access_log_file, format));
    match log {
        Ok(log) => read.access_log = Some(log),
        Err(problem) => problems.push(format!("--mesh-config: {problem}")),
    }
    read
}

/// Reads a provider; `None` where it is of no form that is known here.
///
/// # Errors
/// The problem of the provider.
pub(super) fn provider(
    name: &str,
    place: &str,
    raw: RawForms,
    unheard: &mut Vec<String>,
) -> Result<Option<TelemetryProvider>, String> {
    let form = if let Some(file) = raw.envoy_file_access_log {
        if file.omit_empty_values {
            unheard.push(format!("{place}.envoyFileAccessLog.omitEmptyValues"));
        }
        let field = format!("{place}.envoyFileAccessLog.logFormat");
        let format = match file.log_format {
            None => Ok(usual()),
            Some(RawFormat {
                text: Some(written),
                ..
            }) => text(&written, &field, unheard),
            Some(RawFormat {
                labels: Some(labels),
                ..
            }) => members(labels, &field, unheard),
            Some(_) => Ok(usual_json()),
        };
        ProviderForm::Log(log(&file.path, format?)?)
    } else if raw.prometheus.is_some() {
        ProviderForm::Prometheus
    } else if let Some(collector) = raw.opentelemetry {
        let rest = collector.rest.keys();
        unheard.extend(rest.map(|key| format!("{place}.opentelemetry.{key}")));
        ProviderForm::Spans(spans(collector)?)
    } else {
        return Ok(None);
    };
    Ok(Some(TelemetryProvider {
        name: name.into(),
        form,
    }))
}

fn log(path: &str, format: LogFormat) -> Result<AccessLog, String> {
    let sink = match path {
        "" | "/dev/stdout" => LogSink::Output,
        "/dev/stderr" => LogSink::Error,
        _ => return Err(format!("{path:?} is neither /dev/stdout nor /dev/stderr")),
    };
    Ok(AccessLog {
        sink,
        format,
        filter: None,
    })
}

/// The format of an access log as a setting of a proxy says it: `json` is the proxy's own, `text`
/// the usual line of Envoy, a text in braces an object whose members are formats, and anything else
/// a line with operators of Envoy.
///
/// # Errors
/// It is none of these, is too long, or has operators that are not known.
pub fn log_format(written: &str) -> Result<LogFormat, String> {
    let mut unheard = Vec::new();
    let field = "the format";
    let format = match written {
        "json" => return Ok(LogFormat::Own),
        "text" => return Ok(usual()),
        _ if written.trim_start().starts_with('{') => {
            let labels = serde_json::from_str(written).map_err(|error| format!("{error}"))?;
            members(labels, field, &mut unheard)?
        }
        _ if written.contains('%') => text(written, field, &mut unheard)?,
        _ => {
            return Err(format!(
                "{written:?} is neither json, text, nor has operators in %"
            ));
        }
    };
    match unheard.is_empty() {
        true => Ok(format),
        false => Err(format!(
            "operators that are not known: {}",
            unheard.join(", ")
        )),
    }
}

fn usual() -> LogFormat {
    telemetry::usual_log().format
}

fn usual_json() -> LogFormat {
    let members = format::USUAL_JSON.iter().filter_map(|(name, text)| {
        let parts = format::parse(text, &mut Vec::new()).ok()?;
        Some((Box::from(*name), parts))
    });
    LogFormat::Json(members.collect())
}

fn text(written: &str, field: &str, unheard: &mut Vec<String>) -> Result<LogFormat, String> {
    // Istio ends lines itself where their format does not.
    let written = match written.ends_with('\n') {
        true => written.to_owned(),
        false => format!("{written}\n"),
    };
    parts(&written, field, unheard).map(LogFormat::Text)
}

fn members(
    labels: BTreeMap<String, Value>,
    field: &str,
    unheard: &mut Vec<String>,
) -> Result<LogFormat, String> {
    if labels.len() > myriad_model::Telemetry::PARTS_MAX {
        return Err(format!("{field} has too many members"));
    }
    let mut members = Vec::with_capacity(labels.len());
    for (name, value) in labels {
        let Value::String(written) = value else {
            return Err(format!("{field}.{name} is no text"));
        };
        members.push((name.into(), parts(&written, field, unheard)?));
    }
    Ok(LogFormat::Json(members.into()))
}

fn parts(
    written: &str,
    field: &str,
    unheard: &mut Vec<String>,
) -> Result<Box<[FormatPart]>, String> {
    let mut unknown = Vec::new();
    let parts = format::parse(written, &mut unknown)?;
    unheard.extend(unknown.iter().map(|it| format!("{field}: {it}")));
    match parts.len() <= myriad_model::Telemetry::PARTS_MAX {
        true => Ok(parts),
        false => Err(format!("{field} has too many parts")),
    }
}

fn spans(raw: RawCollector) -> Result<SpanService, String> {
    if raw.service.is_empty() || raw.port == 0 {
        return Err("opentelemetry has no service or port".to_owned());
    }
    let (protocol, timeout, headers) = match (raw.http, raw.grpc) {
        (Some(http), _) => {
            let is_path = |byte: u8| byte > b' ' && byte != 0x7f;
            if !http.path.starts_with('/') || !http.path.bytes().all(is_path) {
                return Err(format!(
                    "opentelemetry.http.path {:?} is no path",
                    http.path
                ));
            }
            let protocol = TraceProtocol::Http(http.path.into());
            (protocol, http.timeout, http.headers)
        }
        (None, Some(grpc)) => (TraceProtocol::Grpc, grpc.timeout, grpc.initial_metadata),
        (None, None) => (TraceProtocol::Grpc, None, Vec::new()),
    };
    let timeout = match timeout {
        None => TIMEOUT,
        Some(text) => {
            parse_duration(&text).ok_or_else(|| format!("timeout {text:?} is no duration"))?
        }
    };
    let header = |header: RawHeader| {
        let value = header.value.unwrap_or_default();
        let is_text = value.bytes().all(|byte| byte >= b' ' && byte != 0x7f);
        let name = name_of_header(&header.name).filter(|_| is_text);
        let name = name.ok_or_else(|| format!("opentelemetry: no header {:?}", header.name))?;
        Ok::<_, String>((name, value.into_boxed_str()))
    };
    Ok(SpanService {
        service: raw.service.into(),
        port: raw.port,
        protocol,
        timeout: timeout.clamp(Duration::from_millis(1), Duration::from_secs(60)),
        headers: headers.into_iter().map(header).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use myriad_model::{LogFormat, LogSink, TraceProtocol};

    use super::{log_format, usual};
    use crate::mesh_config::parse;
    use crate::settings::ProviderForm;

    #[test]
    fn the_format_of_a_setting_is_a_word_a_line_or_an_object() {
        assert_eq!(log_format("json"), Ok(LogFormat::Own));
        assert_eq!(log_format("text"), Ok(usual()));
        let line = log_format("%RESPONSE_CODE% %REQ(X-TENANT)%").expect("a format");
        assert!(
            matches!(&line, LogFormat::Text(parts) if parts.len() == 4),
            "{line:?}"
        );
        let object = log_format("{\"status\": \"%RESPONSE_CODE%\", \"by\": \"me\"}");
        let object = object.expect("a format");
        assert!(matches!(&object, LogFormat::Json(members) if members.len() == 2));
        for wrong in [
            "jsn",
            "",
            "%FOO% %RESPONSE_CODE%",
            "%RESPONSE_CODE",
            "{\"a\": 1}",
            "{",
        ] {
            assert!(log_format(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_recorded_is_read_and_what_is_not_honoured_is_named() {
        let mut problems = Vec::new();
        let mesh = parse(
            "accessLogFile: /dev/stdout\naccessLogEncoding: JSON\nenableTracing: true\n\
             defaultConfig:\n  tracing: {sampling: 10}\n  holdApplicationUntilProxyStarts: true\n\
             defaultProviders: {tracing: [otel], metrics: []}\nextensionProviders:\n\
             - name: file\n  envoyFileAccessLog:\n    path: /dev/stderr\n    \
             logFormat: {text: '%FOO% %RESPONSE_CODE%'}\n\
             - name: otel\n  opentelemetry:\n    service: c.obs.svc.cluster.local\n    \
             port: 4318\n    maxTagLength: 9\n    http: {path: /v1/traces, timeout: 2s}\n\
             - name: z\n  zipkin: {service: z, port: 1}\n",
            &mut problems,
        );
        assert_eq!(problems, [""; 0]);
        let mut unheard = mesh.unheard.clone();
        unheard.sort();
        assert_eq!(
            unheard,
            [
                "defaultConfig.holdApplicationUntilProxyStarts",
                "extensionProviders[0].envoyFileAccessLog.logFormat: %FOO%",
                "extensionProviders[1].opentelemetry.maxTagLength",
                "extensionProviders[2].zipkin"
            ]
        );
        let read = &mesh.telemetry;
        let log = read.access_log.as_ref().unwrap();
        assert!(matches!(&log.format, LogFormat::Json(members) if members.len() == 17));
        assert_eq!(read.sampled.ppm(), 100_000);
        assert!(read.metrics.is_empty());
        let [file, otel, other] = &read.providers[..] else {
            panic!("{:?}", read.providers);
        };
        assert!(matches!(&file.form, ProviderForm::Log(log) if log.sink == LogSink::Error));
        let ProviderForm::Spans(service) = &otel.form else {
            panic!("{otel:?}");
        };
        assert_eq!(service.protocol, TraceProtocol::Http("/v1/traces".into()));
        assert_eq!(other.form, ProviderForm::Other("zipkin".into()));
    }

    #[test]
    fn what_cannot_be_read_stops_the_start() {
        for text in [
            "accessLogFile: /var/log/a\n",
            "accessLogFile: /dev/stdout\naccessLogFormat: '%A'\n",
            "defaultConfig: {tracing: {sampling: 101}}\n",
            "extensionProviders: [{name: a, opentelemetry: {service: s, port: 0}}]\n",
            "extensionProviders: [{name: a, opentelemetry: {service: s, port: 1, \
             http: {path: v1}}}]\n",
        ] {
            let mut problems = Vec::new();
            parse(text, &mut problems);
            assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        }
    }
}
