//! A server of DNS that takes updates, and a webhook that sets what it has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use aws_lc_rs::hmac;
use hickory_resolver::proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::tsig::message_tbs;
use hickory_resolver::proto::rr::rdata::{A, CNAME, NS, SOA, TXT};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use myriad_base::{clock, task};
use myriad_pki::acme::{TsigAlgorithm, TsigKey, TsigSecret};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::acme::dns::tsig;

/// The secret that the server knows.
pub(super) const SECRET: &str = "secret";

/// A key of this secret.
pub(super) fn key(secret: &str) -> TsigKey {
    TsigKey {
        name: "gateway".into(),
        algorithm: TsigAlgorithm::Sha256,
        secret: TsigSecret::new(secret.as_bytes().to_vec()),
    }
}

/// A running server, over UDP and TCP at one port.
pub(super) struct DnsServer {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// The zones and records of a server, and how it behaves.
pub(super) struct State {
    pub zones: Vec<String>,
    pub texts: BTreeSet<(String, String)>,
    aliases: BTreeMap<String, String>,
    questions: Vec<RecordType>,
    /// How many updates it has taken.
    pub updates: usize,
    /// The code that it answers updates with.
    pub code: u16,
    /// Whether it signs answers.
    pub is_signed: bool,
    /// Whether it does not show texts yet.
    pub hides: bool,
    /// How somebody else answers over UDP in its place; none where nobody does.
    pub forgery: Option<Forgery>,
    /// How many questions came over TCP.
    pub over_tcp: usize,
}

/// The question in a forged answer, which has the number of the right one.
#[derive(Clone, Copy)]
pub(super) enum Forgery {
    /// No question at all.
    None,
    /// The right one twice.
    Twice,
    /// The right one, in letters of the other case.
    OtherCase,
}

/// The text of forged answers.
pub(super) const FORGED: &str = "forged";

impl Forgery {
    fn answer(self, bytes: &[u8]) -> Vec<u8> {
        let mut message = Message::from_vec(bytes).unwrap();
        let query = message.queries[0].clone();
        let name = name_of(&text_of(query.name()));
        message.queries.clear();
        match self {
            Forgery::None => {}
            Forgery::Twice => message.queries = vec![query.clone(), query],
            Forgery::OtherCase => {
                let letters = query.name().to_ascii();
                let letters = letters.chars().map(|it| match it.is_ascii_lowercase() {
                    true => it.to_ascii_uppercase(),
                    false => it.to_ascii_lowercase(),
                });
                let letters: String = letters.collect();
                let other = Query::query(name_of(&letters), query.query_type());
                message.queries.push(other);
            }
        }
        message.answers.clear();
        let text = RData::TXT(TXT::new(vec![FORGED.to_owned()]));
        message.add_answer(Record::from_rdata(name, 60, text));
        message.to_vec().unwrap()
    }
}

impl State {
    pub(super) fn alias(&mut self, name: &str, to: &str) {
        self.aliases.insert(name.to_owned(), to.to_owned());
    }

    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.texts.insert((name.to_owned(), text.to_owned()));
    }

    pub(super) fn texts_of(&self, name: &str) -> Vec<&str> {
        let texts = self.texts.iter().filter(|(of, _)| of == name);
        texts.map(|(_, text)| &**text).collect()
    }

    /// How often it was asked for records of a type.
    pub(super) fn asked(&self, kind: &str) -> usize {
        let kinds = self.questions.iter();
        kinds.filter(|it| it.to_string() == kind).count()
    }

    /// How often it was asked for anything.
    pub(super) fn all_asked(&self) -> usize {
        self.questions.len()
    }

    fn zone_of(&self, name: &str) -> Option<&String> {
        let mut zones = self.zones.iter();
        zones.find(|zone| name == **zone || name.ends_with(&format!(".{zone}")))
    }

    fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        let asked = Message::from_vec(bytes).unwrap();
        let mut reply = Message::response(asked.metadata.id, asked.metadata.op_code);
        reply.add_queries(asked.queries.clone());
        if asked.metadata.op_code == OpCode::Update {
            return self.update(&asked, reply);
        }
        reply.metadata.authoritative = true;
        let (name, kind) = (
            text_of(asked.queries[0].name()),
            asked.queries[0].query_type(),
        );
        self.questions.push(kind);
        let zone = self.zone_of(&name).cloned();
        let mut add = |data: RData| {
            reply.add_answer(Record::from_rdata(name_of(&name), 60, data));
        };
        let is_apex = zone.as_deref() == Some(&*name);
        match (self.aliases.get(&name), kind) {
            (Some(to), _) => add(RData::CNAME(CNAME(name_of(to)))),
            (None, RecordType::SOA) if is_apex => add(soa(&name)),
            (None, RecordType::NS) if is_apex => {
                add(RData::NS(NS(name_of(&format!("ns.{name}")))));
            }
            (None, RecordType::A) if name.starts_with("ns.") => {
                add(RData::A(A::new(127, 0, 0, 1)));
            }
            (None, RecordType::TXT) if !self.hides => {
                for text in self.texts_of(&name) {
                    add(RData::TXT(TXT::new(vec![text.to_owned()])));
                }
            }
            _ => {}
        }
        if reply.answers.is_empty() {
            reply.metadata.response_code = ResponseCode::NXDomain;
            if let Some(zone) = zone {
                reply.add_authority(Record::from_rdata(name_of(&zone), 60, soa(&zone)));
            }
        }
        reply.to_vec().unwrap()
    }

    /// Takes an update whose signature is right, as worked out by somebody else.
    fn update(&mut self, asked: &Message, mut reply: Message) -> Vec<u8> {
        let mut unsigned = asked.clone();
        let signature = unsigned.additionals.pop().expect("a signature");
        let RData::TSIG(tsig) = &signature.data else {
            panic!("{signature:?}")
        };
        let signed = message_tbs(&unsigned, tsig, &signature.name).unwrap();
        let own = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        if hmac::verify(&own, &signed, &tsig.mac).is_err() {
            reply.metadata.response_code = ResponseCode::NotAuth;
            return reply.to_vec().unwrap();
        }
        reply.metadata.response_code = self.code.into();
        if self.code == 0 && self.is_signed {
            self.updates += 1;
            for record in &asked.authorities {
                let RData::TXT(text) = &record.data else {
                    panic!("{record:?}")
                };
                let parts = text.txt_data.iter();
                let text: Vec<u8> = parts.flat_map(|part| part.iter().copied()).collect();
                let text = String::from_utf8(text).unwrap();
                let row = (text_of(&record.name), text);
                match record.dns_class {
                    DNSClass::NONE => self.texts.remove(&row),
                    _ => self.texts.insert(row),
                };
            }
        }
        let reply = reply.to_vec().unwrap();
        let now = clock::since_epoch().as_secs();
        match self.is_signed {
            true => {
                tsig::sign(&reply, &tsig.mac, &key(SECRET), now)
                    .unwrap()
                    .bytes
            }
            false => reply,
        }
    }
}

