package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
)

// Part is a broker, a cluster of brokers, or a program for tests.
type Part struct {
	Name string
	Doc  string
	// Tool states that the part has no broker: "tools" selects these parts, "all" the others.
	Tool bool
	// Needs are met before Plan.
	Needs []need
	Ports int // number of ports that Plan uses
	Plan  planFunc
}

// planFunc writes configuration into dir, an empty folder. It starts nothing.
type planFunc func(s *site, dir string, ports []int) (*Plan, error)

// Plan is one instance of a part.
type Plan struct {
	// Helpers are started before Processes and stopped after them.
	Helpers []*Process
	// Processes are the brokers. Those of a cluster are started concurrently.
	Processes []*Process
	// Version returns the name and version that the ready brokers report. nil: Part.Doc has it.
	Version func(ctx context.Context) (string, error)
	// Env are the variables (NAME=value) of the instance. Process numbers are added by pids.
	Env []string
}

// running returns the brokers that are neither killed nor paused. A cluster can be ready with these.
func (p *Plan) running() []*Process {
	return slices.DeleteFunc(slices.Clone(p.Processes), func(p *Process) bool { return !p.Running() })
}

// ready returns an error until all running brokers answer and, in a cluster, agree with each other.
func (p *Plan) ready(ctx context.Context) error {
	for _, process := range p.running() {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		err := process.Ready(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", process.Name, err)
		}
	}
	return nil
}

// pids returns the variable with the process numbers of the brokers.
func (p *Plan) pids(part string) []string {
	name := variablePrefix(part) + "_PID"
	var numbers []string
	for _, process := range p.Processes {
		numbers = append(numbers, strconv.Itoa(process.PID()))
	}
	switch len(numbers) {
	case 0:
		return nil
	case 1:
		return []string{name + "=" + numbers[0]}
	}
	return []string{name + "S=" + strings.Join(numbers, ",")}
}

// variablePrefix returns the beginning of the names of a part's variables.
func variablePrefix(part string) string {
	return "LOCKSTEP_" + strings.ToUpper(strings.ReplaceAll(part, "-", "_"))
}

// numbered returns the name of a part's process. A single process has the name of the part.
func numbered(part string, number, size int) string {
	if size == 1 {
		return part
	}
	return part + "-" + strconv.Itoa(number)
}

// tlsFiles is the folder of a part's certificates.
const tlsFiles = "tls"

// writeCertificates creates certificates in an instance's folder.
func writeCertificates(dir string) (drivertest.Certificates, error) {
	files := drivertest.Certificates(filepath.Join(dir, tlsFiles))
	if err := files.Write(); err != nil {
		return "", fmt.Errorf("create certificates: %w", err)
	}
	return files, nil
}

// setVariable plans a part without processes, which sets one variable.
func setVariable(name string, value func(s *site) string) planFunc {
	return func(s *site, _ string, _ []int) (*Plan, error) {
		return &Plan{Env: []string{name + "=" + value(s)}}, nil
	}
}

