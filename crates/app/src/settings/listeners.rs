//! Settings of the addresses of listeners.

use std::net::SocketAddr;

use super::address::address;
use crate::cli::listeners::RawListeners;

/// The addresses of listeners.
#[derive(Clone, Debug)]
pub struct Listeners {
    /// The address of HTTP.
    pub http: SocketAddr,
    /// The address of HTTPS.
    pub https: SocketAddr,
    /// The port in redirects to HTTPS; none takes the port that HTTPS is served on.
    pub redirect_port: Option<u16>,
}

impl Listeners {
    pub(super) fn read(raw: &RawListeners, problems: &mut Vec<String>) -> Listeners {
        Listeners {
            http: address("--http", &raw.http, problems),
            https: address("--https", &raw.https, problems),
            redirect_port: raw.redirect_port,
        }
    }

    pub(super) fn translate(
        &self,
        meaning: myriad_translate::Settings,
    ) -> myriad_translate::Settings {
        myriad_translate::Settings {
            http: self.http,
            https: self.https,
            https_port: self.redirect_port.unwrap_or(self.https.port()),
            ..meaning
        }
    }
}
