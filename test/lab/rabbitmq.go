package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// rabbitServer is run directly: the one in the path changes to another user and loses the environment.
const rabbitServer = "/usr/lib/rabbitmq/bin/rabbitmq-server"

func installRabbitMQ(ctx context.Context, out io.Writer) error {
	if _, err := os.Stat(rabbitServer); err == nil {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("RabbitMQ is not installed: run \"apt-get install rabbitmq-server\" as root")
	}
	fmt.Fprintln(out, "lab: installing rabbitmq-server with apt-get")
	for _, args := range [][]string{{"update"}, {"install", "-y", "--no-install-recommends", "rabbitmq-server"}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", args[0], err, text)
		}
	}
	if _, err := os.Stat(rabbitServer); err != nil {
		return fmt.Errorf("install rabbitmq-server: %w", err)
	}
	return nil
}

// rabbitNode is one node, with the ports that it listens on.
type rabbitNode struct {
	name             string // Erlang's: rmq1@localhost
	dir              string
	amqp, dist, http int
}

func planRabbitMQ(dir string) (*Plan, error) {
	return planRabbit(dir, "rabbitmq", 1, func(nodes []rabbitNode) []string {
		return []string{
			"LOCKSTEP_RABBITMQ_URL=" + nodes[0].url(),
			"LOCKSTEP_RABBITMQ_MANAGEMENT=" + nodes[0].management(),
			"LOCKSTEP_RABBITMQ_PID=" + nodes[0].pid(),
			"LOCKSTEP_RABBITMQ_CTL=" + filepath.Join(nodes[0].dir, "rabbitmqctl"),
		}
	})
}

func planRabbitMQ3(dir string) (*Plan, error) {
	return planRabbit(dir, "rabbitmq3", 3, func(nodes []rabbitNode) []string {
		var urls, pids []string
		for _, n := range nodes {
			urls = append(urls, n.url())
			pids = append(pids, n.pid())
		}
		return []string{
			"LOCKSTEP_RABBITMQ3_URLS=" + strings.Join(urls, ","),
			"LOCKSTEP_RABBITMQ3_MANAGEMENT=" + nodes[0].management(),
			"LOCKSTEP_RABBITMQ3_PIDS=" + strings.Join(pids, ","),
			"LOCKSTEP_RABBITMQ3_CTL=" + filepath.Join(nodes[0].dir, "rabbitmqctl"),
		}
	})
}

// planRabbit plans a cluster of size nodes, with an epmd (Erlang's name service) of its own, so that node names do not
// collide with those of another lab and nothing is left behind.
func planRabbit(dir, name string, size int, env func([]rabbitNode) []string) (*Plan, error) {
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return nil, fmt.Errorf("find Erlang's epmd: %w", err)
	}
	ports, err := freePorts(1 + 3*size)
	if err != nil {
		return nil, err
	}
	cookie := filepath.Join(dir, ".erlang.cookie")
	if err := os.WriteFile(cookie, []byte("lockstep"+strconv.Itoa(rand.Int())), 0o400); err != nil {
		return nil, fmt.Errorf("write Erlang's cookie: %w", err)
	}
	base := append(os.Environ(), "HOME="+dir, "ERL_EPMD_PORT="+strconv.Itoa(ports[0]), "ERL_EPMD_ADDRESS=127.0.0.1")
	plan := &Plan{Helpers: []*Process{{
		Name: name + "-epmd", Dir: dir, Env: base, Log: filepath.Join(dir, "epmd.log"),
		Command: []string{epmd, "-port", strconv.Itoa(ports[0]), "-address", "127.0.0.1"},
	}}}
	nodes := make([]rabbitNode, size)
	for i := range nodes {
		p := ports[1+3*i:]
		id := strconv.Itoa(i + 1)
		nodes[i] = rabbitNode{name: "rmq" + id + "@localhost", dir: filepath.Join(dir, "n"+id), amqp: p[0], dist: p[1], http: p[2]}
		process, err := nodes[i].configure(base, size, epmdSettings{port: ports[0], home: dir})
		if err != nil {
			return nil, fmt.Errorf("configure RabbitMQ node %s: %w", id, err)
		}
		process.Name = name
		if size > 1 {
			process.Name += "-" + id
		}
		plan.Processes = append(plan.Processes, process)
	}
	plan.Ready = func(ctx context.Context) error { return rabbitReady(ctx, nodes) }
	plan.Env = func() []string { return env(nodes) }
	return plan, nil
}

