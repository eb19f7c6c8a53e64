package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"example.org/lockstep/lockstep/internal/wire/keys"
)

// limits returns a server's limits of an account: connections of all its users, and subscriptions per connection.
func (g *guardedPlane) limits(t *testing.T, account string) (connections, subscriptions int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, "nats.conf"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), account+" {\n")
	if _, err := fmt.Sscanf(after, "    limits: {max_connections: %d, max_subscriptions: %d}", &connections,
		&subscriptions); err != nil {
		t.Fatal(err)
	}
	return connections, subscriptions
}

// TestConnectionsOfAccountsAreBounded lowers the configured limits, and opens connections up to them.
func TestConnectionsOfAccountsAreBounded(t *testing.T) {
	g := guardPlane(t)
	path := filepath.Join(g.dir, "nats.conf")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	conf := string(text)
	allowed, _ := g.limits(t, "VIEWERS")
	for _, x := range []struct{ limit, lower string }{
		{fmt.Sprintf("max_connections: %d\n", keys.MaxConnections), "max_connections: 9\n"},
		{fmt.Sprintf("VIEWERS {\n    limits: {max_connections: %d,", allowed),
			"VIEWERS {\n    limits: {max_connections: 2,"},
	} {
		if strings.Count(conf, x.limit) != 1 {
			t.Fatalf("the configuration does not have %q once:\n%s", x.limit, conf)
		}
		conf = strings.Replace(conf, x.limit, x.lower, 1)
	}
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s := plane(t, ServerConfig{Listen: "127.0.0.1:0", Config: path, Dir: t.TempDir(), Auth: g.server.cfg.Auth})
	g.url = strings.Replace(s.URL(), "nats://", "tls://", 1)

	viewers := []*Conn{g.dial(t, "viewer"), g.dial(t, "viewer")}
	if c, err := Dial(t.Context(), g.url, g.auth("viewer")); !errors.Is(err, nats.ErrMaxAccountConnectionsExceeded) {
		t.Errorf("a third viewer: %v, %v: want a refusal", c, err)
	}
	others := []*Conn{link(t, s), g.dial(t, "client"), g.dial(t, "a1"), g.dial(t, "a1"), g.dial(t, "client"),
		g.dial(t, "controller")}
	if c, err := Dial(t.Context(), g.url, g.auth("client")); err == nil { // closed before TLS, without a reason
		t.Errorf("a tenth connection: %v: want a refusal", c)
	}
	for i, c := range append(viewers, others...) {
		if err := c.flush(t.Context(), hang); err != nil {
			t.Errorf("connection %d does not go on: %v", i, err)
		}
	}
}

// TestConnectionsOfAnAgentAreBounded proves that one agent cannot use the connections, and the memory, of all agents.
func TestConnectionsOfAnAgentAreBounded(t *testing.T) {
	g := guardPlane(t)
	for range keys.MaxAgentConnections {
		g.dial(t, "a1")
	}
	if c, err := Dial(t.Context(), g.url, g.auth("a1")); !Unaccepted(err) {
		t.Errorf("connection %d of an agent: %v, %v: want a refusal", keys.MaxAgentConnections+1, c, err)
	}
	g.dial(t, "a2.zone b")
}

