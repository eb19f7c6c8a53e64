package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds of a request; a stream of the live view lifts the one of writing.
const (
	headTimeout  = 10 * time.Second
	writeTimeout = time.Minute
	idleTimeout  = 2 * time.Minute
	headBytes    = 64 << 10
	leaveTimeout = 2 * time.Second
)

// patient writes as long as the reader takes something: a large file over a slow link takes longer than any page.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (p patient) Write(text []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // what cannot be put off ends at the server's own
	return p.ResponseWriter.Write(text)
}

// Listener is where to serve.
type Listener struct {
	Listen    string // host:port
	Users     Users  // none: on loopback alone
	Cert, Key string // files of a certificate and its key (PEM); none: without TLS
	Log       *slog.Logger
}

// Serve opens the listener and serves what handler makes of its Access until stop is called. An error is one of
// starting: what cannot be listened on is known before a daemon begins with its work.
func (l Listener) Serve(handler func(*Access) http.Handler) (at net.Addr, stop func(), err error) {
	access, err := NewAccess(l.Listen, l.Users)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", l.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %q: %w; give another address", l.Listen, err)
	}
	secure := l.Cert != ""
	if secure {
		pair, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		if err != nil {
			_ = listener.Close()
			return nil, nil, fmt.Errorf("read the certificate to serve with: %w", err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12})
	}
	if !secure && !access.loopback {
		l.Log.Warn("pages are served beyond loopback without TLS: passwords can be read on the way; give a certificate and its key", "listen", l.Listen)
	}
	living, end := context.WithCancel(context.Background())
	server := &http.Server{Handler: access.Guard(handler(access)), ReadHeaderTimeout: headTimeout,
		ReadTimeout: headTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: headBytes,
		ErrorLog:    slog.NewLogLogger(l.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return living }}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			l.Log.Error("serve pages", "error", err)
		}
	}()
	return listener.Addr(), func() {
		end() // streams of live views would never end by themselves
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-served
	}, nil
}
