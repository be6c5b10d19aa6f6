//! Questions to servers of DNS, and what they answer.
//!
//! An answer over UDP counts where it comes to the port that asked, which the kernel draws for each
//! question, and has the number and the one question of it, in letters whose case was drawn. Where
//! a server does not repeat that, it is asked over TCP, where nobody answers in its place who does
//! not see what is sent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::rand;
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use myriad_base::file;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

/// The most bytes of an answer over UDP: no datagram of that size is cut on its way.
const UDP_BYTES: u16 = 1_232;

/// How long a question waits for its answer over UDP before it is asked again.
const TRY_TIMEOUT: Duration = Duration::from_millis(1_500);

/// How often a question is asked over UDP.
const TRIES: usize = 2;

/// How long all servers together have for an answer: whoever has a zone with many that are silent
/// holds up nobody else.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long an exchange over TCP may take.
const TCP_TIMEOUT: Duration = Duration::from_secs(10);

/// The file of the system's servers, and the most that is read of it.
const SYSTEM: &str = "/etc/resolv.conf";
const SYSTEM_BYTES_MAX: u64 = 64 << 10;

/// The most of the system's servers that are asked.
const SYSTEM_MAX: usize = 3;

/// The port of DNS.
pub(super) const PORT: u16 = 53;

/// The random bytes whose bits say which letters of a question are capitals: names have at most 255
/// bytes.
const CASE_BYTES: usize = 32;

/// The way in which servers are asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskWay {
    /// Whether they are to find out what they do not have themselves.
    pub recurse: bool,
    /// Whether they are asked over TCP alone.
    pub is_tcp: bool,
}

/// A question as it is sent.
struct Question {
    id: u16,
    /// The name, in letters of a case that nobody else knows.
    name: Name,
    kind: RecordType,
    bytes: Vec<u8>,
}

/// An answer of a server.
#[derive(Debug)]
pub(super) struct DnsReply {
    /// The records that answer the question.
    pub answers: Vec<DnsRow>,
    /// Records about the zone that the name is in.
    pub authorities: Vec<DnsRow>,
    /// Whether the server has the zone itself.
    pub is_authoritative: bool,
}

/// A record of an answer. Names are in lower case, without a dot at the end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DnsRow {
    /// The name that has it.
    pub owner: Box<str>,
    /// Its value.
    pub value: DnsValue,
}

/// The value of a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DnsValue {
    /// Another name of the same (CNAME).
    Alias(Box<str>),
    /// A server of the zone (NS).
    Server(Box<str>),
    /// The name is that of a zone (SOA).
    Apex,
    /// An address (A, AAAA).
    Address(IpAddr),
    /// A text, its parts joined.
    Text(Box<[u8]>),
    /// Anything else.
    Other,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// It is no name.
    #[error("{0:?} is no name of DNS: {1}")]
    Name(Box<str>, ProtoError),
    /// Nothing came in time that answers the question.
    #[error("{0} does not answer: {1}")]
    Silent(SocketAddr, String),
    /// The server does not answer such questions.
    #[error("{0} answers: {1}")]
    Refused(SocketAddr, ResponseCode),
    /// It was to have the zone and does not.
    #[error("{0} is no authority for it")]
    Lame(SocketAddr),
    /// All that are asked take too long together.
    #[error("no server answers in 5 s")]
    Late,
    /// The question could not be made one that nobody guesses.
    #[error("the system gives no random bytes")]
    Random,
    /// There is nobody to ask.
    #[error("no server of DNS is known")]
    Nobody,
}

/// The servers that are asked to find out about any name: of the settings, or the system's.
pub(super) fn recursors(set: &[SocketAddr]) -> Vec<SocketAddr> {
    if !set.is_empty() {
        return set.to_vec();
    }
    let text = file::whole(Path::new(SYSTEM), SYSTEM_BYTES_MAX).unwrap_or_default();
    let found = servers_in(&text);
    match found.is_empty() {
        // As the C library does where the file says nothing.
        true => vec![SocketAddr::from(([127, 0, 0, 1], PORT))],
        false => found,
    }
}

fn servers_in(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let (keyword, rest) = line.trim().split_once(char::is_whitespace)?;
        let ip: IpAddr = rest.trim().parse().ok()?;
        (keyword == "nameserver").then(|| SocketAddr::new(ip, PORT))
    });
    servers.take(SYSTEM_MAX).collect()
}

/// Asks servers for records of a name, one after the other until one answers, and no longer than
/// [`TIMEOUT`].
pub(super) async fn ask_any(
    servers: &[SocketAddr],
    name: &str,
    kind: RecordType,
    way: AskWay,
) -> Result<DnsReply, AskError> {
    let asked = ask_each(servers, name, kind, way);
    let answered = tokio::time::timeout(TIMEOUT, asked).await;
    answered.unwrap_or(Err(AskError::Late))
}

