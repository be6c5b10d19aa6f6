//! A real Prometheus that reads metrics of a story, and answers as it answers dashboards.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::cluster::enter;
use crate::world::{eventually, eventually_within};

/// A Prometheus with its data, until it is dropped.
pub struct Prometheus {
    address: String,
    /// The script that enters the network where it is; none for that of the story.
    entry: Option<PathBuf>,
    _child: Child,
    _directory: TempDir,
}

/// The metrics that a Prometheus reads, and how it does.
pub struct Scraped<'a> {
    /// The addresses.
    pub targets: &'a [String],
    /// The path of the metrics at each of them.
    pub path: &'a str,
    /// Whether native histograms are asked for, and kept in place of classic buckets.
    pub is_native: bool,
    /// The script that enters the network where it runs; none for that of the story.
    pub entry: Option<&'a Path>,
}

impl Scraped<'_> {
    /// The program with its configuration and its data in a directory.
    fn command(&self, directory: &Path) -> Command {
        let config = directory.join("prometheus.yml");
        let text = serde_json::json!({
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{
                "job_name": "myriad",
                "metrics_path": self.path,
                "static_configs": [{"targets": self.targets}],
            }],
        });
        std::fs::write(&config, text.to_string()).expect("a file");
        let data = directory.join("data");
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg("--web.listen-address=127.0.0.1:0");
        if self.is_native {
            command.arg("--enable-feature=native-histograms");
        }
        match self.entry {
            Some(entry) => enter(entry, &command),
            None => command,
        }
    }
}

impl Prometheus {
    /// Starts one that reads these addresses every second, at the path that injection tells. The
    /// port is one that the system chooses, so that whoever else runs one is in nobody's way.
    ///
    /// # Panics
    /// Where the program is not there, or does not listen.
    pub async fn start(targets: &[String]) -> Prometheus {
        let scraped = Scraped {
            targets,
            path: "/stats/prometheus",
            is_native: false,
            entry: None,
        };
        Prometheus::reading(&scraped).await
    }

    /// Starts one that reads these metrics every second.
    ///
    /// # Panics
    /// Where the program is not there, or does not listen.
    pub async fn reading(scraped: &Scraped<'_>) -> Prometheus {
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = scraped.command(directory.path());
        command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .expect("this needs `prometheus`; `cargo xtask test --stage setup` installs it");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let listens = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
                    return address.trim().to_owned();
                }
            }
            panic!("Prometheus ended before it listened");
        };
        let listens = tokio::time::timeout(Duration::from_secs(60), listens).await;
        let address = listens.expect("Prometheus listens in time");
        // Nobody else reads what it says, and it must not wait for that.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Prometheus {
            address,
            entry: scraped.entry.map(Path::to_owned),
            _child: child,
            _directory: directory,
        }
    }

    /// The series that a query finds now: labels and value of each.
    ///
    /// # Panics
    /// Where it is no query.
    pub async fn ask(&self, query: &str) -> Vec<(Value, f64)> {
        let mut command = Command::new("curl");
        command.args(["--silent", "--noproxy", "*", "--get", "--data-urlencode"]);
        command.arg(format!("query={query}"));
        command.arg(format!("http://{}/api/v1/query", self.address));
        if let Some(entry) = &self.entry {
            command = enter(entry, &command);
        }
        let output = command.output().await.expect("curl starts");
        let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else {
            return Vec::new();
        };
        assert_ne!(answer["status"], "error", "{query}: {answer}");
        let found = answer["data"]["result"].as_array().into_iter().flatten();
        let found = found.filter_map(|series| {
            let value = series["value"][1].as_str()?.parse().ok()?;
            Some((series["metric"].clone(), value))
        });
        found.collect()
    }

    /// Waits until a query has one answer, and that is this number.
    ///
    /// # Panics
    /// Where it never is.
    pub async fn says(&self, query: &str, expected: f64) {
        let mut last = Vec::new();
        let said = eventually(async || {
            last = self.ask(query).await;
            matches!(&last[..], [(_, value)] if *value == expected).then_some(())
        });
        let said = said.await;
        let all = self
            .ask("{__name__=~\"istio_requests_total|istio_tcp.*|up\"}")
            .await;
        let all: Vec<String> = all.iter().map(|it| format!("{} {}", it.0, it.1)).collect();
        let all = all.join("\n");
        assert!(said.is_some(), "{query}: {last:?}, not {expected}\n{all}");
    }

    /// Waits until a query finds series of which one fits, while something goes on.
    ///
    /// # Panics
    /// Where none does.
    pub async fn finds(
        &self,
        query: &str,
        mut meanwhile: impl AsyncFnMut(),
        fits: impl Fn(&Value, f64) -> bool,
    ) {
        let mut last = Vec::new();
        let found = eventually_within(Duration::from_secs(60), async || {
            meanwhile().await;
            last = self.ask(query).await;
            let mut all = last.iter();
            all.any(|(labels, value)| fits(labels, *value))
                .then_some(())
        });
        assert!(found.await.is_some(), "{query}: {last:?}");
    }
}
