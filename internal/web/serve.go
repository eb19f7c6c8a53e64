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

// Limits of a request. A stream of a live view extends the write timeout.
const (
	headTimeout  = 10 * time.Second
	writeTimeout = time.Minute
	idleTimeout  = 2 * time.Minute
	headBytes    = 64 << 10
	leaveTimeout = 2 * time.Second
)

// patient extends the write timeout before each write: a large file over a slow link can take longer.
type patient struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (p patient) Write(text []byte) (int, error) {
	_ = p.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // on an error the server's own timeout applies
	return p.ResponseWriter.Write(text)
}

// Listener describes an HTTP listener.
type Listener struct {
	Listen    string // host:port
	Users     Users  // none: loopback only
	Cert, Key string // files of a certificate and its key (PEM); none: no TLS
	Log       *slog.Logger
}

// Serve listens and serves the handler until stop is called. The handler gets the Access that guards it. A listener
// that cannot be opened is an error, so that a daemon fails at its start. stop waits for the end of requests, for at
// most leaveTimeout.
func (l Listener) Serve(handler func(*Access) http.Handler) (at net.Addr, stop func(), err error) {
	access, err := NewAccess(l.Listen, l.Users)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", l.Listen)
	if err != nil {
		return nil, nil, fmt.Errorf("listen on %q: %w; use another address", l.Listen, err)
	}
	secure := l.Cert != ""
	if secure {
		pair, err := tls.LoadX509KeyPair(l.Cert, l.Key)
		if err != nil {
			_ = listener.Close()
			return nil, nil, fmt.Errorf("read TLS certificate %s and key %s: %w", l.Cert, l.Key, err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12})
	}
	if !secure && !access.loopback {
		l.Log.Warn("pages are served beyond loopback without TLS, so that passwords can be read on the network; set a certificate and its key", "listen", l.Listen)
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
			l.Log.Error("cannot serve pages", "error", err)
		}
	}()
	return listener.Addr(), func() {
		end() // ends the streams of live views
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-served
	}, nil
}
