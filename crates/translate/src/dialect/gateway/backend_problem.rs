//! Why a backend that a route names is none.

/// Why a backend that a route names is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum BackendProblem {
    /// It is of another namespace, where no ReferenceGrant lets routes of this one name it.
    RefNotPermitted,
    /// It is no Service.
    InvalidKind,
    /// There is no such Service, or it has no such port.
    BackendNotFound,
    /// The reference names no port.
    NoPort,
    /// The Service is an alias of an outside host.
    Alias,
    /// How its certificates are verified cannot be honoured, so that nothing is sent there.
    PolicyInvalid,
}

/// The use of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendUse {
    /// It gets requests of HTTP.
    Http,
    /// It gets calls of gRPC.
    Grpc,
    /// It gets connections.
    Stream,
    /// It gets connections with the handshakes of clients.
    Passthrough,
    /// It gets datagrams.
    Datagram,
}

impl BackendProblem {
    /// The reason, as conditions have it.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            BackendProblem::RefNotPermitted => "RefNotPermitted",
            BackendProblem::InvalidKind => "InvalidKind",
            BackendProblem::BackendNotFound | BackendProblem::NoPort | BackendProblem::Alias => {
                "BackendNotFound"
            }
            BackendProblem::PolicyInvalid => "BackendTLSPolicyInvalid",
        }
    }

    /// Whether the reference itself is wrong, as the condition ResolvedRefs says.
    pub(crate) fn is_of_reference(self) -> bool {
        self != BackendProblem::PolicyInvalid
    }

    /// The problem, as a sentence about the backend goes on.
    pub(crate) fn message(self) -> &'static str {
        match self {
            BackendProblem::RefNotPermitted => {
                "is of another namespace, where no ReferenceGrant lets this route name it"
            }
            BackendProblem::InvalidKind => "is no Service",
            BackendProblem::BackendNotFound => "is not there, or has no such port",
            BackendProblem::NoPort => "is named without a port",
            BackendProblem::Alias => "is an alias of an outside host (ExternalName)",
            BackendProblem::PolicyInvalid => {
                "has a BackendTLSPolicy that cannot be honoured, so nothing is sent there"
            }
        }
    }

    /// The way to mend it.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            BackendProblem::RefNotPermitted => {
                "create a ReferenceGrant in the namespace of the backend"
            }
            BackendProblem::InvalidKind => "name a Service",
            BackendProblem::BackendNotFound => "create the Service, or name a port that it has",
            BackendProblem::NoPort => "name the port of the Service",
            BackendProblem::Alias => "name a Service with endpoints in the cluster",
            BackendProblem::PolicyInvalid => "mend the BackendTLSPolicy, whose status says why",
        }
    }
}
