package main

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
