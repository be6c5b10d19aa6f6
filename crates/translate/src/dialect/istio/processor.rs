//! External processors of a VirtualService: an annotation, since Istio's API has no field for them.

use myriad_api::istio::VirtualService;
use myriad_api::{Finding, Severity};
use myriad_model::{CheckProtocol, Name};

use super::delegate::Rule;
use crate::settings::Settings;

/// The annotation.
const KEY: &str = "myriad.dev/external-processor";

/// The processor of the routes of a rule.
pub(super) fn of_rule(rule: &Rule) -> Option<Name> {
    rule.service.meta.annotation(KEY).map(Name::from)
}

/// Whether a processor was meant that is none: then nothing is served.
pub(super) fn is_closed(rule: &Rule, settings: &Settings) -> bool {
    is_lost(&rule.service, settings)
}

/// The problem of the processor of a VirtualService.
pub(super) fn judge(service: &VirtualService, settings: &Settings) -> Option<Finding> {
    is_lost(service, settings).then(|| {
        Finding::new(
            Severity::Error,
            &service.meta.key,
            format!("metadata.annotations[{KEY}]"),
            "is no processor of --mesh-config, so every rule answers 503",
            "name an extension provider that has myriadExtProcGrpc",
        )
    })
}

/// Whether a provider is a processor.
pub(super) fn is_processor(settings: &Settings, name: &str) -> bool {
    let mut known = settings.providers.iter();
    known.any(|it| *it.name == *name && matches!(it.provider.protocol, CheckProtocol::Process(_)))
}

fn is_lost(service: &VirtualService, settings: &Settings) -> bool {
    let name = service.meta.annotation(KEY);
    name.is_some_and(|name| !is_processor(settings, name))
}
