//! The access log: one line per request, written by a thread of its own.
//!
//! A worker never waits for the log. Where the writer is behind, lines are dropped and counted.
//! Lines that come close together are written together: a writer that is woken for each of them
//! costs the worker more than all else that it does for the log.

mod line;

use std::io::{self, BufWriter, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use myriad_model::{AccessLog, FormatPart, LogFormat, LogSink};
use tokio::sync::oneshot;

use super::escape::is_escaped;
use super::queue::{QueueRoom, QueuedBytes};

pub use line::{AccessLogLine, DATAGRAMS, STREAM, SharedRecording, hex};

/// The most lines that wait for the writer.
const WAITING_MAX: usize = 16_384;

/// How long lines gather after others were written, unless they come so fast that room for them
/// could become short.
const GATHERING: Duration = Duration::from_millis(10);

/// How long the end of a proxy waits for its last lines.
const SETTLING: Duration = Duration::from_secs(1);

/// The end that workers write to. Nothing can be written before it is opened.
#[derive(Clone, Default)]
pub struct AccessLogWriter {
    lines: Arc<OnceLock<SyncSender<Entry>>>,
    room: QueueRoom,
    /// The format of the proxy's setting, as a recording; none for the proxy's own.
    recording: Option<SharedRecording>,
}

/// A message to the writer.
enum Entry {
    Line(Box<AccessLogLine>, QueuedBytes),
    /// Asks for word once all before it is written.
    Settle(oneshot::Sender<()>),
}

impl AccessLogWriter {
    /// One whose lines have the first format of a recording where nothing else is said.
    pub fn of_format(recording: SharedRecording) -> Self {
        AccessLogWriter {
            recording: Some(recording),
            ..AccessLogWriter::default()
        }
    }

    /// The recording that holds where nothing else is said; none for the proxy's own format.
    pub fn recording(&self) -> Option<&SharedRecording> {
        self.recording.as_ref()
    }

    /// Starts the writer, unless it runs. It ends when the last of these is dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn open(&self, out: Box<dyn Write + Send>) -> io::Result<()> {
        if self.lines.get().is_some() {
            return Ok(());
        }
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let own = self.recording.clone();
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&waiting, out, own.as_ref()))?;
        // There is one who opens.
        let _ = self.lines.set(lines);
        Ok(())
    }

    /// Hands a line over; false where it had to be dropped.
    pub fn write(&self, line: Box<AccessLogLine>) -> bool {
        let (Some(lines), Some(room)) = (self.lines.get(), self.room.take(line.memory())) else {
            return false;
        };
        lines.try_send(Entry::Line(line, room)).is_ok()
    }

    /// Returns once all lines so far are written, or after a second.
    pub async fn settle(&self) {
        let Some(lines) = self.lines.get() else {
            return;
        };
        let (settled, end) = oneshot::channel();
        if lines.try_send(Entry::Settle(settled)).is_ok() {
            // A writer that is gone, or that waits for whoever reads, has nothing to say.
            let _ = tokio::time::timeout(SETTLING, end).await;
        }
    }
}

