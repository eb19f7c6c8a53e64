package engine

import (
	"bytes"
	"compress/flate"
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/clock"
	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/record"
	"example.org/lockstep/lockstep/pkg/drivers"
)

// newFillingPublisher returns a publisher that creates bodies without sending them.
func newFillingPublisher(t *testing.T, m plan.Message) *publisher {
	t.Helper()
	for _, s := range m.Sizes {
		m.Size = max(m.Size, s.Max)
	}
	w := plan.Default()
	w.Message, w.Publishers.Mode = m, "fire-and-forget"
	e,
		err := New(Config{Assignment: plan.Assignment{Task: plan.Task{Run: "r", ID: t.Name(),
		Cell: plan.Cell{Workload: w}},
		Publishers: plan.Share{Count: 2, Total: 2}}, Access: drivers.FullAccess()})
	if err != nil {
		t.Fatal(err)
	}
	return e.publishers[1]
}

// prepare returns the next message as it is passed to the driver.
func (p *publisher) prepare() []byte {
	body := p.fill(p.body)
	put(body, p.payloadSum, p.sequence, 1, 2, p.e.correction.Load())
	return body
}

// next returns the publisher's next body and verifies it.
func (p *publisher) nextBody(t *testing.T) []byte {
	t.Helper()
	body := p.prepare()
	if got, err := open(body, p.e.task); err != nil || got.sequence != p.sequence {
		t.Fatalf("open body %d of %d bytes: got sequence %d, error %v", p.sequence, len(body), got.sequence, err)
	}
	p.sequence++
	return body
}

// Sizes have the frequencies of their weights, uniformly within a range. Every body verifies, up to a size of several
// strides.
func TestSizesAreDrawnByWeight(t *testing.T) {
	const n = 200_000
	p := newFillingPublisher(t, plan.Message{Sizes: []plan.SizeShare{{Min: 100, Max: 100, Weight: 90},
		{Min: 200, Max: 299, Weight: 9},
		{Min: 20_000, Max: 20_000, Weight: 1}}})
	var count [3]int
	var within [100]int
	for range n {
		switch size := len(p.nextBody(t)); {
		case size == 100:
			count[0]++
		case size >= 200 && size < 300:
			count[1]++
			within[size-200]++
		case size == 20_000:
			count[2]++
		default:
			t.Fatalf("got size %d, which is not configured", size)
		}
	}
	for i, share := range []float64{0.9, 0.09, 0.01} {
		checkShare(t, "share", count[i], n, share)
	}
	for _, got := range within {
		checkShare(t, "size within a share", got, n, 0.0009)
	}
}

// checkShare permits five standard deviations of a count.
func checkShare(t *testing.T, name string, got, n int, share float64) {
	t.Helper()
	want, sigma := share*float64(n), math.Sqrt(float64(n)*share*(1-share))
	if math.Abs(float64(got)-want) > 5*sigma {
		t.Errorf("%s: got %d of %d, want %.0f ± %.0f", name, got, n, want, 5*sigma)
	}
}

// The repeated part of a payload is compressible: within one body and across bodies.
func TestCompressiblePayloads(t *testing.T) {
	for _, repeat := range []float64{0, 0.25, 0.5, 0.9, 1} {
		p := newFillingPublisher(t, plan.Message{Size: 4096, Payload: plan.Payload{Kind: plan.PayloadCompressible,
			Repeat: repeat}})
		var all []byte
		for range 30 {
			payload := p.nextBody(t)[EnvelopeSize:]
			if got := compressionRatio(payload); math.Abs(got-(1-repeat)) > 0.02 {
				t.Errorf("repeat %v: compression ratio of a body: got %.3f, want %.3f", repeat, got, 1-repeat)
			}
			all = append(all, payload...)
		}
		if got := compressionRatio(all); math.Abs(got-(1-repeat)) > 0.02 {
			t.Errorf("repeat %v: compression ratio of 30 bodies: got %.3f, want %.3f", repeat, got, 1-repeat)
		}
	}
}

