//! Statuses of objects of Gateway API as compact text: conditions that hold are named, and those
//! that do not have their reasons and messages.

use std::fmt::Write as _;

use myriad_api::gateway::ParentReference;
use myriad_api::gateway::status::{
    ConditionStatus, Deployment, GatewayStatus, ListenerStatus, ObjectCondition, ParentStatus,
    State, Status,
};
use myriad_translate::Engine;

/// The statuses, where there are any.
pub(crate) fn statuses(engine: &Engine) -> String {
    let lines: String = engine.statuses().map(status_text).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("=== statuses\n{lines}"),
    }
}

/// The status of an object: a line for itself, and one for each listener or parent.
pub(crate) fn status_text(status: &Status) -> String {
    let mut text = status.object.to_string();
    if status.generation > 0 {
        let _ = write!(text, " at {}", status.generation);
    }
    match &status.state {
        State::Class(class) => {
            let features = class.supported_features.len();
            let conditions = conditions_text(&class.conditions);
            let _ = writeln!(text, ":{conditions}, {features} features");
        }
        State::Gateway(gateway) => {
            let _ = writeln!(text, ":{}", gateway_text(gateway));
            text.extend(gateway.listeners.iter().map(listener_text));
        }
        State::ListenerSet(set) => {
            let conditions = conditions_text(&set.conditions);
            let _ = writeln!(text, " of {}:{conditions}", set.gateway);
            text.extend(set.listeners.iter().map(listener_text));
        }
        State::Route(route) => {
            text.push('\n');
            text.extend(route.parents.iter().map(parent_text));
        }
        State::Policy(policy) => {
            text.push('\n');
            text.extend(policy.ancestors.iter().map(parent_text));
        }
    }
    text
}

fn gateway_text(gateway: &GatewayStatus) -> String {
    let mut text = conditions_text(&gateway.conditions);
    if gateway.attached_listener_sets > 0 {
        let _ = write!(text, ", {} sets", gateway.attached_listener_sets);
    }
    for address in &gateway.addresses {
        let _ = write!(text, ", wants {} {:?}", address.kind, address.value);
    }
    text.extend(gateway.deployment.as_deref().map(deployment_text));
    text
}

fn deployment_text(deployment: &Deployment) -> String {
    let mut text = ", by its own proxies at".to_owned();
    for port in &deployment.ports {
        let protocol = if port.is_udp { "/udp" } else { "" };
        let _ = write!(text, " {}{protocol}", port.number);
    }
    for (name, value) in deployment.labels.iter().chain(&deployment.annotations) {
        let _ = write!(text, " {name}={value}");
    }
    if let Some(scaling) = deployment.scaling {
        let (min, max) = (scaling.replicas_min, scaling.replicas_max);
        let _ = write!(
            text,
            ", {min} to {max} of them at {} % of processor time",
            scaling.cpu_percent
        );
    }
    text
}

fn listener_text(listener: &ListenerStatus) -> String {
    let (name, routes) = (&listener.name, listener.attached_routes);
    let kinds = listener.supported_kinds.join(" ");
    let conditions = conditions_text(&listener.conditions);
    format!("  {name} [{kinds}] {routes} routes:{conditions}\n")
}

fn parent_text(parent: &ParentStatus) -> String {
    let named = reference_text(&parent.parent);
    format!("  at {named}:{}\n", conditions_text(&parent.conditions))
}

fn reference_text(parent: &ParentReference) -> String {
    let mut text = format!("{} ", parent.kind());
    if let Some(namespace) = &parent.namespace {
        let _ = write!(text, "{namespace}/");
    }
    text.push_str(&parent.name);
    if let Some(name) = &parent.section_name {
        let _ = write!(text, "#{name}");
    }
    if let Some(port) = parent.port {
        let _ = write!(text, ":{port}");
    }
    text
}

/// The conditions, but for the usual one that there are no conflicts.
fn conditions_text(conditions: &[ObjectCondition]) -> String {
    let mut text = String::new();
    for condition in conditions {
        let ObjectCondition {
            kind,
            status,
            reason,
            message,
        } = condition;
        let _ = match status {
            ConditionStatus::False if *reason == "NoConflicts" => continue,
            ConditionStatus::True if reason == kind => write!(text, " {kind}"),
            _ => write!(text, " {kind}={}/{reason}", status.as_str()),
        };
        if !message.is_empty() {
            let _ = write!(text, " ({message})");
        }
    }
    text
}
