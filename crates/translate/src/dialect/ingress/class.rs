//! The class of an Ingress, and whether it is served here.

use myriad_api::{Finding, Ingress, Severity};

use crate::engine::Reader;

/// Whether an Ingress is for this gateway.
pub(super) enum Served {
    /// It is.
    Ours,
    /// It is not; a finding where people would otherwise wonder.
    Foreign(Option<Finding>),
}

/// The annotation that named classes before `spec.ingressClassName` did.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// The class that an Ingress names.
pub(super) fn written(ingress: &Ingress) -> Option<&str> {
    let annotation = || ingress.meta.annotation(CLASS_ANNOTATION);
    ingress.class_name.as_deref().or_else(annotation)
}

/// Judges by `spec.ingressClassName`, then the annotation, then the default class.
pub(super) fn judge(reader: &mut Reader<'_>, ingress: &Ingress) -> Served {
    let settings = reader.settings();
    let Some(name) = written(ingress) else {
        let is_ours = settings.serve_classless || reader.is_default_class_ours();
        return if is_ours {
            Served::Ours
        } else {
            Served::Foreign(None)
        };
    };
    let is_ours = *name == *settings.class_name
        || (ingress.class_name.is_some() && reader.is_class_ours(name));
    if is_ours {
        return Served::Ours;
    }
    // Beside other controllers another class is the rule; where everything is ours it is a
    // surprise.
    let finding = settings.serve_classless.then(|| {
        let field = match &ingress.class_name {
            Some(_) => "spec.ingressClassName".to_owned(),
            None => format!("metadata.annotations[{CLASS_ANNOTATION}]"),
        };
        Finding::new(
            Severity::Info,
            &ingress.meta.key,
            field,
            format!("names class {name}, which is not served here, so the Ingress has no effect"),
            format!(
                "start with --ingress-class={name}, name class {}, or add an IngressClass with \
                 controller {}",
                settings.class_name, settings.controller_name
            ),
        )
    });
    Served::Foreign(finding)
}
