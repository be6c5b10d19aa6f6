//go:build tools

// Package tools pins the metrics-server of a test node, by which Pods are scaled.
package tools

import (
	_ "sigs.k8s.io/metrics-server/cmd/metrics-server"
)
