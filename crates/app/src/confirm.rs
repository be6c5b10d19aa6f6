//! `confirm`: lets removals take effect that a running process holds.

use std::fmt;
use std::process::ExitCode;

use myriad_base::clock;
use myriad_base::hold::{Held, Holds};
use serde::{Deserialize, Serialize};

use crate::ask;
use crate::cli::RawConfirm;

/// The path of the question.
pub const PATH: &str = "/confirm";

/// The most holders that are named.
const HOLDERS_SHOWN_MAX: usize = 20;

/// Removals that wait, or that did until they were confirmed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HeldReport {
    /// How many watches and proxies hold some.
    pub holders_total: usize,
    /// The first of them, and what each holds.
    pub holders: Vec<HolderReport>,
}

/// A holder of removals.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct HolderReport {
    /// The watch or the proxy.
    pub holder: String,
    /// The removals that are held there, as in `19999 of 20000 domains`.
    pub would_go: String,
    /// Since when they wait, in seconds since the epoch.
    pub since_unix: i64,
}

/// Runs the command: exit code 1 where nothing was held.
///
/// # Errors
/// Nobody answers, or standard output takes nothing.
pub fn run(raw: &RawConfirm) -> anyhow::Result<ExitCode> {
    let report: HeldReport = ask::tell(&raw.question, PATH)?;
    ask::print(&raw.question, &Confirmed(&report))?;
    Ok(match report.holders_total {
        0 => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

impl HeldReport {
    /// The removals that wait now.
    pub fn of(holds: &Holds) -> HeldReport {
        HeldReport::new(&holds.held())
    }

    /// Confirms what waits now, and says what it was.
    pub fn confirmed(holds: &Holds) -> HeldReport {
        HeldReport::new(&holds.confirm())
    }

    fn new(held: &[Held]) -> HeldReport {
        let holders = held.iter().take(HOLDERS_SHOWN_MAX);
        let report = |held: &Held| HolderReport {
            holder: held.holder.clone(),
            would_go: held.loss.to_string(),
            since_unix: held.since_unix,
        };
        HeldReport {
            holders_total: held.len(),
            holders: holders.map(report).collect(),
        }
    }
}

/// A report of what was confirmed.
#[derive(Serialize)]
#[serde(transparent)]
struct Confirmed<'a>(&'a HeldReport);

impl fmt::Display for Confirmed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.holders_total {
            0 => writeln!(f, "nothing is held here")?,
            1 => writeln!(f, "confirmed what 1 holder held:")?,
            count => writeln!(f, "confirmed what {count} holders held:")?,
        }
        write_holders(self.0, f)
    }
}

impl fmt::Display for HeldReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holders_total > 0 {
            writeln!(f, "removals are held, until `myriad confirm`:")?;
        }
        write_holders(self, f)
    }
}

fn write_holders(report: &HeldReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let now = clock::unix_seconds();
    for it in &report.holders {
        let seconds = now.saturating_sub(it.since_unix).max(0);
        writeln!(f, "  {}: {}, for {seconds} s", it.holder, it.would_go)?;
    }
    let more = report.holders_total.saturating_sub(report.holders.len());
    if more > 0 {
        writeln!(f, "  and {more} more")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use myriad_base::hold::{HoldLimits, Holds, Loss};

    use super::{Confirmed, HeldReport};

    #[test]
    fn what_is_held_is_told_and_confirmed_by_its_holder() {
        let holds = Holds::new(HoldLimits::default());
        assert_eq!(HeldReport::of(&holds).to_string(), "");
        let none = HeldReport::confirmed(&holds);
        assert_eq!(Confirmed(&none).to_string(), "nothing is held here\n");
        let loss = Loss {
            what: "domains",
            lost: 199,
            of: 200,
        };
        for number in 0..22 {
            holds.set(&format!("proxy {number:02}"), Some(loss));
        }
        let text = HeldReport::of(&holds).to_string();
        assert!(
            text.contains("  proxy 00: 199 of 200 domains, for "),
            "{text}"
        );
        assert!(text.ends_with("  and 2 more\n"), "{text}");
        let confirmed = HeldReport::confirmed(&holds);
        let text = Confirmed(&confirmed).to_string();
        assert!(
            text.starts_with("confirmed what 22 holders held:\n"),
            "{text}"
        );
    }
}
