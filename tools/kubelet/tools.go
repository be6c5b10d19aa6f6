//go:build tools

// Package tools pins the kubelet of a test node: the last release that takes the containerd of
// Debian, one minor version behind the API server. What it shares with ../kubernetes and is no part
// of Kubernetes is of the same versions as far as it builds, so that Go compiles it once.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kubelet"
)
