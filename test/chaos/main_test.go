package chaos

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"lockstep/test/rig"
)

var seeds = flag.Int("chaos.seeds", 1, "how many `seeds` each row is done with, from LOCKSTEP_SEED (1) on")

var built = flag.String("chaos.programs", "", "`folder` of ctl, controller and agent, built already; none: they are built")

// programs is the folder of the three programs.
var programs string

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		os.Exit(serveNATS())
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // rows wait most of their time
		if err := flag.Set("test.parallel", "4"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(m))
}

// run builds the programs as users have them, but with the race detector, and runs the tests.
func run(m *testing.M) int {
	if programs = *built; programs != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "lockstep-chaos-programs-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := rig.Build(dir, "-race", "../../cmd/..."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	programs = dir
	return m.Run()
}

// firstSeed is what the random parts of the rows follow from.
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

// long tells whether every row is to be done.
func long() bool { return os.Getenv("LOCKSTEP_LONG") != "" }
