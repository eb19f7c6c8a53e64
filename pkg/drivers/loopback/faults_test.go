package loopback_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/loopback"
)

// account records the fate of the messages 0 … n-1 of one publisher.
type account struct {
	mu       sync.Mutex
	arrived  []int
	at       []time.Duration // arrival times
	confirms map[uint64]error
	when     map[uint64]time.Duration
	started  time.Time
}

// exchange publishes n messages in a mode and waits until nothing more arrives. It runs in a bubble, where that is
// certain.
func exchange(t *testing.T, options string, mode drivers.Mode, n int) *account {
	t.Helper()
	s, topology := open(t, options)
	a := &account{confirms: map[uint64]error{}, when: map[uint64]time.Duration{}, started: time.Now()}
	c := consume(t, s, drivers.ConsumerSpec{Topology: topology, Batch: 16, Ack: drivers.AckEach}, a.receive)
	spec := drivers.PublisherSpec{Topology: topology, Mode: mode, OnConfirms: a.confirm}
	p := publish(t, s, spec)
	for i := range n {
		body := binary.LittleEndian.AppendUint32(nil, uint32(i))
		if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i), Body: body}); err != nil {
			t.Fatal(err)
		}
		if mode == drivers.ConnectionPerMessageConfirm && i+1 < n {
			_ = p.Close()
			p = publish(t, s, spec)
		}
	}
	_ = p.Close()
	time.Sleep(time.Minute)
	synctest.Wait()
	_ = c.Close()
	return a
}

func (a *account) receive(ds []drivers.Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range ds {
		a.arrived = append(a.arrived, int(binary.LittleEndian.Uint32(d.Body)))
		a.at = append(a.at, time.Since(a.started))
	}
}

func (a *account) confirm(tokens []uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, token := range tokens {
		a.confirms[token], a.when[token] = err, time.Since(a.started)
	}
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestFaultsAreExact proves that the injected faults have the configured numbers. The tests of the ledger depend on it.
func TestFaultsAreExact(t *testing.T) {
	without := func(all []int, gone ...int) []int {
		return slices.DeleteFunc(all, func(i int) bool { return slices.Contains(gone, i) })
	}
	for _, test := range []struct {
		options  string
		mode     drivers.Mode
		want     []int
		rejected []int
	}{
		{``, drivers.ConfirmWindow, upTo(30), nil},
		{`,"lose":10`, drivers.ConfirmWindow, without(upTo(30), 9, 19, 29), nil},
		{`,"lose":10`, drivers.ConnectionPerMessageConfirm, without(upTo(30), 9, 19, 29), nil},
		{`,"duplicate":10`, drivers.ConfirmWindow,
			slices.Concat(upTo(10), []int{9}, upTo(20)[10:], []int{19}, upTo(30)[20:], []int{29}), nil},
		{`,"swap":[0,5,28]`, drivers.ConfirmWindow,
			slices.Concat([]int{1, 0, 2, 3, 4, 6, 5}, upTo(28)[7:], []int{29, 28}), nil},
		{`,"swap":[29]`, drivers.ConfirmWindow, upTo(30), nil}, // without a next message
		{`,"reject":10`, drivers.ConfirmWindow, without(upTo(30), 9, 19, 29), []int{9, 19, 29}},
	} {
		t.Run(test.options+" "+string(test.mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := exchange(t, test.options, test.mode, 30)
				if !slices.Equal(a.arrived, test.want) {
					t.Errorf("arrived %v, want %v", a.arrived, test.want)
				}
				for i := range 30 {
					err, confirmed := a.confirms[uint64(i)]
					if !confirmed || errors.Is(err, drivers.ErrRejected) != slices.Contains(test.rejected, i) {
						t.Errorf("message %d: confirmed %v with %v", i, confirmed, err)
					}
				}
			})
		})
	}
}

