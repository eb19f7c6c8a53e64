package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The reports of the tools. The first group is a rate in messages per second. PerfTest and Kafka's tools print such a
// line every reportEvery, and nats bench one at the end.
var (
	perfTestConfirmed = regexp.MustCompile(`confirmed: ([0-9,.]+) msg/s`)
	perfTestReceived  = regexp.MustCompile(`received: ([0-9,.]+) msg/s`)
	kafkaProduced     = regexp.MustCompile(`(?m)records sent, ([0-9.]+) records/sec \(.* max latency\.$`)
	kafkaConsumed     = regexp.MustCompile(`(?m)^[0-9-]+ [0-9:]+, \d+, [0-9.]+, [0-9.]+, \d+, ([0-9.]+),`)
	natsBenched       = regexp.MustCompile(`([0-9][0-9,.]*) msgs/sec`)
)

const (
	reportEvery = time.Second
	toolLimit   = time.Minute     // for the start and the end of a side
	fillLimit   = 5 * time.Minute // for a tool that handles a number of messages
)

// javaOptions give a tool the options of Kafka's own scripts: the C2 compiler, G1 and 512 MB. The options of the lab
// are for a fast start of brokers. This variable overrides the command line.
const javaOptions = "_JAVA_OPTIONS=-Xmx512m -XX:-UseSerialGC -XX:+UseG1GC -XX:TieredStopAtLevel=4"

// variables returns the address of a broker and the path of its tool.
func variables(address, tool string) (string, string, error) {
	for _, name := range []string{address, tool} {
		if os.Getenv(name) == "" {
			return "", "", fmt.Errorf("%s is not set; run this in the lab: make test-long PART=comparison", name)
		}
	}
	return os.Getenv(address), os.Getenv(tool), nil
}

// rateIn returns the rate in a line of a tool.
func rateIn(line string, pattern *regexp.Regexp) (rate float64, ok bool) {
	found := pattern.FindStringSubmatch(line)
	if found == nil {
		return 0, false
	}
	rate, err := strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
	return rate, err == nil
}

// reading is the progress of a tool at one time.
type reading struct {
	at       time.Time
	messages float64
	cpu      time.Duration
}

// meter computes the sample of a tool from the rates that it reports.
type meter struct {
	warmup, measure time.Duration
	started         time.Time
	first, last     reading // of the measured time, and of all
}

// add adds the rate since the previous report. It returns true when the measured time is over.
func (m *meter) add(at time.Time, rate float64, cpu time.Duration) bool {
	if m.started.IsZero() {
		m.started = at.Add(-reportEvery)
		m.last.at = m.started
	}
	m.last = reading{at, m.last.messages + rate*at.Sub(m.last.at).Seconds(), cpu}
	if m.first.at.IsZero() {
		if at.Sub(m.started) >= m.warmup {
			m.first = m.last
		}
		return false
	}
	return at.Sub(m.first.at) >= m.measure
}

// sample returns the result. ok is false if nothing was measured.
func (m *meter) sample() (s sample, ok bool) {
	messages := m.last.messages - m.first.messages
	if m.first.at.IsZero() || messages <= 0 || m.last.at.Equal(m.first.at) {
		return sample{}, false
	}
	return sample{rate: messages / m.last.at.Sub(m.first.at).Seconds(),
		cpu: time.Duration(float64(m.last.cpu-m.first.cpu) / messages)}, true
}

// watch runs a tool that reports rates, and kills it when the measured time is over. In the warm-up, the JVM compiles
// the code. A tool that ends before, because it has consumed everything, has measured the time until then.
func watch(ctx context.Context, s settings, pattern *regexp.Regexp, command []string) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, s.warmup+s.measure+toolLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), javaOptions)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return sample{}, fmt.Errorf("start %s: %w", command[0], err)
	}
	m := meter{warmup: s.warmup, measure: s.measure}
	var text strings.Builder // of the lines without a rate
	over := false
	for lines := bufio.NewScanner(out); !over && lines.Scan(); {
		if rate, ok := rateIn(lines.Text(), pattern); ok {
			over = m.add(time.Now(), rate, processCPU(cmd.Process.Pid))
		} else if text.Len() < 1<<16 {
			text.WriteString(lines.Text() + "\n")
		}
	}
	if over {
		_ = cmd.Process.Kill()
	}
	err = cmd.Wait()
	x, measured := m.sample()
	switch {
	case !over && err != nil:
		return sample{}, fmt.Errorf("run %s: %w\n%s", command[0], errors.Join(context.Cause(ctx), err), text.String())
	case !measured:
		return sample{}, fmt.Errorf("%s reported no rate after its warm-up:\n%s", command[0], text.String())
	}
	x.whole = perMessage(cmd.ProcessState, m.last.messages)
	return x, nil
}

// whole runs a tool without a JVM, which handles n messages and reports its rate at the end.
func whole(ctx context.Context, pattern *regexp.Regexp, n int, command []string) (sample, error) {
	text, state, err := output(ctx, command)
	if err != nil {
		return sample{}, err
	}
	rate, ok := rateIn(text, pattern)
	if !ok {
		return sample{}, fmt.Errorf("%s reported no rate:\n%s", command[0], text)
	}
	cpu := perMessage(state, float64(n))
	return sample{rate: rate, cpu: cpu, whole: cpu}, nil
}

// output runs a tool until it ends.
func output(ctx context.Context, command []string) (string, *os.ProcessState, error) {
	ctx, cancel := context.WithTimeout(ctx, fillLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("run %s: %w\n%s", command[0], errors.Join(context.Cause(ctx), err), text)
	}
	return string(text), cmd.ProcessState, nil
}

// processCPU returns the CPU time of a process, user and system; 0 if it has ended.
func processCPU(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}
