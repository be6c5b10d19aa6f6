// Command backend is CoreDNS with the plugins of what the suite of Gateway API leads datagrams to.
package main

import (
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/whoami"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

// The order in which a question passes the plugins.
func init() {
	dnsserver.Directives = []string{"errors", "log", "forward", "whoami"}
}

func main() {
	coremain.Run()
}
