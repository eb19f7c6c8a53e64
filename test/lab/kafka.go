package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/segmentio/kafka-go"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

const slf4jLog4j = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4" // Kafka writes no log without it

// The newest version that is available with all tools.
var kafka43 = jars("kafka-4.3.1", []string{
	"org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1", "org.apache.kafka:trogdor:4.3.1",
	slf4jLog4j,
}, nil)

// The broker without its tools, which are not available.
var kafka44 = jars("kafka-4.4.0", []string{"org.apache.kafka:kafka_2.13:4.4.0", slf4jLog4j},
	[]string{"org.apache.kafka:kafka-tools-api"})

// kafkaCluster is the cluster's id: any 16 bytes in base64, the same for all nodes.
const kafkaCluster = "TG9ja3N0ZXBMYWJLYWZrYQ"

// kafkaNode is a broker and a controller in one process. The port Guard requires the user "lab" with the password
// "lab-secret", by PLAIN or SCRAM-SHA-256.
type kafkaNode struct {
	ID                             int
	Dir                            string
	Broker, Controller, Guard, TLS int // ports
	Files                          drivertest.Certificates
}

func (n kafkaNode) address() string { return loopback(n.Broker) }

// planKafka plans a cluster without ZooKeeper, or a single node if size is 1. With three nodes, the replication factor
// is 3 and the minimum of in-sync replicas is 2, so that one node may fail.
func planKafka(version program, name string, size int) planFunc {
	return func(s *site, dir string, ports []int) (*Plan, error) {
		files, err := writeCertificates(dir)
		if err != nil {
			return nil, err
		}
		nodes := make([]kafkaNode, size)
		var voters, brokers, guards, encrypted []string
		for i := range nodes {
			id := i + 1
			nodes[i] = kafkaNode{ID: id, Dir: filepath.Join(dir, "n"+strconv.Itoa(id)), Broker: ports[3*i],
				Controller: ports[3*i+1], Guard: ports[3*i+2], TLS: ports[3*size+i], Files: files}
			voters = append(voters, fmt.Sprintf("%d@%s", id, loopback(nodes[i].Controller)))
			brokers = append(brokers, nodes[i].address())
			guards = append(guards, loopback(nodes[i].Guard))
			encrypted = append(encrypted, fmt.Sprintf("localhost:%d", nodes[i].TLS))
		}
		prefix := variablePrefix(name)
		plan := &Plan{Env: []string{prefix + "_BROKERS=" + strings.Join(brokers, ","),
			prefix + "_GUARDED_BROKERS=" + strings.Join(guards, ","),
			prefix + "_TLS_BROKERS=" + strings.Join(encrypted, ","), prefix + "_TLS_FILES=" + string(files)}}
		for _, node := range nodes {
			p, err := node.configure(version.in(s), strings.Join(voters, ","), size)
			if err != nil {
				return nil, fmt.Errorf("configure Kafka node %d: %w", node.ID, err)
			}
			p.Name = numbered(name, node.ID, size)
			p.Ready = func(ctx context.Context) error { return node.ready(ctx, len(plan.running())) }
			plan.Processes = append(plan.Processes, p)
		}
		return plan, nil
	}
}

func (n kafkaNode) configure(libraries, voters string, size int) (*Process, error) {
	var config strings.Builder
	err := kafkaConfig.Execute(&config, struct {
		kafkaNode
		Voters                  string
		Replicas, MinISR, Parts int
	}{n, voters, size, size/2 + 1, size})
	if err != nil {
		return nil, err
	}
	if err := write(n.Dir, map[string]string{"server.properties": config.String()}); err != nil {
		return nil, err
	}
	file := filepath.Join(n.Dir, "server.properties")
	machine := jvm{
		dir: n.Dir, classpath: libraries + "/*",
		class: "kafka.tools.StorageTool", args: []string{"format", "-t", kafkaCluster, "-c", file,
			"--add-scram", "SCRAM-SHA-256=[name=lab,password=lab-secret]"},
	}
	format, err := machine.command()
	if err != nil {
		return nil, err
	}
	machine.class, machine.args = "kafka.Kafka", []string{file}
	p, err := machine.process("")
	if err != nil {
		return nil, err
	}
	p.First = format
	return p, nil
}

// Few threads, one partition of internal topics and a small buffer for compaction use half the memory of the defaults.
var kafkaConfig = template.Must(template.New("server.properties").Parse(`process.roles=broker,controller
node.id={{.ID}}
listeners=PLAINTEXT://127.0.0.1:{{.Broker}},GUARD://127.0.0.1:{{.Guard}},TLS://127.0.0.1:{{.TLS}},CONTROLLER://127.0.0.1:{{.Controller}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{.Broker}},GUARD://127.0.0.1:{{.Guard}},TLS://localhost:{{.TLS}}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,GUARD:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={{.Files.Broker}}
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={{.Files.CA}}
listener.name.tls.ssl.client.auth=required
listener.name.guard.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.guard.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_lab="lab-secret";
listener.name.guard.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
controller.quorum.voters={{.Voters}}
log.dirs={{.Dir}}/data
default.replication.factor={{.Replicas}}
min.insync.replicas={{.MinISR}}
offsets.topic.replication.factor={{.Replicas}}
offsets.topic.num.partitions={{.Parts}}
transaction.state.log.replication.factor={{.Replicas}}
transaction.state.log.min.isr={{.MinISR}}
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor={{.Replicas}}
share.coordinator.state.topic.min.isr={{.MinISR}}
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=6000
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=2
background.threads=2
`))

// ready returns an error until the node sees all running brokers, and is in sync for each of its partitions that has a
// leader. Then the cluster can tolerate the next failure.
func (n kafkaNode) ready(ctx context.Context, size int) error {
	conn, err := kafka.DialContext(ctx, "tcp", n.address())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	brokers, err := conn.Brokers()
	if err != nil {
		return fmt.Errorf("request the brokers: %w", err)
	}
	if len(brokers) < size { // may be more: a hung broker is not removed at once
		return fmt.Errorf("%d of %d brokers are known", len(brokers), size)
	}
	partitions, err := conn.ReadPartitions()
	if err != nil {
		return fmt.Errorf("request the partitions: %w", err)
	}
	for _, p := range partitions {
		if p.Error == nil && n.among(p.Replicas) && !n.among(p.Isr) {
			return fmt.Errorf("not in sync on partition %d of %s", p.ID, p.Topic)
		}
	}
	return nil
}

func (n kafkaNode) among(brokers []kafka.Broker) bool {
	return slices.ContainsFunc(brokers, func(b kafka.Broker) bool { return b.ID == n.ID })
}
