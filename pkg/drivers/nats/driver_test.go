package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/internal/schematest"
	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/drivertest"
	"example.org/lockstep/lockstep/pkg/drivers/internal/labtest"
)

// ackWait is short, because one check waits for the unacknowledged messages of a broken link. It is longer than a busy
// machine needs for a batch, to avoid redeliveries.
const testOptions = `"ackWait": "10s"`

const deadOptions = `{"url": "nats://127.0.0.1:1"}`

// maxPayload is the default of the server's max_payload.
const maxPayload = 1 << 20

func with(more string) json.RawMessage { return json.RawMessage("{" + more + ", " + testOptions + "}") }

func TestEmbeddedMemory(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Driver: driver{}, Options: with(`"embedded": true, "name": "memory", "storage": "memory"`),
		DeadOptions: []byte(deadOptions), Existing: existing(nil),
		Reject: &drivertest.Rejection{
			Options: with(`"embedded": true, "name": "memory", "storage": "memory", "maxMessages": 10`)},
	})
}

// existing makes a stream with a consumer. user replaces options for its user.
func existing(user map[string]any) func(context.Context, json.RawMessage) (drivertest.Existing, error) {
	return drivertest.Declared(driver{}, func(_ context.Context, _ drivers.Session, topology drivers.Topology,
		made *drivertest.Existing) error {
		made.Queue = streamName(topology, 0)
		all := map[string]any{}
		err := json.Unmarshal(made.Options, &all)
		all["subject"], all["consumer"] = subject(topology, 0, 0), durableName(0)
		maps.Copy(all, user)
		made.Options, _ = json.Marshal(all) // parsed before
		return err
	})
}

// TestRightsForAnExistingStream proves that the documented permissions are enough for an existing stream. A probe does
// not use others.
func TestRightsForAnExistingStream(t *testing.T) {
	o := serverOptions(t, "rights")
	o.Users = []*server.User{{Username: "admin", Password: "secret"}, {Username: "user", Password: "secret",
		Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: []string{"*.k0", "$JS.API.STREAM.INFO.*", "$JS.API.CONSUMER.INFO.*.*",
				"$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.ACK.*.*.>"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}}
	options := with(fmt.Sprintf(`"url": %q, "user": "admin", "password": "secret"`, start(t, o).ClientURL()))
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"existing"}, Options: options,
		Existing: existing(map[string]any{"user": "user"})})
	user := strings.Replace(string(options), "admin", "user", 1)
	r := labtest.Open(t, driver{}, json.RawMessage(user), labtest.Env(func(_ drivers.EventKind, detail string) {
		t.Errorf("event: %s", detail)
	})).(*session)
	r.task.Store(&drivers.Topology{Name: "task", Existing: "orders"})
	if metrics, err := r.Probe(t.Context()); err != nil || len(metrics) > 0 {
		t.Errorf("probe: %v, %v", metrics, err)
	}
}

