package external

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// recordTo is the file for the recorded exchange.
const recordTo = "LOCKSTEP_TEST_RECORD"

// behaviour makes this test binary run as a driver process with this behaviour.
const behaviour = "LOCKSTEP_TEST_DRIVER"

func TestMain(m *testing.M) {
	if how := os.Getenv(behaviour); how != "" {
		c := &child{how: how, in: bufio.NewReader(os.Stdin), out: bufio.NewWriterSize(os.Stdout, 64<<10)}
		if file := os.Getenv(recordTo); file != "" {
			c.record, _ = os.Create(file)
		}
		c.run()
		os.Exit(0)
	}
	if how := os.Getenv(parentOf); how != "" {
		beParent(how)
	}
	os.Exit(m.Run())
}

// child is a driver process with one in-memory queue: messages are confirmed and delivered at once. how selects a
// fault.
type child struct {
	how      string
	in       *bufio.Reader
	out      *bufio.Writer
	conn     uint64 // the last one
	consumer uint64
	sent     int
	cut      bool     // a connection was cut
	window   int      // unhandled deliveries
	sizes    []uint32 // of messages that wait for the window
	bodies   []byte
	record   *os.File
}

func (c *child) note(who string, header, body []byte) {
	if c.record != nil {
		line := who + " " + string(header)
		if len(body) > 0 {
			line += fmt.Sprintf(" %q", body)
		}
		fmt.Fprintln(c.record, line)
	}
}

// request are the fields of requests that child uses.
type request struct {
	Type      string            `json:"type"`
	ID        uint64            `json:"id"`
	Conn      uint64            `json:"conn"`
	Publisher uint64            `json:"publisher"`
	Consumer  uint64            `json:"consumer"`
	First     uint64            `json:"first"`
	Messages  [][2]uint32       `json:"messages"`
	Options   map[string]string `json:"options"`
	Count     int               `json:"count"`
}

func (c *child) run() {
	for {
		if c.in.Buffered() == 0 {
			_ = c.out.Flush()
		}
		f, err := readFrame(c.in, nil)
		if err != nil {
			c.leave()
			return
		}
		c.note(">", f.header, f.body)
		var h request
		if err := json.Unmarshal(f.header, &h); err != nil {
			panic(err)
		}
		c.receive(h, f.body)
	}
}

// leave is called at the end of standard input.
func (c *child) leave() {
	if c.how == "stays" {
		time.Sleep(time.Hour)
	}
}

func (c *child) say(body []byte, format string, a ...any) {
	header := fmt.Appendf(nil, format, a...)
	c.note("<", header, body)
	_ = writeFrame(c.out, header, body)
}

func (c *child) now(text string) {
	_, _ = c.out.WriteString(text)
	_ = c.out.Flush()
}

func (c *child) receive(h request, body []byte) {
	switch h.Type {
	case "hello":
		c.hello(h)
		return
	case "open":
		c.open(h)
	case "ping":
		if c.how == "hangs" {
			return
		}
	case "connect":
		c.conn = h.Conn
		c.say(nil, `{"type":"done","id":%d,"result":{"node":"broker:1"}}`, h.ID)
		return
	case "consumer":
		c.consumer = h.Consumer
	case "publish":
		c.publish(h, body)
		return
	case "handled":
		if c.cut && c.how == "strict" {
			os.Exit(5)
		}
		c.window -= h.Count
		c.pump()
		return
	case "cut":
		c.cut = true
		return
	case "cancel", "ack", "nack":
		return
	case "describe":
		c.say(nil, `{"type":"failed","id":%d,"kind":%q,"message":"no"}`, h.ID,
			map[bool]string{true: "weird", false: "unsupported"}[c.how == "kind"])
		return
	case "probe":
		answer, is := map[string]string{
			"mute":       "",
			"measures":   `[{"name":"segments","node":"a","value":4},{"name":"segments","node":"b","value":5},{"name":"queue_depth","value":7}]`,
			"undeclared": `[{"name":"lag","value":7}]`,
			"negative":   `[{"name":"segments","value":-1}]`,
		}[c.how]
		if is && answer != "" {
			c.say(nil, `{"type":"done","id":%d,"result":%s}`, h.ID, answer)
		}
		if is {
			return
		}
	}
	c.say(nil, `{"type":"done","id":%d}`, h.ID)
}

