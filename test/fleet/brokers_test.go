package fleet

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"example.org/lockstep/lockstep/internal/plan"
)

// deployment is the Ansible role of a broker with the settings of the test. It installs programs of this machine
// instead of downloads.
type deployment struct {
	broker string
	nodes  int
	// folder with the content of the broker's archive; nil: the broker is a package, and the hosts use this machine's
	// installation
	release func(t *testing.T, r *rig) string
	vars    string // YAML
	program string // program that runs on the hosts until the broker is removed
}

// Little memory for Java, because three brokers share this machine.
const smallJava = `
    %[1]s_java: ""
    %[1]s_heap: 256m
    %[1]s_java_options: [-XX:+UseSerialGC, -XX:TieredStopAtLevel=1]
    %[1]s_timeout: 300
`

// deployments are the brokers whose programs are available. MongoDB and EventStoreDB are not: their roles never run
// here, and test/roles only checks the files that they write.
var deployments = []deployment{
	{broker: "nats", nodes: 3, release: func(_ *testing.T, r *rig) string { return filepath.Join(r.programs, "nats-server") }, program: "nats-server", vars: `
    nats_port: 5222
    nats_cluster_port: 6322
    nats_http_port: 8322
    nats_max_memory: 256M
    nats_max_file: 1G
    nats_password: ` + password + `
    nats_timeout: 240
`},
	{broker: "kafka", nodes: 3, release: released("kafka"), program: "java", vars: fmt.Sprintf(smallJava, "kafka") + `
    kafka_cluster_id: TG9ja3N0ZXBGbGVldFRlcw
    kafka_properties: {offsets.topic.num.partitions: 1, log.cleaner.dedupe.buffer.size: 4194304}
`},
	{broker: "artemis", nodes: 2, release: released("artemis"), program: "java", vars: fmt.Sprintf(smallJava, "artemis") + `
    artemis_password: ` + password + `
    artemis_cluster_password: "a & b"
    artemis_max_memory: 64M
`},
	{broker: "activemq", nodes: 2, release: released("activemq"), program: "java", vars: fmt.Sprintf(smallJava, "activemq") + `
    activemq_password: "" # the lab's libraries do not have those for users
    activemq_shared: SHARED
    activemq_max_memory: 64 mb
    activemq_max_store: 1 gb
`},
	{broker: "rabbitmq", nodes: 3, program: "beam.smp", vars: `
    rabbitmq_install: false
    rabbitmq_default_queue_type: "" # Debian's release is too old to know it
    rabbitmq_cookie: sixteen-letters-or-more
    rabbitmq_password: ` + password + `
    rabbitmq_disk_free_limit: 100MB
    rabbitmq_timeout: 300
`},
}

// password is the password of the brokers' clients. It is also in the agents' secrets.
const password = "not.so-secret"

// released returns the path of a program of the lab.
func released(name string) func(*testing.T, *rig) string {
	return func(t *testing.T, _ *rig) string { return filepath.Join(lab(t, "LOCKSTEP_RELEASES"), name) }
}

// brokers installs each broker, runs a matrix with it, and removes it.
func brokers(t *testing.T, r *rig) {
	for _, d := range deployments {
		t.Run(d.broker, func(t *testing.T) {
			if d.broker != "nats" && os.Getenv("LOCKSTEP_LONG") == "" {
				t.Skip("takes minutes: LOCKSTEP_LONG=1 does it")
			}
			d.run(t, r)
		})
	}
}

func (d deployment) run(t *testing.T, r *rig) {
	hosts := r.hosts[:d.nodes]
	// The ids of new users differ between hosts, as on hosts that were not set up together.
	r.on(hosts[len(hosts)-1], "id other >/dev/null 2>&1 || useradd --system other")
	empty := map[*host]string{}
	for _, h := range hosts {
		empty[h] = r.on(h, d.traces())
	}
	out := t.TempDir()
	args := []string{"-i", d.inventory(t, r, out), "--limit", d.broker}
	r.playOn(t, d.nodes, "brokers.yml", args...)
	if os.Getenv("LOCKSTEP_LONG") != "" {
		if n := r.playOn(t, d.nodes, "brokers.yml", args...); n != 0 {
			t.Errorf("a second time brokers.yml changed %d things", n)
		}
	}
	for _, h := range hosts {
		// all brokers of a host need access to it
		if mode := r.on(h, "stat -c '%a %U' /srv/brokers"); mode != "755 root\n" {
			t.Errorf("/srv/brokers of %s is %s", h.name, mode)
		}
	}
	d.use(t, r, filepath.Join(out, d.broker+".cue"))
	if t.Failed() {
		for _, h := range hosts {
			t.Logf("%s:\n%s", h.name, r.on(h, "tail -n 60 /srv/brokers/*/log/* 2>&1 || true"))
		}
	}

	r.playOn(t, d.nodes, "brokers.yml", append(args, "-e", "brokers_state=absent")...)
	for _, h := range hosts {
		if left := r.on(h, d.traces()); left != empty[h] {
			t.Errorf("%s had before:\n%sand has after:\n%s", h.name, empty[h], left)
		}
	}
}

