package sink

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	s, err := openSpool(path, most)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSpoolKeepsOrder: what is kept comes back in its order, also after a process was killed in the middle of a line.
func TestSpoolKeepsOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := open(t, path, 1<<20)
	if _, err := os.Stat(path); err == nil {
		t.Error("there is a file, and nothing to keep")
	}
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
	if _, err := os.Stat(path); err == nil {
		t.Error("the file of an empty spool is still there")
	}

	long := strings.Repeat("x", 1<<20)
	if err := os.WriteFile(path, []byte("a\n"+long+"\nb\ncut o"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, 4<<20)
	kept(t, s, []string{"c"})
	if got := drain(t, s, 2); !slices.Equal(got, []string{"a", long, "b", "c"}) {
		t.Errorf("%d lines come back of a spool that was left behind", len(got))
	}
}

// TestSpoolIsBounded: a full spool keeps what it has and says how much it refuses; what was delivered makes room.
func TestSpoolIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spool")
	s := open(t, path, 50*12) // bytes of 50 lines
	if refused, err := s.add(numbered(0, 70)); refused != 20 || err != nil {
		t.Fatalf("%d refused of 20 too many, %v", refused, err)
	}
	lines, size, err := s.oldest(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.forget(len(lines), size); err != nil {
		t.Fatal(err)
	}
	if refused, err := s.add(numbered(70, 85)); refused != 5 || err != nil {
		t.Fatalf("%d refused of 5 too many, %v", refused, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 50*12 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	if got := drain(t, s, 100); !slices.Equal(got, append(numbered(10, 50), numbered(70, 80)...)) {
		t.Errorf("%q", got)
	}
}
