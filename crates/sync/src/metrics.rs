//! The counters of the two ends.

use myriad_base::metrics::{Counter, Metrics};

/// The counters of a controller, over all its streams. Cheap to clone.
#[derive(Clone, Default)]
pub struct ServerCounters {
    /// Encoded bytes of all frames sent.
    pub bytes_sent: Counter,
    /// Commits sent.
    pub commits: Counter,
    /// Resources sent, new or changed.
    pub resources: Counter,
    /// Removals sent.
    pub removals: Counter,
    /// Nodes of proxies' digest trees that were asked for.
    pub nodes_asked: Counter,
    /// Nodes of the own trees that were compared in order to find what changed.
    pub nodes_visited: Counter,
    /// Steps from one snapshot to another that were compared and encoded.
    pub steps_made: Counter,
    /// Commits that were sent as another stream had encoded them.
    pub steps_shared: Counter,
    /// Steps that were let go before their time, since those of all views had too many bytes.
    pub steps_crowded_out: Counter,
    /// Long ways of one stream alone that waited, since its namespace has many under way.
    pub ways_waited: Counter,
    /// Newer snapshots that the streams of a view were woken for, each counted once.
    pub views_touched: Counter,
    /// Streams woken by a newer snapshot of their view.
    pub streams_woken: Counter,
    /// Commits after which a proxy had another digest than announced.
    pub mismatches: Counter,
    /// Proxies that were ahead of this replica for so long that they were served nevertheless.
    pub ahead_too_long: Counter,
    /// Proxies disconnected since they had not answered in time, or were too far behind.
    pub unanswered: Counter,
    /// Refusals of proxies that nobody is told of, since too many events wait.
    pub receipts_dropped: Counter,
    /// Resources too large to be sent.
    pub oversized: Counter,
    /// Connections refused, or ended because of what the other end sent.
    pub refused: Counter,
    /// Certificates that were signed for proxies.
    pub signed: Counter,
    /// Requests of proxies that were not.
    pub not_signed: Counter,
    /// Hosts that proxies told, since clients ask for them and no object names them.
    pub demands: Counter,
    /// Hosts that waited before they were handed on, since a proxy told many.
    pub demands_delayed: Counter,
}

impl ServerCounters {
    /// Registers everything.
    pub fn register(&self, metrics: &Metrics) {
        let all = [
            (
                "sync_sent_bytes",
                "Bytes sent to proxies.",
                &self.bytes_sent,
            ),
            ("sync_commits", "Commits sent to proxies.", &self.commits),
            (
                "sync_resources",
                "Resources sent to proxies.",
                &self.resources,
            ),
            ("sync_removals", "Removals sent to proxies.", &self.removals),
            (
                "sync_nodes_asked",
                "Nodes of digest trees asked for.",
                &self.nodes_asked,
            ),
            (
                "sync_nodes_visited",
                "Nodes compared in order to find changes.",
                &self.nodes_visited,
            ),
            (
                "sync_views_touched",
                "Newer snapshots of a view.",
                &self.views_touched,
            ),
            (
                "sync_streams_woken",
                "Streams woken by a newer snapshot.",
                &self.streams_woken,
            ),
            (
                "sync_mismatches",
                "Commits after which the digests differed.",
                &self.mismatches,
            ),
            (
                "sync_ahead_too_long",
                "Proxies served although this replica was behind them.",
                &self.ahead_too_long,
            ),
            (
                "sync_oversized",
                "Resources too large to be sent.",
                &self.oversized,
            ),
            (
                "sync_refused",
                "Connections of proxies refused or ended for an error.",
                &self.refused,
            ),
        ];
        for (name, help, counter) in all {
            metrics.register(name, help, counter.clone());
        }
        self.register_steps(metrics);
        self.register_answers(metrics);
    }

    fn register_steps(&self, metrics: &Metrics) {
        let help = "Differences compared and encoded.";
        metrics.register("sync_steps_made", help, self.steps_made.clone());
        let help = "Commits sent as they were encoded for another proxy.";
        metrics.register("sync_steps_shared", help, self.steps_shared.clone());
        let help = "Encoded differences let go early, as all had too many bytes.";
        let crowded_out = self.steps_crowded_out.clone();
        metrics.register("sync_steps_crowded_out", help, crowded_out);
        let help = "Long differences of one proxy alone that waited for others of its namespace.";
        metrics.register("sync_ways_waited", help, self.ways_waited.clone());
    }

    fn register_answers(&self, metrics: &Metrics) {
        let help = "Proxies disconnected since they had not answered in time.";
        metrics.register("sync_unanswered", help, self.unanswered.clone());
        let help = "Refusals of proxies dropped since too many events wait.";
        let dropped = self.receipts_dropped.clone();
        metrics.register("sync_receipts_dropped", help, dropped);
        let help = "Certificates of the mesh signed for proxies.";
        metrics.register("sync_signed", help, self.signed.clone());
        let help = "Requests for certificates of the mesh refused.";
        metrics.register("sync_not_signed", help, self.not_signed.clone());
        let help = "Hosts without a certificate, or with one on demand, that proxies told.";
        metrics.register("sync_demands", help, self.demands.clone());
        let help = "Hosts that waited to be taken in, since a proxy told many.";
        metrics.register("sync_demands_delayed", help, self.demands_delayed.clone());
    }
}

/// The counters of a proxy. Cheap to clone.
#[derive(Clone, Default)]
pub struct ClientCounters {
    /// Commits received.
    pub commits: Counter,
    /// Resources received, new or changed.
    pub resources: Counter,
    /// Removals received.
    pub removals: Counter,
    /// Resources refused.
    pub refusals: Counter,
    /// Commits after which the own digest was another than announced.
    pub mismatches: Counter,
    /// Connections made.
    pub connections: Counter,
    /// Connections that failed or ended.
    pub disconnections: Counter,
    /// Certificates of the mesh received.
    pub signed: Counter,
    /// Requests for one that were refused.
    pub not_signed: Counter,
}

impl ClientCounters {
    /// Registers everything.
    pub fn register(&self, metrics: &Metrics) {
        let all = [
            ("sync_commits", "Commits received.", &self.commits),
            ("sync_resources", "Resources received.", &self.resources),
            ("sync_removals", "Removals received.", &self.removals),
            ("sync_refusals", "Resources refused.", &self.refusals),
            (
                "sync_mismatches",
                "Commits after which the digests differed.",
                &self.mismatches,
            ),
            (
                "sync_connections",
                "Connections made to controllers.",
                &self.connections,
            ),
            (
                "sync_disconnections",
                "Connections to controllers that failed or ended.",
                &self.disconnections,
            ),
            (
                "sync_signed",
                "Certificates of the mesh received.",
                &self.signed,
            ),
            (
                "sync_not_signed",
                "Requests for certificates of the mesh that were refused.",
                &self.not_signed,
            ),
        ];
        for (name, help, counter) in all {
            metrics.register(name, help, counter.clone());
        }
    }
}
