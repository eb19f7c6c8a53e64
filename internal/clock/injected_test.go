package clock

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestInjectedClock(t *testing.T) {
	const begin = 1_000_000_000
	f, err := parseFault("-250ms,drift=100ppm,step=1s@5s", begin)
	if err != nil {
		t.Fatal(err)
	}
	s := int64(time.Second)
	for after, want := range map[int64]time.Duration{ // error of the clock by the time since the start
		0: -250 * time.Millisecond, s: -250*time.Millisecond + 100*time.Microsecond,
		5*s - 1: -250*time.Millisecond + 500*time.Microsecond, 5 * s: 750*time.Millisecond + 500*time.Microsecond,
		10 * s: 751 * time.Millisecond,
	} {
		host := begin + after
		if off := time.Duration(f.at(host) - host); (off - want).Abs() > 1 {
			t.Errorf("%v after the beginning it is off by %v, want %v", time.Duration(after), off, want)
		}
	}
	for _, text := range []string{"", "250", "drift=fast", "step=1s", "step=1s@", "walk=1ms"} {
		if f, err := parseFault(text, 0); err == nil {
			t.Errorf("%q was read as %+v", text, f)
		}
	}
}

// A waiter with an injected clock is woken when that clock reaches the time, and not before, with and without a step
// during the wait.
func TestInjectedClockIsInverted(t *testing.T) {
	for _, text := range []string{"+250ms", "-3h,drift=-400ppm", "drift=100ppm,step=100ms@5s",
		"drift=5ppm,step=-100ms@5s"} {
		f, err := parseFault(text, 77)
		if err != nil {
			t.Fatal(err)
		}
		for host := int64(0); host < int64(10*time.Second); host += 12_345_678 {
			at := f.at(77 + host)
			when := f.when(at)
			if when > 77+host+1 || f.at(when) < at-1 || f.at(when-2) >= at && when != f.stepAt {
				t.Fatalf("%s: reads %d at %d: a wait for it ends at %d, when it reads %d", text, at, 77+host, when,
					f.at(when))
			}
		}
	}
}

// A process with an injected clock has another time and clock ID, and its waits have the right duration.
func TestProcessWithInjectedClock(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on this platform the clock is the process's own")
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1", Variable+"=+1h,drift=200ppm")
	before := Now()
	out, err := child.CombinedOutput()
	after := Now()
	fields := strings.Fields(string(out))
	if err != nil || len(fields) < 3 {
		t.Fatalf("child printed %q: %v", out, err)
	}
	at, _ := strconv.ParseInt(fields[0], 10, 64)
	waited, _ := strconv.ParseInt(fields[1], 10, 64)
	drift := (after - before) / 5000
	if lead := int64(time.Hour); at-lead <= before || at-lead >= after+drift+1 {
		t.Errorf("child read %v ahead of us, want 1h", time.Duration(at-before))
	}
	if fields[2] == ID() {
		t.Error("the child's clock has our name: its times would be taken for ours")
	}
	if wanted := 30 * time.Millisecond * 999 / 1000; time.Duration(waited) < wanted || waited > after-before {
		t.Errorf("a wait of 30 ms took the child %v", time.Duration(waited))
	}
}
