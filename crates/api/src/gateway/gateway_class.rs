//! `gateway.networking.k8s.io` GatewayClass.

use super::bounded::{GroupName, Name, ShortName, Text};
use super::object::GatewayKind;
use crate::ObjectKind;
use crate::istio::reading::message;

message! {
    /// The spec of a GatewayClass.
    #[derive(Eq)]
    pub struct GatewayClassSpec {
        /// A domain and a path, such as `example.com/gateway`.
        controller: Box<str> as Name = "controllerName" required,
        /// An object with settings of the controller.
        parameters: Option<ParametersReference> = "parametersRef",
        /// For people.
        description: Option<Box<str>> as Option<Text<64>> = "description",
    }
}

message! {
    /// An object with settings.
    #[derive(Eq)]
    pub struct ParametersReference {
        group: Box<str> as GroupName = "group" required,
        kind: Box<str> as ShortName = "kind" required,
        name: Box<str> as Name = "name" required,
        /// The namespace; absent for an object that has none.
        namespace: Option<Box<str>> as Option<ShortName> = "namespace",
    }
}

impl GatewayKind for GatewayClassSpec {
    const KIND: ObjectKind = ObjectKind::GatewayClass;
}
