//! The part of the office that is about certificates on demand: they are wanted by names alone, and
//! no object asks for them.

use std::sync::Arc;

use myriad_base::log::sparse::SparseLines;
use myriad_model::{on_demand_host, on_demand_name};
use myriad_pki::acme::{
    CertificateWish, Effect, HeldCertificate, Millis, Order, StepOutcome, StepTrouble, Task,
    TaskStep, TroubleNotice,
};

use super::Office;
use super::on_demand::DemandNews;
use super::steps::now;
use crate::settings::ISSUER;

/// The lines about troubles of certificates that no object asks for.
static LINES: SparseLines = SparseLines::untold();

/// A certificate on demand, and the wish for it.
pub(super) type WishOnDemand = (Arc<str>, CertificateWish);

impl Office {
    /// Takes in a certificate that is kept, where it is one on demand.
    pub(super) fn restore_on_demand(&self, id: &str, held: &HeldCertificate) {
        if let Some(name) = on_demand_host(id) {
            self.steps.on_demand.restore(name, held.until);
        }
    }

    /// The wish for the certificate of an order that is kept, where it is one on demand, which goes
    /// on.
    pub(super) fn wish_on_demand(&self, order: &Order) -> Option<WishOnDemand> {
        let name = on_demand_host(&order.id)?;
        let wish = CertificateWish {
            names: order.names.clone(),
            issuer: order.issuer.clone(),
        };
        self.steps.on_demand.resume(name);
        Some((order.id.clone(), wish))
    }

    /// Takes in a certificate that has changed although no order did that, where it is one on
    /// demand: it is wanted as it was before.
    pub(super) fn find_on_demand(
        &mut self,
        id: &str,
        held: &HeldCertificate,
        now: Millis,
    ) -> Vec<Effect> {
        self.restore_on_demand(id, held);
        match on_demand_host(id) {
            Some(name) if self.steps.on_demand.wants(name) => {
                self.want_on_demand(&name.into(), now)
            }
            _ => Vec::new(),
        }
    }

    /// Goes on with orders that were kept, once everything is known that was.
    pub(super) async fn open_on_demand(&mut self, wishes: Vec<WishOnDemand>) {
        for (id, wish) in wishes {
            let effects = self.desk.want(&id, wish, now());
            self.carry_out(effects).await;
        }
        self.steps.on_demand.ask_at(None);
    }

    /// Takes in what became of a name.
    pub(super) async fn meet(&mut self, news: DemandNews) {
        let now = now();
        let effects = match news {
            DemandNews::Want(name) => self.want_on_demand(&name, now),
            DemandNews::Idle(name) => self.desk.unwant(&id_of(&name), now),
            DemandNews::Over(name) => {
                let id = id_of(&name);
                let mut effects = self.desk.unwant(&id, now);
                effects.extend(self.desk.lose(&id, now));
                self.steps.retire(&id).await;
                effects
            }
        };
        self.carry_out(effects).await;
    }

    fn want_on_demand(&mut self, name: &Arc<str>, now: Millis) -> Vec<Effect> {
        if !self.book.has(ISSUER) {
            self.steps.on_demand.trouble(name, true);
            self.steps.on_demand.give_up(name);
            return Vec::new();
        }
        let wish = CertificateWish {
            names: vec![Box::from(&**name)],
            issuer: ISSUER.into(),
        };
        self.desk.want(&id_of(name), wish, now)
    }

    /// Takes note of what came of a step, where it is one for a name on demand. Whether nothing is
    /// wanted of that any more.
    pub(super) fn note_on_demand(
        &self,
        task: &Task,
        result: &Result<StepOutcome, StepTrouble>,
    ) -> bool {
        let Some(name) = on_demand_host(&task.id) else {
            return false;
        };
        let on_demand = &self.steps.on_demand;
        match result {
            Ok(StepOutcome::Issued(held)) => on_demand.issue(name, held.until),
            Err(StepTrouble::Unproven(..)) if task.step == TaskStep::Prove => {
                return on_demand.give_up(name);
            }
            Ok(StepOutcome::Placed(..) | StepOutcome::PlacedNew(..))
            | Err(StepTrouble::Refused(_)) => on_demand.place(name),
            _ => {}
        }
        false
    }

    /// Tells of a trouble with a certificate that no object asks for; whether it is one.
    pub(super) fn tell_on_demand(&self, id: &str, notice: Option<&TroubleNotice>) -> bool {
        let Some(name) = on_demand_host(id) else {
            return false;
        };
        self.steps.on_demand.trouble(name, notice.is_some());
        if let Some(notice) = notice
            && let Some(left_out) = LINES.admit()
        {
            tracing::info!(
                name,
                left_out,
                "the certificate on demand {}",
                notice.message
            );
        }
        true
    }
}

/// The certificate of a name, as the desk calls it.
fn id_of(name: &str) -> Arc<str> {
    on_demand_name(name).text().clone()
}
