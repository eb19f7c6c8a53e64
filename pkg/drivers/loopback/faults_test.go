package loopback_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/loopback"
)

// account is what a test saw of the messages 0 … n-1 of one publisher.
type account struct {
	mu       sync.Mutex
	arrived  []int
	at       []time.Duration // when each arrived
	confirms map[uint64]error
	when     map[uint64]time.Duration
	started  time.Time
}

// exchange publishes n messages through a publisher of this mode and waits until nothing more comes. It runs in a
// bubble, where waiting is until all is still.
func exchange(t *testing.T, options string, mode drivers.Mode, n int) *account {
	t.Helper()
	s, topology := open(t, options)
	a := &account{confirms: map[uint64]error{}, when: map[uint64]time.Duration{}, started: time.Now()}
	c, err := s.Consumer(t.Context(), drivers.ConsumerSpec{Topology: topology, Batch: 16, Ack: drivers.AckEach}, a.receive)
	if err != nil {
		t.Fatal(err)
	}
	spec := drivers.PublisherSpec{Topology: topology, Mode: mode, OnConfirm: a.confirm}
	p, err := s.Publisher(t.Context(), spec)
	for i := range n {
		if err != nil {
			t.Fatal(err)
		}
		body := binary.LittleEndian.AppendUint32(nil, uint32(i))
		if err = p.Publish(t.Context(), drivers.Message{Token: uint64(i), Body: body}); err == nil && mode == drivers.ConnectionPerMessageConfirm && i+1 < n {
			_ = p.Close()
			p, err = s.Publisher(t.Context(), spec)
		}
	}
	_ = p.Close()
	time.Sleep(time.Minute)
	synctest.Wait()
	_ = c.Close()
	return a
}

func (a *account) receive(ds []drivers.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range ds {
		a.arrived = append(a.arrived, int(binary.LittleEndian.Uint32(d.Body)))
		a.at = append(a.at, time.Since(a.started))
	}
	return nil
}

func (a *account) confirm(token uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.confirms[token], a.when[token] = err, time.Since(a.started)
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// TestFaultsAreExact holds the faults to their numbers: a wrong one would make the ledger's tests worthless.
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
		{`,"duplicate":10`, drivers.ConfirmWindow, slices.Concat(upTo(10), []int{9}, upTo(20)[10:], []int{19}, upTo(30)[20:], []int{29}), nil},
		{`,"swap":[0,5,28]`, drivers.ConfirmWindow, slices.Concat([]int{1, 0, 2, 3, 4, 6, 5}, upTo(28)[7:], []int{29, 28}), nil},
		{`,"swap":[29]`, drivers.ConfirmWindow, upTo(30), nil}, // has no next neighbour
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

// TestDelaysAreExact compares the times of deliveries and confirms with the options, on the bubble's clock.
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

// TestRateIsExact publishes as fast as it goes: message n is accepted at n/rate, over all publishers.
func TestRateIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := exchange(t, `,"rate":300`, drivers.ConfirmWindow, 1000)
		for i := range 1000 {
			if want := time.Duration(i/300)*time.Second + time.Duration(i%300)*time.Second/300; a.when[uint64(i)] != want {
				t.Fatalf("message %d is accepted at %v, want %v", i, a.when[uint64(i)], want)
			}
		}
	})
}

