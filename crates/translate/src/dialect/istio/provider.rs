//! Providers of Istio's mesh settings: services that are asked whether requests may pass.

use std::sync::Arc;

use myriad_api::{BackendPort, Finding, ObjectKey, ObjectKind, Severity};
use myriad_model::{CheckProtocol, Name, Origin, Protocol, Resource, Value};

use crate::engine::{Output, Reader, Unit};
use crate::resolve::names;
use crate::resolve::upstream::{self, PortFound};
use crate::settings::MeshProvider;

/// Translates one provider. A Service that is not there is a provider that is down.
pub(crate) fn translate(reader: &mut Reader<'_>, name: &Arc<str>) -> Output {
    let mut output = Output::default();
    let settings = reader.settings();
    let mut known = settings.providers.iter();
    let Some(written) = known.find(|written| *written.name == **name) else {
        return output;
    };
    let mut provider = written.provider.clone();
    provider.upstream = match find(reader, written) {
        Ok(unit) => {
            output.needs.push(Unit::upstream(unit.clone()));
            Name::new(unit)
        }
        Err((id, problem)) => {
            output.findings.push(lost(&id, name, &problem));
            Name::new(format!("{id}:{}", written.port))
        }
    };
    let resource = Resource {
        origin: Origin::settings(),
        value: Value::Provider(Box::new(provider)),
    };
    output.resources.push((Name::new(name.clone()), resource));
    output
}

/// The unit of the upstream, or the Service that was meant and what is wrong with it.
fn find(reader: &mut Reader<'_>, written: &MeshProvider) -> Result<Arc<str>, (String, String)> {
    let settings = reader.settings();
    let root = settings.root_namespace();
    let (namespace, host) = written
        .service
        .split_once('/')
        .unwrap_or((root, &written.service));
    let host = host.to_ascii_lowercase();
    let Some(id) = names::service(&host, namespace, &settings.cluster_domain) else {
        let problem = format!("{host} is no Service of the cluster");
        return Err((format!("{namespace}/{host}"), problem));
    };
    let protocol = match written.provider.protocol {
        CheckProtocol::Http(_) => Protocol::Http1,
        CheckProtocol::Grpc | CheckProtocol::Process(_) => Protocol::H2c,
    };
    match reader.service_port(&id, &BackendPort::Number(written.port)) {
        PortFound::Listed(number) | PortFound::Implied(number) => {
            Ok(upstream::name(&id, number, protocol))
        }
        PortFound::NoService => Err((id.to_string(), "is not there".into())),
        PortFound::NoPort => {
            let problem = format!("has no TCP port {}", written.port);
            Err((id.to_string(), problem))
        }
    }
}

fn lost(id: &str, name: &str, problem: &str) -> Finding {
    let (namespace, service) = id.split_once('/').unwrap_or(("", id));
    Finding::new(
        Severity::Error,
        &ObjectKey::new(ObjectKind::Service, namespace, service),
        "",
        format!("{problem}, so the extension provider {name} does not answer"),
        "create the Service, or correct service and port in --mesh-config",
    )
}
