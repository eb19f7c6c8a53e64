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

	"example.org/lockstep/lockstep/internal/wire/keys"
)

// Auth has the credentials for a control plane, and the authority that must have signed the server's certificate. At
// most one kind of credentials is used, in this order: creds file, token, user and password. The zero value has no
// credentials and trusts the authorities of the host.
type Auth struct {
	User, Password string
	Token          string
	Creds          string // path of the seed of an nkey ("ctl fleet init"), or of a NATS credentials file
	CA             string // path of the authority's certificates (PEM); empty: those of the host
	Cert, Key      string // paths of a client certificate and its key (PEM), for servers that require one
}

// Unaccepted reports whether an error of Dial means that the control plane does not accept the credentials.
func Unaccepted(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) ||
		errors.Is(err, nats.ErrAuthRevoked)
}

// Check returns the errors of all files. Dial stops at the first one.
func (a Auth) Check() error {
	opts, err := a.options()
	for _, use := range opts {
		err = errors.Join(err, use(&nats.Options{}))
	}
	return err
}

func (a Auth) options() (opts []nats.Option, err error) {
	if a.CA != "" {
		opts = append(opts, nats.RootCAs(a.CA))
	}
	if (a.Cert == "") != (a.Key == "") {
		return nil, errors.New("only one of client certificate and key given; pass both")
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

// credentials reads a file of either kind. A seed stays in memory; a NATS credentials file is read at every reconnect.
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
	key := ""
	if err == nil {
		key, err = pair.PublicKey()
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials %s: neither an nkey seed nor a NATS credentials file: %w", path, err)
	}
	return []nats.Option{nats.Nkey(key, pair.Sign), nats.CustomInboxPrefix(keys.InboxPrefix(key))}, nil
}

// errNotAllowed means that the credentials do not allow a request. It wraps nats.ErrPermissionViolation.
var errNotAllowed = fmt.Errorf("the credentials of this program do not allow this: %w", nats.ErrPermissionViolation)

// permissionErrors ends requests whose refusal the server reports, which is no answer. Safe for concurrent use.
type permissionErrors struct {
	requests sync.Map // the context.CancelCauseFunc of each waiting *nats.Msg
}

func (p *permissionErrors) hear(_ *nats.Conn, _ *nats.Subscription, err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	p.requests.Range(func(m, end any) bool {
		if strings.Contains(err.Error(), strconv.Quote(m.(*nats.Msg).Subject)) {
			end.(context.CancelCauseFunc)(errNotAllowed)
		}
		return true
	})
}
