//! Settings of what a controller does for session tickets, as written.

use clap::Args;

/// Settings of session tickets, as written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Listeners")]
pub struct RawTickets {
    /// Make the keys of session tickets that the proxies of a gateway share, and replace them in
    /// time: in the Secret myriad-tickets of the controller's namespace, for `--ticket-keys` of
    /// proxies that mount it.
    #[arg(long, env = "MYRIAD_KEEP_TICKET_KEYS")]
    pub keep_ticket_keys: bool,
}
