package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

// If a cluster has not decided about another message at the timeout, that is no evidence of a later controller.
func TestOnlyALaterFenceFences(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		c := link(t, plane(t, ServerConfig{}))
		store := NewStore(c, StoreConfig{})
		for code, want := range map[jetstream.ErrorCode]bool{
			jetstream.JSErrCodeStreamWrongLastSequence: true, jetstream.JSErrCodeStreamWrongLastSequenceConstant: false,
		} {
			stop, err := c.subscribe(subject.Event("r"), pendingSmall, func(m *nats.Msg) (*nats.Msg, error) {
				return &nats.Msg{Subject: m.Reply, Data: fmt.Appendf(nil,
					`{"error":{"code":400,"err_code":%d,"description":"wrong last sequence"}}`, code)}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			// Without streams; the subscription takes their place.
			r := &Recorder{leader: leaderOf(t.Context(), store, 1), run: "r"}
			r.events, r.snapshots = newRunStreams(store, "r")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err = r.Event(ctx, RunEvent{Kind: RunAccepted})
			cancel()
			stop()
			if err == nil || errors.Is(err, lease.ErrFenced) != want {
				t.Errorf("after %d: %v; taken for the word of a later controller: %v, want %v", code, err, !want, want)
			}
		}
	})
}
