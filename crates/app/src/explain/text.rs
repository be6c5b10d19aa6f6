//! An explanation for people.

use std::fmt;

use super::parts::{CertificatePart, Explanation, StagePart, UpstreamPart};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.method.is_empty() {
            write!(f, "{} ", self.method)?;
        }
        writeln!(f, "{}", self.url)?;
        if let Some(at) = &self.at {
            write!(f, "at {at}: ")?;
        }
        writeln!(f, "{}", self.answer)?;
        if let Some(listener) = &self.listener {
            writeln!(f, "  listener     {listener}")?;
        }
        if let Some(domain) = &self.domain {
            writeln!(f, "  domain       {} of {}", domain.host, domain.object)?;
        }
        if let Some(certificate) = &self.certificate {
            writeln!(f, "  certificate  {certificate}")?;
        }
        for certificate in &self.other_certificates {
            writeln!(f, "  or else      {certificate}")?;
        }
        for StagePart { stage, text } in &self.stages {
            writeln!(f, "  stage        {stage}: {text}")?;
        }
        if let Some(route) = &self.route {
            let (path, host, object) = (&route.path, &route.host, &route.object);
            write!(f, "  route        {path} on {host} of {object}")?;
            match route.conditions {
                0 => writeln!(f)?,
                count => writeln!(f, ", and {count} conditions hold")?,
            }
            if let Some(rule) = &route.rule {
                writeln!(f, "  rule         {rule}")?;
            }
            if let Some(rewrite) = &route.rewrite {
                writeln!(f, "  sent as      {rewrite}")?;
            }
        }
        for upstream in &self.upstreams {
            writeln!(f, "  upstream     {upstream}")?;
        }
        for hint in &self.hints {
            writeln!(f, "  hint         {hint}")?;
        }
        for finding in &self.findings {
            writeln!(f, "  finding      {finding}")?;
        }
        Ok(())
    }
}

impl fmt::Display for CertificatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secret, names) = (&self.secret, self.names.join(", "));
        let (issuer, end) = (&self.issuer, &self.not_after);
        if self.is_default {
            write!(f, "the default one, ")?;
        }
        write!(f, "Secret {secret} for {names}, issued by {issuer}, ")?;
        if !self.key.is_empty() {
            write!(f, "of {}, ", self.key)?;
        }
        let verb = if self.is_expired { "EXPIRED" } else { "ends" };
        write!(f, "{verb} {end}")?;
        if !self.is_for_host {
            write!(f, "; NOT for this host, so clients refuse it")?;
        }
        Ok(())
    }
}

impl fmt::Display for UpstreamPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (weight {}): ", self.name, self.weight)?;
        if self.object.is_none() {
            return write!(f, "is missing");
        }
        write!(f, "{}, ", self.protocol)?;
        if let Some(dns) = &self.dns {
            return write!(f, "resolved as {dns}");
        }
        let more = self.endpoints_total - self.endpoints.len().min(self.endpoints_total);
        match self.endpoints_total {
            0 => write!(f, "no endpoints"),
            total => {
                write!(f, "{total} endpoints: {}", self.endpoints.join(", "))?;
                match more {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
        }
    }
}
