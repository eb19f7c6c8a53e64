package loopback_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockstep/pkg/drivers"
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
