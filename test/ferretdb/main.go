// Package main is a server for MongoDB's protocol, for tests without MongoDB: FerretDB on SQLite. It has two ports. One
// is FerretDB itself, which lets two clients claim the same document. The other one serialises commands that change
// documents, so that claims are atomic as in MongoDB, and supports unacknowledged writes. Neither port is a replica
// set. FerretDB ignores write concerns.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("ferretdb", flag.ContinueOnError)
	flags.SetOutput(stderr)
	plain := flags.String("plain", "", "address to serve FerretDB on")
	serial := flags.String("serial", "", "address to serve it on with one change at a time")
	dir := flags.String("dir", "", "folder of its files")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *plain == "" || *serial == "" || *dir == "" {
		fmt.Fprintln(stderr, "ferretdb: -plain, -serial and -dir are needed")
		return 2
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := serve(ctx, *plain, *serial, *dir); err != nil {
		fmt.Fprintln(stderr, "ferretdb:", err)
		return 1
	}
	return 0
}

// serve serves both addresses until ctx ends or one of them fails.
func serve(ctx context.Context, plain, serial, dir string) error {
	db, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: plain},
		Logger:    slog.New(slog.DiscardHandler),
		Handler:   "sqlite",
		SQLiteURL: "file:" + dir + "/?_pragma=busy_timeout(600000)", // all clients write to one file
	})
	if err != nil {
		return fmt.Errorf("open FerretDB in %s: %w", dir, err)
	}
	listener, err := net.Listen("tcp", serial)
	if err != nil {
		return err
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- db.Run(ctx) }()
	go func() { ended <- newProxy(plain).serve(ctx, listener) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	}
}
