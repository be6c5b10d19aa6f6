//! Settings of how a process that serves lives with the one before it and with what it has.

use std::path::PathBuf;

use clap::Args;

/// Settings of the process's life, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Process")]
pub struct RawLife {
    /// The memory that the process may have: bytes with KiB, MiB or GiB, `auto` for what the
    /// control group or the process is limited to, or 0 for no budget. New work is shed before it
    /// is used up.
    #[arg(
        long,
        env = "MYRIAD_MEMORY_MAX",
        default_value = "auto",
        value_name = "BYTES"
    )]
    pub memory_max: String,
    /// Take over the listening sockets of the process that listens at this path, which then
    /// drains, and listen there for the next process.
    #[arg(long, env = "MYRIAD_RESTART_SOCKET", value_name = "PATH")]
    pub restart_socket: Option<PathBuf>,
    /// Keys of session tickets that the replicas of a gateway share: a file with a key of 64
    /// hexadecimal digits to a line, of which the first makes tickets and all open them. It is
    /// read again when it changes [default: each process makes its own].
    #[arg(long, env = "MYRIAD_TICKET_KEYS", value_name = "FILE")]
    pub ticket_keys: Option<PathBuf>,
}
