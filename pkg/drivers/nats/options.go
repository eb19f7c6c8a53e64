package nats

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

// The values of options.Retention.
const (
	retentionInterest  = "interest"
	retentionLimits    = "limits"
	retentionWorkQueue = "workqueue"
)

// unconsumedBytes is the default bound of streams that have no consumers.
const unconsumedBytes = 256 << 20

type options struct {
	URL         string   `json:"url"`
	URLs        []string `json:"urls"`
	Embedded    bool     `json:"embedded"`
	Name        string   `json:"name"`
	Sync        string   `json:"sync"`
	User        string   `json:"user"`
	Password    string   `json:"password"`
	Token       string   `json:"token"`
	Credentials string   `json:"credentials"`
	Nkey        string   `json:"nkey"`
	TLS         *kit.TLS `json:"tls"`
	Storage     string   `json:"storage"`
	Replicas    int      `json:"replicas"`
	MaxBytes    int64    `json:"maxBytes"`
	MaxMessages int64    `json:"maxMessages"`
	Discard     string   `json:"discard"`
	Retention   string   `json:"retention"`
	AckWait     string   `json:"ackWait"`
	Confirm     string   `json:"confirmTimeout"`
	Resilience  string   `json:"resilience"`
	Monitoring  []string `json:"monitoring"`
}

// parseOptions parses options and checks them. An unknown field is an error. It sets the schema's defaults for callers
// that bypass the schema.
func parseOptions(raw json.RawMessage) (options, error) {
	o := options{Name: "default", Sync: "default", Replicas: 1, Retention: retentionInterest, AckWait: "30s", Confirm: "30s"}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("read nats options: %w", err)
	}
	if fault := o.fault(); fault != "" {
		return o, fmt.Errorf("read nats options: %s", fault)
	}
	return o, nil
}

// fault returns the reason why the options are invalid, or "". It checks what the schema cannot, such as combinations.
func (o *options) fault() string {
	ways := 0
	for _, given := range []bool{o.URL != "", len(o.URLs) > 0, o.Embedded} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return `give one of url: "nats://host:4222", urls (one for each server of a cluster) and embedded: true`
	case o.Embedded && len(o.Monitoring) > 0:
		return "an embedded server runs in the agent's process and has no monitoring; see the metrics of the agent"
	case o.Nkey != "" && (o.Credentials != "" || o.User != "" || o.Token != ""):
		return "nkey is the only authentication of a client: remove user, token and credentials"
	case o.Embedded && o.Replicas > 1:
		return "an embedded server is one server: replicas must be 1"
	case !o.Embedded && o.Sync != "default":
		return "sync is for embedded servers; of others it is a setting of the server (sync_interval)"
	case o.Sync != "default" && o.Sync != "always":
		return fmt.Sprintf(`sync %q: "default" or "always"`, o.Sync)
	case o.Sync == "always" && o.Storage == "memory":
		return `sync: "always" needs storage: "file"`
	case o.Storage != "" && o.Storage != "memory" && o.Storage != "file":
		return fmt.Sprintf(`storage %q: "memory" or "file"`, o.Storage)
	case o.Discard != "" && o.Discard != "old" && o.Discard != "new":
		return fmt.Sprintf(`discard %q: "old" or "new"`, o.Discard)
	case o.Retention != retentionInterest && o.Retention != retentionLimits && o.Retention != retentionWorkQueue:
		return fmt.Sprintf(`retention %q: "interest", "limits" or "workqueue"`, o.Retention)
	}
	if err := o.TLS.Check(!o.Embedded); err != nil { // an embedded server has no TLS
		return err.Error()
	}
	if d, err := time.ParseDuration(o.AckWait); err != nil || d <= 0 {
		return fmt.Sprintf("ackWait %q: write it like \"30s\"", o.AckWait)
	}
	if d, err := time.ParseDuration(o.Confirm); err != nil || d <= 0 {
		return fmt.Sprintf("confirmTimeout %q: write it like \"30s\"", o.Confirm)
	}
	return ""
}

func (o *options) urls() []string {
	if o.URL != "" {
		return []string{o.URL}
	}
	return o.URLs
}

func (o *options) ackWait() time.Duration {
	d, _ := time.ParseDuration(o.AckWait)
	return d
}

func (o *options) confirmTimeout() time.Duration {
	d, _ := time.ParseDuration(o.Confirm)
	return d
}

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

// endpoint is one address of the broker. The url may contain a secret, the address does not.
type endpoint struct {
	url     string
	address string
}

// parseEndpoint parses a URL. Its errors do not contain the text, because a misplaced password could be in it.
func parseEndpoint(text string) (endpoint, error) {
	if !strings.Contains(text, "://") && !strings.Contains(text, "@") {
		text = "nats://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || (u.Scheme != "nats" && u.Scheme != "tls") {
		return endpoint{}, errors.New(`not of the form "nats://user:password@host:port" or "tls://…"` +
			` (percent-encode special characters in user and password)`)
	}
	if _, has := u.User.Password(); u.User != nil && !has {
		return endpoint{},
			errors.New("it has a user without a password, which NATS takes for a token: write the token into the option token")
	}
	port := u.Port()
	if port == "" {
		port = "4222"
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	return endpoint{url: u.String(), address: net.JoinHostPort(u.Hostname(), port)}, nil
}

func (o *options) endpoints() ([]endpoint, error) {
	var all []endpoint
	for i, text := range o.urls() {
		e, err := parseEndpoint(text)
		if err != nil {
			return nil, fmt.Errorf("read nats url number %d: %w", i, err)
		}
		all = append(all, e)
	}
	return all, nil
}
