// Command coredns is CoreDNS with the few plugins that a test node needs, so that it builds in a
// minute and not with the clients of all clouds. What it shares with ../kubernetes is of the same
// versions, so that Go compiles it once.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// The order in which a question passes the plugins.
func init() {
	dnsserver.Directives = []string{
		"bind", "ready", "errors", "cache", "hosts", "kubernetes", "template",
	}
}

func main() {
	coremain.Run()
}