// TestDelaysAreExact compares the times of deliveries and confirms with the options, in virtual time.
func TestDelaysAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := exchange(t, `,"delay":"30ms","confirmDelay":"20ms"`, drivers.ConfirmWindow, 50)
		for i, at := range a.at {
			if at != 30*time.Millisecond {
				t.Errorf("message %d arrives after %v, want 30ms", i, at)
			}
		}
		for i, at := range a.when {
			if at != 20*time.Millisecond {
				t.Errorf("message %d is confirmed after %v, want 20ms", i, at)
			}
		}
		if len(a.at) != 50 || len(a.when) != 50 {
			t.Errorf("%d arrived and %d were confirmed of 50", len(a.at), len(a.when))
		}
	})
}

// TestRateIsExact publishes in closed loop: message n is accepted at n/rate, over all publishers.
func TestRateIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := exchange(t, `,"rate":300`, drivers.ConfirmWindow, 1000)
		for i := range 1000 {
			if want := time.Duration(i/300)*time.Second +
				time.Duration(i%300)*time.Second/300; a.when[uint64(i)] != want {
				t.Fatalf("message %d is accepted at %v, want %v", i, a.when[uint64(i)], want)
			}
		}
	})
}

// TestBurstIsBounded pauses in the middle. Afterwards at most burst messages are accepted at once, and the one that is
// due.
func TestBurstIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, `,"rate":1000,"burst":5`)
		a := &account{confirms: map[uint64]error{}, when: map[uint64]time.Duration{}, started: time.Now()}
		p := publish(t, s, drivers.PublisherSpec{Topology: topology, Mode: drivers.ConfirmWindow,
			OnConfirms: a.confirm})
		for i := range uint64(20) {
			if i == 10 {
				time.Sleep(time.Second)
			}
			if err := p.Publish(t.Context(), drivers.Message{Token: i, Body: make([]byte, 4)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range uint64(10) {
			late := a.when[10+i] - a.when[10]
			if want := max(0, time.Duration(int(i)-5)*time.Millisecond); late != want {
				t.Errorf("message %d after the pause is accepted %v after the first one, want %v", i, late, want)
			}
		}
	})
}

// TestDistributionsAreExact proves that any 1000 messages have different quantiles of the distribution, and each value
// of a list with the same frequency.
func TestDistributionsAreExact(t *testing.T) {
	quantile := func(sorted []time.Duration, i int) time.Duration { return sorted[i*len(sorted)/1000] }
	for options, want := range map[string]func(u float64) time.Duration{
		`{"min":"10ms","max":"20ms"}`: func(u float64) time.Duration { return time.Duration(1e7 + u*1e7) },
		`{"mean":"10ms"}`:             func(u float64) time.Duration { return time.Duration(-1e7 * math.Log(1-u)) },
		`{"median":"10ms","sigma":0}`: func(float64) time.Duration { return 10 * time.Millisecond },
		`{"values":["9ms","1ms","5ms","2s"]}`: func(u float64) time.Duration {
			return []time.Duration{1e6, 5e6, 9e6, 2e9}[int(u*4)]
		},
	} {
		for _, field := range []string{"delay", "confirmDelay"} {
			t.Run(field+options, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := exchange(t, fmt.Sprintf(`,%q:%s`, field, options), drivers.ConfirmWindow, 2000)
					got := a.at
					if field == "confirmDelay" {
						got = slices.Collect(maps.Values(a.when))
					}
					slices.Sort(got)
					if len(got) != 2000 {
						t.Fatalf("%d times of 2000 messages", len(got))
					}
					for i := range 1000 {
						if took, want := quantile(got, i), want((float64(i)+0.5)/1000); took-want > 1 || want-took > 1 {
							t.Fatalf("quantile %d of 1000 is %v, want %v", i, took, want)
						}
					}
				})
			})
		}
	}
}

