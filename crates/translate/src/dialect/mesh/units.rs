//! The units of sidecars.

use std::sync::Arc;

use myriad_api::ObjectKey;

use super::captured::{self, CaptureKey, Voice};
use super::{reachable, workload};
use crate::engine::{Bond, Output, Reader, Stays, Unit, UnitKey, UnitKind, Viewers};
use crate::view::Workload;

/// The routes and upstreams of one Service or ServiceEntry for the sidecars that may reach it.
pub(crate) static REACHABLE: UnitKind = UnitKind {
    stays: |_, _| Stays::WithObject,
    viewers: |_, _| Viewers::Reaching,
    stores_all: true,
    in_turns: true,
    ..UnitKind::needed("reachable", 14)
};

/// The traffic that is accepted for a workload with a sidecar.
pub(crate) static WORKLOAD: UnitKind = UnitKind {
    stays: |_, _| Stays::WithViewers,
    viewers: |_, _| Viewers::Workload,
    stores_all: true,
    ..UnitKind::needed("workload", 15)
};

/// The treatment of sidecars' connections to addresses that no object names.
pub(crate) static ELSEWHERE: UnitKind = UnitKind {
    stays: |_, _| Stays::WithViewers,
    viewers: |_, _| Viewers::Sidecars,
    stores_all: true,
    ..UnitKind::needed("elsewhere", 16)
};

/// That something is spoken where sidecars capture connections.
pub(crate) static SPOKEN: UnitKind = UnitKind {
    bond: Bond {
        is_read_by_view: true,
        ..Bond::READ
    },
    ..UnitKind::needed("spoken", 20)
};

/// The listener of connections that sidecars capture on their way out.
pub(crate) static CAPTURED: UnitKind = UnitKind {
    stores_all: true,
    in_turns: true,
    parts_alone: true,
    ..UnitKind::needed("captured", 21)
};

impl Unit {
    /// The unit of an object for the sidecars that may reach it.
    pub fn reachable(key: &ObjectKey) -> Unit {
        Unit::of_object(&REACHABLE, key)
    }

    /// The unit of the traffic that is accepted for a workload.
    pub fn workload(workload: Arc<Workload>) -> Unit {
        Unit::new(&WORKLOAD, UnitKey::Workload(workload))
    }

    /// The unit of connections to addresses that no object names.
    pub fn elsewhere() -> Unit {
        Unit::new(&ELSEWHERE, UnitKey::Alone)
    }

    /// That something is spoken where connections are captured.
    pub fn spoken(key: &CaptureKey, voice: Voice) -> Unit {
        let key = UnitKey::Capture(key.address, key.port, voice.number());
        Unit::new(&SPOKEN, key)
    }

    /// The listener of connections that are captured.
    pub fn captured(key: &CaptureKey) -> Unit {
        Unit::new(&CAPTURED, UnitKey::Capture(key.address, key.port, 0))
    }
}

/// Where the connections of a unit were meant to go.
fn capture(unit: &Unit) -> Option<CaptureKey> {
    match unit.key() {
        UnitKey::Capture(address, port, _) => Some(CaptureKey {
            address: *address,
            port: *port,
        }),
        _ => None,
    }
}

/// Translates what an object is to sidecars.
pub(crate) fn translate_reachable(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let key = unit.object_key();
    key.map_or_else(Output::default, |key| reachable::translate(reader, &key))
}

/// Translates what is accepted for the workload of the view.
pub(crate) fn translate_workload(reader: &mut Reader<'_>, _: &Unit) -> Output {
    workload::translate(reader)
}

/// Translates what becomes of connections to ports that nobody has.
pub(crate) fn translate_elsewhere(reader: &mut Reader<'_>, _: &Unit) -> Output {
    captured::translate_elsewhere(reader)
}

/// Translates that something is spoken on a listener.
pub(crate) fn translate_spoken(_: &mut Reader<'_>, unit: &Unit) -> Output {
    let needs = capture(unit).map(|key| Unit::captured(&key));
    Output {
        needs: needs.into_iter().collect(),
        ..Output::default()
    }
}

/// Translates a listener, by what is spoken on it in the view.
pub(crate) fn translate_captured(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    let Some(key) = capture(unit) else {
        return Output::default();
    };
    // Each is asked for, whether anybody says it or not, so that a new one parts no view from
    // others but those in which it is said.
    let is_heard = |voice: &Voice| reader.is_needed_by(&Unit::spoken(&key, *voice));
    let voices: Vec<Voice> = Voice::all().filter(is_heard).collect();
    captured::translate(reader, &key, &voices)
}
