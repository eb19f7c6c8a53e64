package sink

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

const secret = "s3cret-token/+="

// quick is a tuning for tests with a real network: pauses are some milliseconds.
var quick = Tuning{Linger: 5 * time.Millisecond, Request: 2 * time.Minute, Flush: 2 * time.Minute,
	MinPause: 5 * time.Millisecond, MaxPause: 20 * time.Millisecond}

func targetOf(t testing.TB, url string) Target {
	t.Helper()
	to, err := Resolve(plan.Influx{URL: url, Org: "bench", Bucket: "lock step", Token: "${file:/token}"},
		fakeHost{secret})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// server responds to writes as answer defines, and stores the accepted points.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	lines []string
	asked int
}

func serve(t *testing.T, answer func(n int, w http.ResponseWriter) (taken bool)) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.Method != http.MethodPost || r.URL.Path != "/api/v2/write" || q.Get("org") != "bench" ||
			q.Get("bucket") != "lock step" || q.Get("precision") != "ns" {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		if got := r.Header.Get("Authorization"); got != "Token "+secret {
			t.Errorf("authorised with %q", got)
		}
		if got := r.Header.Get("Content-Encoding"); got != "gzip" {
			t.Errorf("the body is %q, want gzip", got)
		}
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			return // the client gave up
		}
		text, err := io.ReadAll(body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.asked++
		n := s.asked
		s.mu.Unlock()
		if answer == nil || answer(n, w) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.lines = append(s.lines, strings.Split(strings.TrimSpace(string(text)), "\n")...)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// run passes a whole world to a sink and closes it.
func run(t *testing.T, x *world, s *Sink) plan.Delivery {
	t.Helper()
	feed(x, s)
	d := s.Close(t.Context())
	if d.Points != d.Written+d.Dropped {
		t.Errorf("%d points, but %d written and %d dropped", d.Points, d.Written, d.Dropped)
	}
	sum := int64(0)
	for _, n := range d.Why {
		sum += n
	}
	if sum != d.Dropped || d.Points == 0 || d.Ended.IsZero() {
		t.Errorf("the account is %+v", d)
	}
	return d
}

func feed(x *world, s *Sink) {
	s.Begin(x.run)
	s.Start(x.start())
	for _, snapshot := range x.snapshots {
		s.Snapshot(snapshot)
	}
	s.Outcome(x.outcome(), Start{})
	s.End(began.Add(21*time.Second), "done")
}

func steadyWorld() *world {
	x := newWorld(nil)
	x.steady(5 * time.Second)
	return x
}

func TestAllArrives(t *testing.T) {
	db, x := serve(t, nil), steadyWorld()
	d := run(t, x, Open(targetOf(t, db.URL+"/"), quick, "test", nil))
	want := lines(t, x.stream())
	if d.Written != int64(len(want)) || d.Dropped != 0 || d.Retries != 0 || d.LastError != "" || d.End != "done" ||
		d.URL != db.URL || d.Bucket != "lock step" {
		t.Errorf("delivered %+v, want all of %d", d, len(want))
	}
	if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(db.lines)), want) {
		t.Errorf("%d lines arrived, want the %d of the stream", len(db.lines), len(want))
	}
}

func TestBatches(t *testing.T) {
	db := serve(t, nil)
	tune := quick
	tune.Batch, tune.Linger = 10, time.Hour
	s := Open(targetOf(t, db.URL), tune, "test", nil)
	d := run(t, steadyWorld(), s)
	if want := int(d.Points+9) / 10; db.asked != want {
		t.Errorf("%d points went in %d requests, want %d of ten", d.Points, db.asked, want)
	}
}

