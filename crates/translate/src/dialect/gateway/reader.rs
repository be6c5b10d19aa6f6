//! The objects of Gateway API, as units read them.

use std::sync::Arc;

use myriad_api::gateway::{Gateway, GatewayClass, ListenerSet};
use myriad_api::{ConfigMap, Meta, Namespace, Object, ObjectKey, ObjectKind};
use myriad_model::Host;

use super::facts::GatewayFact;
use super::route::RouteObject;
use crate::engine::Reader;
use crate::resolve::Claim;

impl Reader<'_> {
    /// A GatewayClass: its controller and its parameters.
    pub fn gateway_class(&mut self, name: &str) -> Option<Arc<GatewayClass>> {
        self.read(GatewayFact::Class(name));
        let key = ObjectKey::new(ObjectKind::GatewayClass, "", name);
        match self.visit(key.kind, key.id())? {
            Object::GatewayClass(class) => Some(class),
            _ => None,
        }
    }

    /// A Gateway, for who reads its class, its age and which ListenerSets it takes.
    pub fn gateway_frame(&mut self, id: &str) -> Option<Arc<Gateway>> {
        self.read(GatewayFact::Frame(ObjectKind::Gateway, id));
        self.gateway_itself(id)
    }

    /// A Gateway. The caller noted what of it is read, or is a unit of its name.
    pub fn gateway_itself(&mut self, id: &str) -> Option<Arc<Gateway>> {
        match self.visit(ObjectKind::Gateway, id)? {
            Object::Gateway(gateway) => Some(gateway),
            _ => None,
        }
    }

    /// A ListenerSet. The caller noted what of it is read, or is a unit of its name.
    pub fn listener_set_itself(&mut self, id: &str) -> Option<Arc<ListenerSet>> {
        match self.visit(ObjectKind::ListenerSet, id)? {
            Object::ListenerSet(set) => Some(set),
            _ => None,
        }
    }

    /// A route, for the units of its name and for hosts that it claims.
    pub(crate) fn route_itself(&mut self, key: &ObjectKey) -> Option<RouteObject> {
        let object = self.visit(key.kind, key.id())?;
        RouteObject::of(&object)
    }

    /// The oldest Gateways of a namespace that take routes which name no parent, as many as are
    /// asked for.
    pub fn default_gateways(&mut self, namespace: &str, max: usize) -> Vec<ObjectKey> {
        let seat = self.hash(GatewayFact::Defaults(namespace));
        let claims = self.first_claims(seat, max).into_iter();
        let keys = claims.map(|claim| ObjectKey::from_id(ObjectKind::Gateway, claim.id));
        keys.collect()
    }

    /// A namespace with its labels; none where nobody has told of it.
    pub fn namespace_labels(&mut self, name: &str) -> Option<Arc<Namespace>> {
        self.read(GatewayFact::Labels(name));
        let key = ObjectKey::new(ObjectKind::Namespace, "", name);
        match self.visit(key.kind, key.id())? {
            Object::Namespace(namespace) => Some(namespace),
            _ => None,
        }
    }

    /// A ConfigMap, whole.
    pub fn config_map_whole(&mut self, id: &str) -> Option<Arc<ConfigMap>> {
        self.read_object(ObjectKind::ConfigMap, id);
        match self.visit(ObjectKind::ConfigMap, id)? {
            Object::ConfigMap(map) => Some(map),
            _ => None,
        }
    }

    /// The claim of an object of Gateway API to a host that it names, for hosts that it does not.
    pub fn noted_api_claim(&mut self, meta: &Meta, host: &Host) -> Claim {
        self.read(GatewayFact::Claim(meta.key.id(), host.as_str()));
        self.claim(meta, host)
    }
}
