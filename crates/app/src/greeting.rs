//! The start line: what is served, where, and a command that shows it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::board::Board;
use crate::control::Addresses;
use crate::settings::Serve;

/// Writes the start line to standard error.
pub fn print(settings: &Serve, addresses: &Addresses, board: &Board) {
    // Standard error may be closed; serving goes on.
    let _ = write(&mut std::io::stderr().lock(), settings, addresses, board);
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
        "myriad serves {domains} domains and {routes} routes from {}: {}, admin on {}",
        settings.dir.display(),
        bound.join(", "),
        settings.admin,
    )?;
    if findings > 0 {
        let dir = settings.dir.display();
        writeln!(
            out,
            "{errors} errors in {findings} findings; see: myriad check {dir}"
        )?;
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

/// An address that a client on this machine can connect to.
fn reachable(address: SocketAddr) -> IpAddr {
    if address.ip().is_unspecified() {
        Ipv4Addr::LOCALHOST.into()
    } else {
        address.ip()
    }
}
