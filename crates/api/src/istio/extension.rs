//! Kinds that extend Envoy. Nothing of them is read; that they are there is noted.

use serde::Deserializer;
use serde::de::IgnoredAny;

use super::note::Notes;
use super::object::Spec;
use super::reading::Read;
use crate::ObjectKind;

/// The spec of an EnvoyFilter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EnvoyFilterSpec;

/// The spec of a WasmPlugin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WasmPluginSpec;

impl Read for EnvoyFilterSpec {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        ignore(d, notes).map(|()| EnvoyFilterSpec)
    }
}

impl Read for WasmPluginSpec {
    fn read<'de, D: Deserializer<'de>>(d: D, notes: &mut Notes) -> Result<Self, D::Error> {
        ignore(d, notes).map(|()| WasmPluginSpec)
    }
}

impl Spec for EnvoyFilterSpec {
    const KIND: ObjectKind = ObjectKind::EnvoyFilter;
}

impl Spec for WasmPluginSpec {
    const KIND: ObjectKind = ObjectKind::WasmPlugin;
}

fn ignore<'de, D: Deserializer<'de>>(deserializer: D, notes: &mut Notes) -> Result<(), D::Error> {
    let _: IgnoredAny = serde::Deserialize::deserialize(deserializer)?;
    notes.add_object();
    Ok(())
}
