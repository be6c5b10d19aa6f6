//! The dialects that people write, each in a folder of its own, and the one place that tells the
//! engine of them.

pub(crate) mod acme;
pub(crate) mod gateway;
pub(crate) mod holdings;
pub(crate) mod host;
pub(crate) mod ingress;
pub(crate) mod istio;
pub(crate) mod mesh;
mod selectors;

use myriad_api::{Object, ObjectKey, ObjectKind};
use myriad_model::Writer;

use crate::engine::{
    BoundRules, ChoiceRules, ChosenFact, Dialect, Engine, HintFact, LookedAtFact, NewlyClaimed,
    Output, PortFact, Reader, Rules, Scene, ScopeFact, SeatFact, States, TallyFact, Touched,
    Translate, Unit, UnitKind,
};
use crate::resolve::{self, SharedFact, authorities, losers, suffix_of, units, upstream};
use crate::settings::{Bounds, Holding, Settings};
use crate::store::{Fact, FactHasher, WHOLE};
use gateway::facts::GatewayFact;
use ingress::facts::IngressFact;
use istio::facts::IstioFact;
use mesh::facts::MeshFact;

/// Everything that changes of objects are told to: a dialect adds a line here, and one for each of
/// its units below.
const DIALECTS: [Dialect; 6] = [
    resolve::SHARED,
    ingress::DIALECT,
    istio::DIALECT,
    gateway::DIALECT,
    mesh::DIALECT,
    acme::DIALECT,
];

/// All kinds of units with their functions, in the order in which they run: each at the place of
/// its rank.
const UNITS: [(&UnitKind, Translate); 32] = [
    (&ingress::units::INGRESS, ingress::translate_ingress),
    (&ingress::units::CONFIG_MAP, ingress::translate_config_map),
    (&gateway::units::CLASS, gateway::translate_class),
    (&gateway::units::LISTENERS, gateway::translate_listeners),
    (&istio::units::GATEWAY, istio::translate_gateway),
    (&istio::units::VIRTUAL_SERVICE, istio::translate_service),
    (
        &istio::units::ACCESS_POLICY,
        istio::units::translate_access_policy,
    ),
    (&istio::units::REFUSED, refuse),
    (&istio::units::TELEMETRY, |reader, _| {
        istio::telemetry::translate(reader)
    }),
    (&gateway::units::ENTRANCE, gateway::translate_entrance),
    (&gateway::units::ROUTE, gateway::translate_route),
    (&units::HOST, host::translate),
    (&gateway::units::ROWS, gateway::translate_rows),
    (&gateway::units::STREAM_PORT, gateway::translate_port),
    (&mesh::units::REACHABLE, mesh::units::translate_reachable),
    (&mesh::units::WORKLOAD, mesh::units::translate_workload),
    (&mesh::units::ELSEWHERE, mesh::units::translate_elsewhere),
    (&istio::units::PROVIDER, istio::units::translate_provider),
    (&units::UPSTREAM, units::translate_upstream),
    (&istio::units::LISTENER, istio::units::translate_listener),
    (&mesh::units::SPOKEN, mesh::units::translate_spoken),
    (&mesh::units::CAPTURED, mesh::units::translate_captured),
    (&units::CERTIFICATE, units::translate_certificate),
    (&units::TRUST, units::translate_trust),
    (&holdings::BEYOND, holdings::translate),
    (&losers::LOSER, host::loser::translate),
    (&acme::units::ORDER, acme::translate),
    (&acme::units::ISSUER, acme::issuer::translate),
    (&acme::units::ON_DEMAND, acme::translate_on_demand),
    (
        &gateway::units::BACKEND_POLICY,
        gateway::backend_tls::translate,
    ),
    (&gateway::units::SET_STATUS, gateway::translate_set),
    (
        &gateway::units::GATEWAY_STATUS,
        gateway::translate_gateway_status,
    ),
];

