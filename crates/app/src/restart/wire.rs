//! Messages and files between two processes, one record of a Unix socket each.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::message::{MESSAGE_BYTES_MAX, MalformedMessage, Message, SOCKETS_PER_MESSAGE_MAX};

/// Sends a message with files.
///
/// # Errors
/// The errors of the system; the other process may be gone.
pub(super) fn send(
    socket: impl AsFd,
    message: &Message,
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::other("there are too many files for a message"));
    }
    let parts = [IoSlice::new(&bytes)];
    let sent = sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)?;
    match sent == bytes.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives a message and the files that it speaks of. Others are closed.
///
/// # Errors
/// The other process is gone or silent, or sent what is no message.
pub(super) fn receive(socket: impl AsFd) -> io::Result<(Message, Vec<OwnedFd>)> {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(SOCKETS_PER_MESSAGE_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let is_cut = received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let whole = bytes.get(..received.bytes).filter(|_| !is_cut);
    let message = whole.ok_or(MalformedMessage::Message);
    let message = message.and_then(|bytes| Message::decode(bytes, files.len()));
    let message = message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((message, files))
}
