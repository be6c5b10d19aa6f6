//! The client of a connection, where a balancer in front introduces it before anything else.

use std::io;

use tokio::net::TcpStream;

use crate::codec::buffer::Buffer;
use crate::codec::proxy_header::{HEADER_BYTES_MAX, Header, Introductions, parse};
use crate::local::Local;
use crate::route::downstream_connection::DownstreamConnection;
use crate::telemetry::count::Count;

/// How many bytes of a whole header are taken from the socket at a time.
const TAKEN_BYTES: usize = 256;

/// Reads the header that the connection begins with, and takes the client for the one that it
/// names. False where the connection has to be closed.
pub(super) async fn introduce(
    introductions: &Introductions,
    local: &Local,
    visit: &mut DownstreamConnection,
    tcp: &TcpStream,
) -> bool {
    if !introductions.are_taken_from(visit.client.ip()) {
        local.counts.add(Count::IntroductionUntrusted);
        return false;
    }
    let reading = tokio::time::timeout(local.limits.head_timeout, read(tcp));
    let (count, is_taken) = match reading.await {
        Ok(Ok(header)) => match header.ends {
            Some(ends) => {
                visit.introduce(ends);
                let count = match ends.is_unknown() {
                    true => Count::IntroductionEmpty,
                    false => Count::IntroductionTaken,
                };
                (count, true)
            }
            None => (Count::IntroductionEmpty, true),
        },
        Ok(Err(_)) => (Count::IntroductionMalformed, false),
        Err(_) => (Count::IntroductionTimeout, false),
    };
    local.counts.add(count);
    is_taken
}

/// Reads a header, and no byte behind it: what is behind it is looked at where it is.
async fn read(tcp: &TcpStream) -> io::Result<Header> {
    let mut known = Buffer::for_head();
    loop {
        let before = known.len();
        known.reserve(TAKEN_BYTES);
        let room = HEADER_BYTES_MAX.saturating_sub(before);
        let spare = known.spare();
        let length = spare.len().min(room);
        let count = tcp
            .peek(spare.get_mut(..length).unwrap_or_default())
            .await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        known.advance(count);
        let parsed = parse(known.filled());
        let header = parsed.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        // As long as it is not whole, all that is there is part of it.
        take(tcp, header.map_or(count, |header| header.length - before)).await?;
        if let Some(header) = header {
            return Ok(header);
        }
    }
}

/// Takes as many bytes from the socket, which are there.
async fn take(tcp: &TcpStream, mut count: usize) -> io::Result<()> {
    let mut taken = [0; TAKEN_BYTES];
    while count > 0 {
        tcp.readable().await?;
        let length = count.min(TAKEN_BYTES);
        match tcp.try_read(taken.get_mut(..length).unwrap_or_default()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => count -= read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
