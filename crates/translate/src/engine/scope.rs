//! The scope of a view: what its workload may reach.

use std::any::Any;
use std::collections::BTreeSet;

/// An object that says what a workload may reach.
pub trait Scoping: Any + Send + Sync {
    /// Whether a port of a host of a namespace may be reached from the namespace `own`.
    fn imports(&self, own: &str, host: (&str, &str), port: u16) -> bool;

    /// The namespaces of which anything may be reached from the namespace `own`; none for all.
    fn namespaces<'a>(&'a self, own: &'a str) -> Option<BTreeSet<&'a str>>;

    /// Whether connections to whom nobody names are let through; none where nothing is said.
    fn allows_any(&self) -> Option<bool>;

    /// Whether another one says the same.
    fn is_like(&self, other: &dyn Scoping) -> bool;

    /// The object, for whoever knows its type.
    fn as_any(&self) -> &dyn Any;
}

/// The scope of a view. Without any object its workload may reach all that is exported to it.
#[derive(Default)]
pub struct Scope(Option<Box<dyn Scoping>>);

impl Scope {
    /// The scope that an object sets, where there is one.
    pub fn new(scoping: Option<Box<dyn Scoping>>) -> Self {
        Scope(scoping)
    }

    /// See [`Scoping::imports`].
    pub fn imports(&self, own: &str, host: (&str, &str), port: u16) -> bool {
        let scoping = self.0.as_ref();
        scoping.is_none_or(|it| it.imports(own, host, port))
    }

    /// See [`Scoping::namespaces`].
    pub fn namespaces<'a>(&'a self, own: &'a str) -> Option<BTreeSet<&'a str>> {
        self.0.as_ref()?.namespaces(own)
    }

    /// Whether another one says the same.
    pub fn is_like(&self, other: &Scope) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => own.is_like(&**other),
            (None, None) => true,
            _ => false,
        }
    }

    /// See [`Scoping::allows_any`].
    pub fn allows_any(&self) -> Option<bool> {
        self.0.as_ref()?.allows_any()
    }

    /// The object, if it is of a type.
    pub fn object<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.as_any().downcast_ref()
    }
}
