//! A test cluster: the real Kubernetes API on this machine, without containers.
//!
//! etcd, kube-apiserver and kube-controller-manager run in a network namespace of their own, so
//! that clusters stand side by side on the same ports. Every address of 10.244.0.0/16 is local in
//! that network, where ordinary processes play the pods; or there are nodes, with a kubelet and
//! containers.
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
mod node;
mod process;
mod programs;
mod status;

use daemon::{Daemon, daemons};
use folder::{Folder, Lock};
use namespace::Namespace;
use process::Process;

use crate::cert_manager;

pub use folder::Name;
pub use namespace::Isolation;
pub use node::{NODES_MAX, missing_packages};
pub use status::Status;

/// How long a part may take to become ready, on a machine that is busy with something else.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two questions: each costs a process.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// A cluster that is up.
pub struct Cluster {
    folder: Folder,
    namespace: Namespace,
    kubectl: PathBuf,
}

/// Builds the programs of clusters that have not been built yet, what stories run in them, and
/// those of nodes.
///
/// # Errors
/// One cannot be built.
pub fn build_programs(root: &Path, cache: &Path, with_nodes: bool) -> Result<()> {
    programs::provide(root, cache)?;
    cert_manager::provide(root, cache)?;
    match with_nodes {
        true => programs::provide_for_nodes(root, cache),
        false => Ok(()),
    }
}

/// Ends a cluster and removes its network and its folder. `false` when there was none.
///
/// # Errors
/// A process does not end, or its folder cannot be removed.
pub fn down(cache: &Path, name: &Name) -> Result<bool> {
    let folder = Folder::of(cache, name);
    if !folder.exists() {
        return Ok(false);
    }
    let lock = folder.lock()?;
    kill_all(&folder)?;
    if let Some(holder) = Process::read(&folder.process(namespace::HOLDER)) {
        holder.kill()?;
    }
    node::remove(&folder)?;
    lock.remove_folder()?;
    Ok(true)
}

/// Kills one part of a cluster, as a failure would.
///
/// # Errors
/// There is no such cluster or part, or it does not end.
pub fn kill(cache: &Path, name: &Name, part: &str) -> Result<()> {
    let folder = Folder::of(cache, name);
    let daemons = daemons(&folder);
    let Some(daemon) = daemons.iter().find(|daemon| daemon.name == part) else {
        let known: Vec<&str> = daemons.iter().map(|daemon| daemon.name).collect();
        bail!("no part `{part}`; there are {}", known.join(", "));
    };
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
    for daemon in daemons(folder).iter().rev() {
        if let Some(process) = daemon.process(folder) {
            process.kill()?;
        }
    }
    Ok(())
}

/// The names of all clusters that there are.
///
/// # Errors
/// The cache cannot be read.
pub fn names(cache: &Path) -> Result<Vec<Name>> {
    Folder::names(cache)
}

/// The parts of a cluster that run.
pub fn status(cache: &Path, name: &Name) -> Status {
    Status::of(&Folder::of(cache, name))
}

impl Cluster {
    /// Builds the programs that have not been built yet, starts what does not run, and returns
    /// when the API is ready and the controllers work, and so many nodes are ready. One that is up
    /// keeps the nodes that it has.
    ///
    /// # Errors
    /// When a part ends or is not ready in time; what runs by then goes on, for people to look at.
    pub fn up(
        root: &Path,
        cache: &Path,
        name: &Name,
        isolation: Isolation,
        nodes: usize,
    ) -> Result<Cluster> {
        programs::provide(root, cache)?;
        let folder = Folder::of(cache, name);
        let lock = folder.lock()?;
        if nodes > 0 {
            node::prepare(root, cache, &folder, &lock, isolation, nodes)?;
        }
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
        let daemons = daemons(&cluster.folder);
        for (index, daemon) in daemons.iter().enumerate() {
            let program = match daemon.is_script() {
                true => PathBuf::from("bash"),
                false => programs::path(cache, daemon.name)?,
            };
            daemon.start(&cluster.folder, lock, &cluster.namespace, &program)?;
            cluster.wait_for(daemon, &daemons[..=index])?;
            if daemon.name == "kube-controller-manager" {
                cluster.furnish()?;
            }
        }
        // One that nobody waits for may have ended meanwhile.
        for daemon in &daemons {
            daemon.check_runs(&cluster.folder)?;
        }
        Ok(cluster)
    }

    /// Writes the objects that nodes need.
    fn furnish(&self) -> Result<()> {
        if node::count(&self.folder) > 0 {
            self.kubectl(&["apply", "--filename=-"], node::OBJECTS)?;
        }
        Ok(())
    }

    /// Brings an image to all nodes, from an archive.
    ///
    /// # Errors
    /// There is no node, or it does not take it.
    pub fn load(&self, archive: &Path) -> Result<()> {
        node::load(&self.folder, archive)
    }

    /// Gives an image on all nodes another name.
    ///
    /// # Errors
    /// There is no node, or it does not have it.
    pub fn tag(&self, image: &str, name: &str) -> Result<()> {
        node::tag(&self.folder, image, name)
    }

    /// The certificate of the cluster's authority.
    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// The cluster of this name that is up.
    ///
    /// # Errors
    /// There is none.
    pub fn find(cache: &Path, name: &Name) -> Result<Cluster> {
        let folder = Folder::of(cache, name);
        let namespace = Namespace::find(&folder)?;
        Ok(Cluster {
            kubectl: programs::path(cache, "kubectl")?,
            namespace: namespace.with_context(|| format!("there is no cluster {name}"))?,
            folder,
        })
    }

    /// A command in the network of the cluster. Nothing but the path and what names the cluster
    /// comes from our environment: a proxy for HTTP, for example, would be in the way.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.namespace.command(program);
        command.env_clear().env("PATH", process::search_path());
        command.env("KUBECONFIG", self.folder.kubeconfig());
        command.current_dir(self.folder.path());
        command
    }

    /// The script that runs a command in the network of the cluster, for tests that enter it.
    pub fn entry(&self) -> PathBuf {
        self.folder.entry()
    }

    /// The script that kills parts of the cluster and starts them again.
    pub fn control(&self) -> PathBuf {
        self.folder.control()
    }

    /// The output of `kubectl` with these arguments, given this input.
    ///
    /// # Errors
    /// When it fails; the error has what it complained about.
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
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

    /// How to use it, for people.
    pub fn usage(&self) -> String {
        format!(
            "  kubeconfig  {}\n  enter it    {} kubectl get namespaces\n  or by hand  {}",
            self.folder.kubeconfig().display(),
            self.entry().display(),
            self.by_hand()
        )
    }

    /// The commands without our script, for those who want to know what it does.
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

    /// Writes the script by which tests kill parts of their cluster and start them again: this
    /// program does it, by its command `cluster`.
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
