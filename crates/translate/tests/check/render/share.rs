//! The rules for the requests of one share of a route, as text.

use std::fmt::Write as _;

use myriad_model::{RedirectTarget, ShareAnswer, ShareFilters};

use super::route::parts_text;
use super::{cors_text, mirror_text, rewrite_text};

/// All that is done to the requests of a share, beside changes of headers.
pub(super) fn text(filters: &ShareFilters) -> String {
    let ShareFilters {
        answer,
        rewrite,
        mirrors,
        cors,
    } = filters;
    let mut text = match answer {
        None => String::new(),
        Some(ShareAnswer::Refuse(status)) => format!(" refused={status}"),
        Some(ShareAnswer::Redirect(redirect)) => {
            let to = match &redirect.target {
                RedirectTarget::Url(to) | RedirectTarget::Path(to) => format!(" {to}"),
                RedirectTarget::Parts(parts) => parts_text(parts),
            };
            format!(" answered={}{to}", redirect.status)
        }
    };
    text.extend(rewrite.as_deref().map(rewrite_text));
    for mirror in mirrors {
        let _ = write!(text, " ({})", mirror_text(mirror).trim());
    }
    if let Some(cors) = cors.as_deref() {
        let _ = write!(text, " ({})", cors_text(cors).trim());
    }
    text
}
