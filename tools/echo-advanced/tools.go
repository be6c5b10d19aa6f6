//go:build tools

// Package tools pins the server and the client that the suite of Gateway API has in the mesh, whose
// image it calls echo-advanced: Istio's own, without a release of their own.
package tools

import (
	_ "istio.io/istio/pkg/test/echo/cmd/client"
	_ "istio.io/istio/pkg/test/echo/cmd/server"
)
