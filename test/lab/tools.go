package main

var perftest222 = jars("perftest-2.22.1", []string{"com.rabbitmq:perf-test:2.22.1"}, nil)

// planKafkaTools writes a script that runs one of Kafka's own programs. The first argument is the name of the class.
func planKafkaTools(s *site, dir string) (*Plan, error) {
	machine := jvm{dir: dir, classpath: kafka43.in(s) + "/*", options: []string{"-Dlevel=WARN"}}
	return planTool(machine, "kafka-tool", "LOCKSTEP_KAFKA_TOOLS")
}

func planPerfTest(s *site, dir string) (*Plan, error) {
	machine := jvm{dir: dir, classpath: perftest222.in(s) + "/*", class: "com.rabbitmq.perf.PerfTest"}
	return planTool(machine, "perftest", "LOCKSTEP_PERFTEST")
}

// planTool plans a script that runs a class, and a variable with the script's path.
func planTool(machine jvm, name, variable string) (*Plan, error) {
	script, err := machine.script(name)
	if err != nil {
		return nil, err
	}
	return &Plan{Env: func() []string { return []string{variable + "=" + script} }}, nil
}

// natsCommand is NATS's command-line tool, which has a load generator. Its dependencies are not those of Lockstep.
var natsCommand = goCommand{name: "nats", module: "test/natscli", pkg: "github.com/nats-io/natscli/nats"}

func planNATSBench(s *site, _ string) (*Plan, error) {
	return &Plan{Env: func() []string { return []string{"LOCKSTEP_NATSBENCH=" + s.bin("nats")} }}, nil
}