fn write_all(waiting: &Receiver<Entry>, out: Box<dyn Write + Send>, own: Option<&SharedRecording>) {
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let mut lines = LineFormatter::default();
    while let Ok(first) = waiting.recv() {
        let (mut next, mut written) = (Some(first), 0);
        while let Some(entry) = next {
            match entry {
                Entry::Line(line, _room) => write_line(&line, own, &mut lines, &mut out),
                Entry::Settle(settled) => {
                    let _ = out.flush();
                    // Whoever asked may not wait any more.
                    let _ = settled.send(());
                }
            }
            written += 1;
            next = waiting.try_recv().ok();
        }
        let _ = out.flush();
        if written < WAITING_MAX / 4 {
            gather();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this thread has no connections, and wants not to be woken"
)]
fn gather() {
    std::thread::sleep(GATHERING);
}

/// Writes a line. Errors are ignored: a closed log is no reason to stop requests.
fn write_line(
    line: &AccessLogLine,
    own: Option<&SharedRecording>,
    lines: &mut LineFormatter,
    out: &mut dyn Write,
) {
    let Some((recording, takers)) = &line.recording else {
        match own.and_then(|own| own.logs().first()) {
            Some(log) => lines.format(log, line),
            None => {
                lines.text.clear();
                format_own(line, &mut lines.text);
            }
        }
        let _ = out.write_all(lines.text.as_bytes());
        return;
    };
    for (at, log) in recording.logs().iter().enumerate() {
        if takers & 1_u8.unbounded_shl(at as u32) == 0 {
            continue;
        }
        lines.format(log, line);
        let _ = match log.sink {
            LogSink::Output => out.write_all(lines.text.as_bytes()),
            LogSink::Error => io::stderr().write_all(lines.text.as_bytes()),
        };
    }
}

/// Room for one line after the other.
#[derive(Default)]
pub struct LineFormatter {
    text: String,
    value: String,
}

impl LineFormatter {
    /// The last line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Makes the line of a log.
    pub fn format(&mut self, log: &AccessLog, line: &AccessLogLine) {
        self.text.clear();
        match &log.format {
            LogFormat::Own => format_own(line, &mut self.text),
            LogFormat::Text(parts) => {
                for part in parts {
                    push_part(part, line, &mut self.text);
                }
            }
            LogFormat::Json(members) => {
                for (name, parts) in members {
                    let sign = if self.text.is_empty() { '{' } else { ',' };
                    self.text.push(sign);
                    push_quoted(&mut self.text, name);
                    self.text.push(':');
                    self.push_member(parts, line);
                }
                if self.text.is_empty() {
                    self.text.push('{');
                }
                self.text.push_str("}\n");
            }
        }
    }

    fn push_member(&mut self, parts: &[FormatPart], line: &AccessLogLine) {
        use std::fmt::Write as _;
        if let [FormatPart::Value { attribute, .. }] = parts {
            let whole = line.number(attribute).filter(|_| {
                // A duration is told in milliseconds.
                *attribute != myriad_model::Attribute::Duration
            });
            if let Some(number) = whole {
                // Writing into a String cannot fail.
                let _ = write!(self.text, "{number}");
                return;
            }
            if line.text(attribute).is_none() {
                self.text.push_str("null");
                return;
            }
        }
        self.value.clear();
        for part in parts {
            push_part(part, line, &mut self.value);
        }
        push_quoted(&mut self.text, &self.value);
    }
}

fn push_part(part: &FormatPart, line: &AccessLogLine, out: &mut String) {
    match part {
        FormatPart::Text(text) => out.push_str(text),
        FormatPart::Value {
            attribute,
            bytes_max,
        } => {
            let known = line.text(attribute);
            let known = known.as_deref().unwrap_or("-");
            let mut end = match *bytes_max {
                0 => known.len(),
                max => known.len().min(max as usize),
            };
            while !known.is_char_boundary(end) {
                end -= 1;
            }
            let known = known.get(..end).unwrap_or_default();
            // What clients send ends no line, and shows none in another order.
            let is_plain = !known.contains(is_escaped);
            match is_plain {
                true => out.push_str(known),
                false => out.extend(known.escape_default()),
            }
        }
    }
}

fn format_own(line: &AccessLogLine, out: &mut String) {
    use std::fmt::Write as _;
    // Writing into a String cannot fail.
    let _ = write!(
        out,
        "{{\"time\":{}.{:03}",
        line.time.as_secs(),
        line.time.subsec_millis()
    );
    push_text(out, "listener", &line.listener);
    let _ = write!(out, ",\"client\":\"{}\"", line.client);
    let is_stream = line.is_stream();
    if !is_stream {
        push_text(out, "method", &line.method);
        push_text(out, "host", &line.host);
        push_text(out, "path", &line.target);
    }
    push_text(out, "protocol", line.protocol);
    if !is_stream {
        let _ = write!(out, ",\"status\":{}", line.status);
    }
    let _ = write!(
        out,
        ",\"bytes_sent\":{},\"bytes_received\":{},\"duration_us\":{}",
        line.bytes_sent,
        line.bytes_received,
        line.duration.as_micros()
    );
    if let Some(upstream) = &line.upstream {
        push_text(out, "upstream", upstream);
    }
    if let Some(endpoint) = &line.endpoint {
        let _ = write!(out, ",\"endpoint\":\"{endpoint}\"");
    }
    if let Some(flag) = line.flag {
        push_text(out, "flag", flag);
    }
    if line.is_audited {
        out.push_str(",\"audit\":true");
    }
    if !line.request_id.is_empty() {
        push_text(out, "request_id", &line.request_id);
    }
    if let Some(agent) = &line.user_agent {
        push_text(out, "user_agent", agent);
    }
    if let Some(origin) = &line.origin {
        push_text(out, "origin", &origin.to_string());
    }
    if let Some(sni) = &line.sni {
        push_text(out, "sni", sni);
    }
    if let Some(tls) = line.tls {
        push_text(out, "tls", tls);
    }
    out.push_str("}\n");
}

/// A member with a text value, escaped by RFC 8259.
fn push_text(out: &mut String, name: &str, text: &str) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    push_quoted(out, text);
}

