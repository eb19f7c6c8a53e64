package roles

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/internal/matrix"
	_ "example.org/lockstep/lockstep/pkg/drivers/all"
)

// Three hosts that have all brokers and their programs. Nothing is started.
const inventory = `
all:
  vars:
    ansible_connection: local
    ansible_python_interpreter: /usr/bin/python3
    ansible_become: false
    lockstep_service: unit
    broker_root: DIR
    broker_units: DIR/units
    broker_out: DIR/out
    broker_user: root
    nats_install: false
    nats_user: root
    nats_home: /opt/nats
    nats_password: 'a "quoted" secret'
    rabbitmq_install: false
    rabbitmq_user: root
    rabbitmq_cookie: sixteen-letters-or-more
    rabbitmq_password: secret
    kafka_install: false
    kafka_user: root
    kafka_java: ""
    kafka_cluster_id: TG9ja3N0ZXBMYWJLYWZrYQ
    artemis_install: false
    artemis_user: root
    artemis_java: ""
    artemis_password: "a < b"
    artemis_cluster_password: "c & d"
    activemq_install: false
    activemq_user: root
    activemq_java: ""
    activemq_password: "a < b"
    activemq_shared: DIR/shared
    mongodb_install: false
    mongodb_user: root
    mongodb_keyfile: a2V5ZmlsZQ==
    mongodb_password: secret
    eventstore_install: false
    eventstore_user: root
    eventstore_insecure: true
  hosts:
    n1: {ansible_host: 10.9.0.1}
    n2: {ansible_host: 10.9.0.2}
    n3: {ansible_host: 10.9.0.3}
  children:
    nats: {hosts: {n1: , n2: , n3: }}
    rabbitmq: {hosts: {n1: , n2: , n3: }}
    kafka: {hosts: {n1: , n2: , n3: }}
    artemis: {hosts: {n1: , n2: }}
    activemq: {hosts: {n1: , n2: }}
    mongodb: {hosts: {n1: , n2: , n3: }}
    eventstore: {hosts: {n1: , n2: , n3: }}
`

var brokers = []string{"activemq", "artemis", "eventstore", "kafka", "mongodb", "nats", "rabbitmq"}

func TestPlaybookSyntax(t *testing.T) {
	bin := ansible(t)
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts.yml")
	write(t, hosts, inventory)
	execute(t, 5*time.Minute, environment(bin, dir), filepath.Join(bin, "ansible-playbook"), "--syntax-check", "-i",
		hosts, "brokers.yml")
}

// TestLint checks the roles with the strictest profile of ansible-lint.
func TestLint(t *testing.T) {
	long(t)
	bin := ansible(t)
	lint := filepath.Join(bin, "ansible-lint")
	if _, err := exec.LookPath(lint); err != nil {
		t.Skip("no ansible-lint beside ansible-playbook")
	}
	args := []string{"--offline", "--nocolor", "--profile", "production", "brokers.yml", "roles/broker"}
	for _, b := range brokers {
		args = append(args, "roles/"+b)
	}
	execute(t, 10*time.Minute, environment(bin, t.TempDir()), lint, args...)
}

