package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"example.org/lockstep/lockstep/test/process"
)

// The configurations of "ctl fleet init --cluster" for three servers form a cluster without changes, except for ports
// and folders. A fleet with three replicas runs on it, and continues without one server.
func TestClusterOfFleetInitRuns(t *testing.T) {
	t.Parallel()
	n := &scheduleFleet{t: t, dir: t.TempDir()}
	n.write("nightly.cue", nightly)
	hosts := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} // all are addresses of this host
	n.ctl("fleet", "init", "creds", "--cluster", "--host", strings.Join(hosts, ","), "--agents", "a1")
	ports := process.Ports(t, 2)
	client, route := strconv.Itoa(ports[0]), strconv.Itoa(ports[1])
	var servers []*server.Server
	var urls []string
	for _, host := range hosts {
		servers = append(servers, n.startServer(host, client, route))
		urls = append(urls, "tls://"+host+":"+client)
	}
	n.url = strings.Join(urls, ",")
	creds := filepath.Join(n.dir, "creds")
	as := func(file string, args ...string) []string {
		return append([]string{"--server", n.url, "--ca", filepath.Join(creds, "ca.crt"), "--creds",
			filepath.Join(creds, file)}, args...)
	}
	n.daemon("controller", as("controller.nk", "--replicas", "3")...)
	n.daemon("agent", as("agents/a1.nk", "--name", "a1")...)
	ctl := func(args ...string) (string, error) {
		out, err := exec.Command(filepath.Join(programs, "ctl"), args...).CombinedOutput()
		return string(out), err
	}
	n.await("a listed agent", func() bool {
		out, err := ctl(append([]string{"fleet", "agents"}, as("viewer.nk")...)...)
		return err == nil && strings.Contains(out, "a1")
	})
	for i := range 2 {
		if out, err := ctl(append([]string{"run", "--runs", filepath.Join(n.dir, fmt.Sprint("runs", i)),
			filepath.Join(n.dir, "nightly.cue")}, as("client.nk")...)...); err != nil {
			t.Fatalf("run %d: %v\n%s", i+1, err, out)
		}
		if i == 0 {
			n.awaitReplicas(servers)
			servers[2].Shutdown()
			servers[2].WaitForShutdown()
		}
	}
}

// startServer starts a server with its configuration, with free ports.
func (n *scheduleFleet) startServer(host, client, route string) *server.Server {
	n.t.Helper()
	made := filepath.Join(n.dir, "creds", "nats-"+strings.ReplaceAll(host, ".", "=2e")+".conf")
	text, err := os.ReadFile(made)
	if err != nil {
		n.t.Fatal(err)
	}
	file := filepath.Join(n.dir, host+".conf")
	here := strings.NewReplacer("0.0.0.0:4222", host+":"+client, "0.0.0.0:6222", host+":"+route, ":6222", ":"+route,
		"/var/lib/lockstep/nats", filepath.Join(n.dir, host))
	n.write(filepath.Base(file), here.Replace(string(text)))
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		n.t.Fatal(err)
	}
	opts.NoSigs, opts.NoLog = true, true
	s, err := server.NewServer(opts)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	n.t.Cleanup(s.Shutdown)
	return s
}

// awaitReplicas waits until every server has every stream.
func (n *scheduleFleet) awaitReplicas(servers []*server.Server) {
	n.t.Helper()
	n.await("every stream on every server", func() bool {
		for _, s := range servers {
			z, err := s.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
			if err != nil || z.Streams < 4 { // queue, record, state, schedules
				return false
			}
		}
		return true
	})
}
