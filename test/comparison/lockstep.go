package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// buildCtl builds the program once.
func buildCtl(ctx context.Context, dir string) (string, error) {
	ctl := filepath.Join(dir, "ctl")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", ctl, "./cmd/ctl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build ctl: %w\n%s", err, text)
	}
	return ctl, nil
}

// lockstep runs one cell with publishers only, in one process. Its CPU time includes the controller, the control plane
// and the records.
func lockstep(ctx context.Context, s settings, dir string, c contest, size int) (sample, string, error) {
	file := filepath.Join(dir, fmt.Sprintf("%s-%d.cue", c.driver, size))
	text := fmt.Sprintf(`package matrix

name: "peers"
brokers: %[1]s: {driver: %[1]q, options: %[2]s}
axes: mode: ["confirm-window"]
cell: {
	publishers: {mode: "confirm-window", maxInFlight: %[3]d, persistent: %[4]v}
	consumers: nodes: 0
	message: size: %[5]d
	warmup: "%[6]v"
	measure: "%[7]v"
}
tables: [{rows: ["mode"], values: ["confirm.rate", "agent.cpu"]}]
`, c.driver, c.options, c.window, c.persistent, size, s.warmup, s.measure)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return sample{}, "", fmt.Errorf("write matrix: %w", err)
	}
	cmd := exec.CommandContext(ctx, s.ctl, "run", "--runs", filepath.Join(dir, "runs"), file)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return sample{}, "", fmt.Errorf("run ctl: %w\n%s", err, output.String())
	}
	o, err := latest(filepath.Join(dir, "runs"))
	if err != nil {
		return sample{}, "", err
	}
	rate, cpu := o.Values["confirm.rate"].Number, o.Values["agent.cpu"].Number
	line := fmt.Sprintf("ctl run FILE   # publishers: {mode: \"confirm-window\", maxInFlight: %d, persistent: %v}, consumers: nodes: 0, message: size: %d, options: %s",
		c.window, c.persistent, size, c.options)
	return sample{rate: rate, cpu: time.Duration(cpu / rate * float64(time.Second))}, line, nil
}

// latest returns the single outcome of the latest run.
func latest(runs string) (plan.Outcome, error) {
	var o plan.Outcome
	found, err := filepath.Glob(filepath.Join(runs, "*", "tasks", "*", "outcome.json"))
	if err != nil || len(found) == 0 {
		return o, fmt.Errorf("find an outcome under %s: %v", runs, err)
	}
	youngest, at := "", time.Time{}
	for _, f := range found {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(at) {
			youngest, at = f, info.ModTime()
		}
	}
	text, err := os.ReadFile(youngest)
	if err != nil {
		return o, fmt.Errorf("read outcome: %w", err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("read outcome %s: %w", youngest, err)
	}
	if o.Verdict != plan.Valid {
		return o, fmt.Errorf("the cell is %s: %v", o.Verdict, o.Reasons)
	}
	return o, nil
}
