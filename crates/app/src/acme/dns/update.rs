//! Updates of a zone (RFC 2136): texts that are added and removed, signed with a key.

use std::io;
use std::net::SocketAddr;

use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::{Message, OpCode, Query};
use hickory_resolver::proto::rr::rdata::TXT;
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use myriad_base::clock;
use myriad_pki::acme::TsigKey;

use super::ask::{over_tcp, over_udp};
use super::tsig::{self, SignatureError};

/// How long others may keep a text, in seconds.
const TTL: u32 = 60;

/// A text that is added or removed.
pub(super) struct TextChange<'a> {
    /// The name that has it.
    pub fqdn: &'a str,
    /// The text, of at most 255 bytes.
    pub value: &'a str,
    /// Whether it is added.
    pub is_added: bool,
}

/// Why a zone is not changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpdateError {
    /// A name is none.
    #[error("a name is none: {0}")]
    Name(#[from] ProtoError),
    /// The key has a name that is none.
    #[error("the name of the key is none")]
    Key,
    /// Nobody answers.
    #[error("it does not answer: {0}")]
    Silent(#[from] io::Error),
    /// The answer is not the server's.
    #[error("{0}")]
    Untrusted(#[from] SignatureError),
    /// The server does not do it.
    #[error("it answers {0}")]
    Refused(&'static str),
    /// There is no server.
    #[error("it has no address that may be asked")]
    Nobody,
}

/// Changes texts of a zone, all or none, at the first server that can be asked. A text that is
/// there already, or not there any more, is no fault.
pub(super) async fn update(
    servers: &[SocketAddr],
    key: &TsigKey,
    zone: &str,
    changes: &[TextChange<'_>],
) -> Result<(), UpdateError> {
    let message = message(zone, changes)?;
    let seconds = clock::since_epoch().as_secs();
    let asked = tsig::sign(&message, &[], key, seconds).ok_or(UpdateError::Key)?;
    let mut last = UpdateError::Nobody;
    for server in servers {
        match exchange(*server, &asked.bytes).await {
            Ok(answer) => return understand(&answer, &asked.mac, key),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// Asks over TCP, which takes messages of any size, and over UDP where nobody listens there.
async fn exchange(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    match over_tcp(server, message).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            over_udp(server, message).await
        }
        exchanged => exchanged,
    }
}

fn message(zone: &str, changes: &[TextChange<'_>]) -> Result<Vec<u8>, ProtoError> {
    let mut message = Message::query();
    message.metadata.op_code = OpCode::Update;
    message.add_query(Query::query(absolute(zone)?, RecordType::SOA));
    for change in changes {
        let text = RData::TXT(TXT::new(vec![change.value.to_owned()]));
        let mut record = Record::from_rdata(absolute(change.fqdn)?, TTL, text);
        if !change.is_added {
            record.ttl = 0;
            record.dns_class = DNSClass::NONE;
        }
        message.add_authority(record);
    }
    message.to_vec()
}

fn absolute(name: &str) -> Result<Name, ProtoError> {
    let mut name = Name::from_ascii(name)?;
    name.set_fqdn(true);
    Ok(name)
}

fn understand(answer: &[u8], mac: &[u8], key: &TsigKey) -> Result<(), UpdateError> {
    let code = answer.get(3).map_or(0, |byte| byte & 0x0f);
    let verified = tsig::verify(answer, mac, key, clock::since_epoch().as_secs());
    match (code, verified) {
        (0, verified) => verified.map_err(UpdateError::from),
        // Why it does not trust us says more than that it does not.
        (_, Err(error @ SignatureError::Refused(_))) => Err(error.into()),
        (code, _) => Err(UpdateError::Refused(words(code))),
    }
}

fn words(code: u8) -> &'static str {
    match code {
        1 => "that it cannot read the update (FORMERR)",
        2 => "that it has failed (SERVFAIL)",
        4 => "that it takes no updates (NOTIMP)",
        5 => "that it does not let the key change that name (REFUSED)",
        9 => "that it does not have the zone, or does not trust the key (NOTAUTH)",
        10 => "that the name is not in the zone (NOTZONE)",
        _ => "with a code that says nothing",
    }
}
