package sink

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// memoryInflux is an in-memory InfluxDB without a network, for tests in virtual time.
type memoryInflux struct {
	answer func(r *http.Request, n int) (*http.Response, error) // to request n, from 1; nil, nil: accepted

	mu    sync.Mutex
	lines []string
	asked int
}

func (m *memoryInflux) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	body, err := gzip.NewReader(r.Body)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.asked++
	n := m.asked
	m.mu.Unlock()
	if m.answer != nil {
		if response, err := m.answer(r, n); response != nil || err != nil {
			return response, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, strings.Split(strings.TrimSpace(string(text)), "\n")...)
	return respond(http.StatusNoContent, http.NoBody), nil
}

func respond(status int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{},
		Body: io.NopCloser(body)}
}

// unavailable is the response of an InfluxDB that is temporarily unavailable.
func unavailable(*http.Request, int) (*http.Response, error) {
	return respond(http.StatusServiceUnavailable, strings.NewReader("try later")), nil
}

// silent never responds.
func silent(r *http.Request, _ int) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// open opens a sink that writes to m.
func (m *memoryInflux) open(t *testing.T, tune Tuning, log *slog.Logger) *Sink {
	t.Helper()
	tune.Transport = m
	return Open(targetOf(t, "http://influx"), tune, "test", log)
}

// minute is a run with a measurement of one minute.
func minute() *world {
	x := newWorld(func(c *plan.Cell) { c.Workload.Measure = plan.Duration(time.Minute) })
	x.steady(time.Minute)
	return x
}

// live passes a run to a sink as it happens: one snapshot per second.
func live(x *world, s *Sink) {
	s.Begin(x.run)
	s.Start(x.start())
	for i, snapshot := range x.snapshots {
		if i%len(x.agents) == 0 {
			time.Sleep(time.Second)
		}
		s.Snapshot(snapshot)
	}
	s.Outcome(x.outcome(), Start{})
	s.End(began.Add(21*time.Second), "done")
}

// took runs f and returns its duration in virtual time.
func took(f func()) time.Duration {
	before := time.Now()
	f()
	return time.Since(before)
}

// TestAwayAndBack proves that points stay in the queue while InfluxDB is unavailable, and are written in order
// afterwards. Each change is logged once.
func TestAwayAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(40 * time.Second)
		db := &memoryInflux{answer: func(r *http.Request, n int) (*http.Response, error) {
			if time.Now().After(back) {
				return nil, nil
			}
			return unavailable(r, n)
		}}
		var log bytes.Buffer
		x, s := minute(), db.open(t, Tuning{}, slog.New(slog.NewTextHandler(&log, nil)))
		live(x, s)
		d := s.Close(t.Context())
		if want := lines(t, x.stream()); !slices.Equal(db.lines, want) || d.Written != int64(len(want)) ||
			d.Points != d.Written || d.Retries == 0 {
			t.Errorf("%d lines came, want %d in their order; delivered %+v", len(db.lines), len(want), d)
		}
		if words := log.String(); strings.Count(words, "cannot write points to InfluxDB") != 1 ||
			strings.Count(words, "writing points to InfluxDB again") != 1 {
			t.Errorf("the log is %q, want one line for each change", words)
		}
	})
}

// TestPauses proves that the pause between retries doubles up to MaxPause, and that Retry-After extends it at most to
// MaxPause.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		db := &memoryInflux{answer: func(r *http.Request, n int) (*http.Response, error) {
			at = append(at, time.Now())
			if n > 6 {
				return nil, nil
			}
			answer, err := unavailable(r, n)
			if n == 4 {
				answer.Header.Set("Retry-After", "7000")
			}
			answer.StatusCode = []int{429, 503, 500, 408, 504, 502}[n-1]
			return answer, err
		}}
		s := db.open(t, Tuning{MinPause: time.Second, MaxPause: 10 * time.Second, Patience: time.Minute}, nil)
		feed(steadyWorld(), s)
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		d := s.Close(t.Context())
		if d.Written != d.Points || d.Retries != 6 || !strings.HasPrefix(d.LastError, "HTTP 502") {
			t.Errorf("delivered %+v, want all after six retries", d)
		}
		for i, want := range []time.Duration{1, 2, 4, 10, 10, 10} {
			if pause := at[i+1].Sub(at[i]); pause != want*time.Second {
				t.Errorf("pause %d is %v, want %d s", i+1, pause, want)
			}
		}
	})
}

