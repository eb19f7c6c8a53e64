package nats

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embeddedKey identifies an embedded server of this process.
type embeddedKey struct{ name, sync string }

// embedded is a NATS server in this process. Sessions with the same name and sync setting share it.
type embedded struct {
	key    embeddedKey
	server *server.Server
	dir    string
	uses   int
}

var (
	embeddedMu  sync.Mutex
	embeddedAll = map[embeddedKey]*embedded{}
)

// borrow returns the embedded server of these options. The first caller starts it, with its storage below dir.
func borrow(o *options, dir string) (*embedded, error) {
	embeddedMu.Lock()
	defer embeddedMu.Unlock()
	key := embeddedKey{o.Name, o.Sync}
	e := embeddedAll[key]
	if e == nil {
		var err error
		if e, err = startEmbedded(key, dir); err != nil {
			return nil, fmt.Errorf("start embedded NATS server %q: %w", o.Name, err)
		}
		embeddedAll[key] = e
	}
	e.uses++
	return e, nil
}

func startEmbedded(key embeddedKey, beneath string) (*embedded, error) {
	dir, err := os.MkdirTemp(beneath, "lockstep-nats-")
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "embedded-" + key.name, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: dir, SyncAlways: key.sync == "always",
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	e := &embedded{key: key, server: srv, dir: dir}
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		return nil, errors.Join(errors.New("it does not accept connections after 10 s"), e.stop())
	}
	return e, nil
}

func (e *embedded) url() string { return "nats://" + e.server.Addr().String() }

// giveBack stops the server when its last user returns it.
func (e *embedded) giveBack() error {
	embeddedMu.Lock()
	defer embeddedMu.Unlock()
	e.uses--
	if e.uses > 0 {
		return nil
	}
	delete(embeddedAll, e.key)
	if err := e.stop(); err != nil {
		return fmt.Errorf("stop embedded NATS server %q: %w", e.key.name, err)
	}
	return nil
}

func (e *embedded) stop() error {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	return os.RemoveAll(e.dir)
}
