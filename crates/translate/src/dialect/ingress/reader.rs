//! Ingresses, their classes, and the defaults of all of them, as units read them.

use std::any::Any;
use std::sync::Arc;

use myriad_api::{IngressClass, Object, ObjectKey, ObjectKind};

use super::annotations::Defaults;
use super::facts::{IngressFact, is_default};
use super::opened::Opened;
use crate::engine::{Kept, Moment, Reader};

/// The Ingress that was read last, and the defaults of all.
#[derive(Default)]
struct OpenIngress {
    ingress: Option<Arc<Opened>>,
    /// Read by the hosts of all Ingresses, so it is kept beyond the batch.
    defaults: Option<Arc<Defaults>>,
}

impl Kept for OpenIngress {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            self.ingress = None;
        }
        if at == Moment::Change(ObjectKind::ConfigMap) {
            self.defaults = None;
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Reader<'_> {
    /// An Ingress, for the unit of its name or for a unit that it needs. Both run again with it,
    /// so no fact is noted.
    pub fn ingress(&mut self, id: &str) -> Option<Arc<Opened>> {
        let open = self.open::<OpenIngress>();
        let open = open.and_then(|open| open.ingress.as_ref());
        if let Some(ingress) = open.filter(|it| &**it.meta.key.id() == id) {
            let ingress = ingress.clone();
            self.count(1);
            return Some(ingress);
        }
        let Object::Ingress(ingress) = self.visit(ObjectKind::Ingress, id)? else {
            return None;
        };
        let opened = Arc::new(Opened::new(ingress, &self.settings().ignore_annotations));
        if let Some(open) = self.open_mut::<OpenIngress>() {
            open.ingress = Some(opened.clone());
        }
        Some(opened)
    }

    /// Whether an Ingress is beyond what its namespace may hold. It changes when it gets there,
    /// so no fact is noted either.
    pub fn is_beyond(&self, id: &Arc<str>) -> bool {
        let key = ObjectKey::from_id(ObjectKind::Ingress, id.clone());
        self.beyond(&key).is_some()
    }

    /// The defaults of all Ingresses: those of the ConfigMap of an ingress-nginx, where the
    /// settings name one.
    pub fn ingress_defaults(&mut self) -> Arc<Defaults> {
        let settings = self.settings();
        let named = settings.nginx_config_map.as_ref();
        if let Some(key) = named {
            self.read_object(key.kind, key.id());
        }
        let open = self.open::<OpenIngress>();
        if let Some(known) = open.and_then(|open| open.defaults.as_ref()) {
            return known.clone();
        }
        let ignored = &settings.ignore_annotations;
        let defaults = match named.map(|key| self.visit(key.kind, key.id())) {
            None => Defaults::default(),
            Some(Some(Object::ConfigMap(map))) => Defaults::read(&map, ignored).0,
            Some(_) => Defaults::unknown(),
        };
        let defaults = Arc::new(defaults.asking(settings.hsts));
        if let Some(open) = self.open_mut::<OpenIngress>() {
            open.defaults = Some(defaults.clone());
        }
        defaults
    }

    /// Whether an IngressClass is there and ours.
    pub fn is_class_ours(&mut self, name: &str) -> bool {
        let id = format!("/{name}");
        self.read(IngressFact::Class(&id));
        match self.visit(ObjectKind::IngressClass, &id) {
            Some(Object::IngressClass(class)) => self.is_ours(&class),
            _ => false,
        }
    }

    /// Whether an IngressClass of ours is the default one.
    pub fn is_default_class_ours(&mut self) -> bool {
        let fact = self.read(IngressFact::DefaultClass);
        let mut found = false;
        for object in self.stored().collection(fact) {
            self.count(1);
            if let Object::IngressClass(class) = object {
                found |= self.is_ours(&class) && is_default(&class);
            }
        }
        found
    }

    fn is_ours(&self, class: &IngressClass) -> bool {
        class.controller == self.settings().controller_name
    }
}
