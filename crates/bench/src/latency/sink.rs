//! A server that takes spans: every POST is answered with 200 and nothing, and its bytes are
//! counted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The answer to everything.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A collector, on a thread that ends with the process.
pub(super) struct Sink {
    /// The address that it listens on.
    pub address: SocketAddr,
    bytes: Arc<AtomicU64>,
}

impl Sink {
    /// Listens on this address, whose port may be 0.
    ///
    /// # Errors
    /// The address is not to be had.
    pub(super) fn start(address: SocketAddr) -> anyhow::Result<Sink> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = bytes.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("sink".to_owned());
        thread.spawn(move || runtime.block_on(accept(listener, counted)))?;
        Ok(Sink { address, bytes })
    }

    /// Bytes of spans since the last look.
    pub(super) fn take(&self) -> u64 {
        self.bytes.swap(0, Ordering::Relaxed)
    }
}

async fn accept(listener: std::net::TcpListener, bytes: Arc<AtomicU64>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(take(stream, bytes.clone()));
    }
}

async fn take(mut stream: TcpStream, bytes: Arc<AtomicU64>) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(HEAD_BYTES_MAX);
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|it| it == b"\r\n\r\n") {
                break at + 4;
            }
            if buffer.len() > HEAD_BYTES_MAX || stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let length = body_bytes(&String::from_utf8_lossy(&buffer[..end]));
        buffer.drain(..end);
        match length {
            Some(length) => {
                while buffer.len() < length {
                    if stream.read_buf(&mut buffer).await? == 0 {
                        return Ok(());
                    }
                }
                bytes.fetch_add(length as u64, Ordering::Relaxed);
                buffer.drain(..length);
            }
            // In chunks, of which the last one is empty.
            None => {
                while !buffer.ends_with(b"\r\n0\r\n\r\n") {
                    if stream.read_buf(&mut buffer).await? == 0 {
                        return Ok(());
                    }
                }
                bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
                buffer.clear();
            }
        }
        stream.write_all(ANSWER).await?;
    }
}

/// The length that a head declares; `None` where the body comes in chunks.
fn body_bytes(head: &str) -> Option<usize> {
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    };
    match field("transfer-encoding") {
        Some(_) => None,
        None => Some(
            field("content-length")
                .and_then(|it| it.parse().ok())
                .unwrap_or(0),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_as_long_as_its_head_says() {
        assert_eq!(
            body_bytes("POST / HTTP/1.1\r\ncontent-length: 12\r\n\r\n"),
            Some(12)
        );
        assert_eq!(
            body_bytes("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            None
        );
        assert_eq!(body_bytes("POST / HTTP/1.1\r\nHost: a\r\n\r\n"), Some(0));
    }
}
