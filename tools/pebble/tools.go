//go:build tools

// Package tools pins a certificate authority that speaks ACME, with its server of names, and all
// that both are built from, so that `cargo xtask test` builds the same programs everywhere.
package tools

import (
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble"
	_ "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"
)
