package eventstore

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
)

type options struct {
	URL         string   `json:"url"`
	URLs        []string `json:"urls"`
	User        string   `json:"user"`
	Password    string   `json:"password"`
	Strategy    string   `json:"strategy"`
	Timeout     duration `json:"messageTimeout"`
	MaxRetries  int32    `json:"maxRetryCount"`
	LiveBuffer  int32    `json:"liveBufferSize"`
	History     int32    `json:"historyBufferSize"`
	ReadBatch   int32    `json:"readBatchSize"`
	CheckAfter  duration `json:"checkpointAfter"`
	CheckLeast  int32    `json:"checkpointLowerBound"`
	CheckMost   int32    `json:"checkpointUpperBound"`
	MaxCount    uint64   `json:"maxCount"`
	Concurrency int      `json:"concurrency"`
	AppendBatch int      `json:"appendBatch"`
	Confirm     duration `json:"confirmTimeout"`
	Resilience  string   `json:"resilience"`
	TLS         *kit.TLS `json:"tls"`
}

type duration time.Duration

// UnmarshalText parses a duration.
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil || parsed < 0 {
		return fmt.Errorf("invalid duration %q: write it like \"30s\"", text)
	}
	*d = duration(parsed)
	return nil
}

// parseOptions parses options and checks them. An unknown field is an error. It sets the schema's defaults for callers
// that bypass the schema.
func parseOptions(raw json.RawMessage) (options, error) {
	o := options{
		Strategy: string(kurrentdb.ConsumerStrategyRoundRobin), Timeout: duration(30 * time.Second), MaxRetries: 10,
		LiveBuffer: 500, History: 500, ReadBatch: 20, CheckAfter: duration(2 * time.Second), CheckLeast: 10,
		CheckMost: 1000, Concurrency: callsPerConnection, AppendBatch: 10, Confirm: duration(30 * time.Second),
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("read eventstore options: %w", err)
	}
	if fault := o.fault(); fault != "" {
		return o, fmt.Errorf("read eventstore options: %s", fault)
	}
	return o, nil
}

// fault returns the reason why the options are invalid, or "". It checks what the schema cannot, such as combinations.
func (o *options) fault() string {
	switch {
	case (o.URL != "") == (len(o.URLs) > 0):
		return `give one of url: "esdb://host:2113" and urls (one for each node of a cluster)`
	case o.ReadBatch < 1 || o.LiveBuffer < 1 || o.CheckLeast < 1 || o.MaxRetries < 0 || o.Concurrency < 1 ||
		o.AppendBatch < 1:
		return "readBatchSize, liveBufferSize, checkpointLowerBound, concurrency and appendBatch must be 1 or more, maxRetryCount 0 or more"
	case o.Confirm == 0 || o.CheckAfter == 0:
		return "confirmTimeout and checkpointAfter must be more than 0s"
	case o.ReadBatch >= o.History:
		return fmt.Sprintf("readBatchSize %d must be smaller than historyBufferSize %d: otherwise the server does not read ahead", o.ReadBatch, o.History)
	case o.CheckLeast > o.CheckMost:
		return fmt.Sprintf("checkpointLowerBound %d is above checkpointUpperBound %d", o.CheckLeast, o.CheckMost)
	}
	return ""
}

func (o *options) urls() []string {
	if o.URL != "" {
		return []string{o.URL}
	}
	return o.URLs
}

// settings returns the settings of each group.
func (o *options) settings() kurrentdb.PersistentSubscriptionSettings {
	return kurrentdb.PersistentSubscriptionSettings{
		MaxRetryCount: o.MaxRetries, CheckpointLowerBound: o.CheckLeast, CheckpointUpperBound: o.CheckMost,
		MaxSubscriberCount: kurrentdb.SubscriberCountUnlimited, LiveBufferSize: o.LiveBuffer, ReadBatchSize: o.ReadBatch,
		HistoryBufferSize:    o.History,
		ConsumerStrategyName: kurrentdb.ConsumerStrategy(o.Strategy),
		MessageTimeout:       int32(time.Duration(o.Timeout).Milliseconds()),
		CheckpointAfter:      int32(time.Duration(o.CheckAfter).Milliseconds()),
	}
}