func TestSubscriptionsOfAConnectionAreBounded(t *testing.T) {
	g := guardPlane(t)
	bound := func(account string) int {
		_, subscriptions := g.limits(t, account)
		return subscriptions
	}
	for _, x := range []struct {
		user  string
		bound int
	}{{"viewer", bound("VIEWERS")}, {"client", bound("CLIENTS")}, {"a1", bound("AGENTS")},
		{"controller", keys.MaxSubscriptions}} {
		nc, refused := g.hostile(t, x.user)
		inbox := nc.NewInbox()
		subscribe := func(i int) {
			t.Helper()
			if _, err := nc.SubscribeSync(fmt.Sprint(inbox, ".", i)); err != nil {
				t.Fatal(err)
			}
		}
		for i := range x.bound {
			subscribe(i)
		}
		if err := nc.FlushTimeout(hang); err != nil || len(refused) > 0 {
			t.Fatalf("%s: %d subscriptions: %v, %d are refused", x.user, x.bound, err, len(refused))
		}
		subscribe(x.bound)
		select {
		case err := <-refused:
			if !strings.Contains(strings.ToLower(err.Error()), "maximum subscriptions exceeded") {
				t.Errorf("%s: one subscription more: %v", x.user, err)
			}
		case <-time.After(hang):
			t.Errorf("%s: subscription %d is not refused", x.user, x.bound+1)
		}
		for _, user := range []string{"viewer", "client", "a2.zone b", "controller"} {
			c := g.dial(t, user)
			if _, err := c.nc.SubscribeSync(c.nc.NewInbox()); err != nil || c.flush(t.Context(), hang) != nil {
				t.Errorf("%s does not go on: %v", user, err)
			}
		}
	}
}

// TestMessagesToAServerAreBounded uses NATS's protocol directly, because the client library cannot send all of these
// messages.
func TestMessagesToAServerAreBounded(t *testing.T) {
	s := plane(t, ServerConfig{})
	other := link(t, s)
	for what, x := range map[string]struct{ send, want string }{
		"control line": {"PUB " + strings.Repeat("x", keys.MaxControlLine) + " 0\r\n\r\n",
			"maximum control line exceeded"},
		"payload": {fmt.Sprintf("PUB x %d\r\n", MaxMessage+1), "maximum payload violation"},
	} {
		raw, lines := rawLink(t, s)
		go func() { _, _ = raw.Write([]byte(x.send)) }() // the server may close before it has read everything
		said, err := io.ReadAll(lines)
		if !strings.Contains(strings.ToLower(string(said)), x.want) {
			t.Errorf("%s: the server reported %q, %v: want %q, and the end of the connection", what, said, err, x.want)
		}
	}

	slow, lines := rawLink(t, s)
	if _, err := slow.Write([]byte("SUB flood 1\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := lines.ReadString('\n'); err != nil || line != "PONG\r\n" {
		t.Fatal(line, err)
	}
	body := make([]byte, MaxMessage/2)
	for range keys.MaxPending/len(body) + 2 { // without reading
		if err := errors.Join(other.nc.Publish("flood", body), other.flush(t.Context(), hang)); err != nil {
			t.Fatalf("who publishes does not go on: %v", err)
		}
	}
	if n := s.ns.NumSlowConsumers(); n != 1 {
		t.Errorf("%d clients were disconnected for what they do not read: want 1", n)
	}
	if said, _ := io.Copy(io.Discard, lines); said > keys.MaxPending {
		t.Errorf("%d bytes waited for a client that did not read: want at most %d", said, keys.MaxPending)
	}
}

// rawLink returns a connection to a server without users, after the server's greeting.
func rawLink(t *testing.T, s *Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := s.InProcessConn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(hang)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(c)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("CONNECT {\"verbose\":false}\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	for line := ""; line != "PONG\r\n"; {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return c, lines
}

// TestServersWithoutConfigurationAreBounded covers servers whose configuration file has no limits, as files of an
// earlier release.
func TestServersWithoutConfigurationAreBounded(t *testing.T) {
	v, err := plane(t, ServerConfig{}).ns.Varz(nil)
	if err != nil || v.MaxConn != keys.MaxConnections || v.MaxSubs != keys.MaxSubscriptions ||
		v.MaxControlLine != keys.MaxControlLine ||
		v.MaxPayload != MaxMessage || v.MaxPending != keys.MaxPending {
		t.Errorf("%v: %d connections, %d subscriptions, %d control line, %d payload, %d pending", err, v.MaxConn,
			v.MaxSubs, v.MaxControlLine, v.MaxPayload, v.MaxPending)
	}
}
