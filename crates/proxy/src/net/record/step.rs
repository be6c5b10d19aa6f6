//! The steps of a session: what it makes of records, and the records that it makes.

use std::io;

use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

/// The next step after records were processed.
pub(super) enum Next {
    /// Everything that is there was used.
    Idle,
    /// There may be more to do.
    Again,
    /// The handshake needs more.
    Blocked,
}

/// How many bytes of the input a step has used up, and what is next.
pub(super) fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    take: &mut dyn FnMut(&[u8]),
    cipher: &mut Vec<u8>,
    is_finished: &mut bool,
) -> io::Result<(usize, Next)> {
    let mut discard = status.discard;
    let next = match status.state.map_err(invalid)? {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                let record = record.map_err(invalid)?;
                discard += record.discard;
                take(record.payload);
            }
            Next::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            encode(cipher, |room| data.encode(room))?;
            Next::Again
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Next::Again
        }
        ConnectionState::BlockedHandshake => Next::Blocked,
        ConnectionState::WriteTraffic(_) => Next::Idle,
        ConnectionState::PeerClosed => {
            *is_finished = true;
            Next::Again
        }
        ConnectionState::Closed => {
            *is_finished = true;
            Next::Idle
        }
        // Early data is never offered.
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    Ok((discard, next))
}

/// Encrypts once the session has nothing of its own to say before; none means: again.
pub(super) fn seal<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &[u8],
    out: &mut [u8],
    cipher: &mut Vec<u8>,
) -> io::Result<Option<usize>> {
    match status.state.map_err(invalid)? {
        ConnectionState::WriteTraffic(mut traffic) => {
            // What the session said of its own goes first.
            let own = cipher.len();
            let room = out.get_mut(own..).unwrap_or_default();
            let length = traffic.encrypt(plain, room).map_err(|error| match error {
                EncryptError::InsufficientSize(_) => io::ErrorKind::OutOfMemory,
                EncryptError::EncryptExhausted => io::ErrorKind::ConnectionAborted,
            })?;
            if let Some(room) = out.get_mut(..own) {
                room.copy_from_slice(cipher);
            }
            cipher.clear();
            Ok(Some(own + length))
        }
        ConnectionState::EncodeTlsData(mut data) => {
            encode(cipher, |room| data.encode(room))?;
            Ok(None)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(None)
        }
        ConnectionState::PeerClosed => Ok(None),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Writes the alert that no more follows, and returns its length: 0 where nothing may be said.
pub(super) fn close_notify<Data>(status: UnbufferedStatus<'_, '_, Data>, out: &mut [u8]) -> usize {
    match status.state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            traffic.queue_close_notify(out).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Appends a handshake record, whose length is only known once it is asked for.
fn encode(
    cipher: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> io::Result<()> {
    let start = cipher.len();
    let mut room = 4 << 10;
    loop {
        cipher.resize(start + room, 0);
        match encode(cipher.get_mut(start..).unwrap_or_default()) {
            Ok(length) => {
                cipher.truncate(start + length);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(needed)) if room < needed.required_size => {
                room = needed.required_size;
            }
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
