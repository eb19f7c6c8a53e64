package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// TestStandInServes starts the program, uses it, and ends it.
func TestStandInServes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
	defer stop()
	said, out := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"-listen", address}, out, os.Stderr) }()
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" || err != nil {
		t.Fatalf("it says %q, %v", line, err)
	}
	config, err := esdb.ParseConnectionString("esdb://" + address + "?tls=false")
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = esdb.NoopLogging()
	db, err := esdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.AppendToStream(ctx, "a", esdb.AppendToStreamOptions{}, esdb.EventData{EventType: "t"}); err != nil {
		t.Error(err)
	}
	if code := run(ctx, []string{"-listen", address}, io.Discard, io.Discard); code != 1 {
		t.Errorf("a second one at the same address ends with %d, want 1", code)
	}
	stop()
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("it ends with %d", code)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
