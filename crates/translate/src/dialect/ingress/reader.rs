//! Ingresses, their classes, and the defaults of all of them, as units read them.

use std::any::Any;
use std::sync::Arc;

use myriad_api::{IngressClass, Object, ObjectKey, ObjectKind};

use super::annotations::{self, AnnotationProblem, Defaults, Options};
use super::facts::{IngressFact, is_default};
use super::opened::Opened;
use crate::engine::{Kept, Moment, Reader, Recent};

/// The most bytes of Ingresses of many hosts that are kept open, about. All of them that one
/// namespace may have by its bound of routes are hardly more.
const KEPT_BYTES_MAX: usize = 128 << 20;

/// The Ingresses that were read, and the defaults of all.
struct OpenIngress {
    last: Option<Arc<Opened>>,
    /// The Ingresses of many hosts. Hosts of several Ingresses may come in any order, and each of
    /// them reads all that claim it.
    many: Recent<Arc<Opened>>,
    /// Read by the hosts of all Ingresses, so it is kept beyond the batch.
    defaults: Option<Arc<Defaults>>,
}

impl Default for OpenIngress {
    fn default() -> Self {
        OpenIngress {
            last: None,
            many: Recent::new(KEPT_BYTES_MAX),
            defaults: None,
        }
    }
}

impl OpenIngress {
    fn find(&mut self, id: &str) -> Option<Arc<Opened>> {
        let last = self.last.as_ref();
        if let Some(last) = last.filter(|it| **it.meta.key.id() == *id) {
            return Some(last.clone());
        }
        self.many.find(id).cloned()
    }

    fn keep(&mut self, ingress: &Arc<Opened>) {
        if ingress.is_of_many() {
            let (id, bytes) = (ingress.meta.key.id(), ingress.bytes());
            self.many.keep(id, ingress.clone(), bytes);
        }
        self.last = Some(ingress.clone());
    }
}

impl Kept for OpenIngress {
    fn forget(&mut self, at: Moment) {
        if at != Moment::Run {
            self.last = None;
            self.many.clear();
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
        let open = self.open_mut::<OpenIngress>();
        if let Some(known) = open.and_then(|open| open.find(id)) {
            self.count(1);
            return Some(known);
        }
        let Object::Ingress(ingress) = self.visit(ObjectKind::Ingress, id)? else {
            return None;
        };
        let opened = Arc::new(Opened::new(ingress, &self.settings().ignore_annotations));
        if let Some(open) = self.open_mut::<OpenIngress>() {
            open.keep(&opened);
        }
        Some(opened)
    }

    /// The options that the annotations of an Ingress ask for, which are read once for all of its
    /// hosts. The caller noted that it reads the defaults of all.
    pub fn options_of(&mut self, ingress: &Opened) -> Arc<Options> {
        match ingress.options.get() {
            Some(known) => known.clone(),
            None => self.read_annotations(ingress).0,
        }
    }

    /// The same, with what is wrong with the annotations, whatever the defaults are. For who tells
    /// of that, and reads no option that has a default.
    pub fn read_annotations(&mut self, ingress: &Opened) -> (Arc<Options>, Vec<AnnotationProblem>) {
        let defaults = self.find_defaults();
        self.count_text();
        let ignored = &self.settings().ignore_annotations;
        let (options, problems) = annotations::read(&ingress.meta, ignored, &defaults);
        let options = ingress.options.get_or_init(|| Arc::new(options));
        (options.clone(), problems)
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
        if let Some(key) = &self.settings().nginx_config_map {
            self.read_object(key.kind, key.id());
        }
        self.find_defaults()
    }

    /// The same, where nobody notes that they are read.
    fn find_defaults(&mut self) -> Arc<Defaults> {
        let settings = self.settings();
        let open = self.open::<OpenIngress>();
        if let Some(known) = open.and_then(|open| open.defaults.as_ref()) {
            return known.clone();
        }
        let ignored = &settings.ignore_annotations;
        let named = settings.nginx_config_map.as_ref();
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
