//! The messages of two processes at a hot restart, as bytes.
//!
//! Strangers at the socket are refused before, but a process of another version is not;
//! so nothing is believed of a message that is not exactly as written here.

/// The most sockets that are handed over.
pub const SOCKETS_MAX: usize = 65_536;

/// The most sockets in one message; the system allows no more than 253.
pub const SOCKETS_PER_MESSAGE_MAX: usize = 64;

/// The longest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"MYRS";

/// Raised with every change of what is here already. A process that is asked in a version that it
/// does not know refuses, and goes on; one that is given a role that it does not know gives up.
const VERSION: u8 = 1;

/// The most secrets: the one in use and the one before.
const SECRETS_MAX: usize = 2;

/// The kind of what comes by a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The connections of a listener.
    Listener,
    /// Captured connections that the workload opened.
    Outbound,
    /// Captured connections to the workload.
    Inbound,
    /// Questions to the admin pages.
    Admin,
    /// Checks of a sidecar.
    Probes,
    /// Nothing: it holds the address of HTTP.
    Http,
    /// Nothing: it holds the address of HTTPS.
    Https,
    /// The datagrams of a listener.
    Datagrams,
}

/// Every role, at the place of its number.
const ROLES: [Role; 8] = [
    Role::Listener,
    Role::Outbound,
    Role::Inbound,
    Role::Admin,
    Role::Probes,
    Role::Http,
    Role::Https,
    Role::Datagrams,
];

/// One message.
#[derive(PartialEq, Eq)]
#[cfg_attr(test, derive(Debug, Clone))]
pub enum Message {
    /// The next process asks for everything.
    Hello,
    /// Some sockets, which travel beside the message in the same order.
    Sockets(Vec<Role>),
    /// The last socket was sent.
    End {
        /// How many sockets there were.
        sockets: u32,
        /// The keys of tickets, and since when in seconds since the epoch; the newest first.
        secrets: Vec<(i64, [u8; 32])>,
    },
    /// The next process serves.
    Live,
    /// The process before does not any more.
    Draining,
}

/// A message that is not one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedMessage {
    /// Another program, or another version of this one.
    #[error("the other process speaks another version of hot restart")]
    Version,
    /// It is cut off, too long, or says what cannot be.
    #[error("the other process sent what is no message")]
    Message,
}

impl Role {
    /// Whether a socket of it is listened on.
    pub fn is_listening(self) -> bool {
        !matches!(self, Role::Http | Role::Https | Role::Datagrams)
    }

    fn number(self) -> u8 {
        let place = ROLES.iter().position(|role| *role == self);
        place
            .and_then(|place| u8::try_from(place).ok())
            .unwrap_or(u8::MAX)
    }
}

impl Message {
    /// The message as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        match self {
            Message::Hello => bytes.push(1),
            Message::Sockets(roles) => {
                bytes.push(2);
                bytes.push(u8::try_from(roles.len()).unwrap_or(u8::MAX));
                bytes.extend(roles.iter().map(|role| role.number()));
            }
            Message::End { sockets, secrets } => {
                bytes.push(3);
                bytes.extend(sockets.to_be_bytes());
                bytes.push(u8::try_from(secrets.len()).unwrap_or(u8::MAX));
                for (since, secret) in secrets {
                    bytes.extend(since.to_be_bytes());
                    bytes.extend(secret);
                }
            }
            Message::Live => bytes.push(4),
            Message::Draining => bytes.push(5),
        }
        bytes
    }

    /// Reads a message that came with this many files.
    ///
    /// # Errors
    /// It is none, or the files are not those that it speaks of.
    pub fn decode(bytes: &[u8], files: usize) -> Result<Message, MalformedMessage> {
        let mut reader = Reader(bytes);
        if reader.take::<4>()? != MAGIC || reader.byte()? != VERSION {
            return Err(MalformedMessage::Version);
        }
        let message = match reader.byte()? {
            1 => Message::Hello,
            2 => Message::Sockets(reader.roles()?),
            3 => reader.end()?,
            4 => Message::Live,
            5 => Message::Draining,
            _ => return Err(MalformedMessage::Message),
        };
        let told = match &message {
            Message::Sockets(roles) => roles.len(),
            _ => 0,
        };
        match reader.0.is_empty() && told == files {
            true => Ok(message),
            false => Err(MalformedMessage::Message),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], MalformedMessage> {
        let (taken, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(MalformedMessage::Message)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, MalformedMessage> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn roles(&mut self) -> Result<Vec<Role>, MalformedMessage> {
        let count = usize::from(self.byte()?);
        if !(1..=SOCKETS_PER_MESSAGE_MAX).contains(&count) {
            return Err(MalformedMessage::Message);
        }
        let mut roles = Vec::with_capacity(count);
        for _ in 0..count {
            let role = ROLES.get(usize::from(self.byte()?));
            roles.push(*role.ok_or(MalformedMessage::Message)?);
        }
        Ok(roles)
    }

    fn end(&mut self) -> Result<Message, MalformedMessage> {
        let sockets = u32::from_be_bytes(self.take()?);
        let count = usize::from(self.byte()?);
        if count > SECRETS_MAX || sockets as usize > SOCKETS_MAX {
            return Err(MalformedMessage::Message);
        }
        let mut secrets = Vec::with_capacity(count);
        for _ in 0..count {
            secrets.push((i64::from_be_bytes(self.take()?), self.take()?));
        }
        Ok(Message::End { sockets, secrets })
    }
}
