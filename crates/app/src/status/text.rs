//! A status for people.

use std::fmt;

use myriad_base::clock;
use myriad_translate::MAIN;

use super::report::{ConditionCounts, FollowedReport, IngressReport, ProcessReport};
use crate::holdings::{HoldingsReport, NamespaceReport};
use crate::live::{LiveReport, ProxyReport};

impl fmt::Display for ProcessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uptime = Span(self.uptime_seconds);
        let (role, version, schema) = (&self.role, &self.version, self.schema);
        let instance = &self.instance;
        writeln!(
            f,
            "myriad {role} {version} (schema {schema}) on {instance}, up {uptime}"
        )?;
        if self.waiting_for.is_empty() {
            writeln!(f, "ready")?;
        } else {
            writeln!(f, "not ready: waiting for {}", self.waiting_for.join(", "))?;
        }
        let counts = self.resources.iter().map(|(kind, n)| format!("{n} {kind}"));
        let counts: Vec<String> = counts.collect();
        writeln!(f, "holds {}; digest {}", counts.join(", "), self.digest)?;
        writeln!(f, "findings: {}, errors: {}", self.findings, self.errors)?;
        for error in &self.errors_shown {
            writeln!(f, "  {error}")?;
        }
        for (kind, counts) in &self.gateway_api {
            writeln!(f, "{kind}: {counts}")?;
        }
        write!(f, "{}{}", self.held, self.holdings)?;
        if let Some(certificates) = &self.certificates {
            write!(f, "{certificates}")?;
        }
        if let Some(followed) = &self.followed {
            write!(f, "{followed}")?;
        }
        // Who serves itself is in step with itself.
        if let Some(live) = self.live.as_ref().filter(|_| self.role == "controller") {
            write!(f, "{live}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ConditionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConditionCounts {
            total,
            unaccepted,
            unprogrammed,
        } = self;
        write!(
            f,
            "{total}, {unaccepted} not accepted, {unprogrammed} not programmed"
        )
    }
}

impl fmt::Display for HoldingsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for namespace in &self.namespaces {
            let NamespaceReport {
                namespace,
                bytes,
                parts,
            } = namespace;
            let parts = parts.iter().filter(|(_, held)| held.count > 0);
            let parts: Vec<String> = parts
                .map(|(part, held)| format!("{} {part}", held.count))
                .collect();
            writeln!(
                f,
                "  namespace {namespace} holds {bytes} bytes: {}",
                parts.join(", ")
            )?;
        }
        let more = self.namespaces_total.saturating_sub(self.namespaces.len());
        if more > 0 {
            writeln!(f, "  and {more} more namespaces")?;
        }
        Ok(())
    }
}

impl fmt::Display for FollowedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controller = &self.controller;
        match (self.is_connected, self.followed_unix) {
            (true, _) => writeln!(f, "follows a controller at {controller}")?,
            (false, Some(at)) => writeln!(
                f,
                "follows nobody: no controller at {controller} for {}",
                Span::since(at)
            )?,
            (false, None) => writeln!(
                f,
                "follows nobody: no controller at {controller} since the start"
            )?,
        }
        match self.kept_unix {
            Some(at) => writeln!(f, "its log on disk is {} old", Span::since(at)),
            None => writeln!(f, "it has nothing on disk"),
        }
    }
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, in_step) = (self.proxies_total, self.in_step);
        writeln!(f, "proxies: {total} connected, {in_step} in step")?;
        for proxy in &self.proxies {
            writeln!(f, "  {proxy}")?;
        }
        let more = self.proxies_total - self.proxies.len().min(self.proxies_total);
        if more > 0 {
            writeln!(f, "  and {more} more")?;
        }
        for refusal in &self.refusals {
            writeln!(f, "  {refusal}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ProxyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = Span(self.connected_seconds);
        let (instance, schema) = (&self.instance, self.schema);
        write!(f, "{instance}: ")?;
        if !matches!(&*self.view, "" | MAIN) {
            write!(f, "of gateway {}, ", self.view)?;
        }
        write!(f, "schema {schema}, connected for {since}, ")?;
        match (self.is_in_step, self.commits_behind, self.resources_behind) {
            (true, ..) => write!(f, "in step")?,
            (false, Some(commits), Some(resources)) => write!(
                f,
                "behind by {commits} commits, {resources} changes of resources"
            )?,
            (false, Some(commits), None) => write!(f, "behind by {commits} commits")?,
            (false, None, _) => write!(f, "has not said yet what it serves")?,
        }
        if !self.is_in_step && !self.position.is_empty() {
            let position = self.position.iter();
            let position: Vec<_> = position.map(|(kind, at)| format!("{kind} {at}")).collect();
            write!(f, " (at {})", position.join(", "))?;
        }
        match self.refused {
            0 => Ok(()),
            refused => write!(f, ", refused {refused} resources"),
        }
    }
}

impl fmt::Display for IngressReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = &self.live;
        writeln!(f, "Ingress {}", self.ingress)?;
        for host in &self.hosts {
            let (name, routes) = (&host.host, host.routes);
            let https = match (&host.certificate, host.has_certificate) {
                (Some(secret), true) => {
                    let others = host.others.iter();
                    let others: String = others.map(|other| format!(" and {other}")).collect();
                    format!("HTTPS by Secret {secret}{others}")
                }
                (Some(secret), false) => {
                    format!("no HTTPS: Secret {secret} is missing or cannot be used")
                }
                (None, true) => "HTTPS by the default certificate".to_owned(),
                (None, false) => "no HTTPS".to_owned(),
            };
            writeln!(f, "  host {name}: {routes} routes, {https}")?;
        }
        if self.hosts.is_empty() {
            writeln!(f, "  is served on no host")?;
        }
        write!(
            f,
            "  live on {} of {} proxies",
            live.live, live.proxies_total
        )?;
        match (live.live_since_unix, live.live_after_ms) {
            (Some(at), Some(took)) if live.live == live.proxies_total => {
                writeln!(f, ", for {}, {took} ms after it changed", Span::since(at))?;
            }
            _ => match live.changed_unix {
                Some(at) => writeln!(f, ", changed {} ago", Span::since(at))?,
                None => writeln!(f, ", unchanged for longer than is remembered")?,
            },
        }
        for proxy in &live.missing {
            writeln!(f, "  not yet on {proxy}")?;
        }
        for refusal in &live.refused {
            writeln!(f, "  {refusal}")?;
        }
        for finding in &self.findings {
            writeln!(f, "  {finding}")?;
        }
        Ok(())
    }
}

/// Seconds, as people say them.
struct Span(u64);

impl Span {
    fn since(unix: i64) -> Span {
        Span(u64::try_from(clock::unix_seconds() - unix).unwrap_or(0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, minutes, hours) = (self.0, self.0 / 60, self.0 / 3_600);
        match () {
            () if minutes == 0 => write!(f, "{seconds} s"),
            () if hours == 0 => write!(f, "{minutes} min"),
            () if hours < 48 => write!(f, "{hours} h"),
            () => write!(f, "{} days", hours / 24),
        }
    }
}
