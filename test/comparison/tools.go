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
	"syscall"
	"time"
)

// contest is one broker, with the commands of both tools.
type contest struct {
	tool       string
	driver     string
	options    string // of the driver, in CUE
	window     int
	persistent bool
	theirs     func(ctx context.Context, s settings, size int) (sample, string, error)
}

// peers are the tools to compare with, by broker.
var peers = map[string]func() (contest, error){"kafka": kafka, "rabbitmq": rabbitmq, "nats": nats}

func variable(name string) (string, error) {
	if value := os.Getenv(name); value != "" {
		return value, nil
	}
	return "", fmt.Errorf("%s is not set; run this in the lab: make test-long PART=comparison", name)
}

// progress matches a line that a tool prints about once per second. Its first group is the number of messages per
// second.
type progress struct{ line *regexp.Regexp }

// javaOptions give a tool the options of Kafka's own scripts: the C2 compiler, G1 and 512 MB. The options of the lab
// are for a fast start of brokers. This variable overrides the command line.
const javaOptions = "_JAVA_OPTIONS=-Xmx512m -XX:-UseSerialGC -XX:+UseG1GC -XX:TieredStopAtLevel=4"

// watch runs a tool that prints its progress. It ignores the progress of the warm-up, in which the JVM compiles the
// code, and sums up the rest. The CPU time is that of the tool's process in the same period.
func watch(ctx context.Context, s settings, p progress, command []string) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, s.warmup+s.measure+60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), javaOptions)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return sample{}, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return sample{}, fmt.Errorf("start %s: %w", command[0], err)
	}
	defer func() { _ = cmd.Wait() }()
	var rates []float64
	var first, last time.Time
	var cpuFirst, cpuLast time.Duration
	started := time.Time{}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		found := p.line.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		now := time.Now()
		if started.IsZero() {
			started = now
		}
		switch {
		case now.Sub(started) < s.warmup:
		case first.IsZero():
			first, cpuFirst = now, processCPU(cmd.Process.Pid)
		default:
			rate, err := strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
			if err != nil {
				return sample{}, fmt.Errorf("read %q: %w", lines.Text(), err)
			}
			rates = append(rates, rate)
			last, cpuLast = now, processCPU(cmd.Process.Pid)
		}
		if !first.IsZero() && now.Sub(first) >= s.measure {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			break
		}
	}
	if len(rates) == 0 {
		return sample{}, errors.New("it printed no rate after its warm-up; see its output above")
	}
	if cpuLast <= cpuFirst {
		return sample{},
			errors.New("its CPU time is unknown, because it ended before the measurement; see its output above")
	}
	var sum float64
	for _, r := range rates {
		sum += r
	}
	mean := sum / float64(len(rates)) // of periods of equal length
	return sample{rate: mean, cpu: time.Duration(float64(cpuLast-cpuFirst) / (mean * last.Sub(first).Seconds()))}, nil
}

// quoted quotes an assignment for a shell.
func quoted(assignment string) string {
	name, value, _ := strings.Cut(assignment, "=")
	return name + "='" + value + "'"
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

func kafka() (contest, error) {
	brokers, err := variable("LOCKSTEP_KAFKA_BROKERS")
	if err != nil {
		return contest{}, err
	}
	tools, err := variable("LOCKSTEP_KAFKA_TOOLS")
	if err != nil {
		return contest{}, err
	}
	client := os.Getenv("LOCKSTEP_COMPARISON_KAFKA_CLIENT")
	if client == "" {
		client = "franz-go"
	}
	return contest{
		tool: "kafka-producer-perf-test (Lockstep's client: " + client + ")", driver: "kafka", window: 20_000,
		persistent: true,
		options:    fmt.Sprintf("{brokers: [%q], client: %q, acks: \"all\", partitions: 1, linger: \"5ms\", batchBytes: 16384}", brokers, client),
		theirs: func(ctx context.Context, s settings, size int) (sample, string, error) {
			command := []string{tools, "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", brokers,
				"--topic", "peer",
				"--num-records", "1000000000", "--record-size", strconv.Itoa(size), "--throughput", "-1",
				"--reporting-interval", "1000",
				"--command-property", "acks=all", "linger.ms=5", "batch.size=16384", "enable.idempotence=false"}
			x, err := watch(ctx, s, progress{regexp.MustCompile(`([0-9.]+) records/sec \(`)}, command)
			return x, quoted(javaOptions) + " kafka-producer-perf-test " + strings.Join(command[2:], " "), err
		},
	}, nil
}

func rabbitmq() (contest, error) {
	url, err := variable("LOCKSTEP_RABBITMQ_URL")
	if err != nil {
		return contest{}, err
	}
	perftest, err := variable("LOCKSTEP_PERFTEST")
	if err != nil {
		return contest{}, err
	}
	return contest{
		tool: "RabbitMQ PerfTest", driver: "rabbitmq", window: 1000, persistent: true,
		options: fmt.Sprintf("{url: %q, queue: {maxLength: 10000, overflow: \"drop-head\"}}", url),
		theirs: func(ctx context.Context, s settings, size int) (sample, string, error) {
			command := []string{perftest, "-h", strings.TrimSuffix(url, "/") + "/%2f", "-x", "1", "-y", "0", "-u",
				"peer", "-f", "persistent", "-c", "1000",
				"-s", strconv.Itoa(size), "-qa", "x-max-length=10000,x-overflow=drop-head", "-z",
				strconv.Itoa(int((s.warmup + s.measure).Seconds()) + 5)}
			x, err := watch(ctx, s, progress{regexp.MustCompile(`confirmed: ([0-9,.]+) msg/s`)}, command)
			return x, quoted(javaOptions) + " perf-test " + strings.Join(command[1:], " "), err
		},
	}, nil
}

func nats() (contest, error) {
	url, err := variable("LOCKSTEP_NATS_URL")
	if err != nil {
		return contest{}, err
	}
	bench, err := variable("LOCKSTEP_NATSBENCH")
	if err != nil {
		return contest{}, err
	}
	return contest{
		tool: "nats bench js pub async", driver: "nats", window: 500, persistent: true,
		options: fmt.Sprintf("{url: %q}", url),
		theirs: func(ctx context.Context, s settings, size int) (sample, string, error) {
			n := 100_000 * int(s.measure.Seconds()) // the tool takes a count, not a duration
			if size > 500 {
				n /= 3
			}
			command := []string{bench, "bench", "js", "pub", "async", "peer", "--server", url, "--no-progress",
				"--create", "--purge", "--storage", "file",
				"--batch", "500", "--msgs", strconv.Itoa(n), "--size", strconv.Itoa(size)}
			x, err := whole(ctx, s, n, regexp.MustCompile(`([0-9][0-9,.]*) msgs/sec`), command)
			return x, "nats " + strings.Join(command[1:], " "), err
		},
	}, nil
}

// whole runs a tool without a JVM. It needs no warm-up and prints its rate at the end.
func whole(ctx context.Context, s settings, n int, rate *regexp.Regexp, command []string) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*s.measure+60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return sample{}, fmt.Errorf("run %s: %w\n%s", command[0], err, text)
	}
	found := rate.FindStringSubmatch(string(text))
	if found == nil {
		return sample{}, fmt.Errorf("it printed no rate:\n%s", text)
	}
	r, err := strconv.ParseFloat(strings.ReplaceAll(found[1], ",", ""), 64)
	if err != nil {
		return sample{}, fmt.Errorf("read %q: %w", found[0], err)
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return sample{rate: r, cpu: used / time.Duration(n)}, nil
}
