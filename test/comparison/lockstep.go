package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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

// cell is a cell with publishers only, or with consumers only.
type cell struct {
	driver  string
	options string // in CUE
	fields  string // in CUE
	rate    string // value with the rate
	total   string // value with the number of messages, warm-up included
}

// publishes returns a cell with one publisher of persistent messages, in mode confirm-window.
func publishes(driver, options string, window, size int) cell {
	return cell{driver, options, fmt.Sprintf("publishers: maxInFlight: %d\nconsumers: nodes: 0\nmessage: size: %d", window,
		size), "confirm.rate", "confirmed"}
}

// consumes returns a cell with one consumer of an existing queue. fields are those of consumers.
func consumes(driver, options, queue, fields string) cell {
	return cell{driver, options, fmt.Sprintf("publishers: nodes: 0\nconsumers: {%s}\ntopology: existing: %q", fields, queue),
		"consume.rate", "received"}
}

func (c cell) String() string {
	return fmt.Sprintf("Lockstep: driver: %q, options: %s\n%s", c.driver, c.options, c.fields)
}

// lockstep runs a cell in one process. Its CPU time includes the controller, the control plane and the record.
func lockstep(ctx context.Context, s settings, c cell) (sample, error) {
	file, runs := filepath.Join(s.dir, "matrix.cue"), filepath.Join(s.dir, "runs")
	if err := os.RemoveAll(runs); err != nil {
		return sample{}, fmt.Errorf("remove the previous run: %w", err)
	}
	text := fmt.Sprintf(`package matrix

name: "comparison"
brokers: %[1]s: {driver: %[1]q, options: %[2]s}
cell: {
%[3]s
warmup: "%[4]v"
measure: "%[5]v"
drain: {idle: "2s", timeout: "10s"}
}
`, c.driver, c.options, c.fields, s.warmup, s.measure)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return sample{}, fmt.Errorf("write matrix: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.warmup+s.measure+toolLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.ctl, "run", "--runs", runs, file)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return sample{}, fmt.Errorf("run ctl: %w\n%s", err, output.String())
	}
	o, err := outcome(runs)
	if err != nil {
		return sample{}, err
	}
	var missing []error
	value := func(name string) float64 {
		v, known := o.Values[name]
		if !known || v.NA != "" || v.Number <= 0 {
			missing = append(missing, fmt.Errorf("%s is %v %s", name, v.Number, v.NA))
		}
		return v.Number
	}
	rate, total, cores := value(c.rate), value(c.total), value("agent.cpu")
	if len(missing) > 0 {
		return sample{}, fmt.Errorf("read the values of the run: %w\n%s", errors.Join(missing...), output.String())
	}
	return sample{rate: rate, cpu: time.Duration(cores / rate * float64(time.Second)),
		whole: perMessage(cmd.ProcessState, total)}, nil
}

// perMessage returns the CPU time of a process that has ended, per message.
func perMessage(p *os.ProcessState, messages float64) time.Duration {
	return time.Duration(float64(p.UserTime()+p.SystemTime()) / messages)
}

// outcome returns the outcome of the only task in a folder of runs.
func outcome(runs string) (plan.Outcome, error) {
	var o plan.Outcome
	found, err := filepath.Glob(filepath.Join(runs, "*", "tasks", "*", "outcome.json"))
	if err != nil || len(found) == 0 {
		return o, fmt.Errorf("find an outcome under %s: %v", runs, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		return o, fmt.Errorf("read outcome: %w", err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("read outcome %s: %w", found[0], err)
	}
	if o.Verdict != plan.Valid {
		return o, fmt.Errorf("the cell is %s: %v", o.Verdict, o.Reasons)
	}
	return o, nil
}
