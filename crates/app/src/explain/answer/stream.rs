//! Connections whose bytes are handed on before anybody reads a request.

use std::sync::Arc;

use myriad_model::ListenerProtocol;
use myriad_proxy::policy::authorize;
use myriad_proxy::route::downstream_connection::DownstreamConnection;
use myriad_proxy::route::stream_route::{Arrival, StreamRouteEntry};
use myriad_proxy::route::within;
use myriad_proxy::telemetry::count::Counts;

use super::Walk;

impl Walk<'_> {
    /// The outcome for a connection whose bytes are handed on; none where requests are read from
    /// it. Called before a handshake and after it, since rules for streams may take either.
    pub(super) fn hand_on(&mut self, visit: &DownstreamConnection) -> Option<String> {
        let entry = self.find_stream_route(visit)?;
        let (what, is_ended) = match (self.question.is_tls, &visit.secured) {
            (true, None) => ("TLS", false),
            (true, Some(_)) => ("what TLS carries", true),
            (false, _) => ("the stream", true),
        };
        let object = self.meet_object(entry.sealed()).unwrap_or_default();
        let ready = self.meet_targets(&entry);
        if !entry.leads_somewhere() && !is_ended {
            return Some(format!(
                "the TLS handshake is refused: {object} leads nowhere"
            ));
        }
        self.note("stream", format!("{what} is handed on as {object} says"));
        let tables = self.scene.tables.clone();
        let secured = visit.secured.as_ref();
        if secured.is_some_and(|secured| within::is_asked(&tables, secured, &entry)) {
            let text = "the name in the client's own handshake, within mutual TLS of the mesh, \
                        decides where it goes";
            self.note("stream", text.to_owned());
        }
        let stream = authorize::JudgedStream {
            listener: &visit.listener,
            client: visit.client.ip(),
            peer: visit.peer(),
            address: visit.address,
            port: visit.port,
            server_name: self.question.sni().filter(|_| self.question.is_tls),
            principal: visit.principal(),
        };
        if !authorize::admits_stream(tables.access_policies(), &stream, &Counts::new()) {
            return Some("the connection is closed: a policy does not admit it".to_owned());
        }
        self.seen.is_served = ready > 0;
        Some(match ready {
            0 => "the connection is closed: there are no endpoints that are ready".to_owned(),
            _ => format!("{what} is handed on to one of {ready} endpoints"),
        })
    }

    /// The rule for streams that takes a connection.
    fn find_stream_route(&self, visit: &DownstreamConnection) -> Option<Arc<StreamRouteEntry>> {
        let tables = &self.scene.tables;
        let listener = tables.listener(&visit.listener)?;
        let is_stream = listener.protocol == ListenerProtocol::Tcp;
        if !self.question.is_tls && !is_stream {
            return None;
        }
        let arrival = Arrival {
            listener: &visit.listener,
            client: visit.client.ip(),
            own: visit.address,
            is_terminated: visit.secured.is_some(),
        };
        let sni = self.question.sni().filter(|_| self.question.is_tls);
        tables.stream_route(arrival, sni).cloned()
    }

    /// Notes where a stream may lead, and says how many endpoints are ready.
    pub(super) fn meet_targets(&mut self, entry: &StreamRouteEntry) -> usize {
        let shares = entry
            .stream_route()
            .map(|stream_route| &*stream_route.upstreams);
        let mut ready = 0;
        for (share, hash) in shares
            .unwrap_or_default()
            .iter()
            .zip(entry.upstream_hashes())
        {
            let part = self.meet_upstream(share, *hash);
            if part.object.is_some() && share.weight > 0 {
                ready += part.endpoints_total + usize::from(part.dns.is_some());
            }
            self.seen.upstreams.push(part);
        }
        ready
    }
}
