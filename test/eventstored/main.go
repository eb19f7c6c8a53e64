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

	"example.org/lockstep/lockstep/test/eventstored/server"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:2113", "address to listen at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "eventstored:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends. It prints one line, "ready", once it listens.
func run(ctx context.Context, listen string, stdout io.Writer) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s := server.New(server.Options{})
	defer context.AfterFunc(ctx, s.Stop)()
	fmt.Fprintln(stdout, "ready")
	return s.Serve(l)
}
