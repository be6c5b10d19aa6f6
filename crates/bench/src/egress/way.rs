//! The ways out, by the numbers that `docs/egress.md` gives them.

/// A way out of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Way {
    /// Around the proxy.
    #[value(name = "1")]
    Around,
    /// Through the sidecar.
    #[value(name = "2")]
    Sidecar,
    /// Through the gateway.
    #[value(name = "3")]
    Gateway,
    /// Through the gateway, with mutual TLS between both.
    #[value(name = "4")]
    MutualTls,
    /// Through the gateway, to any host of a domain.
    #[value(name = "5")]
    Wildcard,
    /// To any host of a domain, with mutual TLS between both.
    #[value(name = "5m")]
    WildcardMutualTls,
}

impl Way {
    /// The number of its case.
    pub(super) fn case(self) -> u8 {
        match self {
            Way::Around => 1,
            Way::Sidecar => 2,
            Way::Gateway => 3,
            Way::MutualTls => 4,
            Way::Wildcard | Way::WildcardMutualTls => 5,
        }
    }

    /// The word for it, as it is asked for.
    pub(super) fn word(self) -> &'static str {
        match self {
            Way::Around => "1",
            Way::Sidecar => "2",
            Way::Gateway => "3",
            Way::MutualTls => "4",
            Way::Wildcard => "5",
            Way::WildcardMutualTls => "5m",
        }
    }

    /// Whether it goes through the sidecar, and through the gateway.
    pub(super) fn hops(self) -> (bool, bool) {
        let has_gateway = !matches!(self, Way::Around | Way::Sidecar);
        (self != Way::Around, has_gateway)
    }

    /// The objects that open it, where it takes any.
    pub(super) fn objects(self) -> Option<&'static str> {
        Some(match self {
            Way::Around => return None,
            Way::Sidecar => include_str!("../../../../examples/egress/2-sidecar/mongo.yaml"),
            Way::Gateway => include_str!("../../../../examples/egress/3-gateway/mongo.yaml"),
            Way::MutualTls => {
                include_str!("../../../../examples/egress/4-gateway-mutual-tls/mongo.yaml")
            }
            Way::Wildcard => include_str!("../../../../examples/egress/5-wildcard/mongo.yaml"),
            Way::WildcardMutualTls => {
                include_str!("../../../../examples/egress/5-wildcard-mutual-tls/mongo.yaml")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::Way;

    #[test]
    fn each_way_is_asked_for_by_its_word_and_has_the_hops_of_its_case() {
        for way in Way::value_variants() {
            assert_eq!(Way::from_str(way.word(), false), Ok(*way));
            assert!(way.word().starts_with(&way.case().to_string()));
            assert_eq!(way.hops(), (way.case() > 1, way.case() > 2));
            assert_eq!(way.objects().is_some(), way.case() > 1);
        }
    }
}
