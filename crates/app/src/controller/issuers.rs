//! The statuses of issuers: whether certificates are obtained of them, and what authorities say.

use std::time::Duration;

use myriad_source::kubernetes::lease::Claim;
use myriad_source::kubernetes::status::Condition;
use myriad_source::kubernetes::{CallError, Client};

use crate::acme::{IssuerReport, IssuerReports};

/// The condition that tells whether certificates are obtained of an issuer.
const READY: &str = "Ready";

/// How long is waited between two statuses, and at least after one that could not be written.
const PAUSE: Duration = Duration::from_millis(100);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Shows for ever what is reported of issuers, while this process leads. What is reported while it
/// does not is let go, since all issuers are asked anew by whoever begins to lead.
pub(super) async fn show(client: Client, leads: Claim, reports: IssuerReports) {
    loop {
        let (issuer, report) = reports.next().await;
        let condition = condition(&report);
        let mut wait = PAUSE;
        match client.show_condition(&leads, &issuer, &condition).await {
            // One that is gone shows nothing.
            Ok(_) | Err(CallError::NotFound) => {}
            Err(error @ (CallError::Forbidden(_) | CallError::Rejected(_))) => {
                tracing::warn!(object = %issuer, %error, "the status cannot be written");
            }
            // Somebody writes this object time and again, which is nothing to others.
            Err(CallError::Conflict) => reports.put_back(issuer, report),
            Err(error @ (CallError::Lost(_) | CallError::Busy { .. })) => {
                wait = error.retry_after().max(RETRY_INTERVAL);
                reports.put_back(issuer, report);
            }
        }
        tokio::time::sleep(wait).await;
    }
}

fn condition(report: &IssuerReport) -> Condition {
    Condition {
        name: READY,
        holds: report.is_ready,
        reason: report.reason,
        message: report.message.clone(),
    }
}
