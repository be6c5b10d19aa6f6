//! A test cluster: the real Kubernetes API on this machine, without containers.
//!
//! etcd, kube-apiserver and kube-controller-manager run in a network namespace of their own, so
//! that clusters stand side by side on the same ports. There is no kubelet: every address of
//! 10.244.0.0/16 is local in that network, and ordinary processes play the pods.
//!
//! All that a cluster is lies in one folder of the cache, which is the lock and the memory of
//! these commands: `up` starts what is missing, `down` ends what was started, in any order and
//! after any failure.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

mod credentials;
mod daemon;
mod folder;
mod namespace;
mod process;
mod programs;
mod status;

use daemon::{DAEMONS, Daemon};
use folder::{Folder, Lock};
use namespace::Namespace;
use process::Process;

pub(crate) use folder::Name;
pub(crate) use namespace::Isolation;
pub(crate) use status::Status;

/// What can be done with a test cluster.
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

/// How long a part may take to become ready, on a machine that is busy with something else.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two questions: each costs a process.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// A cluster that is up.
pub(crate) struct Cluster {
    folder: Folder,
    namespace: Namespace,
    kubectl: PathBuf,
}

/// Does what the command line asks for.
pub(crate) fn run(root: &Path, action: Action) -> Result<()> {
    let cache = crate::tool::cache_folder()?;
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
            let cluster = Cluster::up(root, &cache, &name, isolation)?;
            println!(
                "{name} is ready after {:.1} s",
                start.elapsed().as_secs_f64()
            );
            cluster.show();
        }
        Action::Down { name } => match down(&cache, &name)? {
            true => println!("{name} is down"),
            false => println!("there is no cluster {name}"),
        },
        Action::Kill { name, part } => kill(&cache, &name, &part)?,
        Action::Status { name } => show_status(&cache, name)?,
    }
    Ok(())
}

/// Ends a cluster and removes its network and its folder. `false` when there was none.
pub(crate) fn down(cache: &Path, name: &Name) -> Result<bool> {
    let folder = Folder::of(cache, name);
    if !folder.exists() {
        return Ok(false);
    }
    let lock = folder.lock()?;
    kill_all(&folder)?;
    if let Some(holder) = Process::read(&folder.process(namespace::HOLDER)) {
        holder.kill()?;
    }
    lock.remove_folder()?;
    Ok(true)
}

fn kill(cache: &Path, name: &Name, part: &str) -> Result<()> {
    let Some(daemon) = DAEMONS.iter().find(|daemon| daemon.name == part) else {
        let known = DAEMONS.map(|daemon| daemon.name).join(", ");
        bail!("no part `{part}`; there are {known}");
    };
    let folder = Folder::of(cache, name);
    if !folder.exists() {
        bail!("there is no cluster {name}");
    }
    let _lock = folder.lock()?;
    match daemon.process(&folder) {
        Some(process) => process.kill(),
        None => bail!("{part} does not run"),
    }
}

/// In the reverse order of the start, so that no part complains of another's end.
fn kill_all(folder: &Folder) -> Result<()> {
    for daemon in DAEMONS.iter().rev() {
        if let Some(process) = daemon.process(folder) {
            process.kill()?;
        }
    }
    Ok(())
}

