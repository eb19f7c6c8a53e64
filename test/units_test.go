package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxExposure is the maximum exposure level of each unit by systemd-analyze, from 0 (safe) to 10 (unsafe).
var maxExposure = map[string]float64{"lockstep-controller.service": 1.5, "lockstep-agent.service": 1.8,
	"lockstep-observer.service": 2.4}

// TestUnits checks the shipped units with systemd: no unknown or invalid lines, and a low exposure level.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	for name, maximum := range maxExposure {
		t.Run(name, func(t *testing.T) {
			unit := copyUnit(t, name)
			checkUnit(t, unit)
			if got := exposure(t, unit); got > maximum {
				t.Errorf("exposure: got %.1f, want at most %.1f", got, maximum)
			}
		})
	}
}

// TestUnitsWithDropIns checks that the drop-ins fit their units.
func TestUnitsWithDropIns(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	unit := copyUnit(t, "lockstep-agent.service")
	text, err := os.ReadFile("../deploy/systemd/drop-ins/faults.conf")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(unit, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append([]byte("\n"), text...)); err != nil { // drop-ins are read after the unit
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	checkUnit(t, unit)
}

// copyUnit copies a unit and replaces the paths of its programs: systemd requires that they exist.
func copyUnit(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../deploy/systemd", name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, p := range []string{"agent", "controller"} {
		text = bytes.ReplaceAll(text, []byte("/usr/bin/lockstep-"+p), []byte(filepath.Join(programs, p)))
	}
	unit := filepath.Join(dir, name)
	if err := os.WriteFile(unit, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return unit
}

func checkUnit(t *testing.T, unit string) {
	t.Helper()
	c := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
	if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify %s: %v\n%s", filepath.Base(unit), err, out)
	}
}

var level = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

func exposure(t *testing.T, unit string) float64 {
	t.Helper()
	c := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", unit)
	out, err := c.CombinedOutput()
	found := level.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	got, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestUnitsRunAsTheirUser checks the settings that packages and playbooks depend on.
func TestUnitsRunAsTheirUser(t *testing.T) {
	for name := range maxExposure {
		text, err := os.ReadFile(filepath.Join("../deploy/systemd", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"User=" + strings.TrimSuffix(name, ".service") + "\n", "Restart=always\n",
			"KillMode=mixed\n", "NoNewPrivileges=yes\n", "EnvironmentFile=", "Type=notify\n", "WatchdogSec=",
			"MemoryMax=", "GOMEMLIMIT="} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: got no line %q, want one", name, strings.TrimSpace(want))
			}
		}
	}
}
