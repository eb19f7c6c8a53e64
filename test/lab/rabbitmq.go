package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

// rabbitServer is run directly: the script in the path changes the user and clears the environment.
const rabbitServer = "/usr/lib/rabbitmq/bin/rabbitmq-server"

var rabbitNeeds = []need{debian{file: rabbitServer, packages: "rabbitmq-server"}}

// rabbit40 is RabbitMQ 4.0 with its Erlang, from Debian 13.
var rabbit40 = newReleaseRoot("rabbitmq-4.0", "trixie", "rabbitmq-server=4.0.*")

// rabbit43 is the RabbitMQ of Debian's development release, at least 4.3, with its Erlang.
var rabbit43 = newReleaseRoot("rabbitmq-4.3", "sid", "rabbitmq-server")

// rabbitHome describes where the programs of one cluster run.
type rabbitHome struct {
	dir    string   // folder of the cluster
	inside string   // the same folder as seen by the programs
	enter  []string // prefix of each command line; empty for the system's own RabbitMQ
	epmd   string   // path of epmd
	config string   // further lines of rabbitmq.conf
}

// systemRabbit runs RabbitMQ from the system's packages.
func systemRabbit(_ *site, dir string) (rabbitHome, error) {
	epmd, err := exec.LookPath("epmd")
	if err != nil {
		return rabbitHome{}, fmt.Errorf("find Erlang's epmd: %w", err)
	}
	return rabbitHome{dir: dir, inside: dir, epmd: epmd}, nil
}

// originalDefault is the default of RabbitMQ 4.3. Debian's package permits the deprecated feature.
const originalDefault = "deprecated_features.permit.transient_nonexcl_queues = false\n"

// rabbitIn runs RabbitMQ in a separate root, with further lines of its configuration.
func rabbitIn(root releaseRoot, config string) func(*site, string) (rabbitHome, error) {
	return func(s *site, dir string) (rabbitHome, error) {
		script, err := root.enter(s, dir)
		if err != nil {
			return rabbitHome{}, fmt.Errorf("write the script that changes the root: %w", err)
		}
		return rabbitHome{dir: dir, inside: instanceInRoot, enter: []string{script}, epmd: "/usr/bin/epmd",
			config: config}, nil
	}
}

// command returns a command line that runs in this home.
func (h rabbitHome) command(line ...string) []string { return slices.Concat(h.enter, line) }

// rabbitNode is one node with its ports.
type rabbitNode struct {
	name             string // Erlang node name: rmq1@localhost
	dir              string
	inside           string // the same folder as seen by the node
	amqp, dist, http int
	prometheus       int

	tlsAMQP, tlsHTTP, tlsPrometheus int
}

// planRabbitMQ plans a single node. Its variables begin with LOCKSTEP_ and the part's name.
func planRabbitMQ(part string, home func(*site, string) (rabbitHome, error)) planFunc {
	prefix := variablePrefix(part)
	return func(s *site, dir string, ports []int) (*Plan, error) {
		return planRabbit(s, dir, ports, part, 1, home, func(nodes []rabbitNode, _ rabbitNode) []string {
			return []string{
				prefix + "_URL=" + nodes[0].url(),
				prefix + "_MANAGEMENT=" + nodes[0].management(),
				prefix + "_PROMETHEUS=" + nodes[0].metrics(),
				prefix + "_CTL=" + filepath.Join(nodes[0].dir, "rabbitmqctl"),
				prefix + "_TLS_URL=" + fmt.Sprintf("amqps://guest:guest@localhost:%d/", nodes[0].tlsAMQP),
				prefix + "_TLS_MANAGEMENT=" + fmt.Sprintf("https://guest:guest@localhost:%d", nodes[0].tlsHTTP),
				prefix + "_TLS_PROMETHEUS=" + fmt.Sprintf("https://localhost:%d", nodes[0].tlsPrometheus),
				prefix + "_TLS_FILES=" + filepath.Join(dir, tlsFiles),
			}
		})
	}
}

