//! Settings of the history.

use std::time::Duration;

use super::memory;
use crate::cli::history::RawHistory;
use crate::history::HistorySettings;

/// Checks the settings; none where no history is kept.
pub(super) fn read(raw: &RawHistory, problems: &mut Vec<String>) -> Option<HistorySettings> {
    let written = &raw.history_bytes;
    let bytes = memory::parse(written).and_then(|bytes| usize::try_from(bytes).ok());
    if bytes.is_none() {
        problems.push(format!(
            "--history-bytes is {written:?}, not 0, or bytes with KiB, MiB or GiB"
        ));
    }
    Some(HistorySettings {
        bytes_max: bytes.filter(|bytes| *bytes > 0)?,
        age_max: Duration::from_secs(raw.history_hours * 3_600),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{HistorySettings, RawHistory, read};
    use crate::history::{BYTES_DEFAULT, HOURS_DEFAULT};

    fn raw(bytes: &str) -> RawHistory {
        RawHistory {
            history_bytes: bytes.to_owned(),
            history_hours: HOURS_DEFAULT,
        }
    }

    #[test]
    fn a_history_has_bytes_and_an_age_or_is_not_kept() {
        let mut problems = Vec::new();
        let kept = HistorySettings {
            bytes_max: usize::try_from(BYTES_DEFAULT).unwrap(),
            age_max: Duration::from_secs(86_400),
        };
        assert_eq!(read(&raw("16MiB"), &mut problems), Some(kept));
        assert_eq!(read(&raw("0"), &mut problems), None);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(read(&raw("much"), &mut problems), None);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("--history-bytes"), "{problems:?}");
    }
}
