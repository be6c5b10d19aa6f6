//! The access log: one JSON line per request, written by a thread of its own.
//!
//! A worker never waits for the log. Where the writer is behind, lines are dropped and counted.

use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use myriad_model::{Name, Origin};

/// The most lines that wait for the writer.
const WAITING_MAX: usize = 16_384;

/// The protocol of a line that tells of a stream, which has neither request nor status.
pub const STREAM: &str = "TCP";

/// One request or stream, as the access log tells it.
#[derive(Clone, Debug)]
pub struct Line {
    /// When the request had been read, since the Unix epoch.
    pub time: Duration,
    /// Until its response was written.
    pub duration: Duration,
    /// The listener.
    pub listener: Name,
    /// Who asked.
    pub client: IpAddr,
    /// The method.
    pub method: Box<str>,
    /// The host asked for, without port; empty for none.
    pub host: Box<str>,
    /// The path and query asked for.
    pub target: Box<str>,
    /// `HTTP/1.0`, `HTTP/1.1`, `HTTP/2`, or [`STREAM`].
    pub protocol: &'static str,
    /// The status of the response.
    pub status: u16,
    /// The bytes of the response body that were handed on.
    pub bytes_sent: u64,
    /// The bytes of the request body that were handed on.
    pub bytes_received: u64,
    /// The upstream chosen.
    pub upstream: Option<Name>,
    /// The endpoint tried last.
    pub endpoint: Option<SocketAddr>,
    /// What failed; see [`super::failure::Verdict`].
    pub flag: Option<&'static str>,
    /// Whether a guard wants the request to be marked.
    pub is_audited: bool,
    /// The object that the route came from.
    pub origin: Option<Origin>,
    /// The name sent in the TLS handshake.
    pub sni: Option<Box<str>>,
    /// The TLS version spoken.
    pub tls: Option<&'static str>,
}

/// The end that workers write to.
#[derive(Clone)]
pub struct Journal {
    lines: SyncSender<Line>,
}

impl Journal {
    /// Starts the writer. It ends when the last journal is dropped.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(out: Box<dyn Write + Send>) -> io::Result<Journal> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write_all(&waiting, out))?;
        Ok(Journal { lines })
    }

    /// Hands a line over; false where it had to be dropped.
    pub fn write(&self, line: Line) -> bool {
        self.lines.try_send(line).is_ok()
    }
}

fn write_all(waiting: &Receiver<Line>, out: Box<dyn Write + Send>) {
    let mut out = BufWriter::with_capacity(64 << 10, out);
    let mut text = String::new();
    while let Ok(first) = waiting.recv() {
        let mut next = Some(first);
        while let Some(line) = next {
            text.clear();
            format(&line, &mut text);
            // Whoever closed the log's end wants no log; requests go on.
            let _ = out.write_all(text.as_bytes());
            next = waiting.try_recv().ok();
        }
        let _ = out.flush();
    }
}

fn format(line: &Line, out: &mut String) {
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
    let is_stream = line.protocol == STREAM;
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
    use std::fmt::Write as _;
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Line, format};

    #[test]
    fn a_line_is_one_json_object_whatever_the_client_sent() {
        let line = Line {
            time: Duration::from_millis(1_700_000_000_005),
            duration: Duration::from_micros(42),
            listener: "https".into(),
            client: [192, 0, 2, 1].into(),
            method: "GET".into(),
            host: "a.example".into(),
            target: "/\"\\\u{7f}".into(),
            protocol: "HTTP/1.1",
            status: 200,
            bytes_sent: 3,
            bytes_received: 0,
            upstream: Some("u".into()),
            endpoint: None,
            flag: None,
            is_audited: false,
            origin: None,
            sni: None,
            tls: Some("1.3"),
        };
        let mut text = String::new();
        format(&line, &mut text);
        assert_eq!(
            text,
            "{\"time\":1700000000.005,\"listener\":\"https\",\"client\":\"192.0.2.1\",\
             \"method\":\"GET\",\"host\":\"a.example\",\"path\":\"/\\\"\\\\\\u007f\",\
             \"protocol\":\"HTTP/1.1\",\"status\":200,\"bytes_sent\":3,\"bytes_received\":0,\
             \"duration_us\":42,\"upstream\":\"u\",\"tls\":\"1.3\"}\n"
        );
    }
}