// TestWhatIsRefused proves that rejected points are counted by InfluxDB's error.
func TestWhatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		status    int
		answer    string
		why, last string
		written   int64
	}{
		"token": {401, `{"code":"unauthorized","message":"unauthorized access"}`, "rejected: 401 Unauthorized",
			"unauthorized access", 0},
		"bucket": {404, `{"code":"not found","message":"bucket \"lock step\" not found"}`, "rejected: 404 Not Found",
			"not found", 0},
		"echo": {400, `{"code":"invalid","message":"what is ` + secret + `?"}`, "rejected: 400 Bad Request",
			"what is ***?", 0},
		"conflict": {422,
			`{"code":"unprocessable entity","message":"failure writing points to database: partial write: field type conflict: x dropped=3"}`, "rejected: 422 Unprocessable Entity", "field type conflict", -3},
		"page":  {200, `<html>welcome</html>`, "rejected: not an InfluxDB", "the server is not InfluxDB", 0},
		"moved": {302, ``, "rejected: 302 Found", "302", 0},
	} {
		t.Run(name, func(t *testing.T) {
			db := serve(t, func(_ int, w http.ResponseWriter) bool {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.answer)
				return false
			})
			x := steadyWorld()
			tune := quick
			tune.Linger = time.Hour // one batch
			d := run(t, x, Open(targetOf(t, db.URL), tune, "test", nil))
			want := c.written
			if want < 0 {
				want += d.Points
			}
			if d.Written != want || d.Why[c.why] != d.Points-want || !strings.Contains(d.LastError, c.last) ||
				d.Retries != 0 {
				t.Errorf("delivered %+v, want %d written, the rest %q, last error %q", d, want, c.why, c.last)
			}
			if text, _ := json.Marshal(d); bytes.Contains(text, []byte(secret)) {
				t.Errorf("the token is in %s", text)
			}
		})
	}
}

// TestCloseSendsWhatWaits proves that Close writes the queued points.
func TestCloseSendsWhatWaits(t *testing.T) {
	db := serve(t, func(n int, w http.ResponseWriter) bool {
		time.Sleep(50 * time.Millisecond)
		return true
	})
	tune := quick
	tune.Linger, tune.Batch = time.Hour, 15
	if d := run(t, steadyWorld(), Open(targetOf(t, db.URL), tune, "test", nil)); d.Dropped != 0 {
		t.Errorf("delivered %+v", d)
	}
}

func TestNilSinkDoesNothing(t *testing.T) {
	var s *Sink
	feed(steadyWorld(), s)
	s.GiveUp("x", began, "")
	if d := s.Close(t.Context()); d.Points != 0 {
		t.Errorf("delivered %+v", d)
	}
}

func TestImpossibleTimesAreCounted(t *testing.T) {
	db, x := serve(t, nil), steadyWorld()
	x.run.Started = time.Time{}
	if d := run(t, x, Open(targetOf(t, db.URL), quick, "test", nil)); d.Why[whyTime] != 1 || d.Written != d.Points-1 {
		t.Errorf("delivered %+v, want one without a time", d)
	}
}

// TestTargetsPrintWithoutTheToken proves that no format prints the token.
func TestTargetsPrintWithoutTheToken(t *testing.T) {
	to := targetOf(t, "http://h:8086")
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "target", to)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "target", to)
	all := fmt.Sprintf("%v %+v %#v %s %s", to, to, to, to, log.String())
	if strings.Contains(all, "s3cret") || !strings.Contains(all, "http://h:8086 bucket lock step") {
		t.Errorf("prints %s", all)
	}
}

// TestRemarks proves that findings about a run are events at its beginning, and the same points if written again.
func TestRemarks(t *testing.T) {
	db := serve(t, nil)
	began := time.Unix(1767225600, 0)
	for range 2 {
		s := Open(targetOf(t, db.URL), Tuning{}, "test", nil)
		s.Remark(plan.Run{ID: "r1", Name: "nightly", Started: began},
			[]Remark{{"worse", "m=1: publish rate 10 → 8"}, {"rule", "p99 < 20ms"}})
		if d := s.Close(t.Context()); d.Written != 2 {
			t.Fatalf("written: %+v", d)
		}
	}
	want := []string{`lockstep_event,kind=worse,matrix=nightly,run=r1 text="m=1: publish rate 10 → 8" 1767225600000000000`,
		`lockstep_event,kind=rule,matrix=nightly,run=r1 text="p99 < 20ms" 1767225600000000001`}
	if !slices.Equal(db.lines, append(slices.Clone(want), want...)) {
		t.Errorf("the lines are\n%s", strings.Join(db.lines, "\n"))
	}
}
