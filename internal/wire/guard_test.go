package wire

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/plan"
)

// TestPanicsOfHandlersAreErrors proves that after a panic of a handler the client receives an error, and that the next
// message is handled.
func TestPanicsOfHandlersAreErrors(t *testing.T) {
	s := plane(t, ServerConfig{})
	c, log := link(t, s), &logged{}
	c.LogTo(slog.New(log))
	calls := 0
	stop, err := campaign(t, NewStore(c, StoreConfig{}), "test").ServeClients(func() []AgentInfo {
		if calls++; calls == 1 {
			panic("first")
		}
		return nil
	}, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	client := clientOf(t, s)
	if _, err := client.Agents(t.Context()); err == nil || !strings.Contains(err.Error(), ErrPanic.Error()) {
		t.Errorf("the first request: %v: want an error that wraps ErrPanic", err)
	}
	if _, err := client.Agents(t.Context()); err != nil {
		t.Errorf("the second request: %v", err)
	}
	if len(log.lines) != 1 || !strings.Contains(log.lines[0], ErrPanic.Error()) {
		t.Errorf("the log has %q: want one line", log.lines)
	}
}

// TestPanicsOfSubmissionsRefuseTheirRun proves that the queue continues after a panic.
func TestPanicsOfSubmissionsRefuseTheirRun(t *testing.T) {
	s := plane(t, ServerConfig{})
	c := link(t, s)
	c.LogTo(slog.New(slog.DiscardHandler))
	leader := campaign(t, NewStore(c, StoreConfig{}), "test")
	for _, id := range []string{"bad", "good"} {
		queueRun(t, leader.store, plan.Run{ID: id})
	}
	got := map[string]error{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_ = leader.Queue(ctx, func(r Request) {
		if r.Run == "bad" && r.Err == nil {
			panic("bad")
		}
		if got[r.Run] = r.Err; r.Run == "good" {
			stop()
		}
	}, func() {})
	if !errors.Is(got["bad"], ErrPanic) || got["good"] != nil || len(got) != 2 {
		t.Errorf("the queue handed over %v: want an error of run bad alone", got)
	}
}
