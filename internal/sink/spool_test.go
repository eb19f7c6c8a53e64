package sink

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lockstep/internal/plan"
)

func numbered(from, to int) (lines []string) {
	for i := from; i < to; i++ {
		lines = append(lines, fmt.Sprintf("line %06d", i))
	}
	return lines
}

// drain takes all that a spool has, a batch at a time.
func drain(t *testing.T, s *spool, batch int) (all []string) {
	t.Helper()
	for !s.empty() {
		lines, size, err := s.oldest(batch)
		if err != nil || len(lines) == 0 || len(lines) > batch {
			t.Fatalf("%d lines, %v", len(lines), err)
		}
		all = append(all, lines...)
		if err := s.forget(len(lines), size); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func kept(t *testing.T, s *spool, lines []string) {
	t.Helper()
	if refused, err := s.add(lines); refused > 0 || err != nil {
		t.Fatalf("%d lines refused: %v", refused, err)
	}
}

func open(t *testing.T, path string, most int64) *spool {
	t.Helper()
	s, err := openSpool(path, targetOf(t, "http://there"), most)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t *testing.T, s *spool) {
	t.Helper()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// TestSpoolKeepsOrder: what is kept comes back in its order, also after a process was killed in the middle of a line.
func TestSpoolKeepsOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := open(t, path, 1<<20)
	kept(t, s, numbered(0, 100))
	_, size, err := s.oldest(30)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.forget(30, size); err != nil {
		t.Fatal(err)
	}
	kept(t, s, numbered(100, 150))
	if got := drain(t, s, 7); !slices.Equal(got, numbered(30, 150)) {
		t.Errorf("%d lines come back: %q", len(got), got)
	}
	closed(t, s)
	if _, err := os.Stat(path); err == nil {
		t.Error("the folder of an empty spool is still there")
	}

	s = open(t, path, 4<<20)
	long := strings.Repeat("x", 1<<20)
	kept(t, s, []string{"a", long, "b"})
	torn := segmentFile(s.dir, s.segments[len(s.segments)-1].number)
	closed(t, s)
	file, err := os.OpenFile(torn, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("cut o"); err != nil || file.Close() != nil {
		t.Fatal(err)
	}
	s = open(t, path, 4<<20)
	kept(t, s, []string{"c"})
	if got := drain(t, s, 2); !slices.Equal(got, []string{"a", long, "b", "c"}) {
		t.Errorf("%d lines come back of a spool that was left behind", len(got))
	}
	closed(t, s)
}

// TestSpoolIsBounded: a full spool keeps what it has and says how much it refuses; what was delivered makes room, a file at a time.
func TestSpoolIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	const most = 640 * 12 // bytes of 640 lines, ten a file
	s := open(t, path, most)
	if refused, err := s.add(numbered(0, 700)); refused != 60 || err != nil {
		t.Fatalf("%d refused of 60 too many, %v", refused, err)
	}
	for _, n := range []int{10, 5} { // the second leaves half a file
		lines, size, err := s.oldest(n)
		if err != nil || len(lines) != n {
			t.Fatalf("%d lines of %d, %v", len(lines), n, err)
		}
		if err := s.forget(n, size); err != nil {
			t.Fatal(err)
		}
	}
	if refused, err := s.add(numbered(640, 670)); refused != 20 || err != nil {
		t.Fatalf("%d refused of 20 too many, %v", refused, err)
	}
	if got := onDisk(t, path); got != 640 {
		t.Errorf("%d lines are on disk", got)
	}
	if got := drain(t, s, 100); !slices.Equal(got, append(numbered(15, 640), numbered(640, 650)...)) {
		t.Errorf("%q", got)
	}
	closed(t, s)
}

// TestSpoolOfOne: a spool that somebody has is nobody else's, and each InfluxDB has one of its own.
func TestSpoolOfOne(t *testing.T) {
	path, here, there := filepath.Join(t.TempDir(), "spool"), "http://here", "http://there"
	s := open(t, path, 1<<20)
	kept(t, s, numbered(0, 10))
	if _, err := openSpool(path, targetOf(t, there), 1<<20); !errors.Is(err, ErrSpoolInUse) {
		t.Errorf("two have it: %v", err)
	}
	again := Open(targetOf(t, there), quick, "test", nil)
	defer again.Close(t.Context())
	if _, err := again.Left(path); !errors.Is(err, ErrSpoolInUse) {
		t.Errorf("what is in use counts as left: %v", err)
	}
	elsewhere := Open(targetOf(t, here), quick, "test", nil)
	defer elsewhere.Close(t.Context())
	if left, err := elsewhere.Left(path); left != nil || err != nil {
		t.Errorf("what waits for another InfluxDB counts as left: %v", err)
	}
	closed(t, s)
	left, err := again.Left(path)
	if left == nil || err != nil {
		t.Fatalf("nothing is left: %v", err)
	}
	if err := left.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("it was removed and is still there")
	}
}

// spoolForever is a process that fills a spool of a MiB and takes from its other end, until it is killed.
func spoolForever(path string) {
	to, err := Resolve(plan.Influx{URL: "http://there", Org: "bench", Bucket: "lock step"}, os.LookupEnv, nil)
	if err != nil {
		panic(err)
	}
	s, err := openSpool(path, to, 1<<20)
	if err != nil {
		panic(err)
	}
	for n := 0; ; {
		var some []string
		for i := range 100 {
			some = append(some, fmt.Sprintf("%09d %s", n+i, strings.Repeat("x", 200)))
		}
		refused, err := s.add(some)
		if err != nil {
			panic(err)
		}
		n += len(some) - refused
		for i := 0; refused > 0 && i < 5; i++ {
			lines, size, err := s.oldest(50)
			if err == nil {
				err = s.forget(len(lines), size)
			}
			if err != nil {
				panic(err)
			}
		}
	}
}

// TestSpoolSurvivesKills: whenever its process is killed, a full spool holds whole lines in their order, without a gap, and no more than it may.
func TestSpoolSurvivesKills(t *testing.T) {
	for round := range 10 {
		path := filepath.Join(t.TempDir(), "spool")
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), spoolChild+"="+path)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); onDisk(t, path) < 4000; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the spool does not fill")
			}
		}
		time.Sleep(time.Duration(round*7) * time.Millisecond)
		_ = c.Process.Kill()
		_ = c.Wait()
		s := open(t, path, 1<<20)
		if size := s.size(); size > 1<<20 {
			t.Errorf("%d bytes are on disk", size)
		}
		got := drain(t, s, 1000)
		first := 0
		if _, err := fmt.Sscanf(got[0], "%d", &first); err != nil {
			t.Fatal(err)
		}
		for i, line := range got {
			if want := fmt.Sprintf("%09d %s", first+i, strings.Repeat("x", 200)); line != want {
				t.Fatalf("line %d of %d is %q, want %q", i, len(got), line, want)
			}
		}
		closed(t, s)
	}
}
