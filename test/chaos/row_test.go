package chaos

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/test/process"
)

// fault is a row of the table.
type fault struct {
	name  string
	short bool // part of make test
	do    func(*row)
}

// row is one execution of a fault.
type row struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	dir    string
	line   line
}

func (f fault) row(t *testing.T, seed uint64) *row {
	t.Helper()
	dir, err := os.MkdirTemp("", "lockstep-chaos-"+strings.ReplaceAll(f.name, "/", "-")+"-*")
	if err != nil {
		t.Fatal(err)
	}
	r := &row{t: t, seed: seed, random: random(f.name, seed), dir: dir}
	r.line = line{fault: f.name, seed: seed, lost: -1}
	t.Cleanup(func() {
		if !t.Failed() {
			_ = os.RemoveAll(dir) // a leftover in the temporary folder is no failure
			return
		}
		t.Logf("folder of the row: %s", dir)
		t.Logf("repeat this row: LOCKSTEP_LONG=1 LOCKSTEP_SEED=%d go test ./test/chaos -run '%s'", seed,
			pattern(t.Name()))
	})
	return r
}

// random returns a random source that depends on the row and the seed.
func random(name string, seed uint64) *rand.Rand {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, seed))
	return rand.New(rand.NewChaCha8(sum))
}

// pattern returns the -run pattern of a subtest without its seed.
func pattern(name string) string {
	words := strings.Split(name, "/")
	return strings.Join(words[:len(words)-1], "$/") + "$"
}

// start starts a program in the row's folder.
func (r *row) start(c process.Command) *process.Process {
	r.t.Helper()
	c.Dir = r.dir
	return process.Start(r.t, c)
}

// wait waits for a part of a phase.
func (r *row) wait(d time.Duration) { time.Sleep(d) }

// between returns a random duration.
func (r *row) between(low, high time.Duration) time.Duration {
	return low + time.Duration(r.random.Float64()*float64(high-low))
}

// describe records a description of the fault.
func (r *row) describe(format string, a ...any) { r.line.injected = fmt.Sprintf(format, a...) }

// line is a row of the table.
type line struct {
	fault    string
	seed     uint64
	injected string
	summary  []string      // summary of the record
	lost     int           // number of losses; -1: not checked
	detected time.Duration // from the fault until it was detected; 0: not measured
	resumed  time.Duration // from the fault until the next task was started
}

func (l line) cells() []string {
	duration := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	lost := "?"
	if l.lost >= 0 {
		lost = fmt.Sprint(l.lost)
	}
	return []string{l.fault, fmt.Sprint(l.seed), l.injected, strings.Join(l.summary, "; "), lost, duration(l.detected),
		duration(l.resumed)}
}

// table formats lines in columns.
func table(lines []line) string {
	all := [][]string{{"fault", "seed", "injected", "record", "lost", "detected", "resumed"}}
	for _, l := range lines {
		all = append(all, l.cells())
	}
	width := make([]int, len(all[0]))
	for _, cells := range all {
		for i, c := range cells {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	for _, cells := range all {
		for i, c := range cells {
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-len([]rune(c))+2))
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
