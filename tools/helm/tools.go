//go:build tools

// Package tools pins Helm, by which the chart is rendered.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
