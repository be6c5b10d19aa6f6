//! The units that every dialect needs.

use std::sync::Arc;

use myriad_model::{Host, Key, Kind, Name};

use super::authority_names::is_secret;
use super::{authorities, certificate, trust, upstream};
use crate::engine::{Output, Reader, Stays, Unit, UnitKey, UnitKind, Viewers};
use crate::settings::Settings;

/// All that holds for one host pattern.
pub(crate) static HOST: UnitKind = UnitKind {
    makes: |key, keys| {
        if let UnitKey::Host(host) = key {
            keys.push(Key::new(Kind::Domain, Name::new(host.text().clone())));
        }
    },
    may_wait: true,
    ..UnitKind::needed("host", 11)
};

/// One port of one Service, by `namespace/service:port` with `+https` where TLS is spoken.
pub(crate) static UPSTREAM: UnitKind = UnitKind {
    makes: |key, keys| {
        if let UnitKey::Name(id) = key {
            let name = Name::new(id.clone());
            keys.push(Key::new(Kind::Upstream, name.clone()));
            keys.push(Key::new(Kind::Endpoints, name));
        }
    },
    // One that a host did not need before runs with the host.
    may_wait: true,
    ..UnitKind::needed("upstream", 18)
};

/// The certificate in one Secret, by `namespace/name`.
pub(crate) static CERTIFICATE: UnitKind = UnitKind {
    stays: |unit, settings| match is_default(unit, settings) {
        true => Stays::Always,
        false => Stays::WhileNeeded,
    },
    viewers: |unit, settings| match is_default(unit, settings) {
        true => Viewers::NeededAndIngress,
        false => Viewers::Needed,
    },
    makes: |key, keys| {
        if let UnitKey::Name(id) = key {
            keys.push(Key::new(Kind::Certificate, Name::new(id.clone())));
        }
    },
    ..UnitKind::needed("certificate", 22)
};

/// The authorities or users in one Secret, by `namespace/name`.
pub(crate) static TRUST: UnitKind = UnitKind {
    makes: |key, keys| {
        if let UnitKey::Name(id) = key {
            keys.push(Key::new(Kind::Trust, Name::new(id.clone())));
        }
    },
    ..UnitKind::needed("trust", 23)
};

/// Whether a certificate is the one that the settings name.
fn is_default(unit: &Unit, settings: &Settings) -> bool {
    let id = unit.name().and_then(|id| id.split_once('/'));
    let named = settings.default_certificate.as_ref();
    let named = named.map(|(namespace, name)| (&**namespace, &**name));
    id.is_some() && id == named
}

impl Unit {
    /// All that holds for a host pattern.
    pub fn host_of(host: Host) -> Unit {
        Unit::new(&HOST, UnitKey::Host(host))
    }

    /// An upstream, by its name.
    pub fn upstream(name: Arc<str>) -> Unit {
        Unit::named(&UPSTREAM, name)
    }

    /// The certificate in a Secret, by `namespace/name`.
    pub fn certificate(secret: Arc<str>) -> Unit {
        Unit::named(&CERTIFICATE, secret)
    }

    /// The authorities in a Secret, by `namespace/name`.
    pub fn trust(secret: Arc<str>) -> Unit {
        Unit::named(&TRUST, secret)
    }
}

/// The units that are there because of the settings.
pub(crate) fn roots(settings: &Settings) -> Option<Unit> {
    let named = settings.default_certificate.as_ref();
    named.map(|(namespace, name)| Unit::certificate(format!("{namespace}/{name}").into()))
}

/// Translates an upstream.
pub(crate) fn translate_upstream(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let name = unit.name();
    name.map_or_else(Output::default, |name| upstream::translate(reader, name))
}

/// Translates the certificate in a Secret.
pub(crate) fn translate_certificate(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let is_default = is_default(unit, reader.settings());
    let secret = unit.name();
    secret.map_or_else(Output::default, |secret| {
        certificate::translate(reader, secret, is_default)
    })
}

/// Translates the authorities in a Secret.
pub(crate) fn translate_trust(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let secret = unit.name();
    secret.map_or_else(Output::default, |id| match is_secret(id) {
        true => trust::translate(reader, id),
        false => authorities::translate(reader, id),
    })
}
