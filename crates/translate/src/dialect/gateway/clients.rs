//! The verification of clients at the listeners of a Gateway.

use std::sync::Arc;

use myriad_api::gateway::{FrontendValidation, Gateway, Listener, ObjectReference};
use myriad_api::{ObjectKey, ObjectKind};
use myriad_model::ClientAuthMode;

use super::certificate::{RefFault, RefFaultKind, no_name};
use super::facts::GatewayFact;
use super::grants::{self, Reference};
use crate::engine::{Reader, Stake, StakeClaim};
use crate::resolve::authorities;
use crate::resolve::authority_names::{joined, of_config_map};

/// The verification that a Gateway asks for at a listener of it, or of a ListenerSet of it; none
/// where it asks for none, and where TLS does not end.
pub(crate) fn validation<'a>(
    gateway: &'a Gateway,
    listener: &Listener,
) -> Option<&'a FrontendValidation> {
    if *listener.protocol != *"HTTPS" {
        return None;
    }
    let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
    let mut per_port = frontend.per_port.iter();
    match per_port.find(|it| it.port == listener.port) {
        Some(of_port) => of_port.validation.as_ref(),
        None => frontend.default.as_ref(),
    }
}

/// Whether clients without a valid certificate are let in.
pub(crate) fn is_insecure(validation: &FrontendValidation) -> bool {
    validation.mode.as_deref() == Some("AllowInsecureFallback")
}

/// The way in which proxies ask clients for certificates.
pub(crate) fn mode(validation: &FrontendValidation) -> ClientAuthMode {
    match is_insecure(validation) {
        true => ClientAuthMode::Shown,
        false => ClientAuthMode::Required,
    }
}

/// The trust by which clients are verified: of all authorities that are named and may be used.
/// None where there are none.
pub(crate) fn trust(
    reader: &mut Reader<'_>,
    gateway: &ObjectKey,
    validation: &FrontendValidation,
) -> Option<Arc<str>> {
    let references = validation.ca_certificate_refs.iter();
    let mut names: Vec<Arc<str>> = references
        .filter_map(|reference| name_of(reader, gateway, reference).ok())
        .collect();
    names.sort_unstable();
    names.dedup();
    joined(gateway.namespace(), &names)
}

/// The faults of the authorities that are named, and whether any is left that verifies somebody.
pub(crate) fn faults(
    reader: &mut Reader<'_>,
    gateway: &ObjectKey,
    validation: &FrontendValidation,
) -> (Vec<RefFault>, bool) {
    let mut faults = Vec::new();
    let mut is_any = false;
    for (at, reference) in validation.ca_certificate_refs.iter().enumerate() {
        let (word, name) = (reference.kind(), &reference.name);
        let fault = match name_of(reader, gateway, reference) {
            Ok(trust) => authorities::fault(reader, &trust)
                .map(|message| (RefFaultKind::Unusable, format!("{word} {name} {message}"))),
            Err(RefFaultKind::NotPermitted) => {
                let message = format!(
                    "{word} {name} is of another namespace, where no ReferenceGrant lets this \
                     Gateway name it"
                );
                Some((RefFaultKind::NotPermitted, message))
            }
            Err(RefFaultKind::Name) => Some((RefFaultKind::Name, no_name(word, name))),
            Err(kind) => Some((kind, format!("{word} {name} is no ConfigMap or Secret"))),
        };
        match fault {
            Some((kind, message)) => faults.push(RefFault { at, kind, message }),
            None => is_any = true,
        }
    }
    (faults, is_any)
}

/// The port by which the verification at all ports is known that have none of their own.
const OTHER_PORTS: u16 = 0;

/// The claims of a Gateway to have an authority by which clients are verified, at each port of
/// which it says so, and at all others: hosts read whether there is one, and not which it is.
pub(crate) fn stakes(reader: &mut Reader<'_>, gateway: &Gateway) -> Vec<Stake> {
    let key = &gateway.meta.key;
    let tls = gateway.spec.tls.as_ref();
    let Some(frontend) = tls.and_then(|tls| tls.frontend.as_ref()) else {
        return Vec::new();
    };
    let per_port = frontend.per_port.iter();
    let per_port = per_port.map(|it| (it.port, it.validation.as_ref()));
    let mut stakes = Vec::new();
    for (port, validation) in per_port.chain([(OTHER_PORTS, frontend.default.as_ref())]) {
        if validation.is_some_and(|validation| faults(reader, key, validation).1) {
            stakes.push(Stake {
                seat: reader.hash(GatewayFact::Verified(key.id(), port)),
                claim: StakeClaim {
                    order: 0,
                    created: 0,
                    id: key.id().clone(),
                    value: 0,
                },
            });
        }
    }
    stakes
}

/// Whether a Gateway has an authority by which clients are verified at a listener where it wants
/// them to be.
pub(crate) fn has_authority(
    reader: &mut Reader<'_>,
    gateway: &Gateway,
    listener: &Listener,
) -> bool {
    let tls = gateway.spec.tls.as_ref();
    let frontend = tls.and_then(|tls| tls.frontend.as_ref());
    let mut per_port = frontend.into_iter().flat_map(|it| &it.per_port[..]);
    let port = match per_port.any(|it| it.port == listener.port) {
        true => listener.port,
        false => OTHER_PORTS,
    };
    let seat = reader.hash(GatewayFact::Verified(gateway.meta.key.id(), port));
    reader.seat(seat).is_some()
}

/// The name of the trust of the authorities that a reference of a Gateway names.
///
/// # Errors
/// Why it names none.
fn name_of(
    reader: &mut Reader<'_>,
    gateway: &ObjectKey,
    reference: &ObjectReference,
) -> Result<Arc<str>, RefFaultKind> {
    let is_map = reference.kind() == "ConfigMap";
    if !reference.group().is_empty() || !(is_map || reference.kind() == "Secret") {
        return Err(RefFaultKind::Kind);
    }
    let own = gateway.namespace();
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let asked = Reference {
        from: ObjectKind::Gateway,
        from_namespace: own,
        group: "",
        kind: reference.kind(),
        namespace,
        name: &reference.name,
    };
    if !asked.is_nameable() {
        return Err(RefFaultKind::Name);
    }
    if !grants::permit(reader, &asked) {
        return Err(RefFaultKind::NotPermitted);
    }
    Ok(match is_map {
        true => of_config_map(namespace, &reference.name),
        false => format!("{namespace}/{}", reference.name).into(),
    })
}
