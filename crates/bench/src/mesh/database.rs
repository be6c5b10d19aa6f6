//! A client of PostgreSQL's protocol that knows as much as a query takes (version 3.0, simple
//! queries), for whoever trusts it.

use anyhow::{Context as _, anyhow, bail, ensure};
use myriad_lab::postgresql;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};

/// The version, in the first message.
const VERSION: u32 = 3 << 16;

/// The bytes of a length, which counts itself.
const LENGTH_BYTES: usize = 4;

/// The longest message that is read.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The most rows of an answer.
pub(super) const ROWS_MAX: u64 = 10_000;

/// The kinds of messages that something follows from.
const AUTHENTICATION: u8 = b'R';
const ROW: u8 = b'D';
const ERROR: u8 = b'E';
const READY: u8 = b'Z';

/// The other kinds, of which nothing is needed: the backend's key, a parameter, a notice, the
/// columns of the rows, the end of a statement, and one without a statement.
const OTHERS: &[u8] = b"KSNTCI";

/// A connection.
pub(super) struct Connection<S> {
    stream: BufReader<S>,
    /// The body of the last message.
    message: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Greets the server, and waits until it is ready.
    ///
    /// # Errors
    /// It refuses, wants to know more than the name, or does not speak as it should.
    pub(super) async fn open(stream: S) -> anyhow::Result<Connection<S>> {
        let mut connection = Connection {
            stream: BufReader::new(stream),
            message: Vec::new(),
        };
        let name = postgresql::NAME;
        let mut body = VERSION.to_be_bytes().to_vec();
        body.extend(format!("user\0{name}\0database\0{name}\0\0").bytes());
        connection.send(Vec::new(), &body).await?;
        connection.rows().await?;
        Ok(connection)
    }

    /// Asks, and reads the answer to its end: how many rows it has.
    ///
    /// # Errors
    /// The server says why not, or does not speak as it should; then the connection is of no more
    /// use.
    pub(super) async fn query(&mut self, sql: &str) -> anyhow::Result<u64> {
        self.send(vec![b'Q'], &[sql.as_bytes(), b"\0"].concat())
            .await?;
        self.rows().await
    }

    /// Sends a message that begins with its kind.
    async fn send(&mut self, mut message: Vec<u8>, body: &[u8]) -> anyhow::Result<()> {
        let length = u32::try_from(LENGTH_BYTES + body.len())?;
        message.extend(length.to_be_bytes());
        message.extend(body);
        self.stream.write_all(&message).await?;
        Ok(self.stream.flush().await?)
    }

    /// Counts rows until the server is ready for more.
    async fn rows(&mut self) -> anyhow::Result<u64> {
        let (mut rows, mut refusal) = (0, None);
        loop {
            let kind = match self.read().await {
                Ok(kind) => kind,
                // Who is refused at the door hears no more than that.
                Err(broken) => return Err(refusal.unwrap_or(broken)),
            };
            match kind {
                READY => break,
                ROW => rows += 1,
                ERROR => refusal = Some(refusal_of(&self.message)),
                AUTHENTICATION => ensure!(self.message == [0; 4], "it asks for a password"),
                other if OTHERS.contains(&other) => {}
                other => bail!("an unknown message, {:?}", char::from(other)),
            }
            ensure!(rows <= ROWS_MAX, "more than {ROWS_MAX} rows");
        }
        refusal.map_or(Ok(rows), Err)
    }

    /// Reads a message; its kind.
    async fn read(&mut self) -> anyhow::Result<u8> {
        let kind = self.stream.read_u8().await?;
        let length = usize::try_from(self.stream.read_u32().await?)?;
        let rest = length.checked_sub(LENGTH_BYTES);
        let rest = rest.filter(|&rest| rest <= MESSAGE_BYTES_MAX);
        let rest = rest.with_context(|| format!("a message of {length} bytes"))?;
        self.message.resize(rest, 0);
        self.stream.read_exact(&mut self.message).await?;
        Ok(kind)
    }
}

/// The code and the text of an error, out of its fields.
fn refusal_of(fields: &[u8]) -> anyhow::Error {
    let of = |kind: u8| {
        let mut fields = fields.split(|&byte| byte == 0);
        let found = fields.find_map(|field| field.strip_prefix(&[kind]));
        String::from_utf8_lossy(found.unwrap_or_default()).into_owned()
    };
    anyhow!("the database says {}: {}", of(b'C'), of(b'M'))
}

#[cfg(test)]
mod tests;
