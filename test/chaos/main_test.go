package chaos

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"example.org/lockstep/lockstep/test/process"
)

var seeds = flag.Int("chaos.seeds", 1, "number of `seeds` for each row; the first is LOCKSTEP_SEED (1)")

// programs is the folder of the three programs.
var programs string

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		os.Exit(serveNATS())
	}
	flag.Parse()
	if err := process.Beside(4); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(run(m))
}

// run builds the programs and runs the tests.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lockstep-chaos-programs-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if programs, err = process.Programs(dir, true); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// firstSeed returns the first seed for the random parts of the rows.
func firstSeed(t *testing.T) uint64 {
	text := os.Getenv("LOCKSTEP_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("read LOCKSTEP_SEED: %v", err)
	}
	return seed
}

// long reports whether all rows are run.
func long() bool { return os.Getenv("LOCKSTEP_LONG") != "" }
