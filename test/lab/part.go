package main

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Part is one kind of broker, or cluster of brokers, that the lab can start.
type Part struct {
	Name string
	Doc  string
	// Install makes sure that the broker's programs are there, or says what to do.
	Install func(ctx context.Context, out io.Writer) error
	// Plan chooses ports and writes configuration into dir, an empty folder. It starts nothing.
	Plan func(dir string) (*Plan, error)
}

// Plan is one instance of a part, on this machine, now.
type Plan struct {
	// Helpers are started before Processes and stopped after them.
	Helpers []*Process
	// Processes are the brokers; those of a cluster start together.
	Processes []*Process
	// Ready tells whether the broker answers by now: nil, or what is still missing.
	Ready func(ctx context.Context) error
	// Env are the variables, NAME=value, that lead to the broker; asked for when it is ready.
	Env func() []string
}

// parts are what the lab knows.
var parts = []Part{
	{Name: "rabbitmq", Doc: "RabbitMQ, one node", Install: installRabbitMQ, Plan: planRabbitMQ},
	{Name: "rabbitmq3", Doc: "RabbitMQ, a cluster of three nodes", Install: installRabbitMQ, Plan: planRabbitMQ3},
}

func describeParts() string {
	var text strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&text, "  %-12s %s\n", p.Name, p.Doc)
	}
	return text.String()
}
