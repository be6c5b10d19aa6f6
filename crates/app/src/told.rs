//! Findings on the log: one line for each that appears or goes, and a count where they are many.

use myriad_api::{Finding, Severity};
use myriad_base::log::suppressed::Topic;

/// The most lines of a second. What is beyond them is counted, and listed by `/config`.
pub const LINES_PER_SECOND_MAX: usize = 20;

/// The lines that were told and left out in this second.
#[derive(Default)]
pub struct Told {
    second: i64,
    lines: usize,
    left_out: usize,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A finding that was not there before.
    Appeared(Finding),
    /// A finding that holds no more.
    Gone(Finding),
    /// The number of findings that appeared or went in a second that had its lines already.
    LeftOut(usize),
}

impl Told {
    /// Makes room for a line at a time in Unix seconds; false where the second has had its lines.
    pub fn admit(&mut self, now: i64) -> bool {
        if now != self.second {
            self.second = now;
            self.lines = 0;
        }
        let is_admitted = self.lines < LINES_PER_SECOND_MAX;
        match is_admitted {
            true => self.lines += 1,
            false => {
                self.left_out += 1;
                Topic::Finding.suppress();
            }
        }
        is_admitted
    }

    /// How many were left out, once the second is over in which they were; told once.
    pub fn left_out(&mut self, now: i64) -> Option<Line> {
        if now == self.second || self.left_out == 0 {
            return None;
        }
        Some(Line::LeftOut(std::mem::take(&mut self.left_out)))
    }
}

impl Line {
    /// Writes it.
    pub fn write(&self) {
        match self {
            Line::Appeared(finding) => match finding.severity {
                Severity::Error => tracing::error!("{finding}"),
                Severity::Warning => tracing::warn!("{finding}"),
                Severity::Info => tracing::info!("{finding}"),
            },
            Line::Gone(finding) => tracing::info!("resolved: {finding}"),
            Line::LeftOut(count) => {
                tracing::warn!(
                    "{count} more findings appeared or went; the admin page /config \
                                lists those that hold"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use myriad_api::{Finding, ObjectKey, ObjectKind, Severity};

    use super::{LINES_PER_SECOND_MAX, Line, Told};

    #[test]
    fn what_is_told_of_a_finding_is_one_line() {
        let key = ObjectKey::new(ObjectKind::VirtualService, "n", "a");
        let field = "spec.http[0].headers.request.set[a\n2026 ERROR forged]";
        let finding = Finding::new(Severity::Warning, &key, field, "b\r\nc", "d\ne");
        // As `write` has it.
        let line = format!("resolved: {finding}");
        assert!(!line.contains(['\n', '\r']), "{line}");
        assert!(line.contains("set[a\\n2026 ERROR forged]"), "{line}");
    }

    #[test]
    fn a_mass_change_is_a_bounded_number_of_lines_and_a_count() {
        let mut told = Told::default();
        let admitted = (0..1_000).filter(|_| told.admit(7)).count();
        assert_eq!(admitted, LINES_PER_SECOND_MAX);
        assert_eq!(told.left_out(7), None);
        let left_out = 1_000 - LINES_PER_SECOND_MAX;
        assert_eq!(told.left_out(8), Some(Line::LeftOut(left_out)));
        assert_eq!(told.left_out(9), None);
        assert!(told.admit(9));
    }
}
