package hostile

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/internal/plan"
	"example.org/lockstep/lockstep/internal/wire"
	"example.org/lockstep/lockstep/internal/wire/keys"
)

// dialRaw connects with a key of the fleet, without a client library. So the test can send without reading.
func (f *fleet) dialRaw(key string) (*tls.Conn, *bufio.Reader) {
	f.t.Helper()
	seed, err := os.ReadFile(filepath.Join(f.creds, key))
	must(f.t, err)
	pair, err := nkeys.ParseDecoratedUserNKey(seed)
	must(f.t, err)
	public, err := pair.PublicKey()
	must(f.t, err)
	plain, err := net.Dial("tcp", strings.TrimPrefix(f.url, "tls://"))
	must(f.t, err)
	f.t.Cleanup(func() { _ = plain.Close() })
	line, err := bufio.NewReader(plain).ReadString('\n')
	must(f.t, err)
	var info struct{ Nonce string }
	must(f.t, json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info))
	signature, err := pair.Sign([]byte(info.Nonce))
	must(f.t, err)
	authority, err := os.ReadFile(filepath.Join(f.creds, "ca.crt"))
	must(f.t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	c := tls.Client(plain, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1,\"nkey\":%q,\"sig\":%q}\r\nPING\r\n",
		public, base64.RawURLEncoding.EncodeToString(signature))
	must(f.t, err)
	r := bufio.NewReader(c)
	for line != "PONG\r\n" {
		line, err = r.ReadString('\n')
		must(f.t, err)
	}
	return c, r
}

// publication returns a message in NATS's protocol.
func publication(to, reply string, header, body []byte) []byte {
	h := fmt.Appendf(nil, "NATS/1.0\r\nLockstep-Protocol: %d\r\n%s\r\n", plan.Protocol, header)
	p := fmt.Appendf(nil, "HPUB %s %s %d %d\r\n%s", to, reply, len(h), len(h)+len(body), h)
	return append(append(p, body...), "\r\n"...)
}

// manyHeaders returns headers of about n bytes, each of a few bytes.
func manyHeaders(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%x:\r\n", i)
	}
	return b.Bytes()
}

// TestDaemonsStaySmallWhenAllRolesFlood floods with the keys of all roles at the same time. An agent sends arrivals,
// snapshots and headers. A client sends submissions, schedules and headers. Viewers request the record of a run with a
// large plan on many connections, and do not read the responses.
func TestDaemonsStaySmallWhenAllRolesFlood(t *testing.T) {
	f := &fleet{t: t}
	daemons := f.startProcesses()
	run := newRun("large")
	noise := make([]byte, 4<<20)
	_, _ = rand.Read(noise)
	run.Cells[0].Notes = []string{base64.StdEncoding.EncodeToString(noise)}
	must(t, f.client.Submit(t.Context(), wire.Submission{Run: run}))
	f.readRun("large", func(wire.Entry) {})

	const limit = wire.MaxMessage - 1024
	small, large := hostileBodies(limit)
	settings := []byte(`{"run":"r","task":"t","attempt":"y","agent":"a3","step":"open","subject":{"settings":{`)
	for i := 0; len(settings) < 60<<10; i++ {
		settings = fmt.Appendf(settings, `"%x":"",`, i)
	}
	headers, arrival := manyHeaders(limit-1024), append(settings, `"x":""}}}`...)
	var flooding sync.WaitGroup
	for key, services := range map[string][]string{"agents/a3.nk": agentServices("a3"), "viewer.nk": viewServices,
		"client.nk": clientServices} {
		inbox := "_INBOX." + f.users[slices.IndexFunc(f.users, func(u keys.User) bool { return u.File() == key })].Key + ".x"
		flood := func(connections int, reads bool, messages ...[]byte) {
			for range connections {
				flooding.Go(func() {
					c, answers := f.dialRaw(key)
					if _, err := fmt.Fprintf(c, "SUB %s 1\r\n", inbox); err != nil {
						t.Error(err)
					}
					if reads {
						go func() { _, _ = io.Copy(io.Discard, answers) }() // until the connection is closed
					}
					for _, m := range messages {
						if _, err := c.Write(m); err != nil { // the server closes a connection that does not read
							return
						}
					}
				})
			}
		}
		var header, malformed [][]byte
		for _, service := range services {
			header = append(header, publication(service, inbox, headers, nil))
			for _, body := range slices.Concat(small, large) {
				malformed = append(malformed, publication(service, inbox, nil, body))
			}
		}
		flood(1, true, header...)
		flood(1, true, malformed...)
		switch key {
		case "agents/a3.nk":
			flood(2, true, slices.Repeat([][]byte{publication("lockstep.agent.arrive.a3", inbox, nil, arrival)}, 200)...)
		case "viewer.nk":
			read := publication("lockstep.view.read", inbox, nil, []byte(`{"run":"large"}`))
			flood(20, false, slices.Repeat([][]byte{read}, 32)...)
		}
	}
	flooding.Wait()
	f.checkMemory(daemons, "floods of all roles")
	f.executeRun("after")
	f.checkMemory(daemons, "the last run")
}
