//! The status of GatewayClasses.

use myriad_api::gateway::status::{ClassStatus, ObjectCondition, State, Status};
use myriad_api::{Finding, Object, Severity};

use super::standing::{Unserved, is_ours, mode_of};
use crate::engine::{Output, Reader, Unit};
use crate::resolve::notes;

/// The features of our Gateways by the names that Gateway API has for them: all but those of the
/// mesh, which are no class's.
const FEATURES: &[&str] = &[
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayPort8080",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetry",
    "HTTPRouteRetryBackendTimeout",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// Translates a GatewayClass: its status.
pub(crate) fn translate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let mut output = Output::default();
    let key = unit.object_key();
    let object = key.as_ref().and_then(|key| reader.itself(key));
    let Some(Object::GatewayClass(class)) = object else {
        return output;
    };
    if !is_ours(&class, reader.settings()) {
        return output;
    }
    let key = &class.meta.key;
    output.findings = notes(key, &class.notes);
    let accepted = match mode_of(reader, &class) {
        Ok(_) => ObjectCondition::holds(ObjectCondition::ACCEPTED, "Accepted"),
        Err(why) => {
            let message = match why {
                Unserved::Parameters(message) => message,
                Unserved::Foreign | Unserved::NotAllowed => String::new(),
            };
            output.findings.push(Finding::new(
                Severity::Error,
                key,
                "spec.parametersRef",
                format!("{message}, so no Gateway of this class has an effect"),
                "name a ConfigMap with myriad-gateway-mode: shared or dedicated",
            ));
            ObjectCondition::fails(ObjectCondition::ACCEPTED, "InvalidParameters", message)
        }
    };
    output.statuses.push(Status {
        object: key.clone(),
        generation: class.generation,
        state: State::Class(ClassStatus {
            conditions: [accepted].into(),
            supported_features: FEATURES,
        }),
    });
    output
}

#[cfg(test)]
mod tests {
    use super::FEATURES;

    #[test]
    fn features_are_listed_once_and_in_order() {
        assert!(FEATURES.is_sorted_by(|one, next| one < next));
    }
}