/// Everything that the engine is told.
static RULES: Rules = Rules {
    units: &UNITS,
    found_under,
    touch,
    claimant,
    newly_claimed,
    named: selectors::named,
    named_always: &selectors::ALWAYS,
    roots,
    workload: Unit::workload,
    elsewhere: Unit::elsewhere,
    of_sidecars,
    above: resolve::facts::above,
    suffix_of,
    host: |host| Unit::host_of(host.clone()),
    told: |unit| {
        if unit.is(&units::TRUST) {
            let place = unit.name().and_then(|name| authorities::place(name));
            return place.map(|(namespace, _)| namespace.into());
        }
        let loss = losers::Loss::of(unit).filter(|_| unit.is(&losers::LOSER));
        loss.map(|loss| loss.loser.namespace().into())
    },
    scope: mesh::scope::of,
    has_rules: resolve::reader::has_rules,
    declares: mesh::reader::declares,
    choice: ChoiceRules {
        selector: resolve::facts::selector,
        labels: resolve::facts::labels,
        count: resolve::facts::count_first,
    },
    bounds: BoundRules {
        holdings: Holding::of,
        weigh: Bounds::weigh,
        hollow: holdings::hollow,
        reduce: holdings::reduce,
        beyond: Unit::beyond,
        crowded: holdings::crowded,
        copying: &units::UPSTREAM,
        copies: upstream::weigh,
        slots: upstream::weigh_slots,
        joining: &units::TRUST,
        joined: authorities::weigh,
        joined_place: authorities::place,
        hosts: istio::weight::hosts,
        place: upstream::namespace,
    },
};

impl Engine {
    /// An engine without objects. The first outcome carries the listeners.
    pub fn new(settings: Settings, writer: Writer) -> Engine {
        Engine::with_rules(&RULES, settings, writer)
    }
}

fn touch(scene: &Scene<'_>, key: &ObjectKey, states: States<'_>, touched: &mut Touched) {
    for dialect in &DIALECTS {
        (dialect.touch)(scene, key, states, touched);
    }
}

fn found_under(hasher: &FactHasher, object: &Object, add: &mut dyn FnMut(u64)) {
    for dialect in &DIALECTS {
        (dialect.found_under)(hasher, object, add);
    }
}

fn claimant(key: &ObjectKey) -> Option<Unit> {
    DIALECTS.iter().find_map(|dialect| (dialect.claimant)(key))
}

fn newly_claimed(old: &Object, new: &Object, settings: &Settings) -> NewlyClaimed {
    let mut dialects = DIALECTS.iter();
    let found = dialects.find_map(|dialect| (dialect.newly_claimed)(old, new, settings));
    found.unwrap_or_default()
}

fn roots(settings: &Settings) -> Vec<Unit> {
    let mut roots = Vec::new();
    for dialect in &DIALECTS {
        (dialect.roots)(settings, &mut roots);
    }
    roots
}

/// The units that every sidecar may see.
fn of_sidecars(settings: &Settings) -> Vec<Unit> {
    let providers = istio::units::providers(settings);
    let others = [Unit::elsewhere(), Unit::telemetry()];
    providers.chain(others).collect()
}

/// Says what is wrong with an object that no host claims.
fn refuse(reader: &mut Reader<'_>, unit: &Unit) -> Output {
    match unit.own_kind() {
        Some(ObjectKind::Sidecar | ObjectKind::PeerAuthentication) => mesh::judge(reader, unit),
        _ => istio::refuse(reader, unit),
    }
}

/// The families of facts, each of which has a number of its own.
const FAMILIES: [u8; 13] = [
    WHOLE,
    PortFact::FAMILY,
    ScopeFact::FAMILY,
    SharedFact::FAMILY,
    IngressFact::FAMILY,
    IstioFact::FAMILY,
    MeshFact::FAMILY,
    TallyFact::FAMILY,
    ChosenFact::FAMILY,
    LookedAtFact::FAMILY,
    HintFact::FAMILY,
    GatewayFact::FAMILY,
    SeatFact::FAMILY,
];

/// Each kind of unit stands at the place of its rank, and each family at that of its number.
const _: () = {
    let mut at = 0;
    while at < UNITS.len() {
        assert!(UNITS[at].0.rank as usize == at);
        at += 1;
    }
    let mut at = 0;
    while at < FAMILIES.len() {
        assert!(FAMILIES[at] as usize == at);
        at += 1;
    }
};