async fn ask_each(
    servers: &[SocketAddr],
    name: &str,
    kind: RecordType,
    way: AskWay,
) -> Result<DnsReply, AskError> {
    let mut last = AskError::Nobody;
    for server in servers {
        match ask(*server, name, kind, way).await {
            Ok(reply) if way.recurse || reply.is_authoritative => return Ok(reply),
            Ok(_) => last = AskError::Lame(*server),
            Err(error @ AskError::Name(..)) => return Err(error),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks a server for records of a name: what it has itself, or what it finds out.
async fn ask(
    server: SocketAddr,
    name: &str,
    kind: RecordType,
    way: AskWay,
) -> Result<DnsReply, AskError> {
    let asked = Question::new(name, kind, way.recurse)?;
    let silent = |error: io::Error| AskError::Silent(server, error.to_string());
    let broken = |words: &str| AskError::Silent(server, words.to_owned());
    let mut answer = None;
    if !way.is_tcp {
        let bytes = over_udp(server, &asked.bytes).await.map_err(silent)?;
        let whole = asked.read(&bytes, Name::eq_case).ok();
        answer = whole.filter(|message| !message.metadata.truncation);
    }
    let message = match answer {
        Some(message) => message,
        None => {
            let bytes = over_tcp(server, &asked.bytes).await.map_err(silent)?;
            asked
                .read(&bytes, |its, ours| its == ours)
                .map_err(broken)?
        }
    };
    match message.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(DnsReply {
            is_authoritative: message.metadata.authoritative,
            answers: message.answers.iter().map(row).collect(),
            authorities: message.authorities.iter().map(row).collect(),
        }),
        code => Err(AskError::Refused(server, code)),
    }
}

impl Question {
    /// A question whose number and letters nobody guesses.
    fn new(name: &str, kind: RecordType, recurse: bool) -> Result<Question, AskError> {
        let (mut id, mut cases) = ([0; 2], [0; CASE_BYTES]);
        let random = rand::fill(&mut id).and_then(|()| rand::fill(&mut cases));
        random.map_err(|_| AskError::Random)?;
        let made = Question::of(
            u16::from_be_bytes(id),
            &mixed_case(name, &cases),
            kind,
            recurse,
        );
        made.map_err(|error| AskError::Name(name.into(), error))
    }

    fn of(id: u16, name: &str, kind: RecordType, recurse: bool) -> Result<Question, ProtoError> {
        let mut name = Name::from_ascii(name)?;
        name.set_fqdn(true);
        let mut message = Message::query();
        message.metadata.id = id;
        message.metadata.recursion_desired = recurse;
        message.add_query(Query::query(name.clone(), kind));
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_BYTES);
        message.set_edns(edns);
        Ok(Question {
            id,
            name,
            kind,
            bytes: message.to_vec()?,
        })
    }

    /// The answer to this question alone, whose name is the same in this sense.
    fn read(
        &self,
        bytes: &[u8],
        is_same: impl Fn(&Name, &Name) -> bool,
    ) -> Result<Message, &'static str> {
        let message = Message::from_vec(bytes).map_err(|_| "its answer cannot be read")?;
        let head = &message.metadata;
        let is_answer = head.id == self.id
            && head.message_type == MessageType::Response
            && head.op_code == OpCode::Query;
        let is_asked = match message.queries.as_slice() {
            [query] => {
                query.query_type() == self.kind
                    && query.query_class() == DNSClass::IN
                    && is_same(query.name(), &self.name)
            }
            _ => false,
        };
        match is_answer && is_asked {
            true => Ok(message),
            false => Err("its answer is one to another question"),
        }
    }
}

/// A name in letters that are capitals where bits are set.
fn mixed_case(name: &str, bits: &[u8]) -> String {
    let bytes = bits.iter().copied().cycle();
    let bits = bytes.flat_map(|byte: u8| (0..u8::BITS).map(move |at| (byte >> at) & 1 == 1));
    let letters = name.chars().zip(bits);
    letters
        .map(|(letter, is_capital)| match is_capital {
            true => letter.to_ascii_uppercase(),
            false => letter.to_ascii_lowercase(),
        })
        .collect()
}

fn row(record: &Record) -> DnsRow {
    DnsRow {
        owner: text(&record.name),
        value: match &record.data {
            RData::CNAME(name) => DnsValue::Alias(text(&name.0)),
            RData::NS(name) => DnsValue::Server(text(&name.0)),
            RData::SOA(_) => DnsValue::Apex,
            RData::A(ip) => DnsValue::Address(ip.0.into()),
            RData::AAAA(ip) => DnsValue::Address(ip.0.into()),
            RData::TXT(text) => {
                let parts = text.txt_data.iter();
                DnsValue::Text(parts.flat_map(|part| part.iter().copied()).collect())
            }
            _ => DnsValue::Other,
        },
    }
}

