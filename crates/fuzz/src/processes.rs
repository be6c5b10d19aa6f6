//! The messages of processes of Myriad to each other.

use myriad::restart::message::{MESSAGE_BYTES_MAX, Message, SOCKETS_PER_MESSAGE_MAX};

/// A message of a hot restart, behind the number of files that came with it: it is written as it
/// was read, to the byte, and speaks of as many files as came.
pub(crate) fn restart_message(bytes: &[u8]) -> bool {
    let Some((files, message)) = bytes.split_first() else {
        return false;
    };
    let files = usize::from(*files);
    let Ok(read) = Message::decode(message, files) else {
        return false;
    };
    assert!(read.encode() == message && message.len() <= MESSAGE_BYTES_MAX);
    let told = match read {
        Message::Sockets(roles) => roles.len(),
        _ => 0,
    };
    assert!(told == files && told <= SOCKETS_PER_MESSAGE_MAX);
    true
}
