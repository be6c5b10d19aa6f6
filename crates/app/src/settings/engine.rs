//! The settings of the engine that follow from how objects are read.

use myriad_translate::{CatchAll, CertManager, GatewayCredentials};

use super::mesh::DEFAULT_TRUST_DOMAIN;
use super::{Controller, ISSUER, Meaning, Serve};

impl Serve {
    /// The settings of the engine. The ports are those that are really bound.
    pub fn translate(&self) -> myriad_translate::Settings {
        let issuers = self.acme.issuer.iter().map(|_| ISSUER.into());
        let pairing = self.acme.issuer.iter().filter(|it| it.gives_pair());
        let in_dns = self.acme.issuer.iter();
        let in_dns = in_dns.filter(|it| it.challenge.is_in_dns());
        myriad_translate::Settings {
            own: vec![self.admin],
            issuers: Some(issuers.collect()),
            pairing_issuers: pairing.map(|_| ISSUER.into()).collect(),
            dns_issuers: in_dns.map(|_| ISSUER.into()).collect(),
            // Files are nobody's but this process's.
            cert_manager: CertManager::Absent,
            ..self.listeners.translate(self.meaning.translate())
        }
    }
}

impl Controller {
    /// The settings of the engine.
    pub fn translate(&self) -> myriad_translate::Settings {
        let issuer = self.acme.as_ref().and_then(|acme| acme.issuer.as_ref());
        let issuers = issuer.iter().map(|_| ISSUER.into());
        let pairing = issuer.iter().filter(|it| it.gives_pair());
        let in_dns = issuer.iter().filter(|it| it.challenge.is_in_dns());
        myriad_translate::Settings {
            // Objects are of tenants, and their history is seen and kept.
            late_claims: true,
            issuers: Some(issuers.collect()),
            pairing_issuers: pairing.map(|_| ISSUER.into()).collect(),
            dns_issuers: in_dns.map(|_| ISSUER.into()).collect(),
            issuer_namespace: self.namespace.as_str().into(),
            ..self.listeners.translate(self.meaning.translate())
        }
    }
}

impl Meaning {
    /// The settings of the engine, where nothing is served.
    pub fn translate(&self) -> myriad_translate::Settings {
        let catch_all = self.catch_all_namespaces.clone();
        let credentials = self.sharing.credentials;
        myriad_translate::Settings {
            class_name: self.ingress_class.as_str().into(),
            controller_name: self.controller_class.as_str().into(),
            gateway_controller: self.gateway_controller.as_str().into(),
            serve_classless: self.serves_classless,
            host_sharing: self.sharing.hosts,
            host_proof: self.sharing.installation.clone(),
            wildcard_sharing: self.sharing.wildcards.clone(),
            // Who writes the directory has the machine, and with it every Secret.
            gateway_credentials: credentials.unwrap_or(GatewayCredentials::Any),
            service_exports: self.sharing.service_exports,
            catch_all_namespaces: catch_all.map_or(CatchAll::All, CatchAll::Only),
            default_gateway_namespaces: self.default_gateway_namespaces.clone(),
            ignore_annotations: self.ignore_annotations.clone(),
            nginx_config_map: self.nginx_config_map.clone(),
            hsts: self.hsts,
            default_certificate: self.default_certificate.clone(),
            gateway_labels: self.gateway_labels.clone(),
            gateway_namespace: self.gateway_namespace.as_str().into(),
            views: self.gateways.views.clone(),
            root_namespace: self.mesh.root_namespace.clone(),
            providers: self.mesh.providers.clone(),
            telemetry: self.mesh.telemetry.clone(),
            sidecars: self.trust_domain.is_some(),
            trust_domain: self.trust_domain().into(),
            trust_domain_aliases: self.trust_domain_aliases(),
            cluster_domain: self.cluster_domain.as_str().into(),
            passes_underscores: self.passes_underscores,
            gateway_ports: self.gateway_ports.clone(),
            endpoints: self.endpoints.clone(),
            bounds: self.bounds,
            tenants: self.tenants.clone(),
            regexes_per_host: self.regexes_per_host,
            allows_any: self.mesh.allows_any,
            ..myriad_translate::Settings::default()
        }
    }

    /// The start of identities, behind `spiffe://`.
    fn trust_domain(&self) -> &str {
        let domain = self.trust_domain.as_ref();
        domain.map_or(DEFAULT_TRUST_DOMAIN, |it| &it.own)
    }

    fn trust_domain_aliases(&self) -> Vec<Box<str>> {
        let domain = self.trust_domain.iter();
        let aliases = domain.flat_map(|it| it.aliases.iter());
        aliases.map(|it| it.as_str().into()).collect()
    }
}
