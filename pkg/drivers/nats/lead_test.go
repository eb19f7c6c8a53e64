package nats

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// unanswered is a connection whose first query of a stream gets no answer, because it has another subject.
type unanswered struct {
	net.Conn
	lost *atomic.Bool
}

func (u unanswered) Write(p []byte) (int, error) {
	const query, unknown = "$JS.API.STREAM.INFO.", "$JS.API.STREAM.IFNO."
	if bytes.Contains(p, []byte(query)) && u.lost.CompareAndSwap(false, true) {
		p = bytes.Replace(p, []byte(query), []byte(unknown), 1)
	}
	return u.Conn.Write(p)
}

// checkUnansweredQuery checks on three servers that the set-up of spread leaders continues if a query gets no answer,
// as while the leader of a stream changes.
func checkUnansweredQuery(t *testing.T, urls []string) {
	list, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	var lost atomic.Bool
	s, err := driver{}.Open(t.Context(), schematest.Fill(t, driver{}, with(`"replicas": 3, "urls": `+string(list))),
		drivers.Env{Event: func(drivers.EventKind, string) {}, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, address)
			return unanswered{c, &lost}, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	top := plain("unanswered")
	top.Queues, top.QueueNode = 5, drivers.SpreadNode // at least one leader has to move
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Setup(ctx, top); err != nil {
		t.Errorf("Setup: %v", err)
	}
	if !lost.Load() {
		t.Error("no query was lost")
	}
	if err := s.Teardown(t.Context(), top); err != nil {
		t.Error(err)
	}
}
