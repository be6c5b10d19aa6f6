//! The parts that a proxy starts with.

use std::io;
use std::sync::Arc;

use myriad_base::metrics::Metrics;
use myriad_model::{AccessLog, LogFormat, LogSink, Telemetry};

use super::sockets::Inherited;
use crate::admission::pressure::Pressure;
use crate::balance::tables::HashTables;
use crate::limits::Limits;
use crate::telemetry::access_log::AccessLogWriter;
use crate::telemetry::recording::Recording;
use crate::tls::tickets::TicketKeys;

/// The access log, which is opened later where nobody says where to.
pub(super) fn open_access_log(
    out: Option<Box<dyn io::Write + Send>>,
    format: LogFormat,
) -> io::Result<AccessLogWriter> {
    let Some(out) = out else {
        return Ok(AccessLogWriter::default());
    };
    let access_log = match format {
        LogFormat::Own => AccessLogWriter::default(),
        format => {
            let log = AccessLog {
                sink: LogSink::Output,
                format,
                filter: None,
            };
            let told = Telemetry {
                logs: Some(vec![log].into()),
                ..Telemetry::default()
            };
            let recording = Recording::new(&told).map_err(io::Error::other)?;
            AccessLogWriter::of_format(Arc::new(recording))
        }
    };
    access_log.open(out)?;
    Ok(access_log)
}

/// The budgets of memory: of the process, and of its tables of hashes.
pub(super) fn memory(max: Option<u64>, limits: &Limits, metrics: &Metrics) -> Arc<Pressure> {
    HashTables::of_process().begin(limits.hash_table_bytes_max, metrics);
    Arc::new(Pressure::of_process(max, metrics))
}

/// The keys of tickets: those of the process before, where there was one.
pub(super) fn tickets(
    inherited: Option<&mut Inherited>,
    metrics: &Metrics,
) -> io::Result<Arc<TicketKeys>> {
    let secrets = inherited.map(|it| std::mem::take(&mut it.tickets));
    let keys = TicketKeys::new(secrets.unwrap_or_default());
    let keys = keys.map_err(io::Error::other)?;
    keys.register(metrics);
    Ok(Arc::new(keys))
}