fn text(name: &Name) -> Box<str> {
    let text = name.to_ascii().to_ascii_lowercase();
    text.strip_suffix('.').unwrap_or(&text).into()
}

/// Sends a message over UDP, and waits for the one that answers it.
pub(super) async fn over_udp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    // Nobody else's datagrams are taken; the kernel has drawn the port.
    socket.connect(server).await?;
    for _ in 0..TRIES {
        socket.send(message).await?;
        let heard = tokio::time::timeout(TRY_TIMEOUT, hear(&socket, message)).await;
        if let Ok(heard) = heard {
            return heard;
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

async fn hear(socket: &UdpSocket, asked: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 2 * usize::from(UDP_BYTES)];
    loop {
        let count = socket.recv(&mut bytes).await?;
        // The answer to a former question, or a guess, is let go.
        if bytes.get(..2) == asked.get(..2) && count >= 2 {
            bytes.truncate(count);
            return Ok(bytes);
        }
    }
}

/// Sends a message over TCP, and waits for the one that answers it.
pub(super) async fn over_tcp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let exchange = async {
        let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut stream = TcpStream::connect(server).await?;
        stream
            .write_all(&[&length.to_be_bytes()[..], message].concat())
            .await?;
        let length = stream.read_u16().await?;
        let mut bytes = vec![0; usize::from(length)];
        stream.read_exact(&mut bytes).await?;
        Ok::<_, io::Error>(bytes)
    };
    let exchanged = tokio::time::timeout(TCP_TIMEOUT, exchange).await;
    exchanged.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::{Message, OpCode, Query};
    use hickory_resolver::proto::rr::{Name, RecordType};

    use super::{Question, mixed_case, servers_in};

    #[test]
    fn an_answer_has_exactly_the_question_that_was_asked() {
        let asked = Question::of(7, "Shop.eXample", RecordType::TXT, true).unwrap();
        let answer = |id: u16, queries: &[(&str, RecordType)]| {
            let mut reply = Message::response(id, OpCode::Query);
            for (name, kind) in queries {
                let mut name = Name::from_ascii(name).unwrap();
                name.set_fqdn(true);
                reply.add_query(Query::query(name, *kind));
            }
            let bytes = reply.to_vec().unwrap();
            let exact = asked.read(&bytes, Name::eq_case).is_ok();
            (exact, asked.read(&bytes, |its, ours| its == ours).is_ok())
        };
        let own = ("Shop.eXample", RecordType::TXT);
        assert_eq!(answer(7, &[own]), (true, true));
        let lower = ("shop.example", RecordType::TXT);
        assert_eq!(answer(7, &[lower]), (false, true), "for TCP alone");
        let other = ("other.example", RecordType::TXT);
        let wrong: [&[(&str, RecordType)]; 5] = [
            &[],
            &[own, own],
            &[own, other],
            &[other],
            &[("Shop.eXample", RecordType::A)],
        ];
        for queries in wrong {
            assert_eq!(answer(7, queries), (false, false), "{queries:?}");
        }
        assert_eq!(answer(8, &[own]), (false, false));
    }

    #[test]
    fn letters_are_capitals_where_bits_are_set_and_nothing_is_left_out() {
        assert_eq!(mixed_case("a-b.c", &[0b0001_0101]), "A-B.C");
        assert_eq!(mixed_case("A-B.C", &[0]), "a-b.c");
        assert_eq!(mixed_case(&"a".repeat(300), &[0xff; 2]).len(), 300);
        let asked = |_: i32| {
            let asked = Question::new("shop.example", RecordType::TXT, true).unwrap();
            (asked.id, asked.name.to_ascii())
        };
        let (ids, names): (Vec<_>, Vec<_>) = (0..64).map(asked).unzip();
        let count = |mut all: Vec<String>| {
            all.sort();
            all.dedup();
            all.len()
        };
        assert!(count(ids.iter().map(u16::to_string).collect()) > 48);
        assert!(count(names) > 32);
    }

    #[test]
    fn the_servers_of_the_system_are_those_that_its_file_names() {
        let text = "# nameserver 192.0.2.9\nsearch a.example\nnameserver 192.0.2.1\n\
                    nameserver\t2001:db8::1\nnameserver nonsense\noptions ndots:1\n";
        let found: Vec<String> = servers_in(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["192.0.2.1:53", "[2001:db8::1]:53"]);
        let many = "nameserver 192.0.2.1\n".repeat(9);
        assert_eq!(servers_in(&many).len(), 3);
        assert!(servers_in("").is_empty());
    }
}
