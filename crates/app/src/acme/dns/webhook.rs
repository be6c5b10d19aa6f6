//! Webhooks that set records, by the protocol of cert-manager's solvers: a document is posted that
//! says what is to be done, and comes back with an answer in it.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use http::Uri;
use myriad_base::file;
use myriad_pki::acme::{DnsRecord, DnsWebhook};
use myriad_proxy::Names;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::acme::http::Client;
use crate::process;

/// The version of the protocol, and the kind of its documents.
const VERSION: &str = "webhook.acme.cert-manager.io/v1alpha1";
const KIND: &str = "ChallengePayload";

/// The files of a Pod by which it asks its API server.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const ROOTS: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// The most bytes of those.
const TOKEN_BYTES_MAX: u64 = 64 << 10;
const ROOTS_BYTES_MAX: u64 = 1 << 20;

/// The longest words of a webhook that are handed on.
const WORDS_MAX: usize = 600;

/// The longest name of a group or a solver.
const NAME_BYTES_MAX: usize = 253;

/// Webhooks, each asked where it says.
pub(super) struct Webhooks {
    client: Client,
    /// The client for those that tenants name.
    for_tenants: Client,
    names: Names,
    /// The client that trusts the API server of the cluster.
    cluster: OnceCell<Client>,
}

/// The things that a webhook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordAction {
    /// Set a record, which may be there already.
    Present,
    /// Remove it, where it is there.
    CleanUp,
}

/// A document that comes back: the same kind, or the status of an API server.
#[derive(Deserialize)]
struct Payload {
    response: Option<PayloadResponse>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct PayloadResponse {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    success: bool,
    #[serde(default, alias = "result")]
    status: Option<PayloadStatus>,
}

#[derive(Deserialize)]
struct PayloadStatus {
    message: Option<String>,
}

impl Webhooks {
    pub(super) fn new(client: Client, names: Names) -> Webhooks {
        Webhooks {
            for_tenants: client.for_tenants(),
            client,
            names,
            cluster: OnceCell::new(),
        }
    }

    /// Has a webhook do something with a record.
    ///
    /// # Errors
    /// It does not, or says nothing, in words that go on after its name.
    pub(super) async fn ask(
        &self,
        webhook: &DnsWebhook,
        is_tenants: bool,
        (action, record): (RecordAction, &DnsRecord),
    ) -> anyhow::Result<()> {
        let uid = uid()?;
        let document = document(webhook, action, record, &uid)?.to_string();
        let (client, base) = match &webhook.url {
            Some(url) if is_tenants => (&self.for_tenants, url.to_string()),
            Some(url) => (&self.client, url.to_string()),
            // It is asked with the rights of this process, which are not a tenant's.
            None if is_tenants => anyhow::bail!("it has no URL"),
            None => (self.cluster().await?, api_server()?),
        };
        let url = url_of(webhook, &base)?;
        let token = token_of(webhook)?;
        let asked = client.post(&url, token.as_deref(), document.into_bytes());
        let (status, body) = asked.await.map_err(|error| anyhow::anyhow!("{error}"))?;
        understand(status, &body, &uid)
    }

