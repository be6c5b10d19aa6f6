// An origin of the differential tests: Go's net/http. It tells of each request when its head was
// read, and again with the length of its body.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stdout, "listens %s\n", listener.Addr())
	handler := func(answer http.ResponseWriter, request *http.Request) {
		fmt.Fprintf(os.Stdout, "head %s %s\n", request.Method, request.RequestURI)
		length, err := io.Copy(io.Discard, request.Body)
		if err == nil {
			fmt.Fprintf(os.Stdout, "whole %s %s %d\n", request.Method, request.RequestURI, length)
		}
		fmt.Fprint(answer, "seen")
	}
	// Otherwise it answers `OPTIONS *` itself, and nobody is told.
	server := http.Server{Handler: http.HandlerFunc(handler), DisableGeneralOptionsHandler: true}
	panic(server.Serve(listener))
}