func planRabbitMQ3(s *site, dir string, ports []int) (*Plan, error) {
	return planRabbit(s, dir, ports, "rabbitmq3", 3, systemRabbit, func(nodes []rabbitNode, all rabbitNode) []string {
		var urls, metrics []string
		for _, n := range nodes {
			urls = append(urls, n.url())
			metrics = append(metrics, n.metrics())
		}
		return []string{
			"LOCKSTEP_RABBITMQ3_URLS=" + strings.Join(urls, ","),
			"LOCKSTEP_RABBITMQ3_MANAGEMENT=" + nodes[0].management(),
			"LOCKSTEP_RABBITMQ3_PROMETHEUS=" + strings.Join(metrics, ","),
			"LOCKSTEP_RABBITMQ3_BALANCED=" + all.url(),
			"LOCKSTEP_RABBITMQ3_CTL=" + filepath.Join(nodes[0].dir, "rabbitmqctl"),
		}
	})
}

// planRabbit plans a cluster of size nodes with its own epmd (Erlang's name service), so that node names do not
// conflict with those of another lab, and epmd is stopped with the lab. A cluster also has a load balancer, which env
// receives as another node.
func planRabbit(s *site, dir string, ports []int, name string, size int, in func(*site, string) (rabbitHome, error),
	env func(nodes []rabbitNode, all rabbitNode) []string) (*Plan, error) {
	home, err := in(s, dir)
	if err != nil {
		return nil, err
	}
	if _, err := writeCertificates(dir); err != nil {
		return nil, err
	}
	cookie := filepath.Join(dir, ".erlang.cookie")
	if err := os.WriteFile(cookie, []byte("lockstep"+strconv.Itoa(rand.Int())), 0o400); err != nil {
		return nil, fmt.Errorf("write Erlang's cookie: %w", err)
	}
	base := append(os.Environ(), "HOME="+home.inside, "ERL_EPMD_PORT="+strconv.Itoa(ports[0]),
		"ERL_EPMD_ADDRESS=127.0.0.1")
	plan := &Plan{Helpers: []*Process{{
		Name: name + "-epmd", Dir: dir, Env: base, Log: filepath.Join(dir, "epmd.log"),
		Command: home.command(home.epmd, "-port", strconv.Itoa(ports[0]), "-address", "127.0.0.1"),
	}}}
	nodes := make([]rabbitNode, size)
	for i := range nodes {
		p := ports[1+4*i:]
		id := strconv.Itoa(i + 1)
		nodes[i] = rabbitNode{
			name: "rmq" + id + "@localhost", dir: filepath.Join(dir, "n"+id),
			inside: filepath.Join(home.inside, "n"+id),
			amqp:   p[0], dist: p[1], http: p[2], prometheus: p[3],
		}
		t := ports[1+4*size+1+3*i:]
		nodes[i].tlsAMQP, nodes[i].tlsHTTP, nodes[i].tlsPrometheus = t[0], t[1], t[2]
		process, err := nodes[i].configure(home, base, size, ports[0])
		if err != nil {
			return nil, fmt.Errorf("configure RabbitMQ node %s: %w", id, err)
		}
		process.Name = numbered(name, i+1, size)
		process.Ready = func(ctx context.Context) error { return nodes[i].ready(ctx, len(plan.running())) }
		plan.Processes = append(plan.Processes, process)
	}
	all := rabbitNode{amqp: ports[1+4*size]}
	if size > 1 {
		if err := plan.addBalancer(name, dir, all.amqp, nodes); err != nil {
			return nil, err
		}
	}
	plan.Env, plan.Version = env(nodes, all), nodes[0].version
	return plan, nil
}

// addBalancer adds a load balancer for all nodes. It is this program, started as a helper.
func (p *Plan) addBalancer(name, dir string, port int, nodes []rabbitNode) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the lab's own program: %w", err)
	}
	command := []string{self, "balance", loopback(port)}
	for _, n := range nodes {
		command = append(command, loopback(n.amqp))
	}
	p.Helpers = append(p.Helpers, &Process{Name: name + "-balancer", Dir: dir, Log: filepath.Join(dir, "balancer.log"),
		Command: command})
	return nil
}

func (n rabbitNode) url() string {
	return fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", n.amqp)
}

func (n rabbitNode) management() string {
	return fmt.Sprintf("http://guest:guest@127.0.0.1:%d", n.http)
}

func (n rabbitNode) metrics() string {
	return fmt.Sprintf("http://127.0.0.1:%d", n.prometheus)
}

