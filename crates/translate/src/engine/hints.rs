//! Whether cert-manager provides certificates beside this process, which no object tells.

use super::Engine;
use super::unit::UnitId;
use crate::settings::CertManager;
use crate::store::Fact;

/// That it is read whether cert-manager is there.
#[derive(Hash)]
pub(crate) struct HintFact;

impl Fact for HintFact {
    const FAMILY: u8 = 10;
}

impl Engine {
    /// Takes in whether cert-manager is there. Units of objects with hints for it run later, with
    /// [`Engine::work_off`].
    pub fn set_cert_manager(&mut self, state: CertManager) {
        if self.settings.cert_manager == state {
            return;
        }
        self.settings.cert_manager = state;
        let fact = self.hasher.fact(HintFact);
        let readers: Vec<UnitId> = self.units.readers(fact);
        for id in readers {
            self.memories.touch(id, fact);
            self.postpone(id);
        }
    }
}