// epmdSettings are what every program of a cluster needs to find the others.
type epmdSettings struct {
	port int
	home string
}

func (n rabbitNode) url() string {
	return fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", n.amqp)
}

func (n rabbitNode) management() string {
	return fmt.Sprintf("http://guest:guest@127.0.0.1:%d", n.http)
}

// pid is the broker's own process; what was started is a shell around it.
func (n rabbitNode) pid() string {
	text, err := os.ReadFile(filepath.Join(n.dir, "pid"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func (n rabbitNode) configure(base []string, size int, epmd epmdSettings) (*Process, error) {
	var cluster string
	if size > 1 {
		cluster = "cluster_formation.peer_discovery_backend = classic_config\n"
		for i := 1; i <= size; i++ {
			cluster += fmt.Sprintf("cluster_formation.classic_config.nodes.%d = rmq%d@localhost\n", i, i)
		}
	}
	// Small socket buffers: Erlang accounts them as memory for each connection.
	config := fmt.Sprintf(`management.tcp.ip = 127.0.0.1
management.tcp.port = %d
collect_statistics_interval = 1000
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 100MB
tcp_listen_options.sndbuf = 65536
tcp_listen_options.recbuf = 65536
log.console = false
log.file.level = warning
%s`, n.http, cluster)
	control := fmt.Sprintf("#!/bin/sh\nHOME='%s' ERL_EPMD_PORT=%d exec /usr/lib/rabbitmq/bin/rabbitmqctl -n %s \"$@\"\n",
		epmd.home, epmd.port, n.name)
	files := []struct {
		name, text string
		mode       os.FileMode
	}{
		{"rabbitmq.conf", config, 0o600},
		{"enabled_plugins", "[rabbitmq_management].\n", 0o600},
		{"rabbitmqctl", control, 0o700},
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "log"), 0o700); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(n.dir, f.name), []byte(f.text), f.mode); err != nil {
			return nil, err
		}
	}
	at := func(name string) string { return filepath.Join(n.dir, name) }
	return &Process{
		Command: []string{rabbitServer}, Dir: n.dir, Log: at("log/output"),
		Env: append(base[:len(base):len(base)],
			"RABBITMQ_CONF_ENV_FILE=/dev/null", // not this machine's own
			"RABBITMQ_NODENAME="+n.name,
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			"RABBITMQ_NODE_PORT="+strconv.Itoa(n.amqp),
			"RABBITMQ_DIST_PORT="+strconv.Itoa(n.dist),
			"RABBITMQ_MNESIA_BASE="+at("mnesia"),
			"RABBITMQ_LOG_BASE="+at("log"),
			"RABBITMQ_PID_FILE="+at("pid"),
			"RABBITMQ_GENERATED_CONFIG_DIR="+at("generated"),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+at("enabled_plugins"),
			"RABBITMQ_CONFIG_FILE="+at("rabbitmq.conf"),
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
			"ERL_CRASH_DUMP="+at("log/erl_crash.dump"),
		),
	}, nil
}

// rabbitReady says what is missing until every node runs in one cluster and takes connections.
func rabbitReady(ctx context.Context, nodes []rabbitNode) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, n := range nodes {
		running, err := runningNodes(ctx, n.management())
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		if running != len(nodes) {
			return fmt.Errorf("%s sees %d of %d nodes running", n.name, running, len(nodes))
		}
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n.amqp)))
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		_ = conn.Close()
	}
	return nil
}

func runningNodes(ctx context.Context, management string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, management+"/api/nodes", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var nodes []struct {
		Running bool `json:"running"`
	}
	if err := json.NewDecoder(response.Body).Decode(&nodes); err != nil {
		return 0, fmt.Errorf("read the management API's nodes: %w", err)
	}
	running := 0
	for _, n := range nodes {
		if n.Running {
			running++
		}
	}
	return running, nil
}

// freePorts chooses ports that nobody listens on, below those that the system gives to outgoing connections.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer listener.Close() // until all are chosen, so that they differ
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports between 20000 and 32000", n)
}
