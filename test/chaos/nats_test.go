package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serverVariable makes this program a NATS server, until it is killed.
const serverVariable = "LOCKSTEP_CHAOS_NATS"

// node is a NATS server of its own process: of the control plane, or under test.
type node struct {
	Name, Dir     string
	Port, Cluster int
	Routes        []int // ports of its cluster's nodes; none: it is alone
}

func (n node) url() string { return "nats://127.0.0.1:" + strconv.Itoa(n.Port) }

func serveNATS() int {
	var n node
	err := json.Unmarshal([]byte(os.Getenv(serverVariable)), &n)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	opts := &server.Options{ServerName: n.Name, Host: "127.0.0.1", Port: n.Port, JetStream: true, StoreDir: n.Dir, NoSigs: true}
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
	s.WaitForShutdown() // for ever: it is killed
	return 0
}

// nats is a NATS server that can be killed and started again.
type nats struct {
	node
	*process
	row *row
}

func (r *row) nats(n node) *nats {
	r.t.Helper()
	s := &nats{node: n, row: r}
	s.Dir = filepath.Join(r.dir, n.Name)
	s.again()
	return s
}

// again starts it on the same port and folder.
func (s *nats) again() {
	s.row.t.Helper()
	text, err := json.Marshal(s.node)
	if err != nil {
		s.row.t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		s.row.t.Fatal(err)
	}
	s.process = s.row.start(command{name: s.Name, env: []string{serverVariable + "=" + string(text)}, argv: []string{exe}})
	eventually(s.row.t, s.Name+" listening", 20*time.Second, func() bool { return listens(s.Port) })
}

// cluster starts n nodes that know each other.
func (r *row) cluster(name string, n int) (all []*nats) {
	r.t.Helper()
	ports := r.ports(2 * n)
	for i := range n {
		all = append(all, r.nats(node{Name: name + strconv.Itoa(i+1), Port: ports[i], Cluster: ports[n+i], Routes: ports[n:]}))
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

func listens(port int) bool {
	conn, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(port), time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// ports asks the system for ports that nobody listens on.
func (r *row) ports(n int) (ports []int) {
	r.t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}