// TestWhatRolesWrite runs all roles for one of three hosts without starting anything, and checks the files with the
// programs that read them. For MongoDB and EventStoreDB this is the only test, because their servers are not available.
func TestWhatRolesWrite(t *testing.T) {
	long(t)
	bin := ansible(t)
	dir := t.TempDir()
	hosts := filepath.Join(dir, "hosts.yml")
	write(t, hosts, strings.ReplaceAll(inventory, "DIR", dir))
	if err := os.Mkdir(filepath.Join(dir, "units"), 0o700); err != nil {
		t.Fatal(err)
	}
	execute(t, 30*time.Minute, environment(bin, dir), filepath.Join(bin, "ansible-playbook"), "-i", hosts, "--limit",
		"n1", "brokers.yml")

	t.Run("nats", func(t *testing.T) { natsReads(t, filepath.Join(dir, "nats/etc/nats.conf")) })
	t.Run("rabbitmq", func(t *testing.T) {
		has(t, filepath.Join(dir, "rabbitmq/etc/rabbitmq.conf"),
			"cluster_formation.peer_discovery_backend = classic_config",
			"cluster_formation.classic_config.nodes.3 = rabbit@10.9.0.3", "default_queue_type = quorum",
			"cluster_partition_handling = pause_minority")
		has(t, filepath.Join(dir, "rabbitmq/etc/enabled_plugins"),
			"[rabbitmq_management,rabbitmq_prometheus,rabbitmq_stream].")
	})
	t.Run("kafka", func(t *testing.T) {
		has(t, filepath.Join(dir, "kafka/etc/server.properties"), "process.roles=broker,controller", "node.id=1",
			"controller.quorum.voters=1@10.9.0.1:9093,2@10.9.0.2:9093,3@10.9.0.3:9093", "default.replication.factor=3",
			"min.insync.replicas=2")
	})
	t.Run("artemis", func(t *testing.T) {
		file := filepath.Join(dir, "artemis/etc/broker.xml")
		wellFormed(t, file)
		wellFormed(t, filepath.Join(dir, "artemis/etc/bootstrap.xml"))
		has(t, file, "<check-for-active-server>true</check-for-active-server>",
			"<cluster-password>c &amp; d</cluster-password>",
			`<connector name="self">tcp://10.9.0.1:5672</connector>`,
			`<connector name="peer">tcp://10.9.0.2:5672</connector>`)
	})
	t.Run("activemq", func(t *testing.T) {
		file := filepath.Join(dir, "activemq/etc/activemq.xml")
		wellFormed(t, file)
		has(t, file, `<kahaDB directory="`+dir+`/shared/lockstep-activemq"`, `uri="amqp://10.9.0.1:5672"`)
	})
	t.Run("mongodb, written only", func(t *testing.T) {
		var conf struct {
			Net struct {
				BindIP string `yaml:"bindIp"`
			}
			Replication struct {
				ReplSetName string `yaml:"replSetName"`
			}
			Security struct {
				KeyFile string `yaml:"keyFile"`
			}
		}
		readYAML(t, filepath.Join(dir, "mongodb/etc/mongod.conf"), &conf)
		if conf.Net.BindIP != "127.0.0.1,10.9.0.1" || conf.Replication.ReplSetName != "lockstep" ||
			conf.Security.KeyFile != dir+"/mongodb/etc/keyfile" {
			t.Errorf("mongod.conf says %+v", conf)
		}
		has(t, filepath.Join(dir, "mongodb/etc/initiate.js"), `{_id: 2, host: "10.9.0.3:27017"},`)
	})
	t.Run("eventstore, written only", func(t *testing.T) {
		var conf struct {
			ClusterSize int    `yaml:"ClusterSize"`
			GossipSeed  string `yaml:"GossipSeed"`
			Insecure    bool   `yaml:"Insecure"`
		}
		readYAML(t, filepath.Join(dir, "eventstore/etc/eventstore.conf"), &conf)
		if conf.ClusterSize != 3 || conf.GossipSeed != "10.9.0.2:2113,10.9.0.3:2113" || !conf.Insecure {
			t.Errorf("eventstore.conf says %+v", conf)
		}
	})
	t.Run("units", func(t *testing.T) {
		for _, b := range brokers {
			unitReads(t, filepath.Join(dir, "units", "lockstep-"+b+".service"))
		}
	})
	t.Run("matrices", func(t *testing.T) {
		for _, b := range brokers {
			matrixReads(t, b, filepath.Join(dir, "out", b+".cue"))
		}
	})
}

// long skips tests that use a minute of CPU time or more.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("LOCKSTEP_LONG") == "" {
		t.Skip("takes minutes: run it with LOCKSTEP_LONG=1")
	}
}

func has(t *testing.T, file string, wants ...string) {
	t.Helper()
	text := read(t, file)
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s has no %q:\n%s", filepath.Base(file), want, text)
		}
	}
}

// natsReads checks a configuration with the NATS server.
func natsReads(t *testing.T, file string) {
	t.Helper()
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || len(o.Routes) != 3 || o.Cluster.Host != "10.9.0.1" || o.Cluster.Port != 6222 ||
		o.Password != `a "quoted" secret` {
		t.Errorf("nats.conf: JetStream %v, routes %v, cluster %+v, password %q", o.JetStream, o.Routes, o.Cluster,
			o.Password)
	}
}

func wellFormed(t *testing.T, file string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(read(t, file)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
			return
		}
	}
}

func readYAML(t *testing.T, file string, to any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, file)), to); err != nil {
		t.Fatalf("%s: %v", filepath.Base(file), err)
	}
}

var program = regexp.MustCompile(`(?m)^ExecStart="[^"]*"`)

// unitReads checks a unit with systemd. Its program is not on this host.
func unitReads(t *testing.T, unit string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze here")
	}
	there := program.ReplaceAllString(read(t, unit), `ExecStart="/bin/true"`)
	write(t, unit, there)
	if out := execute(t, time.Minute, nil, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
		unit); out != "" {
		t.Errorf("systemd-analyze verify %s: %s", filepath.Base(unit), out)
	}
}

// matrixReads uses the broker options that a role printed in a matrix.
func matrixReads(t *testing.T, broker, file string) {
	t.Helper()
	text := "name: \"deployed\"\naxes: broker: [\"" + broker + "\"]\ncell: measure: \"1s\"\n" + read(t, file)
	if _, err := matrix.Load(broker+".cue", []byte(text), matrix.Narrow{}); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