// TestQueueIsBounded proves that the queue accepts points without waiting until it is full. More points are dropped and
// counted, and Close waits at most for Flush.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &memoryInflux{answer: silent}
		tune := Tuning{Queue: 15, Linger: time.Second, Request: 7 * time.Second, Flush: 5 * time.Second}
		s, x := db.open(t, tune, nil), steadyWorld()
		s.Begin(x.run)
		time.Sleep(2 * time.Second) // one point is in a request without a response
		if waited := took(func() { feed(x, s) }); waited != 0 {
			t.Errorf("handing over took %v", waited)
		}
		var d plan.Delivery
		if waited := took(func() { d = s.Close(t.Context()) }); waited != tune.Flush {
			t.Errorf("Close took %v, want %v", waited, tune.Flush)
		}
		made := int64(len(x.stream()) + 1)
		if d.Points != made || d.Written != 0 || d.Dropped != made || d.Why[whyLate] != 1+15 ||
			d.Why[whyFull] != made-1-15 || !strings.Contains(d.LastError, "no response") {
			t.Errorf("delivered %+v, want %d points dropped, all but 16 as the queue was full", d, made)
		}
	})
}

// endless is a body without an end. drip is a body that sends one byte per second.
type (
	endless struct{}
	drip    struct{ *http.Request }
)

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		return copy(p, "."), nil
	case <-d.Context().Done():
		return 0, d.Context().Err()
	}
}

// TestInfluxNeverSlowsARun proves that for any behaviour of InfluxDB, passing points takes no time, Close takes at most
// Flush, and every point is counted.
func TestInfluxNeverSlowsARun(t *testing.T) {
	for name, answer := range map[string]func(*http.Request, int) (*http.Response, error){
		"silent": silent,
		"unreachable": func(*http.Request, int) (*http.Response, error) {
			return nil,
				errors.New("connection refused")
		},
		"endless": func(*http.Request, int) (*http.Response, error) {
			return respond(http.StatusBadRequest, endless{}), nil
		},
		"drip": func(r *http.Request, _ int) (*http.Response, error) {
			return respond(http.StatusBadRequest, drip{r}), nil
		},
		"full": func(r *http.Request, n int) (*http.Response, error) {
			answer, err := unavailable(r, n)
			answer.Header.Set("Retry-After", "3600")
			return answer, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &memoryInflux{answer: answer}
				s, x := db.open(t, Tuning{Queue: 10}, nil), steadyWorld()
				if waited := took(func() { feed(x, s) }); waited != 0 {
					t.Errorf("handing over took %v", waited)
				}
				time.Sleep(20 * time.Second)
				feed(x, s)
				var d plan.Delivery
				if waited := took(func() { d = s.Close(t.Context()) }); waited > 5*time.Second {
					t.Errorf("Close took %v, want 5 s at most", waited)
				}
				made := int64(2 * len(x.stream()))
				if d.Points != made || d.Dropped != made || d.Why[whyFull] == 0 || d.LastError == "" {
					t.Errorf("delivered %+v, want all %d dropped, some by the queue", d, made)
				}
			})
		})
	}
}

// TestCloseEndsWithItsContext proves that Close stops waiting when its context ends.
func TestCloseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &memoryInflux{answer: silent}
		s := db.open(t, Tuning{Flush: time.Hour, Request: time.Hour}, nil)
		feed(steadyWorld(), s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var d plan.Delivery
		if waited := took(func() { d = s.Close(ctx) }); waited != time.Minute || d.Dropped != d.Points ||
			d.Points == 0 {
			t.Errorf("after %v delivered %+v, want all dropped after a minute", waited, d)
		}
		if again := s.Close(t.Context()); again.Points != d.Points {
			t.Errorf("closing again says %+v", again)
		}
	})
}

