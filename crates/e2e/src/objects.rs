//! Objects as people write them, for the simplest site and its variations.

use std::fmt::Write;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::authority::Pair;

/// An Ingress with its Service, EndpointSlice and Secret, all named after the host, with dashes for
/// its dots: a Service has none.
#[derive(Clone)]
pub struct Site {
    host: String,
    namespace: String,
    endpoints: Vec<SocketAddr>,
    certificate: Option<Pair>,
    is_issued: bool,
    annotations: Vec<(String, String)>,
    class: Option<String>,
    path: String,
}

impl Site {
    /// A site without endpoints and without TLS, in the namespace `default`.
    pub fn new(host: &str) -> Self {
        Site {
            host: host.to_owned(),
            namespace: "default".to_owned(),
            endpoints: Vec::new(),
            certificate: None,
            is_issued: false,
            annotations: Vec::new(),
            class: None,
            path: "/".to_owned(),
        }
    }

    /// One more endpoint. All endpoints of a site have the same port in a slice of their own.
    #[must_use]
    pub fn to(mut self, endpoint: SocketAddr) -> Self {
        self.endpoints.push(endpoint);
        self
    }

    /// TLS with this certificate.
    #[must_use]
    pub fn tls(mut self, pair: &Pair) -> Self {
        self.certificate = Some(pair.clone());
        self
    }

    /// TLS with a certificate that an issuer is to provide, so that there is no Secret.
    #[must_use]
    pub fn issued_by(mut self, issuer: &str) -> Self {
        self.is_issued = true;
        self.annotation("myriad.dev/issuer", issuer)
    }

    /// Puts the objects into this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.to_owned();
        self
    }

    /// Adds an annotation to the Ingress.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Sets the ingress class.
    #[must_use]
    pub fn class(mut self, class: &str) -> Self {
        self.class = Some(class.to_owned());
        self
    }

    /// Sets this path prefix instead of `/`.
    #[must_use]
    pub fn path(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    /// The YAML documents.
    pub fn yaml(&self) -> String {
        let mut text = self.ingress();
        text.push_str(&self.service());
        for (number, endpoint) in self.endpoints.iter().enumerate() {
            text.push_str(&self.slice(number, endpoint));
        }
        if let Some(pair) = &self.certificate {
            text.push_str(&self.secret(pair));
        }
        text
    }

    /// The YAML documents, each for itself.
    pub fn documents(&self) -> Vec<String> {
        let text = self.yaml();
        text.split("---\n").map(str::to_owned).collect()
    }

    fn name(&self) -> String {
        self.host.replace('*', "any").replace('.', "-")
    }

    fn meta(&self, name: &str) -> String {
        format!(
            "metadata:\n  name: {name}\n  namespace: {}\n",
            self.namespace
        )
    }

    fn ingress(&self) -> String {
        let name = self.name();
        let mut text = String::from("apiVersion: networking.k8s.io/v1\nkind: Ingress\n");
        text += &self.meta(&name);
        if !self.annotations.is_empty() {
            text.push_str("  annotations:\n");
            for (key, value) in &self.annotations {
                // A JSON string is a YAML string.
                let value = serde_json::Value::from(value.as_str());
                let _ = writeln!(text, "    {key}: {value}");
            }
        }
        text.push_str("spec:\n");
        if let Some(class) = &self.class {
            let _ = writeln!(text, "  ingressClassName: {class}");
        }
        if self.certificate.is_some() || self.is_issued {
            let _ = writeln!(
                text,
                "  tls:\n  - hosts: ['{}']\n    secretName: {name}",
                self.host
            );
        }
        let _ = writeln!(
            text,
            "  rules:\n  - host: '{}'\n    http:\n      paths:\n      - path: {}\n        \
             pathType: Prefix\n        backend:\n          \
             service: {{ name: {name}, port: {{ number: 80 }} }}",
            self.host, self.path
        );
        text
    }

    fn service(&self) -> String {
        let meta = self.meta(&self.name());
        format!(
            "---\napiVersion: v1\nkind: Service\n{meta}spec:\n  clusterIP: None\n  ports:\n  \
             - port: 80\n"
        )
    }

    fn slice(&self, number: usize, endpoint: &SocketAddr) -> String {
        let name = self.name();
        let meta = self.meta(&format!("{name}-{number}"));
        format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n{meta}  labels:\n    \
             kubernetes.io/service-name: {name}\naddressType: IPv4\nendpoints:\n\
             - addresses: ['{}']\nports:\n- port: {}\n",
            endpoint.ip(),
            endpoint.port(),
        )
    }

    fn secret(&self, pair: &Pair) -> String {
        let meta = self.meta(&self.name());
        format!(
            "---\napiVersion: v1\nkind: Secret\n{meta}type: kubernetes.io/tls\ndata:\n  \
             tls.crt: {}\n  tls.key: {}\n",
            STANDARD.encode(&pair.certificate),
            STANDARD.encode(&pair.key),
        )
    }
}