    async fn cluster(&self) -> anyhow::Result<&Client> {
        let made = self.cluster.get_or_try_init(|| async {
            let config = trusting(Path::new(ROOTS)).context(ROOTS)?;
            Ok(Client::new(config, self.names.clone()))
        });
        made.await
    }
}

/// How an API server is verified.
fn trusting(path: &Path) -> anyhow::Result<Arc<ClientConfig>> {
    let text = file::whole(path, ROOTS_BYTES_MAX)?;
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(root?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(Arc::new(
        builder.with_root_certificates(roots).with_no_client_auth(),
    ))
}

/// The URL of the API server of the cluster that the process runs in.
fn api_server() -> anyhow::Result<String> {
    let said = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    let host = said("KUBERNETES_SERVICE_HOST");
    let host = host.context("it has no URL, and this process runs in no cluster")?;
    let port = said("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    Ok(match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    })
}

fn token_of(webhook: &DnsWebhook) -> anyhow::Result<Option<String>> {
    let path = match (&webhook.token_file, &webhook.url) {
        (Some(path), _) => path.as_path(),
        (None, None) => Path::new(TOKEN),
        // Nobody else's server is told who we are.
        (None, Some(_)) => return Ok(None),
    };
    let text = file::whole(path, TOKEN_BYTES_MAX);
    let text = text.with_context(|| format!("its token, {}", path.display()))?;
    Ok(Some(text.trim().to_owned()))
}

/// The URL that is asked.
fn url_of(webhook: &DnsWebhook, base: &str) -> anyhow::Result<String> {
    let uri = base.parse::<Uri>().context("its URL")?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_local = || {
        let ip = host.parse::<IpAddr>();
        host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
    };
    match uri.scheme_str() {
        Some("https") => {}
        // What is said there stays on this machine.
        Some("http") if is_local() => {}
        _ => anyhow::bail!("its URL {base} does not begin with https://"),
    }
    if webhook.group.is_empty() {
        return Ok(base.to_owned());
    }
    let (group, solver) = (&webhook.group, &webhook.solver);
    anyhow::ensure!(
        is_name(group) && is_name(solver),
        "its group {group:?} or its solver {solver:?} is no name"
    );
    let base = base.trim_end_matches('/');
    Ok(format!("{base}/apis/{group}/v1alpha1/{solver}"))
}

/// Whether a text is a name, and no path of which a part could be another's.
fn is_name(text: &str) -> bool {
    let is_ours = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(is_ours)
        && text.split('.').all(|label| !label.is_empty())
}

fn document(
    webhook: &DnsWebhook,
    action: RecordAction,
    record: &DnsRecord,
    uid: &str,
) -> anyhow::Result<Value> {
    let mut request = json!({
        "uid": uid,
        "action": match action {
            RecordAction::Present => "Present",
            RecordAction::CleanUp => "CleanUp",
        },
        "type": "dns-01",
        "dnsName": record.name,
        "key": record.value,
        "resourceNamespace": webhook.namespace,
        "resolvedFQDN": format!("{}.", record.fqdn),
        "resolvedZone": format!("{}.", record.zone),
        "allowAmbientCredentials": false,
    });
    if !webhook.config.is_empty() {
        let config: Value = serde_json::from_str(&webhook.config).context("its config")?;
        if let Some(fields) = request.as_object_mut() {
            fields.insert("config".to_owned(), config);
        }
    }
    Ok(json!({ "apiVersion": VERSION, "kind": KIND, "request": request }))
}

fn understand(status: u16, body: &[u8], uid: &str) -> anyhow::Result<()> {
    let payload: Option<Payload> = serde_json::from_slice(body).ok();
    let (response, message) = payload.map_or((None, None), |it| (it.response, it.message));
    let said = message.map(cut).unwrap_or_default();
    anyhow::ensure!((200..300).contains(&status), "status {status} {said}");
    let response = response.context("an answer that is none of the protocol")?;
    anyhow::ensure!(
        response.uid.is_empty() || response.uid == uid,
        "an answer to another question"
    );
    let said = response.status.and_then(|it| it.message).map(cut);
    let said = said.unwrap_or_else(|| "it does not say why".to_owned());
    anyhow::ensure!(response.success, "{said}");
    Ok(())
}

fn cut(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(WORDS_MAX));
    words
}

/// A number that tells one question from another.
fn uid() -> anyhow::Result<String> {
    let random = process::random_key()?;
    let digits = random.iter().take(16).map(|byte| format!("{byte:02x}"));
    Ok(digits.collect())
}

#[cfg(test)]
mod tests {
    use myriad_pki::acme::{DnsRecord, DnsWebhook};

    use super::{RecordAction, document, token_of, understand, url_of};

    fn webhook(url: Option<&str>, group: &str, solver: &str) -> DnsWebhook {
        DnsWebhook {
            url: url.map(Box::from),
            group: group.into(),
            solver: solver.into(),
            config: r#"{"zone":["a"]}"#.into(),
            namespace: "shop".into(),
            token_file: None,
        }
    }

    #[test]
    fn a_webhook_is_asked_at_its_url_or_as_a_group_of_an_api_server() {
        let own = "https://solver.example/present";
        assert_eq!(url_of(&webhook(Some(own), "", ""), own).unwrap(), own);
        let (group, solver) = ("acme.a.example", "my-solver");
        let url = url_of(&webhook(None, group, solver), "https://[::1]:6443/");
        let path = "https://[::1]:6443/apis/acme.a.example/v1alpha1/my-solver";
        assert_eq!(url.unwrap(), path);
        let near = "http://127.0.0.1:8080/";
        assert_eq!(url_of(&webhook(Some(near), "", ""), near).unwrap(), near);
    }

    #[test]
    fn no_name_leads_to_another_path_and_no_secret_goes_in_plain_text() {
        let base = "https://api.example";
        for (group, solver) in [
            ("../../api/v1/namespaces", "s"),
            ("acme..example", "s"),
            ("acme.example", ""),
            ("acme.example", "s/../t"),
            ("acme.example", "s?x"),
            ("Acme", "s"),
        ] {
            assert!(url_of(&webhook(None, group, solver), base).is_err());
        }
        for base in ["http://solver.example/", "ftp://a/", "solver.example", ""] {
            assert!(url_of(&webhook(None, "", ""), base).is_err(), "{base}");
        }
        let elsewhere = webhook(Some(base), "acme.example", "s");
        assert_eq!(token_of(&elsewhere).unwrap(), None);
    }

    #[test]
    fn a_document_says_what_cert_manager_says() {
        let record = DnsRecord {
            name: "a.example".into(),
            fqdn: "x.b.example".into(),
            zone: "b.example".into(),
            value: Some("v".into()),
        };
        let webhook = webhook(None, "acme.example", "s");
        let said = document(&webhook, RecordAction::CleanUp, &record, "u").unwrap();
        let wanted = serde_json::json!({
            "apiVersion": "webhook.acme.cert-manager.io/v1alpha1",
            "kind": "ChallengePayload",
            "request": {
                "uid": "u",
                "action": "CleanUp",
                "type": "dns-01",
                "dnsName": "a.example",
                "key": "v",
                "resourceNamespace": "shop",
                "resolvedFQDN": "x.b.example.",
                "resolvedZone": "b.example.",
                "allowAmbientCredentials": false,
                "config": {"zone": ["a"]},
            },
        });
        assert_eq!(said, wanted);
    }

    #[test]
    fn an_answer_is_a_success_only_if_it_says_so() {
        let good = r#"{"response":{"uid":"u","success":true}}"#;
        assert!(understand(200, good.as_bytes(), "u").is_ok());
        let why = r#"{"response":{"uid":"u","success":false,"status":{"message":"no zone"}}}"#;
        let older = why.replace("status", "result");
        for (status, body, part) in [
            (200, why, "no zone"),
            (200, &*older, "no zone"),
            (200, r#"{"response":{"uid":"u"}}"#, "does not say why"),
            (200, r#"{"response":{"uid":"x","success":true}}"#, "another"),
            (200, "{}", "none of the protocol"),
            (200, "<html>", "none of the protocol"),
            (500, good, "status 500"),
            (
                403,
                r#"{"kind":"Status","message":"forbidden"}"#,
                "forbidden",
            ),
        ] {
            let error = understand(status, body.as_bytes(), "u").unwrap_err();
            assert!(error.to_string().contains(part), "{body}: {error}");
        }
    }
}
