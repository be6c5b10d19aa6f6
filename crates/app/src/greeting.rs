//! The start line: what is served, where, what is wrong with it, and a command that shows it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use myriad_api::{Finding, ObjectKind};

use crate::board::Board;
use crate::control::Addresses;
use crate::settings::Serve;

/// The most findings that are shown at the start.
const FINDINGS_SHOWN_MAX: usize = 10;

/// Writes the start line to standard error.
pub fn print(settings: &Serve, addresses: &Addresses, board: &Board) {
    // Written at once, so that whoever reads its first line finds the rest as it was then.
    let mut text = Vec::new();
    // Standard error may be closed; serving goes on.
    let _ = write(&mut text, settings, addresses, board)
        .and_then(|()| std::io::stderr().lock().write_all(&text));
}

fn write(
    out: &mut impl Write,
    settings: &Serve,
    addresses: &Addresses,
    board: &Board,
) -> std::io::Result<()> {
    let bound: Vec<String> = addresses
        .iter()
        .map(|(name, address)| format!("{name} on {address}"))
        .collect();
    let (domains, routes) = board.served();
    let (errors, findings) = board.findings_count();
    writeln!(
        out,
        "myriad serves {domains} domains and {routes} routes from {}: {}, admin on {}, version {}, \
         endpoints on this machine are {}",
        paths(settings),
        bound.join(", "),
        settings.admin,
        env!("CARGO_PKG_VERSION"),
        reached(settings),
    )?;
    if findings > 0 {
        writeln!(out, "{errors} errors in {findings} findings:")?;
        let shown = board.findings_where(FINDINGS_SHOWN_MAX, |_| true);
        for finding in &shown {
            writeln!(out, "  {finding}")?;
        }
        if findings > shown.len() {
            let (more, paths) = (findings - shown.len(), paths(settings));
            writeln!(out, "and {more} more; see: myriad check {paths}")?;
        }
    }
    if routes == 0
        && let Some(foreign) = board.findings_where(1, is_foreign).first()
    {
        writeln!(out, "NOTHING IS SERVED: {}", foreign.remedy)?;
    }
    let https = addresses.iter().find(|(name, _)| name.as_str() == "https");
    if let (Some((host, path)), Some((_, address))) = (board.sample(), https) {
        let port = address.port();
        let ip = reachable(*address);
        writeln!(
            out,
            "try: curl -k --resolve {host}:{port}:{ip} https://{host}:{port}{path}"
        )?;
    }
    Ok(())
}

/// The paths that are served, as they were given.
fn paths(settings: &Serve) -> String {
    let paths = settings.paths.iter();
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    paths.join(" ")
}

/// Whether a finding says that an Ingress names a class of somebody else.
fn is_foreign(finding: &Finding) -> bool {
    let object = finding.object.as_ref();
    object.is_some_and(|object| object.kind == ObjectKind::Ingress)
        && matches!(
            &*finding.field,
            "spec.ingressClassName" | "metadata.annotations[kubernetes.io/ingress.class]"
        )
}

/// Whether endpoints may be on this machine, which gateways of a cluster refuse.
fn reached(settings: &Serve) -> &'static str {
    match settings
        .meaning
        .endpoints
        .admits(Ipv4Addr::LOCALHOST.into())
    {
        true => "reached (--endpoint-deny=127.0.0.0/8,::1 refuses them)",
        false => "refused",
    }
}

/// An address that a client on this machine can connect to.
fn reachable(address: SocketAddr) -> IpAddr {
    if address.ip().is_unspecified() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        address.ip()
    }
}
