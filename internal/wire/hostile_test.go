package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/internal/wire/lease"
	"example.org/lockstep/lockstep/internal/wire/subject"
	"example.org/lockstep/lockstep/test/wiretest"
)

// TestACompressedMessageIsBounded proves that a message that would expand beyond the limit does not use that memory.
func TestACompressedMessageIsBounded(t *testing.T) {
	b := gzipped(t, []byte(`{"run":{"id":"`))
	// 1 GiB: compressed parts expand as one
	b = append(b, bytes.Repeat(gzipped(t, bytes.Repeat([]byte("a"), 1<<20)), 1<<10)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var s Submission
	err := unzip(b, "the client", &s)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, plan.ErrTooLarge) {
		t.Errorf("a message of 1 GiB in %d bytes: %v: want ErrTooLarge", len(b), err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8*plan.MaxDocument {
		t.Errorf("%d MiB were allocated to refuse it", grown>>20)
	}
}

// TestCellsAreCountedBeforeTheyAreMade decodes a hundred thousand cells, each three bytes in JSON and a thousand in
// memory.
func TestCellsAreCountedBeforeTheyAreMade(t *testing.T) {
	b := gzipped(t, []byte(`{"run":{"id":"r","repeat":1,"cells":[{}`+strings.Repeat(",{}", 500_000)+`]}}`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := unzip(b, "the client", &Submission{})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, plan.ErrTooLarge) {
		t.Errorf("500,000 cells in %d bytes: %v: want ErrTooLarge", len(b), err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 100<<20 {
		t.Errorf("%d MiB were allocated to refuse it", grown>>20)
	}
}

func gzipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ours() nats.Header {
	h := nats.Header{}
	h.Set(headerProtocol, strconv.Itoa(plan.Protocol))
	return h
}

func TestHugeHeartbeatsAreRefused(t *testing.T) {
	s := plane(t, ServerConfig{})
	controller, agent := storeOf(t, s), link(t, s)
	took := make(chan Heartbeat, 10)
	stop, err := campaign(t, controller, "test").AnswerHeartbeats(func(h Heartbeat) (bool,
		error) {
		took <- h
		return false, nil
	}, func(Heartbeat, string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	m, err := agent.codec.encode(subject.Heartbeat("a1"),
		Heartbeat{Agent: "a1", Labels: map[string]string{"zone": strings.Repeat("x", 1<<20)}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := agent.nc.RequestMsg(m, hang)
	if err != nil {
		t.Fatal(err)
	}
	if text := answer.Header.Get(headerError); !strings.Contains(text, "exceeds the limit of") {
		t.Errorf("answer %q: want a refusal with the limit", text)
	}
	if len(took) > 0 {
		t.Error("a heartbeat of 1 MiB was kept")
	}
}

// FuzzMessages decodes any input as each kind of message. The result is an error or a value that can be encoded again.
func FuzzMessages(f *testing.F) {
	for _, text := range []string{``, `null`, `{}`, `[]`, `"x"`, `{"agent":"a1","offset":null}`,
		`{"run":{"cells":[{}],"repeat":1e99}}`, `{"start":{"c":-9223372036854775808}}`,
		`{"windows":[null]}`, `{"windows":[{"index":-1}]}`, `{"sets":[{"pages":"////"}]}`, `{"windows":[{},{},{}]}`,
		`{"events":[null,null,null,null]}`, `{"task":{"cell":{"broker":{"options":"x"}}}}`,
		`{"publishers":{"count":-1}}`,
		"\x1f\x8b\x08", strings.Repeat("[", 20000), `{"subject":{}}`, `{"step":"` + strings.Repeat("x", 100) + `"}`} {
		f.Add([]byte(text))
	}
	c := codec{protocol: plan.Protocol}
	f.Fuzz(func(t *testing.T, body []byte) {
		kinds := []any{&Submission{}, &Heartbeat{}, &HeartbeatAnswer{}, &Command{}, &Arrival{}, &snapshotReport{},
			&[]record.Snapshot{}, &RunEvent{}, &plan.Outcome{}, &plan.Run{}, &record.Snapshot{},
			&[]AgentInfo{}, &clockAnswer{}, &RunState{}, &lease.Holder{}}
		for _, v := range kinds {
			if err := c.decode(ours(), body, "anybody", v); err == nil {
				if _, err := json.Marshal(v); err != nil && !strings.Contains(err.Error(), "json:") {
					t.Errorf("%T: %v", v, err)
				}
			}
		}
		_ = unzip(body, "anybody", &Submission{})
		_, _ = subject.DecodeToken(string(body))
		var s record.Snapshot
		if c.decode(ours(), body, "anybody", &s) == nil {
			record.NewMerged().Add(s)
		}
	})
}

// An agent ignores a controller whose epoch is in the future, logs it once, and continues.
func TestEpochsOfTheFutureAreLogged(t *testing.T) {
	wiretest.InVirtualTime(t, func(t *testing.T) {
		s := plane(t, ServerConfig{})
		leader := leaderOf(t.Context(), storeOf(t, s), uint64(time.Now().Add(25*time.Hour).UnixMilli()))
		received := make(chan bool, 99)
		stop, err := leader.AnswerHeartbeats(func(Heartbeat) (bool, error) { received <- true; return false, nil }, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		log := &logged{}
		c := link(t, s)
		c.LogTo(slog.New(log))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- NewAgent(c).SendHeartbeats(ctx, func() Heartbeat { return Heartbeat{Agent: "a", Instance: "i"} }, nil)
		}()
		for range 3 {
			<-received
		}
		cancel()
		if err := <-ended; err != nil || len(log.lines) != 1 || !strings.Contains(log.lines[0], "ignored") {
			t.Errorf("%v, and the log has %q: want one line", err, log.lines)
		}
	})
}

// TestRefusalsOfAgentsAreBounded proves that the error of an agent, which outcomes and logs contain, is shortened.
func TestRefusalsOfAgentsAreBounded(t *testing.T) {
	s := plane(t, ServerConfig{})
	agent := link(t, s)
	sub, err := agent.nc.Subscribe(subject.Command("a"), func(m *nats.Msg) {
		answer := agent.codec.refusal(m.Reply, errors.New(""))
		answer.Header.Set(headerError, strings.Repeat("x", 1<<20))
		_ = agent.nc.PublishMsg(answer)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed at the end of the test
	if err := agent.flush(t.Context(), hang); err != nil {
		t.Fatal(err)
	}
	err = leaderOf(t.Context(), storeOf(t, s), 1).Command(t.Context(), "a", Command{})
	if err == nil || len(err.Error()) > 3000 {
		t.Errorf("the error has %d bytes: %.100v", len(err.Error()), err)
	}
}