// parts are the parts of the lab.
var parts = []Part{
	{Name: "rabbitmq", Doc: "RabbitMQ from the system's packages, one node", Needs: rabbitNeeds,
		Plan: planRabbitMQ("rabbitmq", systemRabbit), Ports: 9},
	{Name: "rabbitmq3", Doc: "RabbitMQ from the system's packages, a cluster of three nodes", Needs: rabbitNeeds,
		Plan: planRabbitMQ3, Ports: 23},
	{Name: "rabbitmq4", Doc: "RabbitMQ 4.0, one node", Needs: []need{rabbit40},
		Plan: planRabbitMQ("rabbitmq4", rabbitIn(rabbit40, "")), Ports: 9},
	{Name: "rabbitmq43", Doc: "RabbitMQ 4.3 or later, one node", Needs: []need{rabbit43},
		Plan: planRabbitMQ("rabbitmq43", rabbitIn(rabbit43, originalDefault)), Ports: 9},
	{Name: "kafka", Doc: "Kafka 4.3.1, one node", Needs: needs(kafka43), Plan: planKafka(kafka43, "kafka", 1), Ports: 4},
	{Name: "kafka3", Doc: "Kafka 4.3.1, three nodes, replication factor 3, min.insync.replicas 2",
		Needs: needs(kafka43), Plan: planKafka(kafka43, "kafka3", 3), Ports: 12},
	{Name: "kafka-next", Doc: "Kafka 4.4.0, one node", Needs: needs(kafka44),
		Plan: planKafka(kafka44, "kafka-next", 1), Ports: 4},
	{Name: "artemis", Doc: "ActiveMQ Artemis 2.56.0", Needs: needs(artemis256), Plan: planArtemis, Ports: 2},
	{Name: "artemis-pair", Doc: "ActiveMQ Artemis 2.56.0, a primary and the backup that it replicates to",
		Needs: needs(artemis256), Plan: planArtemisPair, Ports: 2},
	{Name: "activemq", Doc: "ActiveMQ Classic 6.3.1", Needs: needs(activemq63),
		Plan: planActiveMQ("activemq", 1, activemqSingle), Ports: 3},
	{Name: "activemq-pair", Doc: "ActiveMQ Classic 6.3.1, two brokers on one store", Needs: needs(activemq63),
		Plan: planActiveMQ("activemq-pair", 2, activemqPair), Ports: 6},
	{Name: "elasticmq", Doc: "ElasticMQ 1.7.1, which has the protocol of Amazon SQS", Needs: needs(elasticmq17),
		Plan: planElasticMQ, Ports: 1},
	{Name: "nats", Doc: "NATS server with JetStream", Needs: []need{natsServer}, Plan: planNATS("nats", 1), Ports: 2},
	{Name: "nats3", Doc: "NATS servers with JetStream, a cluster of three", Needs: []need{natsServer},
		Plan: planNATS("nats3", 3), Ports: 6},
	{Name: "mongodb", Doc: "FerretDB 1.24.0, which has the protocol of MongoDB, with one change at a time",
		Needs: []need{ferretdb}, Plan: planMongoDB, Ports: 2},
	{Name: "eventstore", Doc: "a server with the protocol of EventStoreDB that keeps events in memory",
		Needs: []need{eventstored}, Plan: planEventStore, Ports: 1},
	{Name: "influxd", Doc: "InfluxDB 2.9.1", Needs: influxNeeds, Plan: planInfluxd, Ports: 1},
	{Name: "kafka-tools", Doc: "Kafka's own load generators, 4.3.1", Tool: true, Needs: needs(kafka43),
		Plan: planKafkaTools},
	{Name: "perftest", Doc: "RabbitMQ's own load generator, PerfTest 2.22.1", Tool: true, Needs: needs(perftest222),
		Plan: planPerfTest},
	{Name: "natsbench", Doc: "NATS's own command line, 0.3.0, with its load generator", Tool: true,
		Needs: []need{natsCommand}, Plan: setVariable("LOCKSTEP_NATSBENCH", func(s *site) string { return s.bin("nats") })},
	{Name: "ansible", Doc: "Ansible 2.19.14 and ansible-lint", Tool: true, Needs: []need{ansible},
		Plan: setVariable("LOCKSTEP_ANSIBLE", func(s *site) string { return filepath.Join(ansible.in(s), "bin") })},
	{Name: "chromium", Doc: "Debian's Chromium, which opens pages without a screen", Tool: true,
		Needs: []need{chromium}, Plan: setVariable("LOCKSTEP_CHROMIUM", func(*site) string { return chromium.path() })},
	{Name: "releases", Doc: "Kafka, Artemis, ActiveMQ and InfluxDB as programs to install on hosts that a test makes",
		Tool: true, Needs: releaseNeeds, Plan: planReleases},
	{Name: "strace", Doc: "Debian's strace, which shows the system calls of a process", Tool: true,
		Needs: []need{strace}, Plan: func(*site, string, []int) (*Plan, error) { return &Plan{}, nil }},
	{Name: "sshd", Doc: "OpenSSH's server, for hosts that a test makes", Tool: true, Needs: hostNeeds,
		Plan: setVariable("LOCKSTEP_SSHD", func(*site) string { return sshServer.file })},
}

func describeParts() string {
	var text strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&text, "  %-14s %s\n", p.Name, p.Doc)
	}
	return text.String()
}

// choose finds parts by name. "all" selects those with a broker, "tools" those without.
func choose(names []string) ([]Part, error) {
	var chosen []Part
	add := func(p Part) {
		if !slices.ContainsFunc(chosen, func(c Part) bool { return c.Name == p.Name }) {
			chosen = append(chosen, p)
		}
	}
	for _, name := range names {
		known := false
		for _, p := range parts {
			if p.Name == name || (name == "all" && !p.Tool) || (name == "tools" && p.Tool) {
				add(p)
				known = true
			}
		}
		if !known {
			return nil, fmt.Errorf("lab: no part %q", name)
		}
	}
	return chosen, nil
}
