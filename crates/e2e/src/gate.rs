//! A gate in front of a site, by the contract of oauth2-proxy: it is asked whether requests may
//! pass, and signs browsers in at a provider of OpenID Connect by the flow of codes (OpenID Connect
//! Core 1.0, section 3.1).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use aws_lc_rs::rand;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The id of the gate at its provider, and the secret.
pub const CLIENT: (&str, &str) = ("gate", "a secret of both");

/// The cookie of those who are signed in, and that of those who are about to be.
const SESSION: &str = "_oauth2_proxy";
const PENDING: &str = "_oauth2_proxy_csrf";

/// A gate that listens; it stops when dropped.
pub struct Gate {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// The provider, and where it calls back.
    provider: OnceLock<(String, String)>,
    state: Mutex<GateState>,
    asked: AtomicUsize,
}

#[derive(Default)]
struct GateState {
    /// The names of those who are signed in, by their cookies.
    sessions: HashMap<String, String>,
    /// Sign-ins under way, by their word: the way back, and the nonce that comes back with it.
    pending: HashMap<String, (String, String)>,
}

impl Gate {
    /// A gate that knows no provider yet.
    ///
    /// # Panics
    /// Where there is no port.
    pub async fn start() -> Gate {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::<Shared>::default();
        let router = Router::new()
            .route("/oauth2/auth", any(auth))
            .route("/oauth2/start", any(start))
            .route("/oauth2/callback", any(callback))
            .route("/oauth2/sign_out", any(sign_out))
            .with_state(shared.clone());
        let task = tokio::spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("the gate serves");
        });
        Gate {
            address,
            shared,
            task,
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How often it was asked whether a request may pass.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// Tells it of its provider, and where that calls back.
    ///
    /// # Panics
    /// Where it has one.
    pub fn sign_in_at(&self, issuer: String, callback: String) {
        let told = self.shared.provider.set((issuer, callback));
        told.expect("it has one provider");
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn provider(&self) -> (&str, &str) {
        let (issuer, callback) = self.provider.get().expect("it knows its provider");
        (issuer, callback)
    }
}

/// 202 with who it is, or 401.
async fn auth(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    shared.asked.fetch_add(1, Ordering::SeqCst);
    let session = cookie(&headers, SESSION);
    let state = shared.state();
    let name = session.and_then(|session| state.sessions.get(&session));
    let Some(name) = name else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let told = [
        ("x-auth-request-user", name.clone()),
        ("x-auth-request-email", format!("{name}@staff.test")),
        ("set-cookie", format!("{SESSION}_seen={name}; Path=/")),
    ];
    (StatusCode::ACCEPTED, told).into_response()
}

/// Leads to the provider, which leads back.
async fn start(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    let (issuer, callback) = shared.provider();
    let back = parameter(&uri, "rd").unwrap_or_else(|| "/".to_owned());
    let (word, nonce) = (random(), random());
    let callback = escape(callback);
    let (id, _) = CLIENT;
    let location = format!(
        "{issuer}/auth?client_id={id}&response_type=code&scope=openid%20email&\
         redirect_uri={callback}&state={word}&nonce={nonce}"
    );
    let cookie = format!("{PENDING}={word}; Path=/; HttpOnly");
    shared.state().pending.insert(word, (back, nonce));
    found(&location, &cookie)
}

/// Takes the code that the provider gave for what it says of its user.
async fn callback(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, StatusCode> {
    let word = parameter(&uri, "state").ok_or(StatusCode::BAD_REQUEST)?;
    let code = parameter(&uri, "code").ok_or(StatusCode::BAD_REQUEST)?;
    let own = cookie(&headers, PENDING).filter(|own| *own == word);
    let pending = own.and_then(|own| shared.state().pending.remove(&own));
    let (back, nonce) = pending.ok_or(StatusCode::FORBIDDEN)?;
    let (issuer, callback) = shared.provider();
    let answer = redeem(issuer, callback, &code).await;
    let claims = claims(&answer).ok_or(StatusCode::FORBIDDEN)?;
    let (id, _) = CLIENT;
    let is_own = claims["iss"] == issuer && claims["aud"] == id && claims["nonce"] == nonce;
    let name = claims["sub"].as_str().filter(|_| is_own);
    let name = name.ok_or(StatusCode::FORBIDDEN)?.to_owned();
    let session = random();
    let cookie = format!("{SESSION}={session}; Path=/; HttpOnly");
    shared.state().sessions.insert(session, name);
    Ok(found(&back, &cookie))
}

async fn sign_out(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    if let Some(session) = cookie(&headers, SESSION) {
        shared.state().sessions.remove(&session);
    }
    found("/", &format!("{SESSION}=; Path=/; Max-Age=0"))
}

fn found(location: &str, cookie: &str) -> Response {
    let fields = [("location", location), ("set-cookie", cookie)];
    (
        StatusCode::FOUND,
        fields.map(|(name, value)| (name, value.to_owned())),
    )
        .into_response()
}

/// The answer of the provider to a code, over a connection of its own.
async fn redeem(issuer: &str, callback: &str, code: &str) -> String {
    let (id, secret) = CLIENT;
    let host = issuer.trim_start_matches("http://");
    let basic = STANDARD.encode(format!("{}:{}", escape(id), escape(secret)));
    let (code, callback) = (escape(code), escape(callback));
    let form = format!("grant_type=authorization_code&code={code}&redirect_uri={callback}");
    let request = format!(
        "POST /token HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {basic}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{form}",
        form.len()
    );
    let mut tcp = TcpStream::connect(host)
        .await
        .expect("the provider listens");
    tcp.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.expect("it answers");
    String::from_utf8_lossy(&answer).into_owned()
}

/// The claims of the token in an answer, which came from the provider itself, so that its signature
/// says nothing more.
fn claims(answer: &str) -> Option<Value> {
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let body: Value = serde_json::from_str(body).ok()?;
    let token = body["id_token"].as_str()?;
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&claims).ok()
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let fields = headers.get_all("cookie").iter();
    let texts = fields.filter_map(|field| field.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';'));
    let found = pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='));
    found.map(str::to_owned)
}

/// A parameter of a query, with its escapes undone.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let mut pairs = uri.query()?.split('&').filter_map(|it| it.split_once('='));
    let (_, value) = pairs.find(|(known, _)| *known == name)?;
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = myriad_model::unescape(after).filter(|_| *byte == b'%');
        let (byte, after) = escaped.unwrap_or((*byte, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

fn escape(text: &str) -> String {
    let bytes = text.bytes().map(|byte| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}

fn random() -> String {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes).expect("random numbers");
    URL_SAFE_NO_PAD.encode(bytes)
}
