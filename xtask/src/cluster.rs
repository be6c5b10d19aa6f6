//! `cluster`: a test cluster by hand. What it is made of lies in the library of the tools.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};
use myriad_lab::cluster::{self, Cluster, Isolation, Name};
use myriad_lab::tool::cache_folder;

/// An action on a test cluster.
#[derive(clap::Subcommand)]
pub(crate) enum Action {
    /// Starts what does not run yet, and returns when the API is ready.
    Up {
        /// Clusters of different names stand side by side.
        #[arg(long, default_value = "myriad")]
        name: Name,
        /// Uses a user namespace even as root, who otherwise gets a named network namespace.
        #[arg(long)]
        user_namespace: bool,
    },
    /// Ends everything that was started, and forgets all objects.
    Down {
        /// The name that was given to `up`.
        #[arg(long, default_value = "myriad")]
        name: Name,
    },
    /// Kills one part as a failure would; `up` starts it again with all that it had stored.
    Kill {
        /// The name of the cluster.
        #[arg(long, default_value = "myriad")]
        name: Name,
        /// The part, as `status` calls it.
        part: String,
    },
    /// Says what runs; fails when something does not.
    Status {
        /// Only this cluster.
        #[arg(long)]
        name: Option<Name>,
    },
}

/// Does what the command line asks for.
pub(crate) fn run(root: &Path, action: Action) -> Result<()> {
    let cache = cache_folder()?;
    match action {
        Action::Up {
            name,
            user_namespace,
        } => {
            let isolation = match user_namespace {
                true => Isolation::UserNamespace,
                false => Isolation::of_this_user(),
            };
            let start = Instant::now();
            let up = Cluster::up(root, &cache, &name, isolation)?;
            println!(
                "{name} is ready after {:.1} s",
                start.elapsed().as_secs_f64()
            );
            println!("{}", up.usage());
        }
        Action::Down { name } => match cluster::down(&cache, &name)? {
            true => println!("{name} is down"),
            false => println!("there is no cluster {name}"),
        },
        Action::Kill { name, part } => cluster::kill(&cache, &name, &part)?,
        Action::Status { name } => show_status(&cache, name)?,
    }
    Ok(())
}

fn show_status(cache: &Path, name: Option<Name>) -> Result<()> {
    let names = match name {
        Some(name) => vec![name],
        None => cluster::names(cache)?,
    };
    if names.is_empty() {
        println!("there is no cluster");
    }
    let mut missing = Vec::new();
    for name in names {
        let status = cluster::status(cache, &name);
        println!("{status}");
        if !status.runs() {
            missing.push(name.to_string());
        }
    }
    match missing.is_empty() {
        true => Ok(()),
        false => bail!("not everything runs: {}", missing.join(", ")),
    }
}
