package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"lockstep/internal/wire/keys"
)

// Auth is how to show who one is to a control plane, and how to know the control plane. At most one way of showing is
// used: the creds file, token, user and password. The zero value is nobody, and trusts what the host trusts.
type Auth struct {
	User, Password string
	Token          string
	Creds          string // path of an nkey's seed, as "ctl fleet init" makes them, or of a NATS credentials file
	// path of the certificates (PEM) that the server's must be signed by; empty: those that the host trusts
	CA        string
	Cert, Key string // paths of a certificate of one's own and its key (PEM), for servers that ask for one
}

// Unaccepted reports whether an error of Dial is that the control plane does not take what Auth shows.
func Unaccepted(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked)
}

// Check reports all files that cannot be used. Dial does so, too, but one at a time.
func (a Auth) Check() error {
	opts, err := a.options()
	for _, use := range opts {
		err = errors.Join(err, use(&nats.Options{}))
	}
	return err
}

// options are what nats.go needs to know.
func (a Auth) options() (opts []nats.Option, err error) {
	if a.CA != "" {
		opts = append(opts, nats.RootCAs(a.CA))
	}
	if (a.Cert == "") != (a.Key == "") {
		return nil, errors.New("a certificate of one's own needs its key, and the key its certificate: give both")
	}
	if a.Cert != "" {
		opts = append(opts, nats.ClientCert(a.Cert, a.Key))
	}
	switch {
	case a.Creds != "":
		more, err := credentials(a.Creds)
		return append(opts, more...), err
	case a.Token != "":
		opts = append(opts, nats.Token(a.Token))
	case a.User != "":
		opts = append(opts, nats.UserInfo(a.User, a.Password))
	}
	return opts, nil
}

// credentials reads a file of either kind. A NATS credentials file is read again whenever the link is opened again; a
// seed stays in memory: a link that was lost comes back without its file.
func credentials(path string) ([]nats.Option, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	defer clear(text)
	if bytes.Contains(text, []byte("NATS USER JWT")) {
		return []nats.Option{nats.UserCredentials(path)}, nil
	}
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return nil, fmt.Errorf("read credentials %s: neither the seed of an nkey nor a NATS credentials file: %w", path,
			err)
	}
	key, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("read credentials %s: %w", path, err)
	}
	return []nats.Option{nats.Nkey(key, pair.Sign), nats.CustomInboxPrefix(keys.InboxPrefix(key))}, nil
}

// ErrNotAllowed is that the credentials may not do what was asked of the server. It wraps nats.ErrPermissionViolation.
var ErrNotAllowed = fmt.Errorf("the credentials of this program may not do that: %w", nats.ErrPermissionViolation)

// permissionErrors ends the requests that the server refuses, which it reports apart from any answer. Safe for
// concurrent use.
type permissionErrors struct {
	requests sync.Map // the context.CancelCauseFunc of each *nats.Msg that waits for its answer
}

func (p *permissionErrors) hear(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	p.requests.Range(func(m, end any) bool {
		if strings.Contains(err.Error(), strconv.Quote(m.(*nats.Msg).Subject)) {
			end.(context.CancelCauseFunc)(ErrNotAllowed)
		}
		return true
	})
}