// TestCapacityBlocks fills a queue: the next Publish waits for an acknowledgement, or for its context.
func TestCapacityBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, `,"capacity":5`)
		p, err := s.Publisher(t.Context(), drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := p.Publish(t.Context(), drivers.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Publish(ctx, drivers.Message{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("publishing to a full queue gives %v", err)
		}
		published := make(chan error, 1)
		go func() { published <- p.Publish(t.Context(), drivers.Message{}) }()
		synctest.Wait()
		if len(published) > 0 {
			t.Fatal("publishing to a full queue does not block")
		}
		got := 0
		c, err := s.Consumer(t.Context(), drivers.ConsumerSpec{Topology: topology, Batch: 1, Ack: drivers.AckEach}, func([]drivers.Delivery) error {
			got++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-published; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = c.Close()
		if got != 6 {
			t.Errorf("%d messages arrive, want 6", got)
		}
	})
}

// TestCut breaks the links under delayed confirms and a consumer that has not acknowledged.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, `,"confirmDelay":"1h"`)
		var closed, failed, again int
		spec := drivers.ConsumerSpec{Topology: topology, Batch: 1, Ack: drivers.AckEvery, AckEvery: 100, OnClosed: func(error) { closed++ }}
		c, err := s.Consumer(t.Context(), spec, func([]drivers.Delivery) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Publisher(t.Context(), drivers.PublisherSpec{
			Topology: topology, Mode: drivers.ConfirmWindow, OnClosed: func(error) { closed++ },
			OnConfirm: func(_ uint64, err error) {
				if errors.Is(err, drivers.ErrClosed) {
					failed++
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if err := p.Publish(t.Context(), drivers.Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		loopback.Cut(t.Name())
		synctest.Wait()
		_, _ = p.Close(), c.Close()
		if closed != 2 || failed != 10 {
			t.Errorf("%d calls of OnClosed and %d failed confirms, want 2 and 10", closed, failed)
		}
		c, err = s.Consumer(t.Context(), spec, func(ds []drivers.Delivery) error {
			if ds[0].Redelivered == drivers.Yes {
				again++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_ = c.Close()
		if again != 10 {
			t.Errorf("%d messages come again as redelivered, want 10", again)
		}
	})
}

// TestPrefetchOfOneSharesFairly gives two waiting consumers the messages in turn.
func TestPrefetchOfOneSharesFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topology := open(t, "")
		var got [2]int
		for i := range got {
			_, err := s.Consumer(t.Context(), drivers.ConsumerSpec{Topology: topology, Batch: 1, Prefetch: 1, Ack: drivers.AckEach},
				func([]drivers.Delivery) error { got[i]++; return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.Publisher(t.Context(), drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // both are waiting
		for range 100 {
			_ = p.Publish(t.Context(), drivers.Message{})
			synctest.Wait()
		}
		_ = s.Close()
		if got != [2]int{50, 50} {
			t.Errorf("two idle consumers share 100 messages as %v", got)
		}
	})
}

// TestHotPathAllocatesNothing counts allocations of the publishing side in steady state.
func TestHotPathAllocatesNothing(t *testing.T) {
	s, topology := open(t, "")
	taken := make(chan int, 1<<16)
	_, err := s.Consumer(t.Context(), drivers.ConsumerSpec{Topology: topology, Batch: 256, Ack: drivers.AckEach}, func(d []drivers.Delivery) error {
		taken <- len(d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Publisher(t.Context(), drivers.PublisherSpec{Topology: topology, Mode: drivers.ConfirmWindow, OnConfirm: func(uint64, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	body, ctx := make([]byte, 100), t.Context()
	allocs := testing.AllocsPerRun(20, func() {
		for range 1000 {
			_ = p.Publish(ctx, drivers.Message{Body: body})
		}
		for n := 0; n < 1000; n += <-taken {
		}
	})
	if allocs > 20 { // of 1,000 messages: segments and growth of lists at the beginning
		t.Errorf("1,000 messages make %v allocations", allocs)
	}
}

// TestOptionsAreChecked refuses what the schema would.
func TestOptionsAreChecked(t *testing.T) {
	for _, raw := range []string{`{"lose":-1}`, `{"nmae":"x"}`, `{"swap":[3,4]}`, `{"swap":[5,1]}`, `{"capacity":0}`, `{"delay":"5"}`, `{"name":""}`, `{} {}`} {
		if _, err := (loopback.Driver{}).Open(t.Context(), []byte(raw), drivers.Env{}); err == nil {
			t.Errorf("options %s are taken", raw)
		}
	}
}

// TestSessionsMeet sends from one session of a broker to another, and not to a broker of another name.
func TestSessionsMeet(t *testing.T) {
	a, topology := open(t, "")
	b, err := loopback.Driver{}.Open(t.Context(), fmt.Appendf(nil, `{"name":%q}`, t.Name()), drivers.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	if _, err := b.Publisher(t.Context(), drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget}); err != nil {
		t.Errorf("a session does not find the topology of another at the same broker: %v", err)
	}
	other, err := loopback.Driver{}.Open(t.Context(), []byte(`{"name":"elsewhere"}`), drivers.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := other.Publisher(t.Context(), drivers.PublisherSpec{Topology: topology, Mode: drivers.FireAndForget}); err == nil {
		t.Error("a session finds the topology of another broker")
	}
	_ = a
}
