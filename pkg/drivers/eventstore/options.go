package eventstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

type options struct {
	kit.Addresses
	User        string       `json:"user"`
	Password    string       `json:"password"`
	Strategy    string       `json:"strategy"`
	Timeout     kit.Duration `json:"messageTimeout"`
	MaxRetries  int32        `json:"maxRetryCount"`
	LiveBuffer  int32        `json:"liveBufferSize"`
	History     int32        `json:"historyBufferSize"`
	ReadBatch   int32        `json:"readBatchSize"`
	CheckAfter  kit.Duration `json:"checkpointAfter"`
	CheckMin    int32        `json:"checkpointLowerBound"`
	CheckMax    int32        `json:"checkpointUpperBound"`
	MaxCount    uint64       `json:"maxCount"`
	Concurrency int          `json:"concurrency"`
	AppendBatch int          `json:"appendBatch"`
	Confirm     kit.Duration `json:"confirmTimeout"`
	Resilience  string       `json:"resilience"`
	TLS         *kit.TLS     `json:"tls"`
}

// Check validates what the schema cannot.
func (o *options) Check() error {
	switch {
	case o.ReadBatch >= o.History:
		return fmt.Errorf("readBatchSize %d must be smaller than historyBufferSize %d: otherwise the server does not read ahead", o.ReadBatch, o.History)
	case o.CheckMin > o.CheckMax:
		return fmt.Errorf("checkpointLowerBound %d is above checkpointUpperBound %d", o.CheckMin, o.CheckMax)
	}
	all, err := o.endpoints()
	if err != nil {
		return err
	}
	return o.TLS.Check(all[0].TLS)
}

// settings returns the settings of each group.
func (o *options) settings() kurrentdb.PersistentSubscriptionSettings {
	return kurrentdb.PersistentSubscriptionSettings{
		MaxRetryCount: o.MaxRetries, CheckpointLowerBound: o.CheckMin, CheckpointUpperBound: o.CheckMax,
		MaxSubscriberCount: kurrentdb.SubscriberCountUnlimited, LiveBufferSize: o.LiveBuffer, ReadBatchSize: o.ReadBatch,
		HistoryBufferSize:    o.History,
		ConsumerStrategyName: kurrentdb.ConsumerStrategy(o.Strategy),
		MessageTimeout:       int32(o.Timeout.Std().Milliseconds()),
		CheckpointAfter:      int32(o.CheckAfter.Std().Milliseconds()),
	}
}

// example is the form of a URL.
const example = "esdb://user:password@host:2113?tls=true"

// schemes lacks esdb+discover: discovery would bypass the simulated network.
var schemes = map[string]kit.Scheme{"esdb": {Port: "2113", TLS: true}, "kurrentdb": {Port: "2113", TLS: true}}

// endpoints parses the URLs, which differ only in the host. All use TLS unless one has the parameter tls=false.
func (o *options) endpoints() ([]kit.Endpoint, error) {
	if err := o.Required(example); err != nil {
		return nil, err
	}
	all, err := kit.Endpoints("url", example, schemes, o.All()...)
	if err != nil {
		return nil, fmt.Errorf("%w; list the nodes of a cluster in urls", err)
	}
	for i := range all {
		e := &all[i]
		if e.URL.Path != "" && e.URL.Path != "/" {
			return nil, fmt.Errorf("url number %d has a path: give one of the form %q", i, example)
		}
		for name, values := range e.URL.Query() {
			if name != "tls" {
				return nil, fmt.Errorf("url number %d has %s=, and only tls= is supported: give tls: {ca, cert, key, insecure} for certificates", i, name)
			}
			if e.TLS, err = strconv.ParseBool(values[0]); err != nil {
				return nil, fmt.Errorf("url number %d: tls must be true or false", i)
			}
		}
		if first := all[0]; e.TLS != first.TLS || e.User != first.User || e.Password != first.Password {
			return nil, fmt.Errorf("url number %d differs from the first in more than the host", i)
		}
	}
	return all, nil
}

// security are the TLS and user settings of all connections.
type security struct {
	tls            *tls.Config // nil: no TLS
	cert, key      string      // files of the client's certificate, for the library; "": none
	user, password string
}

func (o *options) security(e kit.Endpoint, access drivers.Access, dir string) (s security, err error) {
	s = security{user: o.User, password: o.Password}
	if e.User != "" {
		s.user, s.password = e.User, e.Password
	}
	if !e.TLS {
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
