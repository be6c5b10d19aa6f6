//! The process under measurement: the app itself, fed by its parent or by a directory.

use std::io::{BufReader, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail};
use clap::Parser;
use myriad::board::Board;
use myriad::cli::{Cli, Command as MyriadCommand};
use myriad::serve::{self, Input};
use myriad::settings::Serve;
use myriad_api::Batch;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::allocation;
use crate::cluster::usage;
use crate::domains::{Certificates, DomainObjects, Layout, SHARED_SECRET};
use crate::istio::MESH_FILE;
use crate::record::{Objects, Record};

/// How the child is started.
#[derive(Clone, Debug, clap::Args)]
pub struct ChildArgs {
    /// Serve this directory; without it, the inbox is fed from standard input.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Threads that serve connections.
    #[arg(long, default_value_t = 2)]
    workers: usize,
}

/// The child's message once it serves.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    /// The address of HTTP.
    pub http: SocketAddr,
    /// The address of HTTPS.
    pub https: SocketAddr,
}

/// Work that the child has done since its start.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Calls of keyed translation functions.
    pub units_translated: u64,
    /// Objects that they read.
    pub objects_visited: u64,
    /// Resources changed.
    pub resources_changed: u64,
    /// Nodes of the proxy's tables copied.
    pub table_nodes_copied: u64,
    /// Bytes that the control thread allocated.
    pub bytes_allocated: u64,
    /// Bytes encoded in order to be hashed or sent.
    pub bytes_encoded: u64,
    /// Bytes that arrived at a follower; `None` where nobody follows.
    pub bytes_received: u64,
}

/// Records that are taken together while the first list is sent.
const LIST_BATCH_CHANGES: usize = 1_024;

/// Runs the child until its standard input ends.
///
/// # Errors
/// The errors of the app and of the pipe.
pub fn run(args: &ChildArgs) -> anyhow::Result<()> {
    let workers = format!("--workers={}", args.workers);
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("/"));
    let line = [
        "myriad",
        "serve",
        "--http=127.0.0.1:0",
        "--https=127.0.0.1:0",
    ];
    let line = line.into_iter().chain(["--admin=127.0.0.1:0", &workers]);
    let mesh = dir.join(MESH_FILE);
    let mesh = mesh
        .is_file()
        .then(|| format!("--mesh-config={}", mesh.display()));
    let line = line.chain(mesh.as_deref());
    let line = line.chain([dir.to_str().context("a directory in UTF-8")?]);
    let MyriadCommand::Serve(raw) = Cli::parse_from(line).command else {
        bail!("not serve")
    };
    let settings = Serve::check(&raw)?;
    let (batches, receiver) = mpsc::channel(1);
    let input = if args.dir.is_some() {
        Input::Directory
    } else {
        Input::Inbox(receiver)
    };
    let mut running = serve::start_with(settings, input, Box::new(allocation::count_this_thread))?;
    let board = running.board().clone();
    let feeder = Feeder { board, batches };
    let thread = std::thread::Builder::new().name("feeder".to_owned());
    let thread = thread.spawn(move || feeder.run())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let addresses = running.wait_ready().await?;
        let find = |wanted: &str| addresses.iter().find(|(name, _)| name.as_str() == wanted);
        let http = find("http").context("HTTP is served")?.1;
        let https = find("https").context("HTTPS is served")?.1;
        say(&Ready { http, https })?;
        let ended = tokio::task::spawn_blocking(move || thread.join()).await?;
        ended.map_err(|_| anyhow::anyhow!("the feeder panicked"))??;
        running.stop().await
    })
}

