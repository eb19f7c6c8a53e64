package main

import (
	"context"
	"fmt"
	"path/filepath"
)

var elasticmq17 = jars("elasticmq-1.7.1", []string{"org.elasticmq:elasticmq-server_2.13:1.7.1"}, nil)

// planElasticMQ plans a server for Amazon SQS's protocol. It stores messages in memory only.
func planElasticMQ(s *site, dir string, ports []int) (*Plan, error) {
	config := fmt.Sprintf(`include classpath("application.conf")
node-address { protocol = http, host = "127.0.0.1", port = %[1]d, context-path = "" }
rest-sqs { enabled = true, bind-port = %[1]d, bind-hostname = "127.0.0.1", sqs-limits = strict }
rest-stats { enabled = false }
`, ports[0])
	if err := write(dir, map[string]string{"server.conf": config}); err != nil {
		return nil, err
	}
	p, err := jvm{
		dir: dir, classpath: elasticmq17.in(s) + "/*", class: "org.elasticmq.server.Main",
		options: []string{"-Dconfig.file=" + filepath.Join(dir, "server.conf")},
	}.process("elasticmq")
	if err != nil {
		return nil, err
	}
	endpoint := "http://" + loopback(ports[0])
	p.Ready = func(ctx context.Context) error { return get(ctx, endpoint+"/?Action=ListQueues", nil) }
	return &Plan{Processes: []*Process{p}, Env: []string{"LOCKSTEP_SQS_ENDPOINT=" + endpoint}}, nil
}