fn show_status(cache: &Path, name: Option<Name>) -> Result<()> {
    let names = match name {
        Some(name) => vec![name],
        None => Folder::names(cache)?,
    };
    if names.is_empty() {
        println!("there is no cluster");
    }
    let mut missing = Vec::new();
    for name in names {
        let status = Status::of(&Folder::of(cache, &name));
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

impl Cluster {
    /// Builds the programs that have not been built yet, starts what does not run, and returns
    /// when the API is ready and the controllers work.
    ///
    /// # Errors
    /// When a part ends or is not ready in time; what runs by then goes on, for people to look at.
    pub(crate) fn up(
        root: &Path,
        cache: &Path,
        name: &Name,
        isolation: Isolation,
    ) -> Result<Cluster> {
        programs::provide(root, cache)?;
        let folder = Folder::of(cache, name);
        let lock = folder.lock()?;
        Cluster::start(root, cache, folder.clone(), isolation, &lock).with_context(|| {
            let logs = folder.logs();
            format!(
                "cluster {name} did not come up; its logs are in {}, and \
                 `cargo xtask cluster down --name {name}` removes what there is",
                logs.display()
            )
        })
    }

    fn start(
        root: &Path,
        cache: &Path,
        folder: Folder,
        isolation: Isolation,
        lock: &Lock,
    ) -> Result<Cluster> {
        credentials::provide(&folder, lock)?;
        let namespace = match Namespace::find(&folder)? {
            Some(namespace) => namespace,
            None => {
                // What still runs does so in a network that nobody can enter any more.
                kill_all(&folder)?;
                Namespace::create(&folder, lock, isolation)?
            }
        };
        let cluster = Cluster {
            kubectl: programs::path(cache, "kubectl")?,
            folder,
            namespace,
        };
        cluster.write_entry(lock)?;
        cluster.write_control(root, lock)?;
        for (index, daemon) in DAEMONS.iter().enumerate() {
            let program = programs::path(cache, daemon.name)?;
            daemon.start(&cluster.folder, lock, &cluster.namespace, &program)?;
            cluster.wait_for(daemon, &DAEMONS[..=index])?;
        }
        Ok(cluster)
    }

    /// A command in the network of the cluster. Nothing but the path and what names the cluster
    /// comes from our environment: a proxy for HTTP, for example, would be in the way.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = self.namespace.command(program);
        command.env_clear().env("PATH", process::search_path());
        command.env("KUBECONFIG", self.folder.kubeconfig());
        command.current_dir(self.folder.path());
        command
    }

    /// The script that runs a command in the network of the cluster, for tests that enter it.
    pub(crate) fn entry(&self) -> PathBuf {
        self.folder.entry()
    }

    /// The script that kills parts of the cluster and starts them again.
    pub(crate) fn control(&self) -> PathBuf {
        self.folder.control()
    }

    /// What `kubectl` with these arguments prints, given this input.
    ///
    /// # Errors
    /// When it fails; the error has what it complained about.
    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut command = self.command(&self.kubectl);
        command.args(arguments);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("kubectl does not start")?;
        let mut stdin = child.stdin.take().context("kubectl has no input")?;
        // One that does not read its input ends, and then its own words say more than the pipe's.
        drop(stdin.write_all(input.as_bytes()));
        drop(stdin);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {}: {}", arguments.join(" "), complaint.trim());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Says how to use it.
    fn show(&self) {
        let entry = self.entry();
        let kubeconfig = self.folder.kubeconfig();
        println!("  kubeconfig  {}", kubeconfig.display());
        println!("  enter it    {} kubectl get namespaces", entry.display());
        println!("  or by hand  {}", self.by_hand());
    }

    /// The same without our script, for those who want to know what it does.
    fn by_hand(&self) -> String {
        let words = [
            self.namespace.prefix(),
            vec![
                "env".to_owned(),
                format!("KUBECONFIG={}", self.folder.kubeconfig().display()),
                self.kubectl.display().to_string(),
            ],
        ];
        let words = words.concat();
        words
            .iter()
            .map(|word| quote(word))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Writes the script by which people and tests enter: it knows what the namespace is today.
    fn write_entry(&self, lock: &Lock) -> Result<()> {
        let prefix = self.namespace.prefix();
        let prefix: Vec<String> = prefix.iter().map(|word| quote(word)).collect();
        let programs = self.kubectl.parent().unwrap_or(Path::new("/"));
        let text = format!(
            "#!/bin/sh\n\
             # Runs a command, or a shell, in the network of the cluster and with its kubectl.\n\
             export KUBECONFIG={}\n\
             export PATH={}:\"$PATH\"\n\
             [ $# -gt 0 ] || set -- \"${{SHELL:-sh}}\"\n\
             # A namespace of users cannot be entered from inside.\n\
             [ /proc/self/ns/net -ef /proc/{}/ns/net ] && exec \"$@\"\n\
             exec {} \"$@\"\n",
            quote(&self.folder.kubeconfig().to_string_lossy()),
            quote(&programs.to_string_lossy()),
            self.namespace.holder(),
            prefix.join(" "),
        );
        lock.write(&self.entry(), &text, 0o700)
    }

    /// Writes the script by which tests kill parts of their cluster and start them again.
    fn write_control(&self, root: &Path, lock: &Lock) -> Result<()> {
        let this = crate::tool::this_program()?;
        let text = format!(
            "#!/bin/sh\n\
             # Does with this cluster what `cargo xtask cluster` does: `control kill etcd`.\n\
             export CARGO_MANIFEST_DIR={}\n\
             action=$1; shift\n\
             exec {} cluster \"$action\" --name {} \"$@\"\n",
            quote(&root.join("xtask").to_string_lossy()),
            quote(&this.to_string_lossy()),
            self.folder.name(),
        );
        lock.write(&self.folder.control(), &text, 0o700)
    }

    /// Asks until the part is ready, as long as all that have been started still run.
    fn wait_for(&self, daemon: &Daemon, started: &[Daemon]) -> Result<()> {
        let Some(question) = daemon.question else {
            return Ok(());
        };
        let deadline = Instant::now() + READY_TIMEOUT;
        while let Err(answer) = self.kubectl(question, "") {
            for daemon in started {
                daemon.check_runs(&self.folder)?;
            }
            if Instant::now() >= deadline {
                let seconds = READY_TIMEOUT.as_secs();
                let context = format!("{} is not ready after {seconds} s", daemon.name);
                return Err(answer.context(context));
            }
            std::thread::sleep(ASK_INTERVAL);
        }
        Ok(())
    }
}

/// A word as the shell reads it back.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_reads_back_what_was_quoted() {
        let words = ["plain", "", "a b", "it's", "$HOME `id` \"x\" \\ *", "a\nb"];
        for word in words {
            let script = format!("printf %s {}", quote(word));
            let output = Command::new("sh").args(["-c", &script]).output();
            let output = output.expect("a shell").stdout;
            assert_eq!(String::from_utf8(output).expect("text"), word);
        }
    }
}
