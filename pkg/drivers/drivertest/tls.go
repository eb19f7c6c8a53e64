package drivertest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// TLS describes a listener of the broker that requires TLS and a client certificate.
type TLS struct {
	// Options are those of the listener, without tls. Each address in them has the host localhost.
	Options      json.RawMessage
	Certificates Certificates // of the listener
}

// The hosts of a listener: the one of its certificate, and another one.
const (
	certified   = "localhost"
	uncertified = "127.0.0.1"
)

// settings are values of the option tls. A nil value removes a field.
type settings map[string]any

// tlsOptions returns the options of the listener with a host in the addresses. tls has the listener's CA and the
// client's certificate, unless changes has other settings.
func tlsOptions(c *check, host string, changes settings) json.RawMessage {
	l := c.h.TLS
	if l == nil {
		c.notApplicable("the harness has no listener with TLS")
	}
	all := map[string]any{}
	text := bytes.ReplaceAll(l.Options, []byte(certified), []byte(host))
	c.must(json.Unmarshal(text, &all), "read Harness.TLS.Options")
	option := settings{"ca": l.Certificates.CA(), "cert": l.Certificates.Client(), "key": l.Certificates.Client()}
	maps.Copy(option, changes)
	maps.DeleteFunc(option, func(_ string, value any) bool { return value == nil })
	all["tls"] = option
	text, err := json.Marshal(all)
	c.must(err, "write the options")
	return text
}

// tlsChecks returns the checks of connections with TLS.
func tlsChecks() []named {
	accepted := func(name, host string, changes settings) named {
		return named{name: "tls/" + name, run: func(c *check) { exchange(c, tlsOptions(c, host, changes)) }}
	}
	rejected := func(name, host string, changes settings, fix string) named {
		return named{name: "tls/" + name, run: func(c *check) { refusedTLS(c, tlsOptions(c, host, changes), fix) }}
	}
	return []named{
		accepted("connects", certified, nil), // a private CA and a client certificate
		accepted("server-name", uncertified, settings{"serverName": certified}),
		accepted("insecure", uncertified, settings{"insecure": true, "ca": nil}), // an unknown CA and another host
		// The listener requires the client certificate. So the other checks prove that it is sent. With TLS 1.3, the
		// broker rejects the client after the handshake, and the client may see only that the connection broke.
		rejected("client", certified, settings{"cert": nil, "key": nil}, ""),
		rejected("host", uncertified, nil, "set tls.serverName"),
		{name: "tls/authority", run: checkTLSAuthority},
	}
}

// exchange sends and receives messages, and reads the description and the metrics of the broker.
func exchange(c *check, options json.RawMessage) {
	c.h.Options = options
	r := c.rig(c.use(c.anyMode()))
	in, s := r.inbox(nil), r.sender(1)
	c.must(s.publish(c.ctx, 0, 64<<10), "publish")
	s.send(20)
	in.arrive(s.kept())
	if d, ok := drivers.As[drivers.Describer](r.session); ok {
		_, err := d.Describe(c.ctx)
		c.must(err, "Describe")
	}
	if p, ok := drivers.As[drivers.Prober](r.session); ok {
		metrics, err := p.Probe(c.ctx)
		if !refused(err) {
			c.must(err, "Probe")
			c.logf("%d metrics over TLS", len(metrics))
		}
	}
}

// checkTLSAuthority connects to a broker whose CA is not trusted.
func checkTLSAuthority(c *check) {
	const fix = "set tls.ca to the CA that signed the broker's certificate"
	refusedTLS(c, tlsOptions(c, certified, settings{"ca": nil}), fix)
	refusedTLS(c, tlsOptions(c, certified, settings{"ca": c.h.TLS.Certificates.OtherCA()}), fix)
}

// refusedTLS proves that no publisher connects, and that the error contains fix and comes before its context ends.
func refusedTLS(c *check, options json.RawMessage, fix string) {
	c.h.Options = options
	if err := c.rejects("Open with TLS settings that do not fit", options); err != nil &&
		!strings.Contains(err.Error(), fix) {
		c.errorf("the error does not contain %q: %v", fix, err)
	}
}

// TLSProxy starts a listener with TLS in front of a broker without it, until the test ends. It requires a client
// certificate. address is the address of the broker. The result is that of the listener, with the host localhost.
func TLSProxy(t testing.TB, files Certificates, address string) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", files.ServerConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer near.Close()
				if near.(*tls.Conn).HandshakeContext(t.Context()) != nil {
					return
				}
				if far, err := net.Dial("tcp", address); err == nil {
					join(near, far)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort(certified, port)
}
