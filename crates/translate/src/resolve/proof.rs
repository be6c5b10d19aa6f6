//! Proofs of whose a host is: the records of DNS by which namespaces make them, and who is to be
//! told of those.
//!
//! A record names the installation and the namespace, so that whoever has the zone says both: no
//! record that was meant for another gateway proves anything at this one.

use std::collections::BTreeSet;

use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::{Host, host::HOST_BYTES_MAX, host::Pattern};

use super::claim::Claim;
use super::losers::{self, named};
use crate::engine::{Output, Rival};
use crate::settings::Settings;

/// The label in front of a name that has its record.
const LABEL: &str = "_myriad-host";

/// The name of the record by which a host is proven: of a wildcard, that of the name that it is
/// below, as for `dns-01`. None where there can be no such record.
pub fn proof_record(host: &Host) -> Option<String> {
    let name = match host.pattern() {
        Pattern::Any => return None,
        Pattern::Exact(name) => name,
        Pattern::OneLabel(suffix) | Pattern::AnyLabels(suffix) => suffix.strip_prefix('.')?,
    };
    // The last label of a name is no number, and an address of IPv6 has a bracket.
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_address = name.starts_with('[') || last.bytes().all(|byte| byte.is_ascii_digit());
    let record = format!("{LABEL}.{name}");
    (!is_address && record.len() <= HOST_BYTES_MAX).then_some(record)
}

/// The text of the record by which a namespace proves a host at an installation.
pub fn proof_text(installation: &str, namespace: &str) -> String {
    format!("installation={installation};namespace={namespace}")
}

/// Lets objects that claim a host in vain be told of it, and whoever asks DNS of their namespaces.
pub(crate) fn tell(
    settings: &Settings,
    host: &Host,
    owner: Option<&ObjectKey>,
    losers: Vec<Claim>,
    output: &mut Output,
) {
    if let Some(owner) = owner {
        note(settings, host, (owner, &*losers), output);
    }
    losers::tell(host, owner, losers, output);
}

/// Notes which namespaces claim a host that is of one of them, or that is proven to be of another
/// one. Nobody is asked of a host that one namespace alone claims.
pub(crate) fn note(
    settings: &Settings,
    host: &Host,
    (owner, losers): (&ObjectKey, &[Claim]),
    output: &mut Output,
) {
    if settings.host_proof.is_none() || losers.is_empty() || proof_record(host).is_none() {
        return;
    }
    let rival = |namespace: &str, holds| Rival {
        host: host.clone(),
        namespace: namespace.into(),
        holds,
    };
    let losers: BTreeSet<&str> = losers.iter().map(|it| it.key.namespace()).collect();
    output
        .rivals
        .extend(losers.into_iter().map(|namespace| rival(namespace, false)));
    // Of a proof alone it is not said that anybody claims the host.
    if owner.kind != ObjectKind::HostProof {
        output.rivals.push(rival(owner.namespace(), true));
    }
}

/// The reason why another namespace has a host, as findings say it.
pub(crate) fn had_by(owner: &ObjectKey, settings: &Settings) -> String {
    match (owner.kind, &settings.host_proof) {
        (ObjectKind::HostProof, _) => "its proof, which is a record of DNS".to_owned(),
        (_, Some(_)) => owner.to_string(),
        (_, None) => format!("the older {owner}"),
    }
}

/// The remedy for a namespace that has lost a host: a proof. None where there are no proofs.
pub(crate) fn remedy(namespace: &str, host: &Host, settings: &Settings) -> Option<String> {
    let installation = settings.host_proof.as_ref()?;
    let record = proof_record(host)?;
    let (what, text) = (named(host), proof_text(installation, namespace));
    Some(format!(
        "use another host, or prove that {what} is this namespace's: set the TXT record {record} \
         to \"{text}\""
    ))
}

#[cfg(test)]
mod tests {
    use myriad_model::Host;

    use super::{proof_record, proof_text};

    #[test]
    fn a_name_and_the_wildcard_below_it_are_proven_by_one_record() {
        for (host, record) in [
            ("a.example", Some("_myriad-host.a.example")),
            ("*.a.example", Some("_myriad-host.a.example")),
            ("**.a.example", Some("_myriad-host.a.example")),
            ("localhost", Some("_myriad-host.localhost")),
            ("*", None),
            ("192.0.2.7", None),
        ] {
            let host = Host::parse(host).unwrap();
            assert_eq!(proof_record(&host).as_deref(), record, "{host}");
        }
        let long = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(60));
        assert_eq!(long.len(), 252);
        assert_eq!(proof_record(&Host::parse(&long).unwrap()), None);
        let text = proof_text("edge.example", "shop");
        assert_eq!(text, "installation=edge.example;namespace=shop");
    }
}