/// A text with its quotes, escaped by RFC 8259, as is what would show it in another order.
fn push_quoted(out: &mut String, text: &str) {
    use std::fmt::Write as _;
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            // Each of them has four digits.
            escaped if is_escaped(escaped) => {
                let _ = write!(out, "\\u{:04x}", u32::from(escaped));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use myriad_base::clock;
    use myriad_model::{AccessLog, Attribute, FormatPart, LogFormat, LogSink, Telemetry};

    use super::super::recording::Recording;
    use super::{AccessLogLine, AccessLogWriter, GATHERING, LineFormatter, format_own, is_escaped};

    /// Counts how often it is written to, and what.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<(usize, String)>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut paper = self.0.lock().unwrap();
            paper.0 += 1;
            paper.1.push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn lines_that_come_together_are_written_together_and_all_are_at_the_end() {
        let access_log = AccessLogWriter::default();
        access_log.settle().await;
        let paper = Paper::default();
        access_log.open(Box::new(paper.clone())).unwrap();
        let line = || {
            Box::new(AccessLogLine::new(
                "https".into(),
                ([192, 0, 2, 1], 1).into(),
            ))
        };
        let begun = clock::now();
        for _ in 0..50 {
            assert!(access_log.write(line()));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        access_log.settle().await;
        let turns = clock::now().duration_since(begun).as_millis() / GATHERING.as_millis();
        let (writes, text) = paper.0.lock().unwrap().clone();
        assert_eq!(text.lines().count(), 50);
        // One as soon as there is a line, and one for each time of gathering.
        assert!(
            writes as u128 <= turns + 2,
            "{writes} writes in {turns} turns"
        );
    }

    #[tokio::test]
    async fn lines_have_the_format_of_the_setting_where_nothing_else_is_said() {
        let format = LogFormat::Text(
            vec![
                FormatPart::Value {
                    attribute: Attribute::Status,
                    bytes_max: 0,
                },
                FormatPart::Text("!\n".into()),
            ]
            .into(),
        );
        let log = AccessLog {
            sink: LogSink::Output,
            format,
            filter: None,
        };
        let told = Telemetry {
            logs: Some(vec![log].into()),
            ..Telemetry::default()
        };
        let recording = Arc::new(Recording::new(&told).unwrap());
        let access_log = AccessLogWriter::of_format(recording.clone());
        let paper = Paper::default();
        access_log.open(Box::new(paper.clone())).unwrap();
        // With headers for its format, or without where another recording says nothing of logs.
        for recording in [Some((recording, 0)), None] {
            let mut line = Box::new(AccessLogLine {
                status: 204,
                recording,
                ..AccessLogLine::new("https".into(), ([192, 0, 2, 1], 1).into())
            });
            assert!(line.find_takers(true));
            assert!(access_log.write(line));
        }
        access_log.settle().await;
        assert_eq!(paper.0.lock().unwrap().1, "204!\n204!\n");
    }

    #[test]
    fn lines_that_nobody_writes_wait_up_to_a_bound_of_bytes() {
        /// Paper that nobody gets to.
        struct Stuck(Receiver<()>);

        impl Write for Stuck {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                self.0.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
                Ok(0)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        let access_log = AccessLogWriter::default();
        let (_write, stuck) = sync_channel(0);
        access_log.open(Box::new(Stuck(stuck))).unwrap();
        let line = || {
            let target = "x".repeat(1 << 20);
            Box::new(AccessLogLine {
                target: target.into(),
                ..AccessLogLine::new("https".into(), ([192, 0, 2, 1], 1).into())
            })
        };
        let taken = (0..100).filter(|_| access_log.write(line())).count();
        // Beside those that wait, the writer has as many as its 64 KiB hold once they are cut.
        assert!((30..=80).contains(&taken), "{taken} lines");
    }

    /// Marks of direction were written as they came, and show a line in another order.
    #[test]
    fn no_line_shows_itself_in_another_order() {
        let line = AccessLogLine {
            method: "GET".into(),
            protocol: "HTTP/1.1",
            target: "/a\u{202e}b\u{2066}\u{200f}\u{9b}2K\u{2028}\u{e4}".into(),
            ..AccessLogLine::new("https".into(), ([192, 0, 2, 1], 1).into())
        };
        let mut text = String::new();
        format_own(&line, &mut text);
        let escaped = "\"path\":\"/a\\u202eb\\u2066\\u200f\\u009b2K\\u2028\u{e4}\"";
        assert!(text.contains(escaped), "{text}");
        let part = |attribute| FormatPart::Value {
            attribute,
            bytes_max: 0,
        };
        let format = LogFormat::Text([part(Attribute::Path)].into());
        let log = AccessLog {
            sink: LogSink::Output,
            format,
            filter: None,
        };
        let mut lines = LineFormatter::default();
        lines.format(&log, &line);
        let text = lines.text();
        assert!(text.starts_with("/a\\u{202e}b\\u{2066}"), "{text}");
        assert!(!text.contains(is_escaped), "{text}");
    }

    #[test]
    fn a_line_is_one_json_object_whatever_the_client_sent() {
        let line = AccessLogLine {
            time: Duration::from_millis(1_700_000_000_005),
            duration: Duration::from_micros(42),
            method: "GET".into(),
            host: "a.example".into(),
            target: "/\"\\\u{7f}".into(),
            protocol: "HTTP/1.1",
            status: 200,
            bytes_sent: 3,
            upstream: Some("u".into()),
            tls: Some("1.3"),
            request_id: "a-b".into(),
            user_agent: Some("curl/8 \"x\"".into()),
            ..AccessLogLine::new("https".into(), ([192, 0, 2, 1], 1).into())
        };
        let mut text = String::new();
        format_own(&line, &mut text);
        assert_eq!(
            text,
            "{\"time\":1700000000.005,\"listener\":\"https\",\"client\":\"192.0.2.1\",\
             \"method\":\"GET\",\"host\":\"a.example\",\"path\":\"/\\\"\\\\\\u007f\",\
             \"protocol\":\"HTTP/1.1\",\"status\":200,\"bytes_sent\":3,\"bytes_received\":0,\
             \"duration_us\":42,\"upstream\":\"u\",\"request_id\":\"a-b\",\
             \"user_agent\":\"curl/8 \\\"x\\\"\",\"tls\":\"1.3\"}\n"
        );
    }
}
