package accuracy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/cli"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/runs"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// matrix returns a matrix of one cell in CUE.
func matrix(driver, options, cell string) string {
	return fmt.Sprintf("package matrix\nname: \"truth\"\nbrokers: known: {driver: %q, options: %s}\ncell: {%s}\n",
		driver, options, cell)
}

// program executes a matrix of one cell with ctl: controller, agents, wire, record, judgement. during, if set, is
// called meanwhile with the folder of runs.
func program(t *testing.T, matrix string, during func(folder string)) measured {
	t.Helper()
	return programEnds(t, cli.ExitOK, matrix, during)
}

// programEnds is program with the expected exit code of ctl.
func programEnds(t *testing.T, want int, matrix string, during func(folder string)) measured {
	t.Helper()
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "matrix.cue"), filepath.Join(dir, "runs")
	if err := os.WriteFile(file, []byte(matrix), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	var wait sync.WaitGroup
	if during != nil {
		wait.Go(func() { during(folder) })
	}
	code := cli.Ctl(t.Context(), []string{"run", "--runs", folder, file}, nil, &out, &out)
	wait.Wait()
	if code != want {
		t.Fatalf("ctl exited with %d, want %d:\n%s", code, want, out.String())
	}
	r, err := runs.Open(folder, "latest")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	outcomes, err := r.Outcomes()
	if err != nil || len(outcomes) != 1 {
		t.Fatalf("%d outcomes, %v; want one", len(outcomes), err)
	}
	m, err := r.Record(outcomes[0].Task)
	if err != nil {
		t.Fatal(err)
	}
	return measured{outcomes[0], m, r.Plan().Cells[0].Workload}
}

// stamps are loopback's time stamps of every message, the ground truth of a run in real time.
type stamps struct {
	sync.Mutex
	began    time.Time
	messages []message
	out      map[[2]uint64]int // accepted but unconfirmed messages, by publisher and token
	byNumber map[[2]uint64]int // by the envelope's publisher and sequence number
}

// message has times in nanoseconds since stamps.began. Those of the envelope count from the beginning of the
// measurement.
type message struct {
	publisher                      uint64
	accepted, confirmed, delivered int64
	due, send                      int64
}

func newStamps() *stamps {
	return &stamps{began: time.Now(), messages: make([]message, 0, 1<<16), out: map[[2]uint64]int{},
		byNumber: map[[2]uint64]int{}}
}

// watch records the stamps of a loopback until the end of the test.
func watch(t *testing.T, broker string) *stamps {
	s := newStamps()
	t.Cleanup(loopback.Tap(broker, s.take))
	return s
}

func (s *stamps) take(x loopback.Stamp) {
	at := int64(x.At.Sub(s.began))
	s.Lock()
	defer s.Unlock()
	switch x.Kind {
	case loopback.Accepted:
		n := len(s.messages)
		s.messages = append(s.messages, message{publisher: x.Publisher, accepted: at,
			due: int64(binary.LittleEndian.Uint64(x.Body[24:])), send: int64(binary.LittleEndian.Uint64(x.Body[32:]))})
		s.out[[2]uint64{x.Publisher, x.Token}], s.byNumber[numberOf(x.Body)] = n, n
	case loopback.Confirmed:
		s.messages[s.out[[2]uint64{x.Publisher, x.Token}]].confirmed = at
	case loopback.Delivered:
		if n, has := s.byNumber[numberOf(x.Body)]; has && s.messages[n].delivered == 0 {
			s.messages[n].delivered = at
		}
	}
}

// numberOf returns the publisher and the sequence number of the envelope.
func numberOf(body []byte) [2]uint64 {
	return [2]uint64{uint64(binary.LittleEndian.Uint32(body[4:])), binary.LittleEndian.Uint64(body[16:])}
}

// measured returns the messages that are due in the measurement, with due and send on the clock of the stamps. Its
// offset is the minimum difference between a message's send time, read by the engine, and its acceptance, stamped here.
// The error is some hundred nanoseconds.
func (s *stamps) measured(measure time.Duration) []message {
	s.Lock()
	defer s.Unlock()
	origin := int64(math.MaxInt64)
	for _, m := range s.messages {
		origin = min(origin, m.accepted-m.send)
	}
	var some []message
	for _, m := range s.messages {
		if m.due >= 0 && m.due < int64(measure) {
			m.due, m.send = m.due+origin, m.send+origin
			some = append(some, m)
		}
	}
	return some
}

