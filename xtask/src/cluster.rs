//! `cluster`: a test cluster by hand. What it is made of lies in the library of the tools.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use myriad_lab::cluster::{self, Cluster, Isolation, NODES_MAX, Name};
use myriad_lab::tool::cache_folder;

use crate::peer::{self, Peer};
use crate::stages::setup;

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
        /// Adds a node that runs Pods in containers; takes root.
        #[arg(long)]
        node: bool,
        /// The number of nodes, each a zone of its own.
        #[arg(long, requires = "node", default_value_t = 1, value_parser = parse_nodes)]
        nodes: usize,
    },
    /// Builds the programs that have not been built yet, and k6, which takes some minutes once.
    Build {
        /// Builds those of nodes too.
        #[arg(long)]
        node: bool,
    },
    /// Brings an image to all nodes, from an archive such as `cargo xtask image` makes.
    Load {
        /// The name of the cluster.
        #[arg(long, default_value = "myriad")]
        name: Name,
        /// The archive.
        archive: PathBuf,
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
            node,
            nodes,
        } => {
            let nodes = if node { nodes } else { 0 };
            if node {
                provide_node_programs(root)?;
            }
            let isolation = match user_namespace {
                true => Isolation::UserNamespace,
                false => Isolation::of_this_user(),
            };
            let start = Instant::now();
            let up = Cluster::up(root, &cache, &name, isolation, nodes)?;
            println!(
                "{name} is ready after {:.1} s",
                start.elapsed().as_secs_f64()
            );
            println!("{}", up.usage());
        }
        Action::Build { node } => {
            cluster::build_programs(root, &cache, node)?;
            peer::provide(root, Peer::K6, &cache)?;
        }
        Action::Load { name, archive } => {
            let archive = std::path::absolute(archive)?;
            Cluster::find(&cache, &name)?.load(&archive)?;
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

/// Installs what nodes need and Debian has.
pub(crate) fn provide_node_programs(root: &Path) -> Result<()> {
    let missing = cluster::missing_packages();
    match missing.is_empty() {
        true => Ok(()),
        false => setup::install(root, &Vec::from_iter(missing)),
    }
}

fn parse_nodes(text: &str) -> Result<usize> {
    let nodes = text.parse()?;
    ensure!((1..=NODES_MAX).contains(&nodes), "1 to {NODES_MAX} nodes");
    Ok(nodes)
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
