package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Tools of the JVM do not run with the lab's options, which disable the C2 compiler.
func TestToolsRunInAWholeVirtualMachine(t *testing.T) {
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("there is no java")
	}
	cmd := exec.CommandContext(t.Context(), java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-XX:+PrintFlagsFinal", "-version")
	cmd.Env = append(os.Environ(), javaOptions)
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == "=" {
			flags[f[1]] = f[3]
		}
	}
	for flag, want := range map[string]string{"TieredStopAtLevel": "4", "UseSerialGC": "false", "UseG1GC": "true",
		"MaxHeapSize": "536870912"} {
		if flags[flag] != want {
			t.Errorf("%s is %q, want %s", flag, flags[flag], want)
		}
	}
}

// The ratio is Lockstep's value divided by the tool's, per pair. CPU time is per message.
func TestRow(t *testing.T) {
	ours := []sample{{100, 2 * time.Microsecond}, {300, 4 * time.Microsecond}, {200, 3 * time.Microsecond}}
	theirs := []sample{{200, 8 * time.Microsecond}, {100, 8 * time.Microsecond}, {200, 8 * time.Microsecond}}
	if got, want := row(100, ours, theirs), "100 B\t200\t200\t1.00 (0.75–2.00)\t3.00\t8.00"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
