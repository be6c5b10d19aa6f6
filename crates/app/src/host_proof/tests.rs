//! Proofs that are found at a server of DNS over real sockets, kept in a file, and told of.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, NS, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use myriad_api::{Change, Object};
use myriad_base::metrics::Metrics;
use myriad_model::Host;
use myriad_proxy::NameSettings;
use myriad_translate::{Difference, Rival, proof_text};
use tokio::sync::mpsc;

use super::{ProofParts, Proving};
use crate::control::Event;
use crate::rivals::Rivals;
use crate::settings::ProofSettings;

/// The one zone that there is.
const ZONE: &str = "shop.test";

/// A server of the zone, which has texts and says how often it was asked for some.
struct DnsZone {
    address: SocketAddr,
    texts: Texts,
    /// Texts that somebody else tells over UDP in its place.
    forged: Texts,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// Texts by their names.
type Texts = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

impl DnsZone {
    /// Starts one, over UDP and TCP at one port.
    fn start() -> DnsZone {
        let (tcp, socket) = loop {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
                break (tcp, udp);
            }
        };
        let zone = DnsZone {
            address: socket.local_addr().unwrap(),
            texts: Arc::default(),
            forged: Arc::default(),
            asked: Arc::default(),
        };
        let (texts, asked) = (zone.texts.clone(), zone.asked.clone());
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                talk(stream, &texts, &asked);
            }
        });
        let (texts, asked) = (zone.texts.clone(), zone.asked.clone());
        let forged = zone.forged.clone();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 65_535];
            while let Ok((count, from)) = socket.recv_from(&mut bytes) {
                let is_forged = !forged.lock().unwrap().is_empty();
                let texts = if is_forged { &forged } else { &texts };
                let answer = answer(&bytes[..count], texts, &asked);
                if socket.send_to(&answer, from).is_err() {
                    return;
                }
            }
        });
        zone
    }

    fn set(&self, name: &str, texts: &[String]) {
        let mut all = self.texts.lock().unwrap();
        all.insert(name.to_owned(), texts.to_vec());
    }

    /// How often it was asked for the texts of a name.
    fn asked(&self, name: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.get(name).copied().unwrap_or_default()
    }
}

/// Answers the questions of one stream.
fn talk(
    mut stream: TcpStream,
    texts: &Mutex<BTreeMap<String, Vec<String>>>,
    asked: &Mutex<BTreeMap<String, usize>>,
) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut bytes = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut bytes).unwrap();
        let answer = answer(&bytes, texts, asked);
        let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
        if stream.write_all(&[&length[..], &answer].concat()).is_err() {
            return;
        }
    }
}

fn answer(
    bytes: &[u8],
    texts: &Mutex<BTreeMap<String, Vec<String>>>,
    asked: &Mutex<BTreeMap<String, usize>>,
) -> Vec<u8> {
    let question = Message::from_vec(bytes).unwrap();
    let mut reply = Message::response(question.metadata.id, question.metadata.op_code);
    reply.add_queries(question.queries.clone());
    reply.metadata.authoritative = true;
    let query = &question.queries[0];
    let name = query.name().to_ascii();
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let mut add = |data: RData| {
        reply.add_answer(Record::from_rdata(name_of(&name), 60, data));
    };
    match query.query_type() {
        RecordType::SOA if name == ZONE => add(soa()),
        RecordType::NS if name == ZONE => add(RData::NS(NS(name_of("ns.shop.test")))),
        RecordType::A if name == "ns.shop.test" => add(RData::A(A::new(127, 0, 0, 1))),
        RecordType::TXT => {
            *asked.lock().unwrap().entry(name.clone()).or_default() += 1;
            for text in texts.lock().unwrap().get(&name).into_iter().flatten() {
                add(RData::TXT(TXT::new(vec![text.clone()])));
            }
        }
        _ => {}
    }
    if reply.answers.is_empty() {
        reply.metadata.response_code = ResponseCode::NXDomain;
        reply.add_authority(Record::from_rdata(name_of(ZONE), 60, soa()));
    }
    reply.to_vec().unwrap()
}

fn soa() -> RData {
    RData::SOA(SOA::new(name_of(ZONE), name_of(ZONE), 1, 60, 60, 60, 3_600))
}

fn name_of(name: &str) -> Name {
    let mut name = Name::from_ascii(name).unwrap();
    name.set_fqdn(true);
    name
}

