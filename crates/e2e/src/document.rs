//! Documents whose commands are run as they stand: blocks of `sh`, each with the blocks of `text`
//! that follow it, which are what one sees then.

use std::fmt::Write as _;
use std::process::Output;

use crate::world::repository;

/// The headings of `docs/certificates.md` whose commands are for a cluster; all others are for a
/// process that serves files.
pub const CERTIFICATES_IN_CLUSTER: [&str; 2] =
    ["Issuers as objects", "From cert-manager, and back"];

/// The commands of a document, in their order.
pub struct Document(Vec<Step>);

/// A block of commands.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The heading that it stands below, without its marks.
    pub heading: String,
    /// The commands.
    pub commands: String,
    /// The lines that the document says one sees then.
    pub seen: Vec<String>,
}

impl Document {
    /// Reads a document by its path in the repository.
    ///
    /// # Panics
    /// Where there is none.
    pub fn read(path: &str) -> Document {
        let text = std::fs::read_to_string(repository(path)).expect("the document");
        Document(steps(&text))
    }

    /// All steps.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The steps below a heading, by how it begins.
    ///
    /// # Panics
    /// Where there is none: a story that runs nothing proves nothing.
    pub fn below(&self, heading: &str) -> Vec<&Step> {
        let steps = self.0.iter();
        let found: Vec<&Step> = steps
            .filter(|step| step.heading.starts_with(heading))
            .collect();
        assert!(!found.is_empty(), "no commands below `{heading}`");
        found
    }

    /// All steps as one script, which ends with the first command that fails. What is run in a
    /// container is run again until it shows what the document says, for half a minute at most: a
    /// reader takes longer than what was just applied needs to get there.
    pub fn script(&self) -> String {
        let mut script = String::from("set -eu\n");
        for (number, step) in self.0.iter().enumerate() {
            let _ = writeln!(script, "echo '{}'", marker(number));
            script += &match step.is_patient() {
                true => step.patiently(),
                false => step.commands.clone(),
            };
        }
        script
    }

    /// Holds what the script has printed against what the document says.
    ///
    /// # Panics
    /// Where it failed, or something else is seen.
    pub fn check(&self, output: &Output) {
        let stdout = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stdout}\n{complaint}");
        for (number, step) in self.0.iter().enumerate() {
            let (_, printed) = stdout.split_once(&marker(number)).expect("each step runs");
            let printed = printed.split(&marker(number + 1)).next();
            step.check(printed.unwrap_or_default());
        }
    }
}

impl Step {
    fn is_patient(&self) -> bool {
        self.commands.starts_with("kubectl exec") && !self.seen.is_empty()
    }

    fn patiently(&self) -> String {
        let mut script = format!("step() {{\n{}}}\nleft=60\n", self.commands);
        script += "while printed=$(step 2>&1 || true)\n! {\n";
        for line in &self.seen {
            let quoted = line.replace('\'', "'\\''");
            let _ = writeln!(
                script,
                "printf '%s' \"$printed\" | grep -qF -- '{quoted}' &&"
            );
        }
        script
            + "true; } && [ $left -gt 0 ]; do left=$((left - 1)); sleep 0.5; done\n\
                  printf '%s\\n' \"$printed\"\n"
    }

    /// Holds what was printed against what the document says.
    ///
    /// # Panics
    /// Where a line is not in it.
    pub fn check(&self, printed: &str) {
        for line in &self.seen {
            assert!(
                printed.contains(line),
                "`{line}` is not in what {} prints: {printed}",
                self.commands
            );
        }
    }
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut heading = "";
    let mut kind = None;
    for line in text.lines() {
        if let Some(word) = line.strip_prefix("```") {
            kind = kind.is_none().then_some(word);
            if kind == Some("sh") {
                steps.push(Step {
                    heading: heading.to_owned(),
                    ..Step::default()
                });
            }
            continue;
        }
        if kind.is_none() && line.starts_with('#') {
            heading = line.trim_start_matches('#').trim();
        }
        let Some(step) = steps.last_mut() else {
            continue;
        };
        match kind {
            Some("sh") => {
                let _ = writeln!(step.commands, "{line}");
            }
            Some("text") => step.seen.push(line.trim().to_owned()),
            _ => {}
        }
    }
    steps
}

fn marker(number: usize) -> String {
    format!("== step {number} ==")
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn commands_stand_below_their_heading_with_what_is_seen_then() {
        let text = "# A\n```sh\n# no heading\none\n```\nand\n\n```text\nseen\n```\n\
                    ## B\n```yaml\nnone: {}\n```\n```sh\ntwo\nthree\n```\n";
        let found = steps(text);
        let headings: Vec<&str> = found.iter().map(|it| &*it.heading).collect();
        assert_eq!(headings, ["A", "B"]);
        assert_eq!(found[0].commands, "# no heading\none\n");
        assert_eq!(found[0].seen, ["seen"]);
        assert_eq!(found[1].commands, "two\nthree\n");
        assert!(found[1].seen.is_empty());
    }
}