fn say(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Turns records into batches, on a thread of its own.
struct Feeder {
    board: Board,
    batches: mpsc::Sender<Batch>,
}

impl Feeder {
    fn run(self) -> anyhow::Result<()> {
        let mut input = BufReader::with_capacity(1 << 16, std::io::stdin().lock());
        let mut objects = Objects {
            issuer: Vec::new(),
            layout: Layout {
                objects: DomainObjects::Ingresses,
                certificates: Certificates::Unique,
                domains: 0,
            },
        };
        let mut list = Batch::default();
        let mut is_listing = true;
        while let Some(record) = Record::read(&mut input)? {
            let batch = match record {
                Record::Layout(layout) => {
                    objects.layout = layout;
                    Batch {
                        changes: objects.common().into_iter().collect(),
                        ..Batch::default()
                    }
                }
                Record::Issuer(der) => {
                    objects.issuer = der;
                    continue;
                }
                Record::Shared(pair) => {
                    let changes = vec![objects.secret(SHARED_SECRET, &pair)];
                    Batch {
                        changes,
                        ..Batch::default()
                    }
                }
                Record::Put(domain) => objects.put(&domain),
                Record::Remove(number) => objects.remove(number),
                Record::Edit { number, is_edited } => objects.edit(number, is_edited),
                Record::Synced => {
                    is_listing = false;
                    Batch {
                        synced: true,
                        ..std::mem::take(&mut list)
                    }
                }
                Record::Count => {
                    say(&self.counts())?;
                    continue;
                }
            };
            if !is_listing {
                self.send(batch)?;
                continue;
            }
            list.changes.extend(batch.changes);
            if list.changes.len() >= LIST_BATCH_CHANGES {
                self.send(std::mem::take(&mut list))?;
            }
        }
        Ok(())
    }

    fn send(&self, batch: Batch) -> anyhow::Result<()> {
        self.batches
            .blocking_send(batch)
            .context("the app takes no more changes")
    }

    fn counts(&self) -> Counts {
        let work = self.board.work();
        Counts {
            units_translated: work.units_translated.get(),
            objects_visited: work.objects_visited.get(),
            resources_changed: work.resources_changed.get(),
            table_nodes_copied: work.table_nodes_copied.get(),
            bytes_allocated: allocation::bytes(),
            bytes_encoded: work.bytes_encoded.get(),
            bytes_received: 0,
        }
    }
}

/// A running child, as its parent sees it.
pub struct Running {
    child: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a child of this very program.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn start(dir: Option<&Path>, workers: usize) -> anyhow::Result<Running> {
        // Not by path: a build that replaces the file meanwhile must not change what is measured.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("myriad-bench").arg("child");
        command.arg(format!("--workers={workers}"));
        if let Some(dir) = dir {
            command.arg("--dir").arg(dir);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let output = child.stdout.take().context("a pipe")?;
        let input = BufWriter::with_capacity(1 << 16, input);
        Ok(Running {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    /// Sends a record; it may wait in a buffer until [`Running::flush`].
    ///
    /// # Errors
    /// The child has ended.
    pub fn send(&mut self, record: &Record) -> anyhow::Result<()> {
        record.write(&mut self.input).context("the child has ended")
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// The child has ended.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.input.flush().context("the child has ended")
    }

    /// Waits until the child serves.
    ///
    /// # Errors
    /// The child has ended.
    pub fn wait_ready(&mut self) -> anyhow::Result<Ready> {
        self.hear()
    }

    /// Asks for the counters.
    ///
    /// # Errors
    /// The child has ended.
    pub fn counts(&mut self) -> anyhow::Result<Counts> {
        self.send(&Record::Count)?;
        self.flush()?;
        self.hear()
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory now and at its peak, in MiB.
    ///
    /// # Errors
    /// The child has ended.
    pub fn memory_mib(&self) -> anyhow::Result<(f64, f64)> {
        usage::memory_mib(self.child.id())
    }

    /// Ends the child and waits for it.
    ///
    /// # Errors
    /// It did not end well.
    pub fn stop(mut self) -> anyhow::Result<()> {
        drop(self.input);
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "the child ended with {status}");
        Ok(())
    }

    fn hear<T: serde::de::DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        let read = std::io::BufRead::read_line(&mut self.output, &mut line)?;
        anyhow::ensure!(read > 0, "the child has ended");
        Ok(serde_json::from_str(&line)?)
    }
}
