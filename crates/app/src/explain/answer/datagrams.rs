//! Datagrams, which stream routes lead by the flow that they are of.

use myriad_proxy::policy::authorize;
use myriad_proxy::route::downstream_connection::DownstreamConnection;
use myriad_proxy::route::stream_route::Arrival;
use myriad_proxy::telemetry::count::Counts;

use super::Walk;

impl Walk<'_> {
    /// The outcome for the datagrams that one port of a client sends.
    pub(super) fn lead_flow(&mut self, visit: &DownstreamConnection) -> String {
        let tables = self.scene.tables.clone();
        let arrival = Arrival {
            listener: &visit.listener,
            client: visit.client.ip(),
            own: visit.address,
            is_terminated: false,
        };
        let Some(entry) = tables.stream_route(arrival, None) else {
            return "the datagrams are dropped: no object leads those of this port".to_owned();
        };
        let object = self.meet_object(entry.sealed()).unwrap_or_default();
        let ready = self.meet_targets(entry);
        for part in &mut self.seen.upstreams {
            part.protocol = "UDP".to_owned();
        }
        self.note("stream", format!("a flow is led as {object} says"));
        let stream = authorize::JudgedStream {
            listener: &visit.listener,
            client: visit.client.ip(),
            peer: visit.peer(),
            address: visit.address,
            port: visit.port,
            server_name: None,
            principal: None,
        };
        if !authorize::admits_stream(tables.access_policies(), &stream, &Counts::new()) {
            return "the datagrams are dropped: a policy does not admit the client".to_owned();
        }
        if !entry.leads_somewhere() {
            return format!("the datagrams are dropped: {object} leads nowhere");
        }
        self.seen.is_served = ready > 0;
        match ready {
            0 => "the datagrams are dropped: there are no endpoints that are ready".to_owned(),
            _ => format!("a flow is led to one of {ready} endpoints"),
        }
    }
}
