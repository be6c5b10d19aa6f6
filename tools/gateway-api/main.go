// Command gateway-api runs the official conformance suite of Gateway API against the API server of
// $KUBECONFIG, or lists its tests. Beside its own flags it takes those of the suite, which say what
// is tested and where the report goes, and those of Go's tests.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"testing"
)

var (
	list     = flag.Bool("list", false, "print the tests as JSON, and run none")
	only     = flag.String("only", "", "the tests that are run, separated by commas; all, if empty")
	patience = flag.Float64("patience", 1, "how many times as long to wait for what the suite bounds loosely")
)

func main() {
	testing.Init()
	flag.Parse()
	if *list {
		if err := json.NewEncoder(os.Stdout).Encode(listed()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	all := []testing.InternalTest{{Name: "GatewayAPI", F: run}}
	testing.Main(regexp.MatchString, all, nil, nil)
}
