package wire

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/schedule"
	"example.org/lockstep/lockstep/internal/wire/keys"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

var aDefinition = schedule.Definition{Name: "x", Cron: "@daily", Zone: "UTC", MissedRuns: schedule.MissedSkip,
	Overlap: schedule.OverlapSkip,
	Matrix:  schedule.Matrix{File: "x.cue", Text: "package matrix"}}

// clientOf connects a client in the process.
func clientOf(t testing.TB, s *Server) *Client {
	t.Helper()
	c, err := s.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// client connects with a user's credentials.
func (g *guardedPlane) client(t *testing.T, name string) *Client {
	t.Helper()
	c, err := DialClient(t.Context(), g.url, g.auth(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestASubmissionReportsTheLastAnswer covers a request that is in progress when the submission ends. After 30 s the
// error is that of the request before. A cancellation is reported as such.
func TestASubmissionReportsTheLastAnswer(t *testing.T) {
	for _, x := range []struct {
		after time.Duration // when the submission is cancelled; 0: never
		want  string
	}{{0, "no controller leads on this control plane"}, {2 * time.Second, context.Canceled.Error()}} {
		wiretest.AloneInVirtualTime(t, func(t *testing.T) {
			s := plane(t, ServerConfig{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			silent := submitTimeout - 5*time.Second
			if x.after > 0 {
				silent = x.after / 2
				time.AfterFunc(x.after, cancel)
			}
			time.AfterFunc(silent, func() { // from now on a request has no response
				if _, err := link(t, s).nc.Subscribe(subject.ClientServices+"submit", func(*nats.Msg) {}); err != nil {
					t.Error(err)
				}
			})
			err := clientOf(t, s).Submit(ctx, Submission{Run: plan.Run{ID: "r"}})
			if err == nil || !strings.Contains(err.Error(), x.want) ||
				!strings.Contains(err.Error(), "may still be queued") {
				t.Errorf("%v, want %q", err, x.want)
			}
		})
	}
}

// serveClients makes a leader serve clients, with one agent, one hook, and a history that exceeds a message.
func serveClients(t testing.TB, l *Leader) {
	t.Helper()
	stop, err := l.ServeClients(func() []AgentInfo { return []AgentInfo{{Heartbeat: Heartbeat{Agent: "a1"}}} },
		func(q plan.HistoryQuery) (plan.HistoryAnswer, error) {
			if len(q.Cells) > 0 {
				return plan.HistoryAnswer{}, errors.New("no such cell")
			}
			return longHistory(q), nil
		}, []string{"chat"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
}

// submission returns the sequence number of a queued run's submission.
func submission(t testing.TB, s *Store, run string) uint64 {
	t.Helper()
	last, err := s.lastMessage(t.Context(), subject.QueueStream, subject.Submit(run))
	if err != nil || last.Seq == 0 {
		t.Fatalf("run %s has submission %d, %v", run, last.Seq, err)
	}
	return last.Seq
}

// queueRun stores a submission like a leader.
func queueRun(t testing.TB, s *Store, run plan.Run) {
	t.Helper()
	packed, err := pack(Submission{Run: run})
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.conn.codec.encode(subject.Submit(run.ID), packed)
	if err == nil {
		_, err = s.put(t.Context(), m, onceID())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnIdleFollowerInAnotherAccount proves that a follower continues after ten minutes without events, with 2,400
// requests to another account.
func TestAnIdleFollowerInAnotherAccount(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		dir := t.TempDir()
		creds, err := keys.Make(dir, dir, []string{"bench-1.example.org"}, false)
		if err != nil {
			t.Fatal(err)
		}
		auth := func(name string) Auth { return Auth{Creds: filepath.Join(dir, userOf(creds, name).File())} }
		s := plane(t, ServerConfig{Config: filepath.Join(dir, "nats.conf"), Auth: auth("controller")})
		leading := recorder(t, storeOf(t, s), "r")
		serveClients(t, leading.leader)
		queueRun(t, leading.leader.store, plan.Run{ID: "r"})
		viewer, err := NewClient(t.Context(), func(ctx context.Context) (*Conn, error) {
			return connect(ctx, "", auth("viewer"), false, false, nats.InProcessServer(s.ns))
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(viewer.Close)
		ended := make(chan error, 1)
		var at time.Time
		go func() {
			_, err := viewer.Read(t.Context(), RecordQuery{Run: "r", Wait: true}, func(Entry) error { return nil })
			at = time.Now()
			ended <- err
		}()
		time.Sleep(10 * time.Minute)
		begun := time.Now()
		if err := leading.Event(t.Context(), RunEvent{Kind: RunEnded,
			End: &End{Reason: EndDone, Submission: submission(t, leading.leader.store, "r")}}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || at.Sub(begun) > batchPause {
			t.Errorf("the follower ended %v after the run, %v", at.Sub(begun), err)
		}
	})
}

// A leader ends without an answer to a pending request. The request ends when the client finds the next leader.
func TestAPendingRequestEndsWithTheNextLeader(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{Shared: true})
		stuck := make(chan struct{})
		defer close(stuck)
		first := campaign(t, storeOf(t, s), "first")
		stop, err := first.ServeClients(func() []AgentInfo { return nil },
			func(plan.HistoryQuery) (plan.HistoryAnswer, error) { <-stuck; return plan.HistoryAnswer{}, nil }, nil,
			func(context.Context, BaselineQuery) (BaselineAnswer, error) { return BaselineAnswer{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		defer func() { go stop() }()
		client := clientOf(t, s)
		if _, err := client.Leader(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := client.History(t.Context(), plan.HistoryQuery{})
			ended <- err
		}()
		time.Sleep(time.Second) // the request is pending
		first.conn.Close()
		serveClients(t, campaign(t, storeOf(t, s), "second"))
		found := time.Now()
		if _, err := client.Leader(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil || time.Since(found) > time.Second {
			t.Errorf("the pending request ended after %v with %v", time.Since(found), err)
		}
	})
}

// A reader continues with the next leader.
func TestAReaderGoesOnWithTheNextLeader(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{Shared: true})
		first := recorder(t, storeOf(t, s), "r")
		serveClients(t, first.leader)
		queueRun(t, first.leader.store, plan.Run{ID: "r"})
		client := clientOf(t, s)
		if _, err := client.Leader(t.Context()); err != nil {
			t.Fatal(err)
		}
		following, leave := context.WithCancel(t.Context())
		read := make(chan time.Time, 9)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			// its error is that of Read
			_, _ = client.Read(following, RecordQuery{Run: "r", Wait: true}, func(Entry) error { read <- time.Now(); return nil })
		}()
		defer func() { leave(); <-ended }()
		time.Sleep(7 * time.Second)
		first.leader.conn.Close()
		second := recorder(t, storeOf(t, s), "r")
		serveClients(t, second.leader)
		if err := second.Event(t.Context(), RunEvent{Kind: TakenOver}); err != nil {
			t.Fatal(err)
		}
		stored := time.Now()
		if _, err := client.Leader(t.Context()); err != nil {
			t.Fatal(err)
		}
		if late := (<-read).Sub(stored); late > time.Second {
			t.Errorf("the takeover was read %v after it was stored", late)
		}
	})
}

// A queued run is not queued again. The response comes before ctl reports, after 2 s, that no controller has accepted
// the run.
func TestARunThatIsQueuedIsRefusedAtOnce(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{Shared: true})
		serveClients(t, campaign(t, storeOf(t, s), "c"))
		client, submission := clientOf(t, s), Submission{Run: plan.Run{ID: "r"}}
		if err := client.Submit(t.Context(), submission); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := client.Submit(t.Context(), submission)
		if took := time.Since(began); !errors.Is(err, ErrQueued) || took >= 2*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// A submission that is cancelled while no controller leads ends with the cancellation, and was not sent.
func TestACancelledSubmission(t *testing.T) {
	for _, after := range []time.Duration{0, 6*retryWait + retryWait/2} { // between two requests
		wiretest.AloneInVirtualTime(t, func(t *testing.T) {
			c := clientOf(t, plane(t, ServerConfig{}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if after == 0 {
				cancel()
			} else {
				time.AfterFunc(after, cancel)
			}
			err := c.Submit(ctx, Submission{Run: plan.Run{ID: "r", Name: "r"}})
			if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "queued") {
				t.Errorf("cancelled after %v: %v", after, err)
			}
		})
	}
}
