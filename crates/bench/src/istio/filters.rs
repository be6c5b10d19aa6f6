//! The filters between clients and the endpoint beside TLS and routes: the modes of the published
//! test.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ED25519, SigningKey as _};

use super::write;

/// The file with the settings of the mesh, in the directory of the setup; it is no object.
pub const MESH_FILE: &str = "mesh-config";

/// The file with the token that requests bear, beside it.
pub(super) const TOKEN_FILE: &str = "token";

/// The file with the policies.
const POLICIES_FILE: &str = "policies.yaml";

/// The issuer of the token.
const ISSUER: &str = "https://issuer.scale.test";

/// More than anything asks for, so that every request is counted and none refused.
const LIMIT: &str = "1000000/s per client";

/// The filters that requests meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// TLS and the routes.
    #[default]
    Nofilters,
    /// A service is asked for each request as well, over HTTP.
    Onlyextauth,
    /// A service, a token that is verified, a policy that admits its bearer, and a rate limit.
    All,
    /// The endpoint itself, without a gateway.
    Direct,
}

/// The objects and settings of a mode.
#[derive(Default)]
pub struct Filters {
    policies: String,
    mesh: Option<String>,
    /// The token that requests have to bear.
    pub token: Option<String>,
    /// Whether domains are served without TLS as well.
    pub(super) is_plain_too: bool,
    is_limited: bool,
}

impl Filters {
    /// The filters of a mode, whose authorizer is there.
    ///
    /// # Errors
    /// The cryptographic library refuses.
    pub fn new(mode: Mode, authorizer: SocketAddr) -> anyhow::Result<Filters> {
        let mut filters = Filters::default();
        if matches!(mode, Mode::Onlyextauth | Mode::All) {
            filters.ask(authorizer);
        }
        if mode == Mode::All {
            filters.verify()?;
            filters.is_limited = true;
        }
        Ok(filters)
    }

    /// None, and domains that are served without TLS as well.
    pub fn plain_too() -> Filters {
        Filters {
            is_plain_too: true,
            ..Filters::default()
        }
    }

    /// Writes them into the directory of a setup that is there.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, to: &Path) -> anyhow::Result<()> {
        for (name, text) in [(MESH_FILE, &self.mesh), (TOKEN_FILE, &self.token)] {
            if let Some(text) = text {
                write(&to.join(name), text)?;
            }
        }
        match self.policies.is_empty() {
            true => Ok(()),
            false => write(&to.join(POLICIES_FILE), &self.policies),
        }
    }

    /// The objects of a domain with what the mode adds to them.
    pub fn dress(&self, objects: String) -> String {
        const HEAD: &str = "kind: VirtualService\nmetadata:\n";
        if !self.is_limited {
            return objects;
        }
        let annotation = format!("  annotations:\n    myriad.dev/rate-limit: {LIMIT}\n");
        objects.replace(HEAD, &(HEAD.to_owned() + &annotation))
    }

    /// Asks a service about every request.
    fn ask(&mut self, authorizer: SocketAddr) {
        self.mesh = Some(
            "extensionProviders:
- name: authorizer
  envoyExtAuthzHttp:
    service: authorizer.istio-system.svc.cluster.local
    port: 80
    timeout: 5s
"
            .to_owned(),
        );
        let (address, port) = (authorizer.ip(), authorizer.port());
        let family = match authorizer.is_ipv4() {
            true => "IPv4",
            false => "IPv6",
        };
        self.add(&format!(
            "apiVersion: v1
kind: Service
metadata: {{name: authorizer, namespace: istio-system}}
spec:
  ports: [{{name: http, port: 80}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: authorizer-1
  namespace: istio-system
  labels: {{kubernetes.io/service-name: authorizer}}
addressType: {family}
endpoints: [{{addresses: ['{address}']}}]
ports: [{{name: http, port: {port}}}]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: ask, namespace: istio-system}}
spec:
  action: CUSTOM
  provider: {{name: authorizer}}
  rules: [{{}}]
"
        ));
    }

    /// Admits bearers of a token alone.
    fn verify(&mut self) -> anyhow::Result<()> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let claims = format!(r#"{{"iss":"{ISSUER}","sub":"load","exp":4000000000}}"#);
        let head = encode(br#"{"alg":"EdDSA","kid":"1"}"#);
        let message = format!("{head}.{}", encode(claims.as_bytes()));
        let signature = key.sign(message.as_bytes());
        let signature = encode(&signature.context("the token is signed")?);
        self.token = Some(format!("{message}.{signature}"));
        let point = encode(key.public_key_raw());
        self.add(&format!(
            "apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata: {{name: tokens, namespace: istio-system}}
spec:
  jwtRules:
  - issuer: {ISSUER}
    jwks: '{{\"keys\":[{{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"1\",\"x\":\"{point}\"}}]}}'
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: bearers, namespace: istio-system}}
spec:
  action: ALLOW
  rules:
  - from: [{{source: {{requestPrincipals: ['{ISSUER}/*']}}}}]
    to: [{{operation: {{methods: [GET], paths: ['/path-*']}}}}]
"
        ));
        Ok(())
    }

    fn add(&mut self, objects: &str) {
        let lead = if self.policies.is_empty() {
            ""
        } else {
            "---\n"
        };
        // Writing to a String does not fail.
        let _ = write!(self.policies, "{lead}{objects}");
    }
}
