package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/internal/cli"
)

// ctlVariable makes the test binary run ctl with these arguments, one per line, and then print its
// peak memory.
const ctlVariable = "LOCKSTEP_TEST_CTL"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if args := os.Getenv(ctlVariable); args != "" {
		code := cli.Ctl(context.Background(), strings.Split(args, "\n"), strings.NewReader(""), os.Stdout, os.Stderr)
		if status, err := os.ReadFile("/proc/self/status"); err == nil {
			_, peak, _ := strings.Cut(string(status), "VmHWM:")
			peak, _, _ = strings.Cut(peak, "\n")
			fmt.Fprintln(os.Stderr, "\npeak memory:", peak)
		}
		return code
	}
	if len(os.Args) > 1 && os.Args[1] == "expand-schedule" { // as a controller starts itself
		return cli.Controller(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	own, err := os.MkdirTemp("", "lockstep-test-state-*") // not the user's folder of runs and cache
	if err == nil {
		defer os.RemoveAll(own)
		err = errors.Join(os.Setenv("XDG_STATE_HOME", own), os.Setenv("XDG_CACHE_HOME", own),
			os.Setenv("XDG_CONFIG_HOME", own))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