// compressionRatio returns the compression ratio of b with flate.
func compressionRatio(b []byte) float64 {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestCompression) // fails only for an invalid level
	_, _ = w.Write(b)
	_ = w.Close()
	return float64(out.Len()) / float64(len(b))
}

// Bodies are consecutive parts of a file. It starts again at the beginning if the rest is too short.
func TestPayloadFile(t *testing.T) {
	content := make([]byte, 2500)
	rand.NewChaCha8([32]byte{1}).Read(content)
	path := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	m := plan.Message{Size: EnvelopeSize + 1000, Payload: plan.Payload{Kind: plan.PayloadFile, File: path}}
	p := newFillingPublisher(t, m)
	for i, from := range []int{0, 1000, 0, 1000} {
		if got := p.nextBody(t)[EnvelopeSize:]; !bytes.Equal(got, content[from:from+1000]) {
			t.Errorf("body %d differs from the file from byte %d", i, from)
		}
	}
	for name, test := range map[string]struct {
		size int
		file string
		want []string // parts of the error
	}{
		"missing":   {1000, path + ".not", []string{path + ".not", "no such file"}},
		"too small": {EnvelopeSize + 2501, path, []string{path, "2500 bytes", "takes 2501"}},
		"folder":    {1000, filepath.Dir(path), []string{filepath.Dir(path), "not a regular file"}},
	} {
		w := plan.Default()
		w.Message = plan.Message{Size: test.size, Payload: plan.Payload{Kind: plan.PayloadFile, File: test.file}}
		_, err := New(Config{Assignment: plan.Assignment{Task: plan.Task{Cell: plan.Cell{Workload: w}},
			Publishers: plan.Share{Count: 1, Total: 1}},
			Access: drivers.FullAccess()})
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %q", name, err, want)
			}
		}
	}
}

// Without permission, a payload file is not read, and the error does not reveal whether it exists.
func TestPayloadFileNeedsAccess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(path, make([]byte, 2500), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + ".not"} {
		w := plan.Default()
		w.Message = plan.Message{Size: EnvelopeSize + 1000, Payload: plan.Payload{Kind: plan.PayloadFile, File: file}}
		_, err := New(Config{Assignment: plan.Assignment{Task: plan.Task{Cell: plan.Cell{Workload: w}},
			Publishers: plan.Share{Count: 1, Total: 1}}})
		if err == nil || !strings.Contains(err.Error(), "file "+file+" may not be read") {
			t.Errorf("%s: got error %v, want \"may not be read\"", file, err)
		}
	}
}

// Every mode sends bodies of all sizes, which arrive intact, and both sides count each byte.
func TestSizesInEveryMode(t *testing.T) {
	for _, mode := range drivers.Modes() {
		for _, kind := range []string{plan.PayloadRandom, plan.PayloadCompressible} {
			t.Run(string(mode)+" "+kind, func(t *testing.T) {
				s := newTestTask(t, func(w *plan.Workload) {
					w.Publishers.Mode, w.Publishers.Threads, w.Publishers.Count,
						w.Publishers.MaxInFlight = string(mode), 2, 300, 20
					w.Message.Size, w.Message.Sizes = 9000, []plan.SizeShare{{Min: 64, Max: 9000, Weight: 1}}
					w.Message.Payload.Kind = kind
				})
				m := s.run(t.Context())
				accounting := m.Accounting(1)
				if accounting.Missing != 0 || accounting.Corrupt != 0 || accounting.Sent < 600 {
					t.Errorf("accounting: got %+v, want at least 600 sent, all received, none corrupt", accounting)
				}
				sent, received := m.Total(record.SentBytes), m.Total(record.ReceivedBytes)
				if mean := float64(sent) / float64(accounting.Sent); sent != received || mean < 4000 || mean > 5060 {
					t.Errorf("got %d bytes sent, %d received, mean %.0f, want equal numbers, mean about 4532", sent,
						received, mean)
				}
			})
		}
	}
}