// endpoint is one node. Its address contains no secret.
type endpoint struct {
	address  string
	tls      bool
	user     string
	password string
}

// parseEndpoint parses a URL. Its errors do not contain the text, because a misplaced password could be in it.
func parseEndpoint(text string) (endpoint, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || (u.Path != "" && u.Path != "/") {
		return endpoint{}, errors.New(`not of the form "esdb://user:password@host:port?tls=true"` +
			" (one host; percent-encode special characters in user and password)")
	}
	if u.Scheme != "esdb" && u.Scheme != "kurrentdb" {
		return endpoint{}, errors.New(`the scheme is not "esdb" or "kurrentdb": discovery (esdb+discover) would bypass ` +
			"the simulated network; list the nodes of a cluster in urls")
	}
	port := u.Port()
	if port == "" {
		port = "2113"
	}
	e := endpoint{address: net.JoinHostPort(u.Hostname(), port), tls: true, user: u.User.Username()}
	e.password, _ = u.User.Password()
	for name, values := range u.Query() {
		if name != "tls" {
			return endpoint{}, fmt.Errorf("it has %s=, and only tls= is supported: give tls: {ca, cert, key, insecure} for certificates", name)
		}
		if e.tls, err = strconv.ParseBool(values[0]); err != nil {
			return endpoint{}, errors.New("tls must be true or false")
		}
	}
	return e, nil
}

func (o *options) endpoints() ([]endpoint, error) {
	var all []endpoint
	for i, text := range o.urls() {
		e, err := parseEndpoint(text)
		if err != nil {
			return nil, fmt.Errorf("read eventstore url number %d: %w", i, err)
		}
		if first := e; i > 0 {
			first.address = all[0].address
			if first != all[0] {
				return nil, fmt.Errorf("read eventstore url number %d: it differs from the first in more than the host", i)
			}
		}
		all = append(all, e)
	}
	return all, o.TLS.Check(all[0].tls)
}

// security are the TLS and user settings of all connections.
type security struct {
	tls            *tls.Config // nil: no TLS
	cert, key      string      // files of the client's certificate, for the library; "": none
	user, password string
}

func (o *options) security(access drivers.Access, dir string) (security, error) {
	all, err := o.endpoints()
	if err != nil {
		return security{}, err
	}
	e := all[0]
	s := security{user: o.User, password: o.Password}
	if e.user != "" {
		s.user, s.password = e.user, e.password
	}
	if !e.tls {
		if s.user != "" {
			return s,
				errors.New("user and password need TLS: without it the library sends neither (drop tls=false, or user and password)")
		}
		return s, nil
	}
	if s.tls, err = o.TLS.Config(access); err != nil || len(s.tls.Certificates) == 0 {
		return s, err
	}
	// the library opens the files itself: it gets copies of those that access permits
	s.cert, s.key = filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	for _, f := range []struct{ from, to string }{{o.TLS.Cert, s.cert}, {o.TLS.Key, s.key}} {
		text, err := access.ReadFile(f.from)
		if err != nil {
			return s, fmt.Errorf("copy the client certificate: %w", err)
		}
		if err := os.WriteFile(f.to, text, 0o600); err != nil {
			return s, fmt.Errorf("copy the client certificate: %w", err)
		}
	}
	return s, nil
}

// configuration returns the configuration of a client that connects to target. It makes one connection attempt and logs
// nothing. It sends no requirement for a leader, so that followers forward appends.
func (s security) configuration(target string) *kurrentdb.Configuration {
	c := &kurrentdb.Configuration{
		Address: target, DisableTLS: s.tls == nil, Username: s.user, Password: s.password,
		MaxDiscoverAttempts: 1, DiscoveryInterval: 0, GossipTimeout: int(handshakeTimeout / time.Second),
		KeepAliveInterval: 10 * time.Second, KeepAliveTimeout: 10 * time.Second,
		NodePreference: kurrentdb.NodePreferenceRandom, Logger: kurrentdb.NoopLogging(),
		UserCertFile: s.cert, UserKeyFile: s.key,
	}
	if s.tls != nil {
		c.RootCAs, c.SkipCertificateVerification = s.tls.RootCAs, s.tls.InsecureSkipVerify
	}
	return c
}