/// Starts to prove, with the hosts that several namespaces claim.
fn start(dns: &DnsZone, path: &Path, rivals: Rivals) -> (Proving, mpsc::Receiver<Event>) {
    let settings = ProofSettings {
        installation: "edge.test".into(),
        port: Some(dns.address.port()),
        file: path.to_owned(),
    };
    let (inbox, events) = mpsc::channel(16);
    let parts = ProofParts {
        inbox,
        rivals,
        names: NameSettings {
            servers: vec![dns.address],
            ..NameSettings::default()
        },
    };
    let proving = Proving::start(&settings, parts, &Metrics::new()).unwrap();
    (proving, events)
}

fn rivals(claims: &[(&str, &str, bool)]) -> Rivals {
    let rivals = Rivals::default();
    let added = claims.iter().map(|(host, namespace, holds)| {
        Arc::new(Rival {
            host: Host::parse(host).unwrap(),
            namespace: (*namespace).into(),
            holds: *holds,
        })
    });
    rivals.change(Difference {
        added: added.collect(),
        removed: Vec::new(),
    });
    rivals
}

/// The next proof that the control loop is told of.
fn told(events: &mut mpsc::Receiver<Event>) -> (String, String) {
    let Some(Event::Changed(batch)) = events.blocking_recv() else {
        panic!("no change")
    };
    let [Change::Put(Object::HostProof(proof))] = &*batch.changes else {
        panic!("{:?}", batch.changes)
    };
    let namespace = proof.namespace.to_string();
    (proof.meta.key.name().to_owned(), namespace)
}

#[test]
fn a_host_that_several_claim_is_asked_of_and_its_proof_outlives_the_process_and_dns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proofs");
    let dns = DnsZone::start();
    let other = proof_text("other.test", "blog");
    dns.set(
        "_myriad-host.shop.test",
        &[other, proof_text("edge.test", "shop")],
    );
    let claims = [
        ("*.shop.test", "blog", true),
        ("*.shop.test", "shop", false),
    ];
    let (proving, mut events) = start(&dns, &path, rivals(&claims));
    let proven = ("*.shop.test".to_owned(), "shop".to_owned());
    assert_eq!(told(&mut events), proven);
    assert_eq!(dns.asked("_myriad-host.shop.test"), 2, "and over TCP");
    assert_eq!(dns.asked("_myriad-host.www.shop.test"), 0);
    drop(proving);

    // Nobody says anything now, and the process has started anew.
    let silent = DnsZone {
        address: SocketAddr::from(([127, 0, 0, 1], 9)),
        ..DnsZone::start()
    };
    let (_proving, mut events) = start(&silent, &path, rivals(&claims));
    assert_eq!(told(&mut events), proven);
    std::thread::park_timeout(Duration::from_millis(300));
    assert!(events.try_recv().is_err(), "it stays proven");
}

#[test]
fn whoever_answers_over_udp_in_the_place_of_a_zone_gets_no_host() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proofs");
    let dns = DnsZone::start();
    let name = "_myriad-host.shop.test";
    dns.set(name, &[proof_text("edge.test", "shop")]);
    let forged = vec![proof_text("edge.test", "thief")];
    dns.forged.lock().unwrap().insert(name.to_owned(), forged);
    let claims = [
        ("shop.test", "blog", true),
        ("shop.test", "shop", false),
        ("shop.test", "thief", false),
    ];
    let (_proving, mut events) = start(&dns, &path, rivals(&claims));
    let proven = ("shop.test".to_owned(), "shop".to_owned());
    assert_eq!(told(&mut events), proven);
}

#[test]
fn a_proof_that_cannot_be_kept_has_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proofs");
    let dns = DnsZone::start();
    dns.set("_myriad-host.shop.test", &[proof_text("edge.test", "shop")]);
    let claims = [("shop.test", "blog", true), ("shop.test", "shop", false)];
    // Something else lies where it is written aside.
    std::fs::create_dir(folder.path().join(".proofs")).unwrap();
    let (_proving, mut events) = start(&dns, &path, rivals(&claims));
    while dns.asked("_myriad-host.shop.test") == 0 {
        std::thread::park_timeout(Duration::from_millis(10));
    }
    std::thread::park_timeout(Duration::from_millis(300));
    assert!(events.try_recv().is_err());
    assert!(!path.exists());
}
