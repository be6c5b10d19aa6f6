//! The request that is asked about.

use std::net::IpAddr;

use myriad_proxy::Limits;
use myriad_proxy::codec::head::{self, Head};
use myriad_proxy::policy::token::KeptToken;
use serde_json::{Map, Value};

/// The longest URL or header in bytes.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The longest name of a handshake in bytes.
const NAME_BYTES_MAX: usize = 253;

/// The most headers.
const HEADERS_MAX: usize = 64;

/// A request that somebody might send.
#[derive(Debug)]
pub struct Question {
    /// The URL as it was written.
    pub url: String,
    /// Whether it is sent over TLS.
    pub is_tls: bool,
    /// Whether datagrams are sent in place of a request.
    pub is_datagrams: bool,
    /// The host of the URL in lower case: what a client resolves, and asks a certificate for.
    pub host: String,
    /// The port, where the URL names one.
    pub port: Option<u16>,
    /// The address of the client, where it is told.
    pub client: Option<IpAddr>,
    /// The name in the handshake, where it is another one than the host of the URL.
    sni: Option<String>,
    /// The claims of a token that counts as verified.
    claims: Option<Map<String, Value>>,
    /// The head as it would be sent.
    head: String,
}

impl Question {
    /// Reads a question.
    ///
    /// # Errors
    /// The problem of the question, for people.
    pub fn new(url: &str, method: &str, headers: &[String]) -> Result<Question, String> {
        let is_long = |text: &str| text.len() > TEXT_BYTES_MAX;
        if is_long(url) || headers.iter().any(|it| is_long(it)) || headers.len() > HEADERS_MAX {
            return Err("the request is too long".to_owned());
        }
        let has_breaks = |text: &str| text.bytes().any(|byte| byte < b' ' || byte == 0x7f);
        if has_breaks(url) || has_breaks(method) || headers.iter().any(|it| has_breaks(it)) {
            return Err("the request has control characters".to_owned());
        }
        let invalid =
            || format!("{url:?} is not a URL with http://, https:// or udp:// and a host");
        let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
        let (is_tls, is_datagrams) = match scheme {
            "https" => (true, false),
            "http" => (false, false),
            "udp" => (false, true),
            _ => return Err(invalid()),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let slash = if target.starts_with('/') { "" } else { "/" };
        let (host, port) = split_port(authority).ok_or_else(invalid)?;
        let mut text = format!("{method} {slash}{target} HTTP/1.1\r\n");
        let is_host = |header: &String| {
            let name = header.split(':').next().unwrap_or_default();
            name.trim().eq_ignore_ascii_case("host")
        };
        if !headers.iter().any(is_host) {
            text.push_str(&format!("Host: {authority}\r\n"));
        }
        for header in headers {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| format!("{header:?} is not a header, NAME: VALUE"))?;
            text.push_str(&format!("{}: {}\r\n", name.trim(), value.trim()));
        }
        text.push_str("\r\n");
        let question = Question {
            url: url.to_owned(),
            is_tls,
            is_datagrams,
            host: host.trim_end_matches('.').to_ascii_lowercase(),
            port,
            client: None,
            sni: None,
            claims: None,
            head: text,
        };
        question.head()?;
        Ok(question)
    }

    /// The same request of a client: its address, the name in its handshake, and the claims of its
    /// token as JSON; each may be empty.
    ///
    /// # Errors
    /// A message for people about the part that cannot be read.
    pub fn of_client(mut self, client: &str, sni: &str, claims: &str) -> Result<Question, String> {
        if !client.is_empty() {
            let address = client.parse();
            let invalid = |_| format!("{client:?} is not an address of a client");
            self.client = Some(address.map_err(invalid)?);
        }
        if !sni.is_empty() {
            if sni.len() > NAME_BYTES_MAX || sni.parse::<IpAddr>().is_ok() {
                return Err(format!("{sni:?} is not a name for a TLS handshake"));
            }
            self.sni = Some(sni.trim_end_matches('.').to_ascii_lowercase());
        }
        if !claims.is_empty() {
            if claims.len() > TEXT_BYTES_MAX {
                return Err("the claims are too long".to_owned());
            }
            let read = serde_json::from_str(claims);
            self.claims = Some(read.map_err(|_| "the claims are not a JSON object".to_owned())?);
        }
        Ok(self)
    }

    /// The name that a certificate is asked for: that of the handshake, or the host of the URL.
    pub fn server_name(&self) -> &str {
        self.sni.as_deref().unwrap_or(&self.host)
    }

    /// The name in the handshake. Clients send no address as one.
    pub fn sni(&self) -> Option<&str> {
        let name = self.server_name();
        name.parse::<IpAddr>().is_err().then_some(name)
    }

    /// The token that counts as verified.
    pub fn token(&self) -> Option<KeptToken> {
        self.claims.clone().map(KeptToken::supposed)
    }

    /// The head, as the proxy reads it.
    ///
    /// # Errors
    /// That it refuses such a head.
    pub fn head(&self) -> Result<Head<'_>, String> {
        head::parse(self.head.as_bytes(), &Limits::default()).map_err(|kind| {
            let verdict = kind.verdict();
            let (status, text) = (verdict.status, verdict.text.trim_end());
            format!("the proxy refuses such a request with {status}: {text}")
        })
    }

    /// The names that resources are looked up by: that of the handshake, and that of the request.
    pub fn names(&self) -> Vec<String> {
        let mut names = vec![self.host.clone()];
        names.extend(self.sni.clone());
        names.extend(self.head().map(|head| head.host.into_owned()));
        names.dedup();
        names
    }
}

/// Host and port of an authority.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    if authority.contains('@') {
        return None;
    }
    let bracket = authority.rfind(']').unwrap_or(0);
    let (host, port) = match authority.rfind(':').filter(|colon| *colon > bracket) {
        Some(colon) => {
            let (host, port) = authority.split_at(colon);
            (host, Some(port.trim_start_matches(':').parse().ok()?))
        }
        None => (authority, None),
    };
    (!host.is_empty()).then_some((host, port))
}