impl DnsServer {
    /// Starts one that has zones, and that is the server of each.
    pub(super) async fn start(zones: &[&str]) -> DnsServer {
        let (tcp, udp) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (tcp, udp);
            }
        };
        let state = State {
            zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            texts: BTreeSet::new(),
            aliases: BTreeMap::new(),
            questions: Vec::new(),
            updates: 0,
            code: 0,
            is_signed: true,
            hides: false,
            forgery: None,
            over_tcp: 0,
        };
        let server = DnsServer {
            address: tcp.local_addr().unwrap(),
            state: Arc::new(Mutex::new(state)),
        };
        let state = server.state.clone();
        task::spawn("dns over tcp", async move {
            loop {
                let (stream, _) = tcp.accept().await.unwrap();
                task::spawn("dns stream", talk(stream, state.clone()));
            }
        });
        let state = server.state.clone();
        task::spawn("dns over udp", async move {
            let mut bytes = vec![0; 65_535];
            loop {
                let (count, from) = udp.recv_from(&mut bytes).await.unwrap();
                let answer = {
                    let mut state = state.lock().unwrap();
                    let answer = state.answer(&bytes[..count]);
                    match state.forgery {
                        Some(forgery) => forgery.answer(&answer),
                        None => answer,
                    }
                };
                udp.send_to(&answer, from).await.unwrap();
            }
        });
        server
    }

    /// Looks at, or changes, what it has.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }
}

async fn talk(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    while let Ok(length) = stream.read_u16().await {
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await.unwrap();
        let answer = {
            let mut state = state.lock().unwrap();
            state.over_tcp += 1;
            state.answer(&bytes)
        };
        let length = u16::try_from(answer.len()).unwrap();
        stream.write_all(&length.to_be_bytes()).await.unwrap();
        stream.write_all(&answer).await.unwrap();
    }
}

fn name_of(name: &str) -> Name {
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    name
}

fn text_of(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

fn soa(zone: &str) -> RData {
    RData::SOA(SOA::new(name_of(zone), name_of(zone), 1, 60, 60, 60, 3_600))
}

/// A running webhook that sets the texts of a server.
pub(super) struct WebhookServer {
    pub address: SocketAddr,
    state: Arc<Mutex<WebhookState>>,
}

#[derive(Default)]
struct WebhookState {
    asked: Vec<String>,
    fault: Option<String>,
}

impl WebhookServer {
    pub(super) async fn start(server: &DnsServer) -> WebhookServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hook = WebhookServer {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let (state, zone) = (hook.state.clone(), server.state.clone());
        task::spawn("webhook", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                task::spawn("webhook stream", solve(stream, state.clone(), zone.clone()));
            }
        });
        hook
    }

    /// The heads of requests that it was asked with.
    pub(super) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    /// Sets nothing from now on, in these words.
    pub(super) fn fail(&self, words: &str) {
        self.state.lock().unwrap().fault = Some(words.to_owned());
    }
}

async fn solve(mut stream: TcpStream, state: Arc<Mutex<WebhookState>>, zone: Arc<Mutex<State>>) {
    let mut bytes = Vec::new();
    while let Ok(byte) = stream.read_u8().await {
        bytes.push(byte);
        if !bytes.ends_with(b"\r\n\r\n") {
            continue;
        }
        let head = String::from_utf8(std::mem::take(&mut bytes)).unwrap();
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        let length = lines
            .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .find_map(|(_, value)| value.parse::<usize>().ok());
        let mut body = vec![0; length.expect("a length")];
        stream.read_exact(&mut body).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let answer = {
            let mut state = state.lock().unwrap();
            state.asked.push(head);
            let fault = state.fault.clone();
            if fault.is_none() {
                obey(&body["request"], &mut zone.lock().unwrap());
            }
            serde_json::json!({ "response": {
                "uid": body["request"]["uid"],
                "success": fault.is_none(),
                "status": { "message": fault },
            }})
            .to_string()
        };
        let length = answer.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{answer}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

fn obey(request: &serde_json::Value, state: &mut State) {
    let text = |field: &str| request[field].as_str().unwrap().to_owned();
    let name = text("resolvedFQDN").trim_end_matches('.').to_owned();
    let row = (name, text("key"));
    match &*text("action") {
        "Present" => assert!(state.texts.insert(row)),
        "CleanUp" => assert!(state.texts.remove(&row)),
        other => panic!("{other}"),
    }
}