func (m message) sendLatency() time.Duration       { return time.Duration(m.confirmed - m.accepted) }
func (m message) sendDueLatency() time.Duration    { return time.Duration(m.confirmed - m.due) }
func (m message) processingLatency() time.Duration { return time.Duration(m.delivered - m.due) }

// sorted returns the sorted latencies of messages.
func sorted(messages []message, latency func(message) time.Duration) []time.Duration {
	all := make([]time.Duration, len(messages))
	for i, m := range messages {
		all[i] = latency(m)
	}
	slices.Sort(all)
	return all
}

// apart estimates the difference between the clock readings of the engine and of the stamps for one message, in
// seconds: twice the 90 % quantile of the time from the send time to the acceptance, once per end of a latency.
func apart(messages []message) float64 {
	return 2 * quantile(sorted(messages, func(m message) time.Duration { return time.Duration(m.accepted - m.send) }),
		0.9)
}

// stamped compares latencies with the stamps of every message, within 1 % or one bucket. It leaves out quantiles above
// p99, because a preemption between two stamps would affect them. apart is the difference of the clock readings in
// seconds. ranks is the allowed error of a quantile's rank, as a fraction: goroutines of a real broker's client run
// between the two readings, and change the order of a few messages.
func (m measured) stamped(t *testing.T, truth string, messages []message, apart, ranks float64) {
	t.Helper()
	for _, r := range m.againstStamps(truth, messages, apart, ranks) {
		check(t, r)
	}
}

// againstStamps returns the rows of stamped. A missing value is NaN.
func (m measured) againstStamps(truth string, messages []message, apart, ranks float64) []row {
	var rows []row
	for _, x := range []struct {
		value   string
		latency func(message) time.Duration
	}{{"publish", message.sendLatency}, {"publish.intended", message.sendDueLatency},
		{"e2e", message.processingLatency}} {
		all := sorted(messages, x.latency)
		for _, q := range plan.Quantiles() {
			if q.Q > 0.99 {
				continue
			}
			r := row{truth: truth, value: x.value + "." + q.Name, want: quantile(all, q.Q), got: math.NaN(),
				unit: plan.Seconds}
			if v, has := m.Values[r.value]; has && v.NA == "" {
				r.got = v.Number
			}
			near := max(quantile(all, q.Q+ranks)-r.want, r.want-quantile(all, q.Q-ranks))
			r.bound = max(0.01*r.want, bucket(r.want), near) + apart
			rows = append(rows, r)
		}
	}
	return rows
}

// In real time, with controller, wire and record, latencies agree with loopback's stamps. The engine and loopback read
// the clock some hundred nanoseconds apart. That is far below 1 % of some milliseconds.
func TestAccuracyOfTheWholeProgram(t *testing.T) {
	for _, x := range []struct{ truth, options string }{
		{"real time, exponential, mean 10 ms", `{delay: {mean: "10ms"}, confirmDelay: {mean: "10ms"}}`},
		{"real time, uniform 2–20 ms", `{delay: {min: "2ms", max: "20ms"}, confirmDelay: {min: "2ms", max: "20ms"}}`},
		{"real time, stall of 700 ms", `{delay: "3ms", confirmDelay: "3ms", stalls: [{at: "1500ms", for: "700ms"}]}`},
	} {
		t.Run(x.truth, func(t *testing.T) {
			for _, r := range watched(t, x.truth, x.options, t.Name()) {
				check(t, r)
			}
		})
	}
}

// watched publishes 1,000 messages per second to a loopback with these options, and compares the values with its
// stamps.
func watched(t *testing.T, truth, options, name string) []row {
	t.Helper()
	const measure = 4 * time.Second
	s := watch(t, name)
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	m := program(t, matrix("loopback", options+`&{name: `+string(quoted)+`}`,
		`publishers: {rate: 1000, threads: 2, maxInFlight: 10_000}, consumers: {batch: 1}, warmup: "1s", measure: "4s", drain: idle: "2s"`), nil)
	messages := s.measured(measure)
	sent := row{truth: truth, value: "sent", want: float64(len(s.messages)), got: m.number(t, "sent"), unit: plan.Count}
	return append([]row{sent}, m.againstStamps(truth, messages, apart(messages), 0)...)
}
