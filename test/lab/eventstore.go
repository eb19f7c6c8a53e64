package main

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
)

// eventstored is a server for EventStoreDB's protocol. It stores events in memory only.
var eventstored = goCommand{name: "eventstored", pkg: "./test/eventstored"}

func planEventStore(s *site, dir string, ports []int) (*Plan, error) {
	url := "esdb://" + loopback(ports[0]) + "?tls=false"
	return &Plan{
		Processes: []*Process{{
			Name: "eventstore", Dir: dir, Log: filepath.Join(dir, "log"),
			Command: []string{s.bin("eventstored"), "-listen", loopback(ports[0])},
			Ready:   func(ctx context.Context) error { return answersEventStore(ctx, url) },
		}},
		Env: []string{"LOCKSTEP_EVENTSTORE_URL=" + url},
	}, nil
}

// answersEventStore checks that the server answers, by reading a stream that does not exist.
func answersEventStore(ctx context.Context, url string) error {
	config, err := kurrentdb.ParseConnectionString(url)
	if err != nil {
		return err
	}
	config.MaxDiscoverAttempts = 1
	config.Logger = kurrentdb.NoopLogging()
	client, err := kurrentdb.NewClient(config)
	if err != nil {
		return err
	}
	defer client.Close()
	stream, err := client.ReadStream(ctx, "lockstep-lab-ready", kurrentdb.ReadStreamOptions{}, 1)
	if err == nil {
		defer stream.Close()
		_, err = stream.Recv()
	}
	var failure *kurrentdb.Error
	if errors.Is(err, io.EOF) || (errors.As(err, &failure) && failure.Code() == kurrentdb.ErrorCodeResourceNotFound) {
		return nil
	}
	return err
}
