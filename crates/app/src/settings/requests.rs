//! Settings of what is told of requests: the access log and ids.

use std::io::{self, Write};

use myriad_proxy::RequestIds;

use crate::cli::RawTraffic;
use crate::cli::requests::RequestId;
use crate::log_file::LogFile;

/// The output of the access log.
#[derive(Clone, Debug)]
pub enum AccessLog {
    /// No access log.
    Off,
    /// Standard output.
    Output,
    /// A file.
    File(LogFile),
}

impl AccessLog {
    pub(super) fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> AccessLog {
        let Some(path) = &raw.requests.access_log_file else {
            return match raw.access_log {
                true => AccessLog::Output,
                false => AccessLog::Off,
            };
        };
        match LogFile::open(path) {
            Ok(file) => AccessLog::File(file),
            Err(error) => {
                problems.push(format!("--access-log-file {}: {error}", path.display()));
                AccessLog::Off
            }
        }
    }

    /// Opens a file anew at each SIGUSR1.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn reopen_at_signal(&self) -> io::Result<()> {
        match self {
            AccessLog::File(file) => file.reopen_at_signal(),
            AccessLog::Off | AccessLog::Output => Ok(()),
        }
    }

    /// The end that lines are written to.
    pub(super) fn writer(&self) -> Option<Box<dyn Write + Send>> {
        match self {
            AccessLog::Off => None,
            AccessLog::Output => Some(Box::new(io::stdout())),
            AccessLog::File(file) => Some(Box::new(file.clone())),
        }
    }
}

pub(super) fn request_ids(raw: &RawTraffic) -> RequestIds {
    match raw.requests.request_id {
        RequestId::Keep => RequestIds::Keep,
        RequestId::Replace => RequestIds::Replace,
        RequestId::Pass => RequestIds::Pass,
    }
}
