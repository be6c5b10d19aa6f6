//! Ingresses, their classes, and the defaults of all of them, as units read them.

use std::sync::Arc;

use myriad_api::{IngressClass, Object, ObjectKind};

use super::Reader;
use crate::engine::facts::{Fact, is_default};
use crate::ingress::{Defaults, Opened};

impl Reader<'_> {
    /// An Ingress, for the unit of its name or for a unit that it needs. Both run again with it,
    /// so no fact is noted.
    pub fn ingress(&mut self, id: &str) -> Option<Arc<Opened>> {
        let open = self.opened.ingress.as_ref();
        if let Some(ingress) = open.filter(|it| &**it.meta.key.id() == id) {
            self.visited += 1;
            return Some(ingress.clone());
        }
        match self.visit(ObjectKind::Ingress, id)? {
            Object::Ingress(ingress) => {
                let opened = Arc::new(Opened::new(ingress));
                self.opened.ingress = Some(opened.clone());
                Some(opened)
            }
            _ => None,
        }
    }

    /// The defaults of all Ingresses: those of the ConfigMap of an ingress-nginx, where the
    /// settings name one.
    pub fn ingress_defaults(&mut self) -> Arc<Defaults> {
        let named = self.settings.nginx_config_map.as_ref();
        if let Some(key) = named {
            self.note(Fact::Object(key.kind, key.id()));
        }
        if let Some(known) = &self.opened.defaults {
            return known.clone();
        }
        let ignored = &self.settings.ignore_annotations;
        let defaults = match named.map(|key| self.visit(key.kind, key.id())) {
            None => Defaults::default(),
            Some(Some(Object::ConfigMap(map))) => Defaults::read(&map, ignored).0,
            Some(_) => Defaults::unknown(),
        };
        let defaults = Arc::new(defaults);
        self.opened.defaults = Some(defaults.clone());
        defaults
    }

    /// Whether an IngressClass is there and ours.
    pub fn is_class_ours(&mut self, name: &str) -> bool {
        let id = format!("/{name}");
        self.note(Fact::Class(&id));
        match self.visit(ObjectKind::IngressClass, &id) {
            Some(Object::IngressClass(class)) => self.is_ours(&class),
            _ => false,
        }
    }

    /// Whether an IngressClass of ours is the default one.
    pub fn is_default_class_ours(&mut self) -> bool {
        self.note(Fact::DefaultClass);
        let fact = self.hasher.hash(Fact::DefaultClass);
        let mut found = false;
        for object in self.objects.collection(fact) {
            self.visited += 1;
            if let Object::IngressClass(class) = object {
                found |= self.is_ours(&class) && is_default(&class);
            }
        }
        found
    }

    fn is_ours(&self, class: &IngressClass) -> bool {
        class.controller == self.settings.controller_name
    }
}