func (c *child) hello(h request) {
	switch c.how {
	case "silent":
		return
	case "quits":
		fmt.Fprintln(os.Stderr, "first words\nno module named broker")
		os.Exit(3)
	case "prints":
		c.now("Hello, world! I am a driver.\n")
	case "version":
		c.say(nil,
			`{"type":"done","id":%d,"result":{"protocol":9,"name":"child","metrics":[{"name":"Heat","unit":"K","doc":"heat"},{"name":"lag","unit":"bytes","doc":"lag"}],"declares":[{"when":{"mood":1},"modes":["x"]}]}}`, h.ID)
		return
	case "environment":
		for _, v := range os.Environ() {
			fmt.Fprintln(os.Stderr, v)
		}
		os.Exit(3)
	}
	c.say(nil,
		`{"type":"done","id":%d,"result":{"protocol":5,"name":"child","doc":"A driver for tests.","schema":"#Options: {}","flushes":true,"metrics":[{"name":"queue_depth"},{"name":"segments","unit":"count","doc":"open segments"}],"declares":[{"modes":["fire-and-forget","confirm-window","confirm-each"],"acks":["each","every","automatic"],"label":"memory","capabilities":{"transient":true,"unlimitedPrefetch":true},"guarantees":{"confirmedKept":true}}]}}`, h.ID)
}

func (c *child) open(h request) {
	switch c.how {
	case "orphan": // a child process that keeps all inherited files open
		sleeper := exec.Command("sleep", "60")
		sleeper.Stdout, sleeper.Stderr = os.Stdout, os.Stderr
		if err := sleeper.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, "sleeper", sleeper.Process.Pid)
	case "chatty":
		for range 10_000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 3000))
		}
	}
}

func (c *child) publish(h request, body []byte) {
	c.sent += len(h.Messages)
	last := h.First + uint64(len(h.Messages)) - 1
	if len(h.Messages) == 0 {
		return
	}
	switch c.how {
	case "dies":
		if c.sent >= 50 {
			fmt.Fprintln(os.Stderr, "segmentation fault, as it were")
			os.Exit(7)
		}
	case "takes nothing":
		return
	case "disconnects":
		c.say(nil, `{"type":"closed","conn":%d,"message":"reset by broker:1"}`, c.conn)
		return
	case "garbage":
		c.now("\x00\x00\x00\x05nojs")
		return
	case "json":
		c.say(nil, `{"type":`)
		return
	case "giant":
		c.now("\x00\x00\x00\x10\xff\xff\xff\xff")
		return
	case "cut":
		c.now("\x00\x00\x00\x10\x00\x00\x00\x00{}")
		os.Exit(0)
	case "twice":
		c.say(nil, `{"type":"confirm","publisher":%d,"numbers":[[%d,%d]]}`, h.Publisher, h.First, last)
	case "ghost":
		c.say(nil, `{"type":"confirm","publisher":%d,"numbers":[[0,18446744073709551615]]}`, h.Publisher)
		return
	case "takes too much":
		c.say(nil, `{"type":"taken","publisher":%d,"count":1000000,"bytes":1}`, h.Publisher)
		return
	case "stranger":
		c.say(nil, `{"type":"taken","publisher":99,"count":1,"bytes":1}`)
		return
	case "word":
		c.say(nil, `{"type":"hooray"}`)
		return
	case "answers twice":
		c.say(nil, `{"type":"done","id":1}`)
		return
	case "refuses":
		c.say(nil, `{"type":"confirm","publisher":%d,"numbers":[[%d,%d]],"kind":"other","message":"x"}`, h.Publisher,
			h.First, last)
		return
	case "floods":
		for range 100 {
			c.deliver(make([][2]uint32, 100), nil)
		}
	case "asks on": // and does not read
		for n := 1; ; n++ {
			c.say(nil, `{"type":"forward","id":%d,"address":"broker:1"}`, n)
		}
	case "retries":
		c.say(nil, `{"type":"retried","count":%d}`, len(h.Messages))
	case "unretries":
		c.say(nil, `{"type":"retried","count":-1}`)
		return
	case "last": // without the stream and the mark, then with them
		c.say([]byte("ab"), `{"type":"deliver","consumer":%d,"deliveries":[[1,1],[1,2,7,1]]}`, c.consumer)
	case "lasting":
		c.say([]byte("a"), `{"type":"deliver","consumer":%d,"deliveries":[[1,1,0,2]]}`, c.consumer)
	case "size":
		c.say(nil, `{"type":"deliver","consumer":%d,"deliveries":[[10,0,0]]}`, c.consumer)
	}
	c.say(nil, `{"type":"taken","publisher":%d,"count":%d,"bytes":%d}`, h.Publisher, len(h.Messages), len(body))
	c.say(nil, `{"type":"confirm","publisher":%d,"numbers":[[%d,%d]]}`, h.Publisher, h.First, last)
	c.deliver(h.Messages, body)
}

