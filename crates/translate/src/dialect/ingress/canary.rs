//! How a canary divides the requests of one path.

use std::sync::Arc;

use myriad_model::{Source, Test, ValueMatch, WeightedUpstream};

use super::annotations::{Canary, HeaderTest};

/// One route of a divided path, in the order in which they are tried.
pub(super) struct Share {
    /// Part of the route's name, unique on its path.
    pub word: &'static str,
    /// The conditions that all have to hold.
    pub conditions: Vec<ValueMatch>,
    /// The backend that gets the requests.
    pub target: ShareBackend,
}

/// The backend that gets the requests of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShareBackend {
    /// The canary.
    Canary,
    /// The main Ingress.
    Main,
    /// Both, by weight.
    Both,
}

/// The shares of a path: the header decides before the cookie, the cookie before the weight.
pub(super) fn divide(canary: &Canary) -> Vec<Share> {
    let mut shares = Vec::with_capacity(5);
    let mut add = |word, source, name: &str, test, target| {
        shares.push(Share {
            word,
            conditions: vec![ValueMatch {
                source,
                name: name.into(),
                test,
                invert: false,
            }],
            target,
        });
    };
    let always = || Test::Exact("always".into());
    let never = || Test::Exact("never".into());
    match &canary.header {
        Some((name, HeaderTest::Switch)) => {
            add(
                "#header-always",
                Source::Header,
                name,
                always(),
                ShareBackend::Canary,
            );
            add(
                "#header-never",
                Source::Header,
                name,
                never(),
                ShareBackend::Main,
            );
        }
        Some((name, HeaderTest::Exact(value))) => {
            let test = Test::Exact(value.clone());
            add("#header", Source::Header, name, test, ShareBackend::Canary);
        }
        Some((name, HeaderTest::Regex(pattern))) => {
            // ingress-nginx searches the value, while a route's test is of the whole of it.
            let test = Test::Regex(format!("(?s:.*?)(?:{pattern})(?s:.*)").into());
            add("#header", Source::Header, name, test, ShareBackend::Canary);
        }
        None => {}
    }
    if let Some(name) = &canary.cookie {
        add(
            "#cookie-always",
            Source::Cookie,
            name,
            always(),
            ShareBackend::Canary,
        );
        add(
            "#cookie-never",
            Source::Cookie,
            name,
            never(),
            ShareBackend::Main,
        );
    }
    shares.push(Share {
        word: "",
        conditions: Vec::new(),
        target: ShareBackend::Both,
    });
    shares
}

/// The upstreams of a share; none answers 503.
pub(super) fn weigh(
    target: ShareBackend,
    canary: &Canary,
    main: Option<&WeightedUpstream>,
    other: Option<&WeightedUpstream>,
) -> Arc<[WeightedUpstream]> {
    let alone = |upstream: Option<&WeightedUpstream>| upstream.cloned().into_iter().collect();
    let weigh = |upstream: &WeightedUpstream, weight| WeightedUpstream {
        upstream: upstream.upstream.clone(),
        weight,
        headers: None,
        filters: None,
    };
    match (target, main, other) {
        (ShareBackend::Main, _, _) | (ShareBackend::Both, _, None) => alone(main),
        (ShareBackend::Canary, _, _) => alone(other),
        (ShareBackend::Both, _, Some(_)) if canary.weight == 0 => alone(main),
        (ShareBackend::Both, _, Some(_)) if canary.weight == canary.weight_total => alone(other),
        // Without the main upstream its share answers 503, rather than all of it going to a
        // canary that was meant for little.
        (ShareBackend::Both, None, Some(_)) => Arc::default(),
        (ShareBackend::Both, Some(main), Some(other)) => {
            let rest = canary.weight_total.saturating_sub(canary.weight);
            [weigh(main, rest), weigh(other, canary.weight)].into()
        }
    }
}
