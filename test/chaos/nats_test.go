package chaos

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/test/process"
)

// serverVariable makes this program run a NATS server until it is killed.
const serverVariable = "LOCKSTEP_CHAOS_NATS"

// node is a NATS server in a separate process, as part of the control plane or as the broker under test.
type node struct {
	Name, Dir     string
	Port, Cluster int
	Routes        []int // ports of the cluster's nodes; empty: a single server
}

func (n node) url() string { return "nats://127.0.0.1:" + strconv.Itoa(n.Port) }

func serveNATS() int {
	var n node
	err := json.Unmarshal([]byte(os.Getenv(serverVariable)), &n)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	opts := &server.Options{ServerName: n.Name, Host: "127.0.0.1", Port: n.Port, JetStream: true, StoreDir: n.Dir,
		NoSigs: true}
	if len(n.Routes) > 0 {
		opts.Cluster = server.ClusterOpts{Name: "chaos", Host: "127.0.0.1", Port: n.Cluster}
		for _, port := range n.Routes {
			opts.Routes = append(opts.Routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + strconv.Itoa(port)})
		}
	}
	s, err := server.NewServer(opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown() // it runs until it is killed
	return 0
}

// nats is a NATS server that can be killed and started again.
type nats struct {
	node
	*process.Process
	row *row
}

func (r *row) startNATS(n node) *nats {
	r.t.Helper()
	s := &nats{node: n, row: r}
	s.Dir = filepath.Join(r.dir, n.Name)
	s.start()
	return s
}

// start starts the server with the same port and folder.
func (s *nats) start() {
	s.row.t.Helper()
	text, err := json.Marshal(s.node)
	if err != nil {
		s.row.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		s.row.t.Fatal(err)
	}
	s.Process = s.row.start(process.Command{Name: s.Name, Env: []string{serverVariable + "=" + string(text)},
		Argv: []string{exe}})
	process.Listening(s.row.t, s.Port)
}

// startNATSCluster starts a cluster of n nodes.
func (r *row) startNATSCluster(name string, n int) (all []*nats) {
	r.t.Helper()
	ports := process.Ports(r.t, 2*n)
	for i := range n {
		all = append(all, r.startNATS(node{Name: name + strconv.Itoa(i+1), Port: ports[i], Cluster: ports[n+i],
			Routes: ports[n:]}))
	}
	return all
}

func urls(nodes []*nats) string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = n.url()
	}
	return strings.Join(list, ",")
}
