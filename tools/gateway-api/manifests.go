package main

import (
	"bytes"
	"embed"
	"fmt"
)

// The suite's manifests of the mesh, the namespaces in them, and the label by which Pods there get
// a proxy.
const (
	meshManifests  = "mesh/manifests.yaml"
	meshNamespaces = 2
	meshLabel      = "    gateway-conformance: mesh"
	injectionLabel = "    myriad.dev/injection: enabled"
)

// manifests are those of the suite, whose namespaces of the mesh ask for proxies. The suite itself
// can only label all namespaces alike.
type manifests struct{ embed.FS }

// ReadFile reads one of them.
func (m manifests) ReadFile(name string) ([]byte, error) {
	text, err := m.FS.ReadFile(name)
	if err != nil || name != meshManifests {
		return text, err
	}
	var labelled bytes.Buffer
	found := 0
	for line := range bytes.Lines(text) {
		labelled.Write(line)
		if bytes.HasPrefix(line, []byte(meshLabel)) {
			labelled.WriteString(injectionLabel + "\n")
			found++
		}
	}
	if found != meshNamespaces {
		return nil, fmt.Errorf("%s has %d namespaces, not %d", name, found, meshNamespaces)
	}
	return labelled.Bytes(), nil
}
