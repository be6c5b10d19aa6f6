//! Settings of the PROXY protocol: where connections begin with a header, and whose is taken.

use myriad_proxy::Introductions;

use super::names::blocks;
use crate::cli::RawTraffic;

/// Checks settings.
pub(super) fn read(raw: &RawTraffic, problems: &mut Vec<String>) -> Option<Introductions> {
    let written = raw.proxy_protocol.iter().filter(|text| !text.is_empty());
    let (mut ports, mut is_all) = (Vec::new(), false);
    for text in written {
        match text.trim().parse() {
            Ok(port) if port > 0 => ports.push(port),
            _ if text == "all" => is_all = true,
            _ => problems.push(format!(
                "--proxy-protocol has {text:?}, which is no port and not `all`"
            )),
        }
    }
    let name = "--proxy-protocol-from";
    let senders = blocks(name, &raw.proxy_protocol_from, problems);
    let is_wanted = is_all || !ports.is_empty();
    if is_wanted && senders.is_empty() {
        // Whoever reaches the port could say that it is anybody.
        problems.push(format!(
            "--proxy-protocol needs {name}: the addresses of the load balancers in front"
        ));
    }
    if !is_wanted && !senders.is_empty() {
        problems.push(format!("{name} has no effect without --proxy-protocol"));
    }
    is_wanted.then(|| Introductions {
        ports: (!is_all).then(|| ports.into()),
        senders: senders.into(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use myriad_proxy::Introductions;

    use crate::cli::{Cli, Command};

    fn read(arguments: &[&str]) -> (Option<Introductions>, Vec<String>) {
        let line = ["myriad", "serve"].iter().chain(arguments).chain(&["dir"]);
        let Command::Serve(raw) = Cli::parse_from(line).command else {
            panic!("another command");
        };
        let mut problems = Vec::new();
        let read = super::read(&raw.traffic, &mut problems);
        (read, problems)
    }

    #[test]
    fn ports_and_senders_are_named_together() {
        assert_eq!(read(&[]), (None, Vec::new()));
        let (some, problems) = read(&[
            "--proxy-protocol=80,443",
            "--proxy-protocol-from=10.0.0.0/8,192.0.2.1",
        ]);
        let some = some.unwrap();
        assert!(problems.is_empty());
        assert_eq!(some.ports.as_deref(), Some(&[80, 443][..]));
        assert!(some.are_taken_from([192, 0, 2, 1].into()));
        assert!(!some.are_taken_from([192, 0, 2, 2].into()));
        let (all, problems) = read(&["--proxy-protocol=all", "--proxy-protocol-from=::/0"]);
        assert!(problems.is_empty() && all.unwrap().are_asked_at(8080));
    }

    #[test]
    fn settings_that_open_too_much_or_nothing_are_problems() {
        for (arguments, problem) in [
            (&["--proxy-protocol=all"][..], "needs --proxy-protocol-from"),
            (&["--proxy-protocol-from=::/0"], "no effect"),
            (&["--proxy-protocol=http"], "\"http\""),
            (
                &["--proxy-protocol=80", "--proxy-protocol-from=me"],
                "\"me\"",
            ),
        ] {
            let (_, problems) = read(arguments);
            let text = problems.join("; ");
            assert!(text.contains(problem), "{problem} is not in: {text}");
        }
    }
}