// readingPublisher is a publisher that only reads its messages.
type readingPublisher struct {
	instantPublisher
	read func(drivers.Message)
}

func (r readingPublisher) Publish(_ context.Context, m drivers.Message) error { r.read(m); return nil }

// The payload is created before the send time is read. The time from then to the driver's call is at most half of the
// time that it takes to create a payload.
func TestPayloadsAreMadeBeforeTheSendTime(t *testing.T) {
	w := plan.Default()
	w.Publishers.Mode, w.Publishers.Count, w.Warmup, w.Measure = "fire-and-forget", 20, 0, plan.Duration(10*time.Minute)
	w.Message.Size, w.Message.Payload = 8<<20, plan.Payload{Kind: plan.PayloadCompressible, Repeat: 0.5}
	var e *Engine
	shortest := int64(math.MaxInt64)
	session := fakeSession{publisher: func(drivers.PublisherSpec) drivers.Publisher {
		return readingPublisher{read: func(m drivers.Message) {
			now := e.timeline.now()
			env, err := open(m.Body, e.task)
			if err != nil {
				t.Error(err)
			}
			shortest = min(shortest, now-env.send)
		}}
	}}
	e, err := New(Config{Assignment: plan.Assignment{Task: plan.Task{Run: "r", ID: t.Name(),
		Cell: plan.Cell{Workload: w}}, Publishers: plan.Share{Count: 1, Total: 1}}, Session: session,
		Access: drivers.FullAccess(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return e.ConnectPublishers(t.Context()) },
		func() error { return e.Run(t.Context(), clock.Now()) },
		func() error { return e.Close(t.Context()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	takes := int64(math.MaxInt64)
	for range 20 {
		begin := clock.Now()
		e.publishers[0].fill(e.publishers[0].body)
		takes = min(takes, clock.Now()-begin)
	}
	if shortest > takes/2 {
		t.Errorf("time from the send time to the driver's call: got %v, want at most half of %v, which a payload takes",
			time.Duration(shortest), time.Duration(takes))
	}
}

// Sizes, payloads and keys cause no allocation.
func TestPayloadsDoNotAllocate(t *testing.T) {
	p := newFillingPublisher(t, plan.Message{Sizes: []plan.SizeShare{{Min: 64, Max: 2000, Weight: 1}, {Min: 64, Max: 64,
		Weight: 1}},
		Payload: plan.Payload{Kind: plan.PayloadCompressible, Repeat: 0.5}, Keys: plan.Keys{Count: 100, Skew: 1}})
	if n := testing.AllocsPerRun(1000, func() {
		p.prepare()
		p.e.keys.key(p.sequence,
			&p.keyDraws)
	}); n != 0 {
		t.Errorf("got %v allocations per message, want 0", n)
	}
}

func BenchmarkPrepare(b *testing.B) {
	for name, m := range map[string]plan.Message{
		"same": {Size: 100},
		"sizes": {Size: 1000, Sizes: []plan.SizeShare{{Min: 100, Max: 1000, Weight: 9},
			{Min: 100, Max: 100, Weight: 1}}},
		"compressible": {Size: 1000, Payload: plan.Payload{Kind: plan.PayloadCompressible, Repeat: 0.5}},
		"keys":         {Size: 100, Keys: plan.Keys{Count: 1_000_000, Skew: 1}},
	} {
		b.Run(name, func(b *testing.B) {
			w := plan.Default()
			w.Message, w.Publishers.Mode = m, "fire-and-forget"
			e, err := New(Config{Assignment: plan.Assignment{Task: plan.Task{Cell: plan.Cell{Workload: w}},
				Publishers: plan.Share{Count: 1, Total: 1}},
				Access: drivers.FullAccess()})
			if err != nil {
				b.Fatal(err)
			}
			p := e.publishers[0]
			b.ReportAllocs()
			for b.Loop() {
				p.prepare()
				sink += int64(p.e.keys.key(p.sequence, &p.keyDraws))
			}
		})
	}
}
