//! The Ingress dialect: `networking.k8s.io/v1`, with the annotations of ingress-nginx.
//!
//! An Ingress unit reads one Ingress and says which hosts it claims; a host unit merges the
//! claims of all Ingresses into one domain and its routes.

mod annotations;
mod canary;
mod claimant;
mod claims;
mod class;
mod closing;
mod contender;
mod error_pages;
pub(crate) mod facts;
mod headers;
mod host;
mod host_name;
mod inquiry;
mod issuing;
mod mirror;
mod opened;
mod paths;
mod policy;
mod reader;
mod routes;
mod serving;
mod table;
mod tls;
pub(crate) mod units;
mod weight;

use myriad_api::{Finding, Ingress, Object, Severity};

use annotations::Defaults;
pub(crate) use claimant::Claimant;
pub(crate) use claims::{field_of, hosts};
pub(crate) use closing::{closing, is_closed};
pub(crate) use contender::{Contender, contenders, leave_strangers, leave_unadmitted};
pub(crate) use host::{gather, lost, translate_host};
pub(crate) use tls::claimant as tls_claimant;
pub(crate) use weight::{regex_rows, weigh};

use crate::engine::{Dialect, Output, Reader, Unit};
use crate::resolve::{ISSUER, no_issuer};
use class::Served;

/// The rules that the engine has for Ingresses.
pub(crate) const DIALECT: Dialect = Dialect {
    touch: facts::touch,
    found_under: facts::found_under,
    claimant: units::claimant,
    newly_claimed: units::newly,
    roots: |settings, roots| roots.extend(units::roots(settings)),
};

/// Translates one Ingress: its claims, and what is wrong with it whoever else claims its hosts.
pub(crate) fn translate_ingress(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let Some(id) = unit.name() else {
        return output;
    };
    let Some(ingress) = reader.ingress(id) else {
        return output;
    };
    // Of one beyond a bound all that there is to say is said elsewhere.
    let is_beyond = reader.is_beyond(id);
    match class::judge(reader, &ingress) {
        Served::Ours => {}
        Served::Foreign(finding) => {
            output.findings.extend(finding.filter(|_| !is_beyond));
            return output;
        }
    }
    let claims = claims::read(&ingress, reader.settings());
    output.needs = claims.hosts.into_iter().map(Unit::host_of).collect();
    if is_beyond {
        return output;
    }
    output.findings = claims.findings;
    // What holds for all is told of once, and not here.
    let (options, problems) = reader.read_annotations(&ingress);
    output.owns_none = options.canary.is_some();
    let findings = problems
        .into_iter()
        .map(|problem| problem.into_finding(&ingress.meta.key));
    output.findings.extend(findings);
    if let Some(issuer) = &options.issuer {
        let key = annotations::key_of(&ingress.meta, "issuer").unwrap_or(ISSUER);
        let field = format!("metadata.annotations[{key}]");
        let missing = no_issuer(reader, &ingress.meta.key, field, issuer);
        output.findings.extend(missing);
    }
    let of_headers = headers::judge(reader, &ingress, &options);
    output.findings.extend(of_headers);
    output.findings.extend(judge_shape(&ingress));
    output
}

/// Translates a ConfigMap: the one of an ingress-nginx that holds for all Ingresses, or one that is
/// not read. It makes findings alone; hosts read its values for themselves.
pub(crate) fn translate_config_map(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let Some(key) = unit.object_key() else {
        return Output::default();
    };
    let settings = reader.settings();
    let ignored = &settings.ignore_annotations;
    let is_named = settings.nginx_config_map.as_ref() == Some(&key);
    let findings = match reader.itself(&key) {
        Some(Object::ConfigMap(map)) if is_named => {
            let (defaults, mut findings) = Defaults::read(&map, ignored);
            findings.extend(inquiry::judge_for_all(reader, &defaults, &key));
            findings
        }
        Some(Object::ConfigMap(map)) => {
            let finding = annotations::judge_unnamed(&map, ignored);
            finding.into_iter().collect()
        }
        _ if is_named => vec![annotations::judge_missing(&key)],
        _ => Vec::new(),
    };
    Output {
        findings,
        ..Output::default()
    }
}

/// The problems of an Ingress as a whole.
fn judge_shape(ingress: &Ingress) -> Vec<Finding> {
    let key = &ingress.meta.key;
    let mut findings = Vec::new();
    let has_tls_host = ingress.tls.iter().any(|entry| !entry.hosts.is_empty());
    if ingress.rules.is_empty() && ingress.default_backend.is_none() && !has_tls_host {
        findings.push(Finding::new(
            Severity::Warning,
            key,
            "spec",
            "has neither rules nor a default backend, so it has no effect",
            "add spec.rules, or remove the Ingress",
        ));
    }
    let has_host = ingress.rules.iter().any(|rule| rule.host.is_some());
    for (at, entry) in ingress.tls.iter().enumerate() {
        if entry.hosts.is_empty() && !has_host {
            findings.push(Finding::new(
                Severity::Warning,
                key,
                format!("spec.tls[{at}].hosts"),
                "names no host, and neither does any rule, so the certificate is not used",
                "name the hosts of the certificate",
            ));
        }
    }
    for (at, rule) in ingress.rules.iter().enumerate() {
        if rule.paths.is_empty() && ingress.default_backend.is_none() {
            findings.push(Finding::new(
                Severity::Warning,
                key,
                format!("spec.rules[{at}]"),
                "has no paths, and there is no default backend, so it answers 404",
                "add http.paths, or a spec.defaultBackend",
            ));
        }
    }
    findings
}