// TestRejectedExistingConsumers covers settings of a consumer with which messages would not arrive.
func TestRejectedExistingConsumers(t *testing.T) {
	s := open(t, with(`"embedded": true, "name": "rejected", "storage": "memory", "consumer": "c", "subject": "orders"`),
		nil)
	js, err := s.management(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "orders", Storage: jetstream.MemoryStorage,
		Subjects: []string{"orders", "orders.>"}}); err != nil {
		t.Fatal(err)
	}
	existing := drivers.Topology{Name: "task", Queues: 1, Subscriptions: 1, Bindings: 1, Consumers: 2, Existing: "orders"}
	for name, c := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		want   string
	}{
		"fit":         {func(*jetstream.ConsumerConfig) {}, ""},
		"ack policy":  {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, "explicit acknowledgements"},
		"ack wait":    {func(c *jetstream.ConsumerConfig) { c.AckWait = time.Minute }, "set ackWait"},
		"batch":       {func(c *jetstream.ConsumerConfig) { c.MaxRequestBatch = 10 }, "max_batch 10"},
		"expiry":      {func(c *jetstream.ConsumerConfig) { c.MaxRequestExpires = time.Second }, "max_expires 1s"},
		"deliveries":  {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 }, "max_deliver 3"},
		"ack pending": {func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 199 }, "at most 199 messages"},
		"all pending": {func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 200 }, ""},
		"filter":      {func(c *jetstream.ConsumerConfig) { c.FilterSubject = "orders.new" }, "excludes the subject"},
		"filters":     {func(c *jetstream.ConsumerConfig) { c.FilterSubjects = []string{"orders.new", "*"} }, ""},
		"no consumer": {func(c *jetstream.ConsumerConfig) { c.Durable = "other" }, "find consumer c"},
	} {
		config := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 10 * time.Second}
		c.change(&config)
		if _, err := js.CreateConsumer(t.Context(), "orders", config); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err := s.Verify(t.Context(), existing)
		if err == nil {
			_, _, err = s.durable(t.Context(), drivers.ConsumerSpec{Topology: existing, Prefetch: 100}, "orders")
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err := js.DeleteConsumer(t.Context(), "orders", config.Durable); err != nil {
			t.Fatal(err)
		}
	}
	s.options.Subject = "other"
	if err := s.Verify(t.Context(), existing); err == nil || !strings.Contains(err.Error(), `not "other"`) {
		t.Errorf("subject of another stream: %v", err)
	}
	several := drivers.Use{Existing: true, Queues: 2, Publishers: 1}
	if d := declare(schematest.Fill(t, driver{}, `{"embedded": true, "subject": "orders"}`), several); !strings.Contains(
		strings.Join(d.Rejections, "; "), "its own subject") {
		t.Errorf("one subject for two streams: %q", d.Rejections)
	}
}

func TestEmbeddedFile(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Driver: driver{}, Options: with(`"embedded": true, "name": "file", "storage": "file", "resilience": "none"`),
		Subset:      drivertest.MessagePath(),
		MaxParallel: 1, // the server is shared, and its files are in the folder of the first session
	})
}

// Retention changes when messages are removed, and which acknowledgements and subscriptions are possible.
func TestRetention(t *testing.T) {
	for _, retention := range []string{"limits", "workqueue"} {
		t.Run(retention, func(t *testing.T) {
			drivertest.Run(t, drivertest.Harness{
				Driver: driver{}, DeadOptions: []byte(deadOptions), Subset: append(drivertest.MessagePath(), "probe"),
				Reject: &drivertest.Rejection{Size: maxPayload + 1},
				Options: with(fmt.Sprintf(`"embedded": true, "name": "%s", "storage": "memory", "retention": "%s"`,
					retention, retention)),
			})
		})
	}
}

// TestServerFile uses a server in a separate process with a password, which is killed and started again.
func TestServerFile(t *testing.T) {
	address, watched := labtest.FreeAddress(t), labtest.FreeAddress(t)
	dir := t.TempDir()
	kill := startProcess(t, address, watched, dir)
	t.Run("none", func(t *testing.T) {
		drivertest.Run(t, drivertest.Harness{
			Driver: driver{}, Subset: []string{"cut"},
			Options: with(fmt.Sprintf(`"url": "nats://%s", "user": "user", "password": "p@ss", "resilience": "none"`, address)),
		})
	})
	drivertest.Run(t, drivertest.Harness{
		Driver: driver{}, Existing: existing(nil),
		Options: with(fmt.Sprintf(`"url": "nats://%s", "user": "user", "password": "p@ss", "monitoring": ["http://%s"]`,
			address, watched)),
		WrongCredentials: with(fmt.Sprintf(`"url": "nats://%s", "user": "user", "password": "%s"`, address,
			drivertest.WrongPassword)),
		Reject: &drivertest.Rejection{Size: maxPayload + 1},
		Restart: func(t *testing.T) {
			kill()
			kill = startProcess(t, address, watched, dir)
		},
	})
}

// serverAddress makes this test binary run a server. serverDir is the folder of its streams, serverWatch its monitoring
// address.
const (
	serverAddress = "LOCKSTEP_TEST_NATS_ADDRESS"
	serverWatch   = "LOCKSTEP_TEST_NATS_MONITORING"
	serverDir     = "LOCKSTEP_TEST_NATS_DIR"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(serverAddress); address != "" {
		serve(address, os.Getenv(serverWatch), os.Getenv(serverDir))
	}
	os.Exit(m.Run())
}

