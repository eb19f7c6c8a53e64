package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"lockstep/internal/schedule"
)

var aDefinition = schedule.Definition{Name: "x", Cron: "@daily", Zone: "UTC", Missed: schedule.MissedSkip, Overlap: schedule.OverlapSkip,
	Matrix: schedule.Matrix{File: "x.cue", Text: "package matrix"}}

// A message may ask the server to delete all others of its stream. Who may write schedules reaches neither the lease nor how runs stand by that, and no other schedule.
func TestAClientWipesNothing(t *testing.T) {
	g := guardPlane(t)
	controller, client := link(t, g.server), g.dial(t, "client")
	lease := campaign(t, controller, "test")
	for what, err := range map[string]error{
		"add a schedule":            client.AddSchedule(t.Context(), schedule.New(aDefinition, "id", "me", time.Now())),
		"store the state of a run":  lease.PutRun(t.Context(), RunState{Run: "r1", State: StateQueued}),
		"say which hooks there are": controller.PutHooks(t.Context(), []string{"chat"}),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	nc, refused := g.hostile(t, "client")
	for _, scope := range []string{"all", "sub"} {
		m, err := nc.RequestMsg(&nats.Msg{Subject: scheduleKeys + "y", Header: nats.Header{"Nats-Rollup": {scope}}}, refusedWithin)
		if err != nil || !strings.Contains(string(m.Data), "rollup not permitted") {
			t.Errorf("rollup %q of the schedules: %s, %v: want a refusal", scope, m.Data, err)
		}
		for _, subject := range []string{stateKeys + "schedule.y", stateKeys + keyHooks} {
			if err := nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"Nats-Rollup": {scope}}}); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, "write "+subject, refused)
		}
	}
	if _, err := client.Schedule(t.Context(), "x"); err != nil {
		t.Errorf("the schedule: %v", err)
	}
	if runs, err := client.Runs(t.Context()); err != nil || len(runs) != 1 {
		t.Errorf("runs are %+v, %v: want the one", runs, err)
	}
	if _, known, err := client.Hooks(t.Context()); err != nil || !known {
		t.Errorf("hooks are known: %v, %v", known, err)
	}
	if who, err := client.LastLeader(t.Context()); err != nil || who.Epoch != lease.Epoch() {
		t.Errorf("the leader is %+v, %v", who, err)
	}
}

// Streams of an earlier release, which allowed it, are changed.
func TestBucketsOfAnEarlierReleaseLoseRollups(t *testing.T) {
	c := link(t, plane(t, ServerConfig{}))
	for _, name := range []string{stateStream, scheduleStream} {
		s, err := c.js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.AllowRollup = true
		if _, err := c.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{stateStream, scheduleStream} {
		if s, err := c.js.Stream(t.Context(), name); err != nil || s.CachedInfo().Config.AllowRollup {
			t.Errorf("%s still allows rollups (%v)", name, err)
		}
	}
}
