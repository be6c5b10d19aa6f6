//! A process of a story: how it is started, and what can happen to it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// A process of the program that is about to be started, any number of times.
#[derive(Clone)]
pub struct Launch {
    words: Vec<OsString>,
    command: &'static str,
    arguments: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    log: PathBuf,
}

/// A process in the cluster's network; it is killed when this is dropped.
pub struct Process {
    child: Child,
    admin: String,
    log: PathBuf,
}

impl Launch {
    /// Runs a command of the program in the network that a script enters.
    pub(super) fn new(enter: &Path, command: &'static str, log: PathBuf) -> Launch {
        Launch {
            words: vec![enter.into()],
            command,
            arguments: Vec::new(),
            environment: Vec::new(),
            log,
        }
    }

    /// Sets an option, instead of what it was set to before.
    #[must_use]
    pub fn set(mut self, option: &str, value: impl ToString) -> Launch {
        self.arguments.retain(|(known, _)| known != option);
        self.arguments.push((option.to_owned(), value.to_string()));
        self
    }

    /// One more argument that is no option.
    #[must_use]
    pub fn argument(mut self, value: impl ToString) -> Launch {
        self.arguments.push((String::new(), value.to_string()));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: impl ToString) -> Launch {
        let variable = (name.to_owned(), value.to_string());
        self.environment.push(variable);
        self
    }

    /// Starts it by a command that becomes the program, such as `unshare --mount`.
    #[must_use]
    pub fn through(mut self, words: &[&str]) -> Launch {
        self.words.extend(words.iter().map(OsString::from));
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// Where the binary is unknown or does not start.
    pub fn start(&self) -> Process {
        let program = std::env::var_os("MYRIAD_BIN")
            .expect("MYRIAD_BIN is the path of the binary; `cargo xtask test` sets it");
        let mut words = self.words.iter();
        let mut command = Command::new(words.next().expect("a script"));
        // Set behind the script, which sets some of them too.
        command.args(words).arg("env");
        for (name, value) in &self.environment {
            command.arg(format!("{name}={value}"));
        }
        command.arg(program).arg(self.command);
        for (option, value) in &self.arguments {
            match option.is_empty() {
                true => command.arg(value),
                false => command.arg(format!("{option}={value}")),
            };
        }
        let file = std::fs::File::create(&self.log).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(file).kill_on_drop(true);
        let child = command.spawn().expect("the binary starts");
        let admin = self.arguments.iter().find(|(known, _)| known == "--admin");
        Process {
            child,
            admin: admin.map(|(_, value)| value.clone()).expect("an address"),
            log: self.log.clone(),
        }
    }
}

impl Process {
    /// The address of its admin pages.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// The log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it, as if the machine had.
    ///
    /// # Panics
    /// Where it has ended already.
    pub async fn kill(mut self) {
        self.child.kill().await.expect("it runs");
    }

    /// Stops it in its tracks, until [`Process::resume`].
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on as if no time had passed.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, as a cluster does with a pod.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// Where the system does not say.
    pub async fn ended(&mut self) -> ExitStatus {
        self.child.wait().await.expect("a status")
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        let pid = pid.and_then(Pid::from_raw).expect("it runs");
        kill_process(pid, signal).expect("it runs");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Where a story fails, what its processes have to say is wanted, and about to be deleted.
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.log());
        }
    }
}