func (n rabbitNode) configure(home rabbitHome, base []string, size, epmd int) (*Process, error) {
	var cluster string
	if size > 1 {
		cluster = "cluster_formation.peer_discovery_backend = classic_config\n"
		for i := 1; i <= size; i++ {
			cluster += fmt.Sprintf("cluster_formation.classic_config.nodes.%d = rmq%d@localhost\n", i, i)
		}
	}
	files := drivertest.Certificates(filepath.Join(home.inside, tlsFiles))
	encrypted := fmt.Sprintf("listeners.ssl.1 = 127.0.0.1:%d\nmanagement.ssl.ip = 127.0.0.1\nmanagement.ssl.port = %d\n"+
		"prometheus.ssl.ip = 127.0.0.1\nprometheus.ssl.port = %d\n", n.tlsAMQP, n.tlsHTTP, n.tlsPrometheus)
	for _, options := range []string{"ssl_options", "management.ssl", "prometheus.ssl"} {
		encrypted += fmt.Sprintf("%[1]s.cacertfile = %[2]s\n%[1]s.certfile = %[3]s\n%[1]s.keyfile = %[3]s\n"+
			"%[1]s.verify = verify_peer\n%[1]s.fail_if_no_peer_cert = true\n", options, files.CA(), files.Broker())
	}
	// Small socket buffers: Erlang counts them as memory of each connection.
	config := fmt.Sprintf(`management.tcp.ip = 127.0.0.1
management.tcp.port = %d
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = %d
collect_statistics_interval = 1000
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 100MB
tcp_listen_options.sndbuf = 65536
tcp_listen_options.recbuf = 65536
log.console = false
log.file.level = warning
%s%s%s`, n.http, n.prometheus, encrypted, cluster, home.config)
	control := fmt.Sprintf("#!/bin/sh\nHOME='%s' ERL_EPMD_PORT=%d exec '%s' -n %s \"$@\"\n",
		home.inside, epmd, strings.Join(home.command("/usr/lib/rabbitmq/bin/rabbitmqctl"), "' '"), n.name)
	written := []struct {
		name, text string
		mode       os.FileMode
	}{
		{"rabbitmq.conf", config, 0o600},
		{"enabled_plugins", "[rabbitmq_management,rabbitmq_prometheus].\n", 0o600},
		{"rabbitmqctl", control, 0o700},
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "log"), 0o700); err != nil {
		return nil, err
	}
	for _, f := range written {
		if err := os.WriteFile(filepath.Join(n.dir, f.name), []byte(f.text), f.mode); err != nil {
			return nil, err
		}
	}
	at := func(name string) string { return filepath.Join(n.inside, name) }
	return &Process{
		Command: home.command(rabbitServer), Dir: n.dir, Log: filepath.Join(n.dir, "log", "output"),
		Env: append(base[:len(base):len(base)],
			"RABBITMQ_CONF_ENV_FILE=/dev/null", // ignore the machine's configuration
			// the script execs the broker, so the broker receives signals and ends with the lab
			"RUNNING_UNDER_SYSTEMD=true",
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

// ready returns an error until the node sees size running nodes of its cluster and accepts connections.
func (n rabbitNode) ready(ctx context.Context, size int) error {
	running, err := runningNodes(ctx, n.management())
	if err != nil {
		return err
	}
	if running < size { // may be more: a hung node is not removed at once
		return fmt.Errorf("it sees %d of %d nodes running", running, size)
	}
	for _, port := range []int{n.amqp, n.prometheus} {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", loopback(port))
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	return nil
}

// version returns the release that the node reports.
func (n rabbitNode) version(ctx context.Context) (string, error) {
	var overview struct {
		Version string `json:"rabbitmq_version"`
	}
	err := get(ctx, n.management()+"/api/overview", &overview)
	return "RabbitMQ " + overview.Version, err
}

func runningNodes(ctx context.Context, management string) (int, error) {
	var nodes []struct {
		Running bool `json:"running"`
	}
	if err := get(ctx, management+"/api/nodes", &nodes); err != nil {
		return 0, err
	}
	running := 0
	for _, n := range nodes {
		if n.Running {
			running++
		}
	}
	return running, nil
}
