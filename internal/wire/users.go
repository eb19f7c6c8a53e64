package wire

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/internal/wire/keys"
)

// users authenticate the connections of an embedded server with the users and the TLS settings of a NATS configuration
// file. They can be replaced while connections are in use. The library's reload cannot: requests fail meanwhile
// (https://github.com/nats-io/nats-server/issues/8499). Safe for concurrent use.
type users struct {
	byKey atomic.Pointer[map[string]*server.NkeyUser]
	tls   atomic.Pointer[tls.Config]
	ns    *server.Server // set before it starts
}

// allKeyed returns an error if a configuration has no users, or users that authenticate with anything else than an nkey.
// Without users, a reload would disconnect everyone, the controller included.
func allKeyed(opts *server.Options) error {
	if len(opts.Users)+len(opts.TrustedOperators) > 0 || opts.Username != "" || opts.Authorization != "" ||
		opts.NoAuthUser != "" || opts.AuthCallout != nil {
		return errors.New("a user has no nkey; remove it, and create users with \"ctl fleet\"")
	}
	if len(opts.Nkeys) == 0 {
		return errors.New("there are no users; create them with \"ctl fleet init\"")
	}
	for _, user := range opts.Nkeys {
		if len(user.AllowedConnectionTypes) > 0 {
			return fmt.Errorf("allowed_connection_types is not supported (user %s); remove it", user.Nkey)
		}
	}
	return nil
}

// newUsers makes a server with the options of a configuration file authenticate with users; none before set.
func newUsers(opts *server.Options) *users {
	u := &users{}
	u.byKey.Store(&map[string]*server.NkeyUser{})
	opts.CustomClientAuthentication, opts.AlwaysEnableNonce = u, true
	if opts.TLSConfig != nil {
		u.tls.Store(opts.TLSConfig)
		opts.TLSConfig = opts.TLSConfig.Clone()
		opts.TLSConfig.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return u.tls.Load(), nil }
	}
	return u
}

// set replaces all users by those of opts. An error changes nothing.
func (u *users) set(ns *server.Server, opts *server.Options) error {
	byKey := make(map[string]*server.NkeyUser, len(opts.Nkeys))
	for _, user := range opts.Nkeys {
		if user.Account != nil {
			account, err := ns.LookupAccount(user.Account.GetName())
			if err != nil {
				return fmt.Errorf("the account %s is new; restart the controller", user.Account.GetName())
			}
			user.Account = account // until now that of the options
		}
		byKey[user.Nkey] = user
	}
	u.byKey.Store(&byKey)
	return nil
}

// Check implements server.Authentication: a client must have signed the server's nonce with the key of a user. An agent
// with too many connections is refused.
func (u *users) Check(c server.ClientAuthentication) bool {
	offered := c.GetOpts()
	user := (*u.byKey.Load())[offered.Nkey]
	if user == nil || c.Kind() != server.CLIENT {
		return false
	}
	key, err := nkeys.FromPublicKey(user.Nkey)
	if err != nil {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(offered.Sig)
	if err != nil || key.Verify(c.GetNonce(), signature) != nil {
		return false
	}
	if user.Account != nil && user.Account.GetName() == keys.AgentsAccount {
		open, err := u.ns.Connz(&server.ConnzOptions{Username: true, User: user.Nkey, Account: keys.AgentsAccount,
			Limit: keys.MaxAgentConnections})
		if err != nil || len(open.Conns) == keys.MaxAgentConnections {
			return false
		}
	}
	c.RegisterUser(&server.User{Permissions: user.Permissions, Account: user.Account})
	return true
}

// replace sets the users and TLS settings of new options, and disconnects all connections of users that were removed or
// changed. An error changes nothing, unless the list of connections cannot be read.
func (u *users) replace(ns *server.Server, opts *server.Options) error {
	if (opts.TLSConfig == nil) != (u.tls.Load() == nil) {
		return errors.New("TLS was added or removed; restart the controller")
	}
	before := *u.byKey.Load()
	if err := u.set(ns, opts); err != nil {
		return err
	}
	u.tls.Store(opts.TLSConfig)
	now := *u.byKey.Load()
	connections, err := ns.Connz(&server.ConnzOptions{Username: true, Limit: keys.MaxConnections})
	if err != nil {
		return err
	}
	for _, c := range connections.Conns {
		was, is := before[c.AuthorizedUser], now[c.AuthorizedUser]
		if was != nil && (is == nil || is.Account != was.Account || !reflect.DeepEqual(is.Permissions, was.Permissions)) {
			_ = ns.DisconnectClientByID(c.Cid) // an error means that it left
		}
	}
	return nil
}
