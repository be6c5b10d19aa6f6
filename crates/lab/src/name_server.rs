//! A small server of DNS, over UDP and TCP, that says what it is told to say.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A server on this machine. It serves until the process ends.
#[derive(Clone)]
pub struct NameServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    sayings: HashMap<String, Saying>,
    asked: HashMap<String, usize>,
}

/// The answer to a name. Of others it is said that they do not exist.
#[derive(Clone, Debug)]
pub enum Saying {
    /// It has these addresses, for so many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// These addresses, but they fit only into an answer over TCP.
    Long(Vec<IpAddr>, u32),
    /// There is no such name.
    Nothing,
    /// The server has failed.
    Failure,
    /// Not a word.
    Silence,
}

impl NameServer {
    /// Starts one on a port of this machine that is free over both UDP and TCP.
    pub fn start() -> NameServer {
        NameServer::start_at([127, 0, 0, 1].into())
    }

    /// Starts one at an address of this machine.
    pub fn start_at(ip: IpAddr) -> NameServer {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind((ip, 0)).expect("a port for UDP");
            let address = udp.local_addr().expect("an address");
            if let Ok(tcp) = TcpListener::bind(address) {
                break (udp, tcp);
            }
        };
        let server = NameServer {
            address: udp.local_addr().expect("an address"),
            state: Arc::default(),
        };
        let over_udp = server.clone();
        thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok((length, client)) = udp.recv_from(&mut buffer) {
                if let Some(answer) = over_udp.answer(&buffer[..length], false) {
                    let _ = udp.send_to(&answer, client);
                }
            }
        });
        let over_tcp = server.clone();
        thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                let server = over_tcp.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    /// The address that it is asked at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Says something of a name from now on.
    pub fn say(&self, name: &str, saying: Saying) {
        self.state().sayings.insert(name.to_owned(), saying);
    }

    /// How often it was asked for the IPv4 addresses of a name.
    pub fn asked(&self, name: &str) -> usize {
        self.state().asked.get(name).copied().unwrap_or(0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut length = [0; 2];
        while stream.read_exact(&mut length).is_ok() {
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            if stream.read_exact(&mut question).is_err() {
                return;
            }
            if let Some(answer) = self.answer(&question, true) {
                let length = u16::try_from(answer.len()).expect("a short answer");
                let _ = stream.write_all(&length.to_be_bytes());
                let _ = stream.write_all(&answer);
            }
        }
    }

    /// The answer to a question (RFC 1035, section 4).
    fn answer(&self, question: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
        let (mut name, mut at) = (String::new(), 12);
        while *question.get(at)? > 0 {
            let end = at + 1 + usize::from(question[at]);
            let label = std::str::from_utf8(question.get(at + 1..end)?).ok()?;
            name = [name, label.to_ascii_lowercase()].join(if at > 12 { "." } else { "" });
            at = end;
        }
        let kind = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
        let asked = question.get(12..at + 5)?;
        let saying = {
            let mut state = self.state();
            if kind == 1 {
                *state.asked.entry(name.clone()).or_default() += 1;
            }
            state.sayings.get(&name).cloned().unwrap_or(Saying::Nothing)
        };
        let (flags, addresses, ttl) = match saying {
            Saying::Addresses(addresses, ttl) => (0, addresses, ttl),
            Saying::Long(addresses, ttl) if is_tcp => (0, addresses, ttl),
            Saying::Long(..) => (0x0200, Vec::new(), 0),
            Saying::Nothing => (3, Vec::new(), 0),
            Saying::Failure => (2, Vec::new(), 0),
            Saying::Silence => return None,
        };
        let wanted = |ip: &IpAddr| match kind {
            1 => ip.is_ipv4(),
            28 => ip.is_ipv6(),
            _ => false,
        };
        let addresses: Vec<IpAddr> = addresses.into_iter().filter(wanted).collect();
        let mut answer = question.get(..2)?.to_vec();
        answer.extend((0x8180_u16 | flags).to_be_bytes());
        answer.extend([0, 1]);
        answer.extend(u16::try_from(addresses.len()).ok()?.to_be_bytes());
        answer.extend([0; 4]);
        answer.extend(asked);
        for ip in addresses {
            let bytes = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend([0, u8::try_from(bytes.len()).ok()?]);
            answer.extend(bytes);
        }
        Some(answer)
    }
}