// TestAwaitSpace proves that a caller that is faster than InfluxDB waits and loses no points, and that it stops waiting
// for an InfluxDB that accepts none.
func TestAwaitSpace(t *testing.T) {
	feedAll := func(ctx context.Context, s *Sink) error {
		x := minute()
		s.Begin(x.run)
		s.Start(x.start())
		for _, snapshot := range x.snapshots {
			if err := s.AwaitSpace(ctx); err != nil {
				return err
			}
			s.Snapshot(snapshot)
		}
		return nil
	}
	tune := Tuning{Queue: 20, Batch: 5}
	synctest.Test(t, func(t *testing.T) {
		slow := &memoryInflux{answer: func(*http.Request, int) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return nil, nil
		}}
		s := slow.open(t, tune, nil)
		if err := errors.Join(feedAll(t.Context(), s), s.Drain(t.Context())); err != nil {
			t.Error(err)
		}
		if d := s.Close(t.Context()); d.Dropped != 0 || d.Written < 100 {
			t.Errorf("delivered %+v, want all", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := (&memoryInflux{answer: unavailable}).open(t, tune, nil)
		var err error
		if waited := took(func() { err = feedAll(t.Context(), s) }); waited != 30*time.Second ||
			!errors.Is(err, ErrAway) || !strings.Contains(err.Error(), "503") {
			t.Errorf("after %v: %v; want to give up after 30 s without progress", waited, err)
		}
		s.Close(t.Context())
	})
	synctest.Test(t, func(t *testing.T) { // a fast InfluxDB, and an ended context
		s := (&memoryInflux{answer: func(*http.Request, int) (*http.Response, error) { return nil, nil }}).open(t, tune,
			nil)
		s.Begin(steadyWorld().run)
		time.Sleep(time.Minute)
		interrupted := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(interrupted)
		for name, wait := range map[string]func(context.Context) error{"AwaitSpace": s.AwaitSpace, "Drain": s.Drain} {
			if err := wait(ctx); !errors.Is(err, interrupted) {
				t.Errorf("%s returns %v, want the cause of the context", name, err)
			}
		}
		s.Close(t.Context())
	})
}

// TestReplay proves that a replay writes the points that were dropped while InfluxDB was unavailable, and has its own
// counts.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := true
		db := &memoryInflux{answer: func(r *http.Request, n int) (*http.Response, error) {
			if away {
				return unavailable(r, n)
			}
			return nil, nil
		}}
		x, counters := steadyWorld(), &Counters{}
		want := int64(len(x.stream()))
		s := db.open(t, Tuning{}, nil)
		s.Count(counters)
		feed(x, s)
		if d := s.Close(t.Context()); d.Dropped != want || d.Points != want || d.Replayed {
			t.Errorf("delivered %+v, want all %d dropped", d, want)
		}
		replay := func() plan.Delivery {
			again := s.ForReplay(time.Minute)
			feed(x, again)
			return again.Close(t.Context())
		}
		if d := replay(); d.Left != want || d.Points != want || d.Dropped != 0 || !d.Replayed ||
			d.Why[whyLate] != want {
			t.Errorf("the replay in vain delivered %+v, want all %d left", d, want)
		}
		away = false
		if d := replay(); d.Written != want || d.Points != want || d.Left != 0 || !d.Replayed {
			t.Errorf("the replay delivered %+v, want all %d written", d, want)
		}
		if !slices.Equal(db.lines, lines(t, x.stream())) {
			t.Errorf("%d lines came, not the %d of the run", len(db.lines), want)
		}
		if written, dropped, left := counters.Points(); written != want || dropped != want || left != want {
			t.Errorf("counted %d written, %d dropped and %d left, want %d each", written, dropped, left, want)
		}
	})
}
