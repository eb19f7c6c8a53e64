package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testSite returns a site that shares nothing with the labs of this user.
func testSite(t *testing.T) *site {
	t.Helper()
	s := &site{programs: t.TempDir(), dir: t.TempDir(), out: &bytes.Buffer{}}
	t.Cleanup(func() { _ = s.close(true) })
	return s
}

// A reserved port stays reserved while no broker uses it. Otherwise two brokers could get the same port.
func TestPortsAreKept(t *testing.T) {
	first, second := testSite(t), testSite(t)
	seen := map[int]bool{}
	for _, s := range []*site{first, first, second} {
		ports, err := s.ports(300, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range ports {
			if seen[port] {
				t.Errorf("port %d is given twice", port)
			}
			seen[port] = true
		}
		listener, err := net.Listen("tcp", loopback(ports[0]))
		if err != nil {
			t.Errorf("port %d is not free: %v", ports[0], err)
			continue
		}
		_ = listener.Close()
	}
}

// The preferred ports of Kafka's cluster are those of its listener without a password, which the shipped matrices use.
func TestUsualPortsOfKafka(t *testing.T) {
	ports := slices.Clone(usualPorts["kafka3"])
	other := testSite(t)
	free, err := other.ports(len(ports), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = other.close(true) // they are not reserved any more
	var want []string
	for i, port := range ports {
		if port != 0 {
			ports[i] = free[i]
			want = append(want, loopback(free[i]))
		}
	}
	s := testSite(t)
	all, err := s.ports(12, ports)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := planKafka(kafka43, "kafka3", 3)(s, t.TempDir(), all)
	if err != nil {
		t.Fatal(err)
	}
	if brokers := "LOCKSTEP_KAFKA3_BROKERS=" + strings.Join(want, ","); !slices.Contains(plan.Env, brokers) {
		t.Errorf("the variables are %q, want %s", plan.Env, brokers)
	}
}

// Two labs that need the same program download it once, and neither sees an incomplete one.
func TestProgramIsInstalledOnce(t *testing.T) {
	one := testSite(t)
	other := &site{programs: one.programs, dir: t.TempDir(), out: &bytes.Buffer{}}
	var fetched atomic.Int32
	p := program{key: "thing-1", fetch: func(_ context.Context, _ *site, dir string) error {
		fetched.Add(1)
		if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // the other lab starts meanwhile
		return os.WriteFile(filepath.Join(dir, "b"), nil, 0o600)
	}}
	var wg sync.WaitGroup
	for _, s := range []*site{one, other} {
		wg.Go(func() {
			if err := p.meet(t.Context(), s); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(p.in(s), "b")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if fetched.Load() != 1 {
		t.Errorf("it is fetched %d times", fetched.Load())
	}
}

func TestFailedDownloadIsRetried(t *testing.T) {
	s := testSite(t)
	broken := errors.New("the line is cut")
	p := program{key: "thing-1", fetch: func(_ context.Context, _ *site, dir string) error {
		return errors.Join(os.WriteFile(filepath.Join(dir, "half"), nil, 0o600), broken)
	}}
	if err := meetAll(t.Context(), s, []Part{{Name: "thing", Needs: []need{p}}}); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	p.fetch = func(_ context.Context, _ *site, dir string) error {
		if _, err := os.Stat(filepath.Join(dir, "half")); err == nil {
			t.Error("what a failed download left is still there")
		}
		return nil
	}
	if err := p.meet(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// The wait for another lab's download can be cancelled.
func TestWaitForLockEnds(t *testing.T) {
	s := testSite(t)
	unlock, err := lock(t.Context(), s, "thing")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, s, "thing"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: error %v", err)
	}
	unlock()
	again, err := lock(t.Context(), s, "thing")
	if err != nil {
		t.Fatal(err)
	}
	again()
}
