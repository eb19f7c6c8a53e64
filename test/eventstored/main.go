// Command eventstored is a stand-in for EventStoreDB, for tests. Package server describes its features and limits.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"lockstep/test/eventstored/server"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run serves until ctx ends. It prints one line, "ready", once it listens.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("eventstored", flag.ContinueOnError)
	flags.SetOutput(stderr)
	listen := flags.String("listen", "127.0.0.1:2113", "address to listen at")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(stderr, "eventstored:", err)
		return 1
	}
	s := server.New(server.Options{})
	defer context.AfterFunc(ctx, s.Stop)()
	fmt.Fprintln(stdout, "ready")
	if err := s.Serve(l); err != nil {
		fmt.Fprintln(stderr, "eventstored:", err)
		return 1
	}
	s.Stop()
	return 0
}
