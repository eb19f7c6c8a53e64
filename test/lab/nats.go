package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsServer is built from the version in Lockstep's go.mod.
var natsServer = goCommand{name: "nats-server", pkg: "github.com/nats-io/nats-server/v2"}

// natsAnswer is the timeout of a request: a server without a leader does not respond.
const natsAnswer = 2 * time.Second

// natsNode is one server. Routes contains the addresses of the whole cluster.
type natsNode struct {
	Name, Dir     string
	Port, Cluster int
	Routes        []string
}

func (n natsNode) url() string { return "nats://" + loopback(n.Port) }

func planNATS(name string, size int) planFunc {
	return func(s *site, dir string, ports []int) (*Plan, error) {
		var routes, urls []string
		if size > 1 {
			for _, port := range ports[size:] {
				routes = append(routes, "nats://"+loopback(port))
			}
		}
		plan := &Plan{}
		for i := range size {
			node := natsNode{
				Name: numbered(name, i+1, size), Dir: filepath.Join(dir, "n"+strconv.Itoa(i+1)),
				Port: ports[i], Cluster: ports[size+i], Routes: routes,
			}
			p, err := node.configure(s)
			if err != nil {
				return nil, fmt.Errorf("configure %s: %w", node.Name, err)
			}
			p.Ready = func(ctx context.Context) error { return node.ready(ctx, len(plan.running())) }
			plan.Processes = append(plan.Processes, p)
			urls = append(urls, node.url())
		}
		plan.Env = []string{"LOCKSTEP_NATS_URL=" + urls[0]}
		if size > 1 {
			plan.Env = []string{"LOCKSTEP_NATS3_URLS=" + strings.Join(urls, ",")}
		}
		return plan, nil
	}
}

func (n natsNode) configure(s *site) (*Process, error) {
	var config strings.Builder
	if err := natsConfig.Execute(&config, n); err != nil {
		return nil, err
	}
	if err := write(n.Dir, map[string]string{"server.conf": config.String()}); err != nil {
		return nil, err
	}
	return &Process{
		Name: n.Name, Dir: n.Dir, Log: filepath.Join(n.Dir, "log"),
		Command: []string{s.bin("nats-server"), "-c", filepath.Join(n.Dir, "server.conf")},
	}, nil
}

var natsConfig = template.Must(template.New("server.conf").Parse(`server_name: "{{.Name}}"
listen: "127.0.0.1:{{.Port}}"
jetstream { store_dir: "{{.Dir}}/data", max_mem: 1GB, max_file: 8GB }
{{- if .Routes}}
cluster {
  name: "lab", listen: "127.0.0.1:{{.Cluster}}"
  routes: [{{range $i, $r := .Routes}}{{if $i}}, {{end}}"{{$r}}"{{end}}]
}
{{- end}}
`))

// ready returns an error until a stream can be created through this node, with a replica on each running node.
func (n natsNode) ready(ctx context.Context, size int) error {
	ctx, cancel := context.WithTimeout(ctx, natsAnswer)
	defer cancel()
	conn, err := nats.Connect(n.url(), nats.NoReconnect(), nats.Timeout(answerWithin))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	const name = "lockstep-lab-ready"
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.MemoryStorage, Replicas: size,
	})
	if err != nil {
		return fmt.Errorf("make a stream with %d replicas: %w", size, err)
	}
	return js.DeleteStream(ctx, name)
}
