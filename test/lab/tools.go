package main

import (
	"os"
	"path/filepath"
)

var perftest222 = jars("perftest-2.22.1", []string{"com.rabbitmq:perf-test:2.22.1"}, nil)

// planKafkaTools writes a script that runs one of Kafka's own programs. The first argument is the name of the class.
func planKafkaTools(s *site, dir string, _ []int) (*Plan, error) {
	machine := jvm{dir: dir, classpath: kafka43.in(s) + "/*", options: []string{"-Dlevel=WARN"}}
	return planTool(machine, "kafka-tool", "LOCKSTEP_KAFKA_TOOLS")
}

func planPerfTest(s *site, dir string, _ []int) (*Plan, error) {
	machine := jvm{dir: dir, classpath: perftest222.in(s) + "/*", class: "com.rabbitmq.perf.PerfTest"}
	return planTool(machine, "perftest", "LOCKSTEP_PERFTEST")
}

// planTool plans a script that runs a class, and a variable with the script's path.
func planTool(machine jvm, name, variable string) (*Plan, error) {
	script, err := machine.script(name)
	if err != nil {
		return nil, err
	}
	return &Plan{Env: []string{variable + "=" + script}}, nil
}

// natsCommand is NATS's command-line tool, which has a load generator. Its dependencies are not those of Lockstep.
var natsCommand = goCommand{name: "nats", module: "test/natscli", pkg: "github.com/nats-io/natscli/nats"}

// chromium is the browser of the system's packages. Its version is not pinned, because it needs frequent security
// updates.
var chromium = debian{file: "chromium", packages: "chromium"}

// strace is the program of the system's packages. Tests find it in the path.
var strace = debian{file: "strace", packages: "strace"}

// sshServer is OpenSSH's server. The lab only installs it: tests start one on each of their hosts.
var sshServer = debian{file: "/usr/sbin/sshd", packages: "openssh-server"}

// hostNeeds are the programs that tests need to create hosts, and those that Ansible roles expect on any host.
var hostNeeds = []need{sshServer, debian{file: "ssh", packages: "openssh-client"},
	debian{file: "ip", packages: "iproute2"}, debian{file: "kill", packages: "procps"}}

// releaseNeeds are the programs that Ansible roles install on the hosts of a test. RabbitMQ is a package: the hosts use
// the packages of this machine.
var releaseNeeds = append([]need{java, kafka43, artemis256, activemq63}, append(influxNeeds, rabbitNeeds...)...)

// planReleases links the programs in the layout of their release archives, each in its own folder. It starts nothing.
func planReleases(s *site, dir string, _ []int) (*Plan, error) {
	for name, program := range map[string]string{
		"kafka/libs":   kafka43.in(s),
		"artemis":      artemis256.in(s),
		"activemq/lib": activemq63.in(s),
		"influxdb":     influxd29.in(s),
	} {
		link := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			return nil, err
		}
		if err := os.Symlink(program, link); err != nil {
			return nil, err
		}
	}
	return &Plan{Env: []string{"LOCKSTEP_RELEASES=" + dir}}, nil
}