// use runs a matrix with the broker options that the role printed.
func (d deployment) use(t *testing.T, r *rig, snippet string) {
	says, err := os.ReadFile(snippet)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.run(t, r.matrix("deployed-"+d.broker, fmt.Sprintf(`
%s
axes: broker: [%q]
repeat: 1
cell: {
	axis: _
	publishers: {mode: "confirm-each", nodes: 1, rate: 50, on: host: "h2"}
	consumers: {nodes: 1, on: host: "h3"}
	warmup: "500ms"
	measure: "2s"
}
tables: [{rows: ["broker"], values: ["sent", "publish.p50", "lost", "broker.rss.max"]}]
`, says, d.broker))) {
		if o.Ledger.Lost != 0 || o.Ledger.Confirmed == 0 || o.Ledger.Received == 0 {
			t.Errorf("ledger %+v", o.Ledger)
		}
		if d.broker == "nats" {
			observed(t, o)
		}
	}
}

// observed checks that the outcome has metrics of the broker's process. The observer on the broker's host measures
// them, because no agent of the task runs there.
func observed(t *testing.T, o plan.Outcome) {
	t.Helper()
	if v := o.Values["broker.rss.max"]; v.Number < 1<<20 {
		t.Errorf("the broker's process has %v bytes: %v", v.Number, o.Warnings)
	}
}

// inventory returns an inventory with the broker's group and the location of its program.
func (d deployment) inventory(t *testing.T, r *rig, out string) string {
	text := "all:\n  vars:\n    broker_out: " + out + d.vars
	if d.release != nil {
		url, checksum := r.archive(t, d.release(t, r))
		text += fmt.Sprintf("    %[1]s_url: %[2]s\n    %[1]s_checksum: %[3]s\n", d.broker, url, checksum)
	}
	if strings.Contains(text, "SHARED") { // the hosts share the devices and the shared memory of this machine
		shared, err := os.MkdirTemp("/dev/shm", "lockstep-fleet-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(shared) })
		if err := os.Chmod(shared, 0o755); err != nil { // other users must be able to read it
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "SHARED", shared)
	}
	text += d.broker + ":\n  hosts:\n"
	for _, h := range r.hosts[:d.nodes] {
		text += "    " + h.name + ":\n"
	}
	file := filepath.Join(t.TempDir(), "brokers.yml")
	r.write(file, text)
	return file
}

// archive packs a program in the layout of its release archive, below one folder, and serves it until the end of the
// test.
func (r *rig) archive(t *testing.T, program string) (url, checksum string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "release.tar")
	from, what := program, "."
	if info, err := os.Stat(program); err != nil {
		t.Fatal(err)
	} else if !info.IsDir() {
		from, what = filepath.Dir(program), filepath.Base(program)
	}
	r.must("tar", "--create", "--dereference", "--file", file, "--mode", "u+rwX,go=rX", "--directory", from,
		"--transform", "s,^,release/,", what)
	packed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(r.bridge(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed) })}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String() + "/release.tar", fmt.Sprintf("sha256:%x", sha256.Sum256(packed))
}

// traces lists the files, processes and users of a broker on a host. RabbitMQ's epmd is left out: other Erlang programs
// may use it.
func (d deployment) traces() string {
	return traces + `
find /srv/brokers /opt -mindepth 1 -maxdepth 1 2>/dev/null | sort
cut -d: -f1 /etc/passwd
for p in /proc/[0-9]*; do readlink $p/exe; done | grep '/` + d.program + `$'
true`
}
