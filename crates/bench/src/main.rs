//! `myriad-bench`: measures Myriad as a user meets it.

use clap::{Parser, Subcommand};
use myriad_bench::activate::{self, ActivateArgs};
use myriad_bench::allocation::Counting;
use myriad_bench::child::{self, ChildArgs};
use myriad_bench::fleet::{self, FleetArgs};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Measures Myriad as a user meets it.
#[derive(Debug, Parser)]
#[command(name = "myriad-bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// How long a new domain takes, and what it costs, when so many exist.
    Activate(ActivateArgs),
    /// What a change, and a controller that starts anew, cost with so many proxies.
    Fleet(FleetArgs),
    /// The process under measurement; started by the other commands.
    #[command(hide = true)]
    Child(ChildArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Activate(args) => activate::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Child(args) => child::run(&args),
    }
}
