//go:build tools

// The server that the suite leads requests to is pinned with it.
package main

import (
	_ "sigs.k8s.io/gateway-api/conformance/echo-basic"
)