// TestSchemaAcceptsDistributions covers the schema, which validates a matrix before the driver reads its options.
func TestSchemaAcceptsDistributions(t *testing.T) {
	for _, text := range []string{`"2ms"`, `{"min":"1ms","max":"2ms"}`, `{"max":"2ms"}`, `{"mean":"2ms"}`,
		`{"median":"2ms","sigma":0.5}`, `{"values":["1ms","2ms"]}`} {
		text = `{"name":"schema","delay":` + text + `,"confirmDelay":` + text + `}`
		session, err := loopback.Driver{}.Open(t.Context(), schematest.Fill(t, loopback.Driver{}, text), drivers.Env{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if err := session.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLognormal compares quantiles with those of the normal distribution.
func TestLognormal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := exchange(t, `,"delay":{"median":"10ms","sigma":0.5}`, drivers.ConfirmWindow, 1000)
		slices.Sort(a.at)
		// Φ⁻¹((at+½)/1000), from tables
		for at, z := range map[int]float64{500: 0.0012533, 841: 1.0006398, 977: 2.0047} {
			want := 10 * math.Exp(0.5*z)
			if got := a.at[at].Seconds() * 1000; math.Abs(got/want-1) > 0.002 {
				t.Errorf("quantile %d of 1000 is %.4f ms, want %.4f", at, got, want)
			}
		}
	})
}

// TestStallsAndSlowStart proves that an event inside a stall happens at its end, and that events take longer at the
// start.
func TestStallsAndSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s,
			topology := open(t,
			`,"delay":"10ms","confirmDelay":"5ms","stalls":[{"at":"100ms","for":"50ms"}],"slowStart":{"for":"80ms","extra":"40ms"}`)
		a := &account{confirms: map[uint64]error{}, when: map[uint64]time.Duration{}, started: time.Now()}
		consume(t, s, drivers.ConsumerSpec{Topology: topology, Batch: 1, Ack: drivers.AckEach}, a.receive)
		p := publish(t, s, drivers.PublisherSpec{Topology: topology, Mode: drivers.ConfirmWindow,
			OnConfirms: a.confirm})
		at := []time.Duration{0, 40, 80, 90, 94, 95, 120, 150} // ms
		received := []time.Duration{50, 70, 90, 150, 150, 150, 150, 160}
		confirmed := []time.Duration{45, 65, 85, 95, 99, 150, 150, 155}
		for i, at := range at {
			time.Sleep(at*time.Millisecond - time.Since(a.started))
			if err := p.Publish(t.Context(), drivers.Message{Token: uint64(i),
				Body: []byte{byte(i), 0, 0, 0}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		a.mu.Lock()
		defer a.mu.Unlock()
		for i := range at {
			if a.at[i] != received[i]*time.Millisecond || a.when[uint64(i)] != confirmed[i]*time.Millisecond {
				t.Errorf("message at %d ms is received at %v and confirmed at %v, want %d and %d ms", at[i], a.at[i],
					a.when[uint64(i)], received[i], confirmed[i])
			}
		}
	})
}

// TestTapStampsEveryMessage compares the stamps with the times of their events.
func TestTapStampsEveryMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		took := map[loopback.StampKind][]time.Duration{}
		began := time.Now()
		stop := loopback.Tap(t.Name(), func(s loopback.Stamp) {
			mu.Lock()
			defer mu.Unlock()
			took[s.Kind] = append(took[s.Kind], s.At.Sub(began))
		})
		defer stop()
		exchange(t, `,"delay":"3ms","confirmDelay":"2ms"`, drivers.ConfirmWindow, 100)
		for kind, want := range map[loopback.StampKind]time.Duration{loopback.Accepted: 0, loopback.Confirmed: 2e6,
			loopback.Delivered: 3e6} {
			if all := took[kind]; len(all) != 100 || slices.Min(all) != want || slices.Max(all) != want {
				t.Errorf("stamps of kind %d: %v, want 100 of %v", kind, all, want)
			}
		}
	})
}

// TestOptionsAreChecked proves that every option is rejected that the schema accepts and that is impossible.
func TestOptionsAreChecked(t *testing.T) {
	for _, options := range []string{`{"swap":[3,4]}`, `{"swap":[5,1]}`,
		`{"stalls":[{"at":"2s","for":"1s"},{"at":"2500ms","for":"1s"}]}`, `{"slowStart":{"for":"1s","extra":"2s"}}`,
		`{"delay":{"min":"2ms","max":"1ms"}}`} {
		if s, err := (loopback.Driver{}).Open(t.Context(), schematest.Fill(t, loopback.Driver{}, options),
			drivers.Env{}); err == nil {
			_ = s.Close()
			t.Errorf("%s is taken", options)
		}
	}
}
