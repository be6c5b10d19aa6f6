//go:build tools

// Package tools pins the HTTP/2 conformance suite and all that it is built from, so that
// `cargo xtask test` builds the same program everywhere, with a Go as old as 1.19.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
