// Istio's API: the definitions (CRDs) that stories install in a cluster.
module myriad.dev/tools/istio

go 1.26.0

require istio.io/api v1.31.1
