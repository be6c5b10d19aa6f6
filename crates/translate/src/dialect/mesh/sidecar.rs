//! The problems of a Sidecar or PeerAuthentication alone.

use myriad_api::istio::sidecar::{CaptureMode, EgressListener, IngressListener, SidecarPort};
use myriad_api::istio::{PeerAuthentication, Sidecar};
use myriad_api::{Finding, Severity};

use super::peers;
use super::scope::{HOSTS_MAX, LISTENERS_MAX};
use super::workload::{Inner, inner};
use crate::engine::Output;
use crate::resolve::notes;

/// Judges a Sidecar.
pub(super) fn judge(sidecar: &Sidecar) -> Output {
    let key = &sidecar.meta.key;
    let mut output = Output {
        findings: notes(key, &sidecar.notes),
        ..Output::default()
    };
    let mut tell = |field: String, message: &str, remedy: &str| {
        let finding = Finding::new(Severity::Error, key, field, message, remedy);
        output.findings.push(finding);
    };
    if sidecar.spec.egress.len() > LISTENERS_MAX {
        let message = "has no effect, nor have those behind it, so what they list is not reached";
        let field = format!("spec.egress[{LISTENERS_MAX}]");
        tell(field, message, "list hosts of several ports in one entry");
    }
    let for_all = sidecar.spec.egress.iter().filter(|it| it.port.is_none());
    let hosts: usize = for_all.map(|egress| egress.hosts.len()).sum();
    if hosts > HOSTS_MAX {
        let message = format!(
            "lists more than {HOSTS_MAX} hosts for all ports, of which those behind that have no \
             effect, so they are not reached"
        );
        let remedy = "list fewer, or wildcards above them";
        tell("spec.egress".to_owned(), &message, remedy);
    }
    for (at, egress) in sidecar.spec.egress.iter().enumerate() {
        judge_egress(&format!("spec.egress[{at}]"), egress, &mut tell);
    }
    for (at, ingress) in sidecar.spec.ingress.iter().enumerate() {
        judge_ingress(&format!("spec.ingress[{at}]"), ingress, &mut tell);
    }
    let policy = sidecar.spec.outbound_traffic_policy.as_ref();
    if policy.is_some_and(|policy| policy.egress_proxy.is_some()) {
        let message = "is not honoured, so what nobody names goes where it was meant to go";
        let remedy = "write ServiceEntries, or mode REGISTRY_ONLY";
        tell(
            "spec.outboundTrafficPolicy.egressProxy".to_owned(),
            message,
            remedy,
        );
    }
    output
}

fn judge_egress(field: &str, egress: &EgressListener, tell: &mut impl FnMut(String, &str, &str)) {
    if !egress.bind.is_empty() {
        let message = "is not honoured: connections are known by where they were meant to go";
        tell(format!("{field}.bind"), message, "leave it out");
    }
    if egress.capture_mode == CaptureMode::None {
        let message = "is NONE, which is not honoured: connections are captured all the same";
        let remedy = "leave out the ports by annotations of the Pod";
        tell(format!("{field}.captureMode"), message, remedy);
    }
    if egress.hosts.len() > HOSTS_MAX && egress.port.is_some() {
        let message = "has no effect, nor have those behind it, so they are not reached";
        let remedy = "list fewer, or a wildcard above them";
        tell(format!("{field}.hosts[{HOSTS_MAX}]"), message, remedy);
    }
    for (at, host) in egress.hosts.iter().enumerate() {
        if !host.contains('/') {
            let message = "names no namespace, so it is taken for one of all";
            let remedy = "write namespace/host, ./host or */host";
            tell(format!("{field}.hosts[{at}]"), message, remedy);
        }
    }
}

fn judge_ingress(
    field: &str,
    ingress: &IngressListener,
    tell: &mut impl FnMut(String, &str, &str),
) {
    let SidecarPort { number, .. } = ingress.port;
    if number == 0 {
        let message = "is missing, so the listener has no effect";
        tell(format!("{field}.port.number"), message, "write it");
    }
    if !ingress.bind.is_empty() {
        let message = "is not honoured: the port is captured on every address";
        tell(format!("{field}.bind"), message, "leave it out");
    }
    if ingress.capture_mode == CaptureMode::None {
        let message = "is NONE, which is not honoured: connections are captured all the same";
        let remedy = "leave out the ports by annotations of the Pod";
        tell(format!("{field}.captureMode"), message, remedy);
    }
    if ingress.tls.is_some() {
        let message = "is not honoured, so nobody is let in at this port";
        tell(format!("{field}.tls"), message, "end TLS at a gateway");
    }
    if inner(ingress) == Inner::Closed && ingress.tls.is_none() {
        let message = "is no port of 127.0.0.1, ::1 or 0.0.0.0 that can be reached, so nobody is \
                       let in at this port";
        let remedy = "write 127.0.0.1:PORT, or 0.0.0.0 with the port of the listener";
        tell(format!("{field}.defaultEndpoint"), message, remedy);
    }
}

/// Judges a PeerAuthentication.
pub(super) fn judge_peers(object: &PeerAuthentication) -> Output {
    let key = &object.meta.key;
    let mut output = Output {
        findings: notes(key, &object.notes),
        ..Output::default()
    };
    let Some(spec) = peers::readable(object) else {
        let problem = object.spec.as_ref().err();
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            problem.map_or("spec", |problem| &*problem.field),
            "cannot be understood as a whole, so its workloads take mutual TLS alone",
            "mend it, or take it away",
        ));
        return output;
    };
    if peers::is_for_all(spec) && !spec.port_level_mtls.is_empty() {
        output.findings.push(Finding::new(
            Severity::Error,
            key,
            "spec.portLevelMtls",
            "stands without a selector, so it has no effect",
            "write spec.selector",
        ));
    }
    for (port, _) in spec.port_level_mtls.iter() {
        if port.parse::<u16>().is_err() {
            output.findings.push(Finding::new(
                Severity::Error,
                key,
                format!("spec.portLevelMtls[{port}]"),
                "is no port, so it has no effect",
                "write the number of a port of the workload",
            ));
        }
    }
    output
}
