//! A client of MongoDB's protocol that knows as much as one transaction takes: OP_MSG with one
//! document in BSON, over TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The code of the only message that is spoken.
const OP_MSG: i32 = 2_013;

/// The bytes of a header.
const HEADER_BYTES: usize = 16;

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// How long a transaction may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of the document.
const NUMBER: i32 = 7;

/// A connection.
pub(super) struct Database {
    stream: TlsStream<TcpStream>,
    answer: Vec<u8>,
    find: Vec<u8>,
    payload: usize,
}

impl Database {
    /// Connects to an address, for a host.
    ///
    /// # Errors
    /// Nobody is reached, or not who is meant.
    pub(super) async fn connect(
        address: SocketAddr,
        (host, tls): (&str, &Arc<ClientConfig>),
        payload: usize,
    ) -> anyhow::Result<Database> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned())?;
        let connector = TlsConnector::from(tls.clone());
        Ok(Database {
            stream: connector.connect(name, tcp).await?,
            answer: Vec::new(),
            find: message(&find()),
            payload,
        })
    }

    /// Puts the document there that is asked for.
    ///
    /// # Errors
    /// The database does not take it.
    pub(super) async fn insert(&mut self) -> anyhow::Result<()> {
        let insert = message(&insert(self.payload));
        self.transact(&insert, 0).await
    }

    /// Asks for it.
    ///
    /// # Errors
    /// It is not there, or nobody answers.
    pub(super) async fn find(&mut self) -> anyhow::Result<()> {
        let find = std::mem::take(&mut self.find);
        let found = self.transact(&find, self.payload).await;
        self.find = find;
        found
    }

    /// Asks again and again for so long; the times are in nanoseconds.
    ///
    /// # Errors
    /// An answer is not as it should be.
    pub(super) async fn run(&mut self, time: Duration) -> anyhow::Result<Histogram<u64>> {
        let mut seen = Histogram::new(3)?;
        let end = Instant::now() + time;
        let mut now = Instant::now();
        while now < end {
            self.find().await?;
            let then = std::mem::replace(&mut now, Instant::now());
            let took = now.duration_since(then).as_nanos();
            seen.record(u64::try_from(took)?)?;
        }
        Ok(seen)
    }

    async fn transact(&mut self, message: &[u8], bytes_min: usize) -> anyhow::Result<()> {
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, async {
            self.stream.write_all(message).await?;
            // Of what TLS has taken a rest may wait here, which nothing else sends.
            self.stream.flush().await?;
            let length = usize::try_from(self.stream.read_i32_le().await?)?;
            ensure!(
                (HEADER_BYTES..ANSWER_BYTES_MAX).contains(&length),
                "an answer of {length} bytes"
            );
            self.answer.resize(length - size_of::<i32>(), 0);
            self.stream.read_exact(&mut self.answer).await?;
            Ok(length)
        });
        let length = answered.await.context("no answer in time")??;
        // An error is told in fewer bytes than the document has.
        let is_well = length > bytes_min && has(&self.answer, b"\x01ok\0\0\0\0\0\0\0\xf0\x3f");
        ensure!(
            is_well,
            "the database says {}",
            String::from_utf8_lossy(&self.answer)
        );
        Ok(())
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|it| it == part)
}

fn find() -> Vec<u8> {
    let mut document = Document::default();
    document.text("find", "orders");
    document.inner(3, "filter", |filter| filter.number("_id", NUMBER));
    document.number("limit", 1);
    document.text("$db", "bench");
    document.whole()
}

fn insert(payload: usize) -> Vec<u8> {
    let mut document = Document::default();
    document.text("insert", "orders");
    document.inner(4, "documents", |documents| {
        documents.inner(3, "0", |order| {
            order.number("_id", NUMBER);
            order.text("payload", &"x".repeat(payload));
        });
    });
    document.text("$db", "bench");
    document.whole()
}

/// A message with one document.
fn message(document: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + 5 + document.len();
    let mut message = Vec::with_capacity(length);
    for word in [length as i32, 1, 0, OP_MSG, 0] {
        message.extend(word.to_le_bytes());
    }
    // A section of kind 0: the body.
    message.push(0);
    message.extend(document);
    message
}

/// A document while it is written.
#[derive(Default)]
struct Document(Vec<u8>);

impl Document {
    fn text(&mut self, name: &str, text: &str) {
        self.begin(2, name);
        self.0.extend((text.len() as i32 + 1).to_le_bytes());
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn number(&mut self, name: &str, number: i32) {
        self.begin(16, name);
        self.0.extend(number.to_le_bytes());
    }

    /// A document (3) or an array (4) within it.
    fn inner(&mut self, kind: u8, name: &str, fill: impl FnOnce(&mut Document)) {
        self.begin(kind, name);
        let mut inner = Document::default();
        fill(&mut inner);
        self.0.extend(inner.whole());
    }

    fn begin(&mut self, kind: u8, name: &str) {
        self.0.push(kind);
        self.0.extend(name.as_bytes());
        self.0.push(0);
    }

    fn whole(self) -> Vec<u8> {
        let length = self.0.len() as i32 + 5;
        let mut whole = length.to_le_bytes().to_vec();
        whole.extend(self.0);
        whole.push(0);
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::{Document, has, message};

    #[test]
    fn a_document_is_written_as_the_format_says() {
        let mut document = Document::default();
        document.text("hello", "world");
        let whole = document.whole();
        // The example of bsonspec.org.
        assert_eq!(whole, b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0");
        let message = message(&whole);
        assert_eq!(message.len(), 16 + 5 + 22);
        assert_eq!(message[..4], [43, 0, 0, 0]);
        assert!(has(&message, b"world") && !has(&message, b"word"));
    }
}
