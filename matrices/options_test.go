package matrices

import (
	"fmt"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/matrix"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

// An error of a broker's options has its place and the valid values, from the driver's schema or from the driver.
func TestErrorsOfOptions(t *testing.T) {
	cases := []struct{ broker, want string }{
		{`nats", options: {url: "nats://h", confirmTimeout: "0s"}`,
			`.confirmTimeout: "0s" is not valid here; give a time above 0 like "30s"`},
		{`nats", options: {url: "nats://h", discard: "newest"}`, `.discard: "newest" is not valid here; give one of "old", "new"`},
		{`nats", options: {url: "nats://h", embedded: true}`, `: read nats options: give one of url: "nats://host:4222", urls`},
		{`kafka", options: brokers: ["nowhere"]`,
			`.brokers[0]: "nowhere" is not valid here; give an address like "host:9092"`},
		{`kafka", options: {brokers: ["h:1"], acks: 2}`, `.acks: 2 is not valid here; give one of "all", 1, 0`},
		{`kafka", options: {brokers: ["h:1"], confirmTimeout: "500ms"}`,
			`.confirmTimeout: "500ms" is not valid here; give a time of 1s or more like "30s"`},
		{`artemis", options: {url: "amqp://h", connectTimeout: "99ms"}`,
			`.connectTimeout: "99ms" is not valid here; give a time of 100ms or more like "3s"`},
		{`artemis", options: {}`, `: read artemis options: give url: "amqp://user:***@host:5672", or urls for several nodes`},
		{`rabbitmq", options: {url: "amqp://h", urls: ["amqp://h"]}`,
			`: read rabbitmq options: give either url or urls, not both`},
		{`mongodb", options: {url: "mongodb://h/", w: 0}`,
			`.w: 0 is not valid here; give "majority", or a whole number from 1 to 50`},
		{`mongodb", options: {url: "mongodb://h/", database: "a.b"}`, `.database: "a.b" is not valid here; give a string that matches `},
		{`sqs", options: sendBatch: 11`, `.sendBatch: 11 is not valid here; give a whole number from 1 to 10`},
		{`sqs", options: visibility: "13h"`, `: read sqs options: visibility 13h0m0s: at most 12h`},
		{`eventstore", options: {url: "esdb://u:hunter2@h/path"}`, `: read eventstore options: url number 0 has a path`},
		{`loopback", options: capacity: 0`, `.capacity: 0 is not valid here; give a whole number, at least 1`},
	}
	text := "package m\nname: \"x\"\naxes: mode: [\"confirm-window\"]\ncell: {axis: _, broker: \"b0\"}\n"
	for i, c := range cases {
		text += fmt.Sprintf("brokers: b%d: {driver: \"%s}\n", i, c.broker)
	}
	_, err := matrix.Load("m.cue", []byte(text), matrix.Narrow{})
	if err == nil {
		t.Fatal("the matrix is valid")
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(cases) {
		t.Errorf("%d errors, want %d:\n%v", len(got), len(cases), err)
	}
	for i, c := range cases {
		line := fmt.Sprintf("m.cue:%d", 5+i) // each broker has its own line
		if i < len(got) && (!strings.HasPrefix(got[i], line+":") || !strings.Contains(got[i], c.want) ||
			strings.Contains(got[i], "hunter2")) {
			t.Errorf("%s:\n got %s\nwant %s: …%s", c.broker, got[i], line, c.want)
		}
	}
}
