//! `egress`: what each way out of a mesh costs, with the objects of `examples/egress`.
//!
//! Clients that wait for each answer ask a database for one document, through TLS of their own.
//! The API server, the controller, the identities and the rules are real, and so is the server's
//! protocol. The database stands in a network of its own behind TLS.

mod database;
mod ground;
mod report;
mod way;

use std::time::Duration;

use anyhow::{Context, ensure};

use crate::cluster;
use crate::table::Table;
use ground::Ground;
use report::Row;
use way::Way;

/// Settings of the command.
#[derive(Clone, Debug, clap::Args)]
pub struct EgressArgs {
    /// Which ways: 1 around the proxy, 2 through the sidecar, 3 through the gateway, 4 with mutual
    /// TLS between both, 5 to any host of a domain, 5m that with mutual TLS.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "1,2,3,4,5,5m",
        hide_possible_values = true
    )]
    cases: Vec<Way>,
    /// Numbers of clients, one row for each.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,5,10,15,20,25,30,35,40,45,50,55,60"
    )]
    clients: Vec<usize>,
    /// Measured seconds of a row.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Bytes of the document.
    #[arg(long, default_value_t = 620)]
    payload: usize,
    /// Threads of each proxy.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Print one JSON object per row instead of a table.
    #[arg(long)]
    json: bool,
}

/// How long traffic runs before it is measured.
const WARMING: Duration = Duration::from_millis(500);

/// The first load of all, which is not measured: Java compiles what it runs often.
const COMPILING: (usize, Duration) = (20, Duration::from_secs(6));

/// The largest document.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Runs the command.
///
/// # Errors
/// This is not root, a program is missing, or a proxy ends or does not serve.
pub fn run(args: &EgressArgs) -> anyhow::Result<()> {
    ensure!(args.seconds > 0.0, "there is time");
    ensure!(!args.clients.contains(&0), "there is a client");
    ensure!(
        args.payload <= PAYLOAD_BYTES_MAX,
        "at most {PAYLOAD_BYTES_MAX} bytes"
    );
    cluster::inside(|| measure(args))
}

fn measure(args: &EgressArgs) -> anyhow::Result<()> {
    let ground = Ground::prepare(args.workers, args.payload)?;
    let mut report = Table::new(args.json);
    for (at, &way) in args.cases.iter().enumerate() {
        let word = way.word();
        ground.open(way).with_context(|| format!("case {word}"))?;
        if at == 0 {
            let (clients, time) = COMPILING;
            ground.load(way, clients, WARMING, time)?;
        }
        for &clients in &args.clients {
            let time = Duration::from_secs_f64(args.seconds);
            let turn = ground.load(way, clients, WARMING, time);
            let turn = turn.with_context(|| format!("case {word}, {clients} clients"))?;
            report.add(&Row::new(way, clients, &turn))?;
        }
        ground.close(way)?;
    }
    ground.leave()
}
