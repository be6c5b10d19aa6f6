//! One connection that never waits, with or without TLS.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConnectionCommon};

/// A connection.
pub(super) struct Link {
    socket: TcpStream,
    session: Option<Box<ClientConnection>>,
    /// The bytes that wait to be sent, of a link without TLS.
    unsent: Vec<u8>,
}

/// A connection that says nothing.
pub(crate) struct Silent {
    _socket: TcpStream,
}

impl Silent {
    /// Begins to connect.
    pub(crate) fn begin(address: SocketAddr) -> io::Result<Silent> {
        let _socket = begin(address)?;
        Ok(Silent { _socket })
    }
}

/// Begins to connect, and waits for nothing.
fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

impl Link {
    /// Begins to connect; the session is one with that name.
    pub(super) fn begin(
        address: SocketAddr,
        session: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    ) -> io::Result<Link> {
        let socket = begin(address)?;
        socket.set_nodelay(true)?;
        let session = session.map(|(config, name)| ClientConnection::new(config, name));
        let session = session.transpose().map_err(io::Error::other)?;
        Ok(Link {
            socket,
            session: session.map(Box::new),
            unsent: Vec::new(),
        })
    }

    /// Goes on with connecting; whether that is done.
    pub(super) fn open(&mut self) -> io::Result<bool> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        if self.session.is_none() {
            return Ok(true);
        }
        self.flush()?;
        while self.session().is_some_and(|it| it.is_handshaking()) {
            match self.receive() {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => self.flush()?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Its session, where it has one.
    pub(super) fn session(&self) -> Option<&ClientConnection> {
        self.session.as_deref()
    }

    /// Adds to what is sent next.
    pub(super) fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            Some(session) => session.writer().write_all(bytes),
            None => {
                self.unsent.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Sends as much as the socket takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let session = self.session.as_deref_mut().map(|session| &mut **session);
        flush(&self.socket, session, &mut self.unsent)
    }

    /// Reads what has come; nothing is the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(session) = &mut self.session else {
                return (&self.socket).read(buffer);
            };
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.receive()? == 0 {
                return Ok(0);
            }
        }
    }

    /// Says that it ends.
    pub(super) fn close(mut self) {
        if let Some(session) = &mut self.session {
            session.send_close_notify();
        }
        // Who does not take it learns of the end as well.
        let _ = self.flush();
    }

    fn receive(&mut self) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return Ok(0);
        };
        let read = session.read_tls(&mut &self.socket)?;
        if read > 0 {
            session.process_new_packets().map_err(io::Error::other)?;
        }
        Ok(read)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends as much as a socket takes: what waits in its session, or else what is unsent.
pub(crate) fn flush<Data>(
    mut socket: &TcpStream,
    session: Option<&mut ConnectionCommon<Data>>,
    unsent: &mut Vec<u8>,
) -> io::Result<()> {
    let written = match session {
        Some(session) => {
            let mut written = Ok(0);
            while session.wants_write() && written.is_ok() {
                written = session.write_tls(&mut socket);
            }
            written
        }
        None if unsent.is_empty() => Ok(0),
        None => {
            let written = socket.write(unsent);
            written.inspect(|&count| drop(unsent.drain(..count)))
        }
    };
    match written {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}