func (c *child) deliver(messages [][2]uint32, body []byte) {
	if c.consumer == 0 {
		return
	}
	for _, m := range messages {
		c.sizes = append(c.sizes, m[1])
	}
	c.bodies = append(c.bodies, body...)
	c.pump()
}

// pump delivers as many messages as the window permits. They are small enough for the window of bytes.
func (c *child) pump() {
	n := min(len(c.sizes), windowMessages-c.window)
	if c.how == "floods" {
		n = len(c.sizes)
	}
	if n == 0 {
		return
	}
	text := fmt.Appendf(nil, `{"type":"deliver","consumer":%d,"deliveries":[`, c.consumer)
	size := 0
	for i, s := range c.sizes[:n] {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(strconv.AppendUint(append(text, '['), uint64(s), 10), ",1,0]"...)
		size += int(s)
	}
	c.say(c.bodies[:size], "%s]}", text)
	c.window += n
	c.sizes, c.bodies = append(c.sizes[:0], c.sizes[n:]...), append(c.bodies[:0], c.bodies[size:]...)
}

func childCommand(how string) Command {
	return Command{Command: []string{os.Args[0]}, Env: map[string]string{behaviour: how}}
}

// quick are short limits for tests.
var quick = limits{hello: 30 * time.Second, call: 30 * time.Second, close: 10 * time.Second,
	ping: 100 * time.Millisecond, pings: 600}

func newChild(t testing.TB, how string, limit limits) *Driver {
	t.Helper()
	d, err := newDriver(context.Background(), "child", childCommand(how), limit, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func openChild(t testing.TB, how string, limit limits) *session {
	t.Helper()
	s, err := newChild(t, how, limit).Open(context.Background(), json.RawMessage(`{}`), drivers.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*session)
}

// connect makes a connection. It is closed at the end of the test.
func connect(t testing.TB, s drivers.Session, role drivers.Role, topology drivers.Topology) drivers.Conn {
	t.Helper()
	c, err := s.Connect(context.Background(), drivers.ConnSpec{Role: role, Topology: topology, Node: drivers.AnyNode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// publish makes a publisher with a connection of its own.
func publish(t testing.TB, s drivers.Session, spec drivers.PublisherSpec) drivers.Publisher {
	t.Helper()
	p, err := connect(t, s, drivers.PublisherRole, spec.Topology).Publisher(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// consume makes a consumer with a connection of its own.
func consume(t testing.TB, s drivers.Session, spec drivers.ConsumerSpec, handle drivers.Handler) drivers.Consumer {
	t.Helper()
	c, err := connect(t, s, drivers.ConsumerRole, spec.Topology).Consumer(context.Background(), spec, handle)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var oneQueue = drivers.Topology{Name: "test", Queues: 1, Subscriptions: 1, Bindings: 1, Publishers: 1, Consumers: 1}

// noLeaks fails the test if goroutines remain after it and its cleanups.
func noLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// frameOf returns a complete frame, as a seed of the fuzz test.
func frameOf(header, body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(header)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(append(b, header...), body...)
}
