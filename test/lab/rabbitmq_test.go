package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The lab prints the release of RabbitMQ that a node reports, because that of a development release changes.
func TestVersionOfRabbitMQ(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/overview" {
			_, _ = fmt.Fprint(w, `{"rabbitmq_version": "4.3.6"}`)
		}
	}))
	node := rabbitNode{http: server.Listener.Addr().(*net.TCPAddr).Port}
	plan := Plan{Version: node.version}
	if got := plan.version(t.Context()); got != " (RabbitMQ 4.3.6)" {
		t.Errorf("the lab prints %q", got)
	}
	server.Close()
	if got := plan.version(context.Background()); !strings.HasPrefix(got, " (version unknown: ") {
		t.Errorf("without an answer, the lab prints %q", got)
	}
	if got := (&Plan{}).version(t.Context()); got != "" {
		t.Errorf("for a part that has its version in its description, the lab prints %q", got)
	}
}
