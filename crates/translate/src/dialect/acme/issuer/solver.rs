//! How an issuer has records of DNS set.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use myriad_api::issuer::{DnsSpec, DnsUpdateSpec, DnsWebhookSpec};

use super::faults::Faults;
use super::{Checking, texts};
use crate::engine::{HashTerms, IssuerSecret, SolverTerms};

/// The longest settings of a webhook, as JSON.
const CONFIG_BYTES_MAX: usize = 16 << 10;

impl Checking<'_, '_> {
    /// The way in which records are set; none where something is wrong with it.
    pub(super) fn solver(&mut self, dns: &DnsSpec, faults: &mut Faults<'_>) -> Option<SolverTerms> {
        match (&dns.update, &dns.webhook) {
            (Some(update), _) => self.update(update, faults),
            (None, Some(webhook)) => Some(self.webhook(webhook, faults)),
            (None, None) => {
                let message = "says nothing about how records are set";
                faults.error("spec.acme.dns", message, "write update or webhook");
                None
            }
        }
    }

    fn update(&mut self, update: &DnsUpdateSpec, faults: &mut Faults<'_>) -> Option<SolverTerms> {
        let field = "spec.acme.dns.update";
        if !texts::is_server(&update.server) {
            let remedy = "write a host or an address, with a port where it is not 53";
            faults.error(&format!("{field}.server"), "is no server of DNS", remedy);
        }
        let zone = update.zone.as_deref();
        if zone.is_some_and(|zone| !texts::is_host_name(zone)) {
            let remedy = "write a name such as example.com, or leave it out";
            faults.error(&format!("{field}.zone"), "is no name of a zone", remedy);
        }
        let tsig = &update.tsig;
        if !texts::is_host_name(&tsig.name) {
            let remedy = "write the name that the server has for the key";
            faults.error(&format!("{field}.tsig.name"), "is no name of a key", remedy);
        }
        let hash = match tsig.algorithm.to_ascii_lowercase().as_str() {
            "" | "hmac-sha256" => HashTerms::Sha256,
            "hmac-sha512" => HashTerms::Sha512,
            _ => {
                let message = "is no algorithm that is known";
                let remedy = "write hmac-sha256 or hmac-sha512";
                faults.error(&format!("{field}.tsig.algorithm"), message, remedy);
                HashTerms::Sha256
            }
        };
        let field = format!("{field}.tsig.secretRef");
        let text = self.secret(&tsig.secret_ref, &field, faults)?;
        let bytes = STANDARD.decode(text.trim_ascii()).ok();
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            let message = "names a value that is no key in base64";
            faults.error(&field, message, "write the key as the server has it");
            return None;
        };
        Some(SolverTerms::Update {
            server: update.server.clone(),
            zone: update.zone.clone(),
            key_name: tsig.name.clone(),
            hash,
            key: IssuerSecret::new(bytes),
        })
    }

    fn webhook(&self, webhook: &DnsWebhookSpec, faults: &mut Faults<'_>) -> SolverTerms {
        let field = "spec.acme.dns.webhook";
        let url = webhook.url.as_deref();
        if url.is_some_and(|url| !texts::is_url(url)) {
            let remedy = "write a URL that begins with https://";
            faults.error(&format!("{field}.url"), "is no URL of a webhook", remedy);
        }
        let group = webhook.group_name.as_deref().unwrap_or_default();
        let is_group = group.is_empty() || texts::is_object_name(group);
        if !is_group || group.is_empty() && url.is_none() {
            let remedy = "write the group of its API, or a url";
            faults.error(
                &format!("{field}.groupName"),
                "is no group of an API",
                remedy,
            );
        }
        // The API server is asked with the rights of this process, which are not those of whoever
        // may write to a namespace.
        if url.is_none() && !self.is_for_all {
            let message = "is missing, and an Issuer may not ask the API server of the cluster";
            let remedy = "write the URL of the webhook, or a ClusterIssuer";
            faults.error(&format!("{field}.url"), message, remedy);
        }
        let solver = &webhook.solver_name;
        if !texts::is_object_name(solver) {
            let remedy = "write the name that the webhook has";
            faults.error(
                &format!("{field}.solverName"),
                "is no name of a solver",
                remedy,
            );
        }
        let config = webhook.config.as_ref().map_or("", |config| &*config.0);
        if config.len() > CONFIG_BYTES_MAX {
            let message = format!("has more than {CONFIG_BYTES_MAX} bytes as JSON");
            faults.error(
                &format!("{field}.config"),
                message,
                "leave only what is needed",
            );
        }
        SolverTerms::Webhook {
            url: webhook.url.clone(),
            group: group.into(),
            solver: solver.clone(),
            config: config.into(),
            namespace: self.namespace.clone(),
        }
    }
}
