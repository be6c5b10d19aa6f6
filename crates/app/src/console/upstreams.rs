//! The endpoints of an upstream, and how they are.

use myriad_model::{Endpoint, Endpoints, Key, Kind, MeshTls, Name, Upstream, Value};
use myriad_proxy::balance::now_ms;
use myriad_proxy::route::tables::upstream_hash;

use super::Console;
use super::html::Html;
use super::layout::{self, Column, cell, grouped, table};
use crate::catalog;

/// The most endpoints of an upstream that are shown.
const ENDPOINTS_MAX: usize = 50;

impl Console {
    /// The section of an upstream.
    pub(super) fn upstream(&self, html: &mut Html, name: &Name) {
        html.raw("<h3>").text(name).raw("</h3><p>");
        let sealed = self
            .board()
            .catalog()
            .named(&Key::new(Kind::Upstream, name.clone()));
        let resource = sealed.as_deref().and_then(catalog::resource);
        match resource.as_deref().map(|resource| &resource.value) {
            Some(Value::Upstream(upstream)) => html.text(&manner(upstream)),
            _ => html.raw("<span class=\"bad\">There is no such upstream.</span>"),
        };
        html.raw("</p>");
        if !self.endpoints_of_tables(html, name) {
            self.endpoints_of_resources(html, name);
        }
    }

    /// The endpoints that requests are sent to, where this process sends them.
    fn endpoints_of_tables(&self, html: &mut Html, name: &Name) -> bool {
        let Some(tables) = &self.tables else {
            return false;
        };
        let tables = tables();
        let Some(entry) = tables.upstream(upstream_hash(name), name) else {
            return false;
        };
        let (total, now) = (entry.pool.len(), now_ms());
        let columns = [
            Column::Text("Endpoint"),
            Column::Number("Weight"),
            Column::Number("Priority"),
            Column::Text("Health"),
        ];
        table(html, &format!("Endpoints of {name}"), &columns, |html| {
            for member in entry.pool.members().take(ENDPOINTS_MAX) {
                html.raw("<tr><th scope=\"row\">")
                    .shown(member.target.address);
                html.raw("</th>");
                layout::number(html, member.weight.into());
                layout::number(html, member.priority.into());
                html.raw("<td>");
                match member.target.record.back_ms(now) {
                    None => html.raw("<span class=\"good\">takes requests</span>"),
                    Some(back) => html
                        .raw("<span class=\"bad\">left out for ")
                        .shown((back - now).div_ceil(1_000))
                        .raw(" s, since it answered badly</span>"),
                };
                html.raw("</td></tr>");
            }
        });
        told_total(html, total);
        true
    }

    /// The endpoints that proxies are told of.
    fn endpoints_of_resources(&self, html: &mut Html, name: &Name) {
        let parts = self.board().catalog().endpoints(name);
        let columns = [
            Column::Text("Endpoint"),
            Column::Number("Weight"),
            Column::Number("Priority"),
            Column::Text("Mutual TLS"),
            Column::Text("Health"),
        ];
        let mut total = 0;
        table(html, &format!("Endpoints of {name}"), &columns, |html| {
            for sealed in &parts {
                let resource = catalog::resource(sealed);
                let value = resource.as_deref().map(|resource| &resource.value);
                let Some(Value::Endpoints(part)) = value else {
                    continue;
                };
                rows(html, part, ENDPOINTS_MAX.saturating_sub(total));
                total += part.endpoints.len();
            }
        });
        told_total(html, total);
    }
}

fn rows(html: &mut Html, part: &Endpoints, count_max: usize) {
    for endpoint in part.endpoints.iter().take(count_max) {
        let Endpoint {
            address,
            weight,
            priority,
            mesh,
            ..
        } = endpoint;
        html.raw("<tr><th scope=\"row\">")
            .shown(address)
            .raw("</th>");
        layout::number(html, (*weight).into());
        layout::number(html, (*priority).into());
        cell(html, if *mesh { "yes" } else { "no" });
        // Whoever is not ready is not among them. What proxies have left out, they know.
        html.raw("<td><span class=\"good\">ready</span></td></tr>");
    }
}

fn told_total(html: &mut Html, total: usize) {
    html.raw("<p>").text(&grouped(total as u64));
    html.raw(" in all; of many, the first are shown.</p>");
}

/// How endpoints are spoken to, in words.
fn manner(upstream: &Upstream) -> String {
    let version = match upstream.protocol.is_h2() {
        true => "HTTP/2",
        false => "HTTP/1.1",
    };
    let tls = match upstream.tls.as_deref().map(|tls| tls.mesh) {
        None => "in plain text",
        Some(MeshTls::All) => "over mutual TLS of the mesh",
        Some(MeshTls::Flagged) => "over mutual TLS of the mesh where endpoints speak it",
        Some(MeshTls::None) => "over TLS",
    };
    let mut text = format!("{version} {tls}");
    if let Some(dns) = &upstream.dns {
        text.push_str(", at the addresses of");
        for name in dns.names.iter().take(4) {
            text.push_str(&format!(" {}:{}", name.host, name.port));
        }
        if dns.names.len() > 4 {
            text.push_str(" and more");
        }
    }
    if upstream.original_destination {
        text.push_str(", at the address that the client meant");
    }
    text
}
