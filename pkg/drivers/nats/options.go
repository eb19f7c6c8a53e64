package nats

import (
	"errors"
	"fmt"
	"strings"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// The values of options.Retention.
const (
	retentionInterest  = "interest"
	retentionLimits    = "limits"
	retentionWorkQueue = "workqueue"
)

// unconsumedBytes is the default bound of streams that have no consumers.
const unconsumedBytes = 256 << 20

// options are those of schema.cue, one field each.
type options struct {
	kit.Addresses
	Embedded    bool         `json:"embedded"`
	Name        string       `json:"name"`
	Sync        string       `json:"sync"`
	User        string       `json:"user"`
	Password    string       `json:"password"`
	Token       string       `json:"token"`
	Credentials string       `json:"credentials"`
	Nkey        string       `json:"nkey"`
	TLS         *kit.TLS     `json:"tls"`
	Storage     string       `json:"storage"`
	Replicas    int          `json:"replicas"`
	MaxBytes    int64        `json:"maxBytes"`
	MaxMessages int64        `json:"maxMessages"`
	Discard     string       `json:"discard"`
	Retention   string       `json:"retention"`
	Subject     string       `json:"subject,omitempty"`  // for topologies with Existing
	Consumer    string       `json:"consumer,omitempty"` // for topologies with Existing
	AckWait     kit.Duration `json:"ackWait"`
	Confirm     kit.Duration `json:"confirmTimeout"`
	Ping        kit.Duration `json:"pingInterval"`
	Resilience  string       `json:"resilience"`
	Monitoring  []string     `json:"monitoring"`
}

// Check validates what the schema cannot.
func (o *options) Check() error {
	switch {
	case o.Embedded != (len(o.All()) == 0) || o.URL != "" && len(o.URLs) > 0:
		return errors.New(`give one of url: "nats://host:4222", urls (one for each server of a cluster) and embedded: true`)
	case o.Embedded && len(o.Monitoring) > 0:
		return errors.New("an embedded server runs in the agent's process and has no monitoring; see the metrics of the agent")
	case o.Nkey != "" && (o.Credentials != "" || o.User != "" || o.Token != ""):
		return errors.New("nkey is the only authentication of a client: remove user, token and credentials")
	case o.Embedded && o.Replicas > 1:
		return errors.New("an embedded server is one server: replicas must be 1")
	case !o.Embedded && o.Sync != "default":
		return errors.New("sync is for embedded servers; of others it is a setting of the server (sync_interval)")
	case o.Sync == "always" && o.Storage == "memory":
		return errors.New(`sync: "always" needs storage: "file"`)
	}
	return o.TLS.Check(!o.Embedded) // an embedded server has no TLS
}

// repeats reports whether messages are published again that no stream accepted.
func (o *options) repeats() bool { return o.Resilience != "none" }

func (o *options) bounded() bool { return o.MaxBytes > 0 || o.MaxMessages > 0 }

// discardsOld reports whether a full stream removes its oldest message, instead of rejecting the new one. With limits
// retention, a full stream usually contains acknowledged messages.
func (o *options) discardsOld(consumers int) bool {
	return o.Discard == "old" || (o.Discard == "" && (consumers == 0 || o.Retention == retentionLimits))
}

// dropsUnread reports whether a full stream drops messages that no consumer has acknowledged.
func (o *options) dropsUnread(consumers int) bool {
	return consumers == 0 || (o.bounded() && o.discardsOld(consumers))
}

// file reports whether streams are stored in files.
func (o *options) file(persistent bool) bool {
	return o.Storage == "file" || (o.Storage == "" && persistent)
}

func (o *options) storage(persistent bool) jetstream.StorageType {
	if o.file(persistent) {
		return jetstream.FileStorage
	}
	return jetstream.MemoryStorage
}

// authentication returns the client options for user, token, and the files credentials and nkey. Credentials in a URL
// take precedence.
func (o *options) authentication(access drivers.Access) ([]client.Option, error) {
	var all []client.Option
	if o.User != "" {
		all = append(all, client.UserInfo(o.User, o.Password))
	}
	if o.Token != "" {
		all = append(all, client.Token(o.Token))
	}
	if o.Credentials != "" {
		text, err := access.ReadFile(o.Credentials)
		if err != nil {
			return nil, fmt.Errorf("read credentials: %w", err)
		}
		all = append(all, client.UserCredentialBytes(text))
	}
	if o.Nkey != "" {
		text, err := access.ReadFile(o.Nkey)
		if err != nil {
			return nil, fmt.Errorf("read nkey: %w", err)
		}
		pair, err := nkeys.ParseDecoratedUserNKey(text)
		if err != nil {
			return nil, fmt.Errorf("read nkey: %s has no seed of a user's nkey", o.Nkey)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("read nkey: %w", err)
		}
		all = append(all, client.Nkey(public, pair.Sign))
	}
	return all, nil
}

// endpoints parses the URLs. A URL may be without a scheme.
func (o *options) endpoints() ([]kit.Endpoint, error) {
	var urls []string
	for _, text := range o.All() {
		if !strings.Contains(text, "://") && !strings.Contains(text, "@") {
			text = "nats://" + text
		}
		urls = append(urls, text)
	}
	all, err := kit.Endpoints("url", "nats://user:password@host:port", map[string]kit.Scheme{"nats": {Port: "4222"},
		"tls": {Port: "4222", TLS: true}}, urls...)
	for i, e := range all {
		if _, has := e.URL.User.Password(); e.URL.User != nil && !has {
			return nil, fmt.Errorf("url number %d has a user without a password, which NATS takes for a token: write"+
				" the token into the option token", i)
		}
		e.URL.Host = e.Address
	}
	if err != nil {
		return nil, fmt.Errorf("read nats options: %w", err)
	}
	return all, nil
}
