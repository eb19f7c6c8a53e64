package external

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// parentOf makes this test binary run a program with a session of such a child, until it is killed.
const parentOf = "LOCKSTEP_TEST_PARENT_OF"

func beParent(how string) {
	d, err := newDriver(context.Background(), "child", childCommand(how), quick, nil)
	if err == nil {
		var s drivers.Session
		if s, err = d.Open(context.Background(), json.RawMessage(`{}`), drivers.Env{}); err == nil {
			fmt.Println(s.(*session).link.proc.number())
			select {}
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A killed program leaves no driver process. A correct one ends at the end of its input. On Linux, others are killed,
// too.
func TestNothingIsLeftOfTheKilled(t *testing.T) {
	for _, how := range []string{"good", "stays"} {
		if how == "stays" && runtime.GOOS != "linux" {
			continue
		}
		parent := exec.Command(os.Args[0])
		parent.Env = append(os.Environ(), parentOf+"="+how)
		out, err := parent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := parent.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		_ = parent.Process.Kill()
		_ = parent.Wait()
		pid, bad := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || bad != nil {
			t.Fatalf("%s: the program says %q (%v)", how, line, err)
		}
		deadline := time.Now().Add(time.Minute)
		for there, words := group(t, pid); there; there, words = group(t, pid) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the driver lives on: %s", how, words)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