// serve runs a server until standard input is closed, which happens when the parent ends.
func serve(address, watched, dir string) {
	host, port, _ := strings.Cut(address, ":")
	number, _ := strconv.Atoi(port)
	_, port, _ = strings.Cut(watched, ":")
	watch, _ := strconv.Atoi(port)
	srv, err := server.NewServer(&server.Options{ServerName: "alone", Host: host, Port: number, HTTPHost: host,
		HTTPPort: watch, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, Username: "user", Password: "p@ss"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	srv.Start()
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// startProcess starts a server in a separate process. It returns when the server responds, with a function to kill it.
func startProcess(t *testing.T, address, watched, dir string) (kill func()) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), serverAddress+"="+address, serverWatch+"="+watched, serverDir+"="+dir)
	c.Stderr = os.Stderr
	if _, err := c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	t.Cleanup(kill)
	labtest.Listening(t, address)
	return kill
}

func TestClusterOfThree(t *testing.T) {
	urls, servers := cluster(t)
	t.Run("places", func(t *testing.T) { checkPlaces(t, urls, servers) })
	t.Run("spread", func(t *testing.T) {
		checkSpread(t, urls, servers)
		checkSpreadSetup(t, urls)
		checkUnansweredQuery(t, urls)
	})
	list, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	h := drivertest.Harness{
		Driver: driver{}, Options: with(`"replicas": 3, "storage": "file", "urls": ` + string(list)), Slow: true,
		Existing:    existing(nil),
		MaxParallel: 3, // three servers share this process
	}
	if os.Getenv("LOCKSTEP_LONG") == "" { // the effects of replicas and of a list of servers
		h.Subset = []string{"open", "dial", "probe", "setup", "mode", "ack/each", "redelivery/each", "order", "fan-out",
			"nodes", "cut"}
	}
	drivertest.Run(t, h)
}

func serverOptions(t *testing.T, name string) *server.Options {
	return &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true,
		StoreDir:           t.TempDir(),
		JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 4 << 30,
	}
}

func start(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	srv, err := server.NewServer(o.Clone())
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(labtest.Wait) {
		t.Fatal("the server does not accept connections")
	}
	return srv
}

// cluster starts a cluster of three servers, and returns when streams can be created.
func cluster(t *testing.T) ([]string, []*server.Server) {
	t.Helper()
	var routes []*url.URL
	var reserved []net.Listener // each until its server starts, because another process could use a free port
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		reserved = append(reserved, l)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
	}
	var urls []string
	var servers []*server.Server
	for i, l := range reserved {
		o := serverOptions(t, fmt.Sprintf("n%d", i))
		o.Cluster = server.ClusterOpts{Name: "three", Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port}
		o.Routes = routes
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		servers = append(servers, start(t, o))
		urls = append(urls, "nats://"+servers[i].Addr().String())
	}
	deadline := time.Now().Add(labtest.Wait)
	for {
		for _, srv := range servers {
			if srv.JetStreamIsLeader() && len(srv.JetStreamClusterPeers()) == 3 {
				return urls, servers
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the cluster has no leader")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestTLS uses a server that requires TLS and an nkey. Its monitoring also requires TLS.
func TestTLS(t *testing.T) {
	files := drivertest.NewCertificates(t)
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := user.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	nkey := filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(nkey, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	o := serverOptions(t, "tls")
	o.Nkeys = []*server.NkeyUser{{Nkey: public}}
	o.TLSConfig = files.ServerConfig(t)
	o.HTTPHost, o.HTTPSPort = "127.0.0.1", server.RANDOM_PORT
	srv := start(t, o)
	_, port, _ := net.SplitHostPort(srv.Addr().String())
	drivertest.Run(t, drivertest.Harness{Driver: driver{}, Subset: []string{"tls"}, TLS: &drivertest.TLS{
		Options: with(fmt.Sprintf(`"url": "tls://localhost:%s", "nkey": %q, "monitoring": ["https://localhost:%d"]`, port,
			nkey, srv.MonitorAddr().Port)),
		Certificates: files,
	}})
}
