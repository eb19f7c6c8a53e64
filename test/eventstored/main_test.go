package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
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
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, address, out) }()
	if line, err := bufio.NewReader(said).ReadString('\n'); line != "ready\n" || err != nil {
		t.Fatalf("it says %q, %v", line, err)
	}
	config, err := kurrentdb.ParseConnectionString("esdb://" + address + "?tls=false")
	if err != nil {
		t.Fatal(err)
	}
	config.Logger = kurrentdb.NoopLogging()
	db, err := kurrentdb.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	once := kurrentdb.EventData{EventID: uuid.New(), EventType: "t"}
	for range 2 { // the second append of an event has no effect
		result, err := db.AppendToStream(ctx, "a", kurrentdb.AppendToStreamOptions{}, once)
		if err != nil || result.NextExpectedVersion != 0 {
			t.Errorf("append: %+v, %v; want revision 0", result, err)
		}
	}
	if err := run(ctx, address, io.Discard); err == nil {
		t.Error("a second one runs at the same address")
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
