//go:build tools

// Package tools pins the kubelet of a test node: the last release that takes the containerd of
// Debian, one minor version behind the API server.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kubelet"
)
