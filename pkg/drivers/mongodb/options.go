package mongodb

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	client "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"lockstep/pkg/drivers"
	"lockstep/pkg/drivers/kit"
	"lockstep/pkg/drivers/requests"
)

type options struct {
	URL            string      `json:"url"`
	Database       string      `json:"database"`
	W              concern     `json:"w"`
	ClaimW         *concern    `json:"claimW"` // nil: as w
	Journal        *bool       `json:"journal"`
	WTimeout       string      `json:"wtimeout"`
	Ordered        bool        `json:"ordered"`
	InsertBatch    int         `json:"insertBatch"`
	Inserters      *int        `json:"inserters"` // nil: enough for the messages in flight
	Claimers       *int        `json:"claimers"`  // nil: enough for the prefetch
	Order          string      `json:"order"`
	Visibility     string      `json:"visibility"`
	PollInterval   string      `json:"pollInterval"`
	Unacknowledged bool        `json:"unacknowledged"`
	ConfirmTimeout string      `json:"confirmTimeout"`
	Resilience     string      `json:"resilience"`
	TLS            *kit.TLS    `json:"tls"`
	times          parsedTimes // parsed durations of the fields above
}

type parsedTimes struct{ wtimeout, visibility, poll, confirm time.Duration }

// concern is a number of members, or 0 for the majority.
type concern int

// UnmarshalJSON parses a number or "majority".
func (c *concern) UnmarshalJSON(text []byte) error {
	if string(text) == `"majority"` {
		*c = 0
		return nil
	}
	var n int
	if err := json.Unmarshal(text, &n); err != nil || n < 1 {
		return errors.New(`w: "majority", or a number of members from 1 (w: 0 is mode "fire-and-forget")`)
	}
	*c = concern(n)
	return nil
}

func (c concern) String() string {
	if c == 0 {
		return "w:majority"
	}
	return fmt.Sprintf("w:%d", int(c))
}

// orderInsertion makes consumers receive messages in the order of insertion.
const orderInsertion = "insertion"

var databaseName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// parseOptions parses options and checks them. An unknown field is an error. It sets the schema's defaults for callers
// that bypass the schema.
func parseOptions(raw json.RawMessage) (options, error) {
	o := options{
		Database: "lockstep", InsertBatch: 100, Order: "none", Visibility: "30s", PollInterval: "10ms",
		Unacknowledged: true, ConfirmTimeout: "30s",
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, fmt.Errorf("read mongodb options: %w", err)
	}
	if d.More() {
		return o, errors.New("read mongodb options: there is something behind them")
	}
	if err := o.check(); err != nil {
		return o, fmt.Errorf("read mongodb options: %w", err)
	}
	return o, nil
}

// check parses the durations. It checks what the schema cannot, and also what it can, for callers that bypass it.
func (o *options) check() error {
	switch {
	case !databaseName.MatchString(o.Database):
		return fmt.Errorf("database %q: letters, digits, _ and -, at most 63", o.Database)
	case o.Order != "none" && o.Order != orderInsertion:
		return fmt.Errorf(`order %q: "none" or "insertion"`, o.Order)
	case o.InsertBatch < 1 || (o.Inserters != nil && *o.Inserters < 1) || (o.Claimers != nil && *o.Claimers < 1):
		return errors.New("insertBatch, inserters and claimers: 1 or more")
	case o.Order == orderInsertion && o.Claimers != nil && *o.Claimers > 1:
		return errors.New(`claimers: order "insertion" needs one claim at a time: remove one of the two options`)
	}
	if err := o.TLS.Check(true); err != nil {
		return err
	}
	for _, d := range []struct {
		name, text string
		into       *time.Duration
		may        bool // may be missing
	}{
		{"wtimeout", o.WTimeout, &o.times.wtimeout, true},
		{"visibility", o.Visibility, &o.times.visibility, false},
		{"pollInterval", o.PollInterval, &o.times.poll, false},
		{"confirmTimeout", o.ConfirmTimeout, &o.times.confirm, false},
	} {
		if d.text == "" && d.may {
			continue
		}
		var err error
		if *d.into, err = time.ParseDuration(d.text); err != nil || *d.into < time.Millisecond {
			return fmt.Errorf(`%s %q: write it like "30s", at least "1ms"`, d.name, d.text)
		}
	}
	_, err := o.client()
	return err
}

// repeats reports whether the library repeats failed inserts: servers outside of a replica set do not support it.
func (o *options) repeats() bool {
	c, err := o.client()
	return o.Resilience != "none" && err == nil && c.ReplicaSet != nil
}

// srv is a scheme with which the library resolves names by itself.
const srv = "mongodb+srv://"

// client parses the URL. It reads no files. Its errors do not contain the text, because a misplaced password could be
// in it.
func (o *options) client() (*client.ClientOptions, error) {
	if strings.HasPrefix(strings.ToLower(o.URL), srv) {
		return nil,
			errors.New("url: mongodb+srv looks names up past the simulated network: list the hosts in mongodb://a:27017,b:27017/")
	}
	_, query, _ := strings.Cut(o.URL, "?")
	plain, _ := url.QueryUnescape(query) // the library rejects invalid escapes
	plain = strings.ToLower(plain)
	if strings.Contains(plain, "file=") { // the library would open the file itself
		return nil,
			errors.New("url: tlsCAFile, tlsCertificateKeyFile and other files: give tls: {ca, cert, key} instead")
	}
	if strings.Contains(plain, "insecure=") {
		return nil, errors.New("url: tlsInsecure: give tls: {insecure: true} instead")
	}
	c := client.Client().ApplyURI(o.URL)
	if err := c.Validate(); err != nil || len(c.Hosts) == 0 {
		return nil, errors.New(`url is not of the form "mongodb://user:password@host:27017/?replicaSet=name"` +
			` (percent-encode special characters in user and password)`)
	}
	switch {
	case strings.Contains(plain, "keyfilepassword="), strings.Contains(plain, "keypassword="),
		strings.Contains(plain, "aws_session_token"):
		return nil,
			errors.New("url: a secret in the query would be in records: use user and password, or a key file without a password")
	case c.WriteConcern != nil:
		return nil, errors.New("url: w, journal and wtimeoutMS are separate options; remove them from the url")
	case c.RetryWrites != nil, c.RetryReads != nil:
		return nil, errors.New("url: retryWrites and retryReads: remove them from the url; resilience turns them on and off")
	case c.LoadBalanced != nil && *c.LoadBalanced:
		return nil, errors.New("url: loadBalanced is not supported, because broken connections cannot be identified; list the hosts")
	}
	return c, nil
}

// secured returns the TLS configuration with the certificates from the options, or nil for no TLS. It returns an error
// if the options use the host's cloud identity and that is not allowed.
func (o *options) secured(access drivers.Access) (*tls.Config, error) {
	c, err := o.client()
	if err != nil {
		return nil, err
	}
	if c.Auth != nil {
		switch mechanism := strings.ToUpper(c.Auth.AuthMechanism); {
		case mechanism == "MONGODB-OIDC", mechanism == "MONGODB-AWS" && c.Auth.Username == "":
			if err := access.CloudIdentity(); err != nil {
				return nil, fmt.Errorf("authenticate by %s: %w", mechanism, err)
			}
		}
	}
	if o.TLS == nil {
		return c.TLSConfig, nil
	}
	return o.TLS.Config(access)
}

// journaled returns the value of j in write concerns. nil leaves it to the server.
func (o *options) journaled(persistent bool) *bool {
	if o.Journal == nil && persistent {
		return &persistent
	}
	return o.Journal
}

// writeConcern returns the write concern of confirmed inserts.
func (o *options) writeConcern(persistent bool) *writeconcern.WriteConcern {
	w := &writeconcern.WriteConcern{W: int(o.W), Journal: o.journaled(persistent)}
	if o.W == 0 {
		w.W = writeconcern.WCMajority
	}
	return w
}

// claimConcern returns the write concern of claims and deletes.
func (o *options) claimConcern(persistent bool) *writeconcern.WriteConcern {
	claims := *o
	if o.ClaimW != nil {
		claims.W = *o.ClaimW
	}
	return claims.writeConcern(persistent)
}

// inserters returns the number of concurrent inserts of a publisher. The default with order "insertion" is 1, because
// inserts may overtake each other.
func (o *options) inserters(maxInFlight int) int {
	switch {
	case o.Inserters != nil:
		return *o.Inserters
	case o.Order == orderInsertion:
		return 1
	}
	return requests.Concurrent(maxInFlight, o.InsertBatch)
}

// claimers returns the number of concurrent claims of a consumer.
func (o *options) claimers(prefetch int) int {
	switch {
	case o.Claimers != nil:
		return *o.Claimers
	case o.Order == orderInsertion:
		return 1
	}
	return min(maxConcurrent, requests.Concurrent(prefetch, 1))
}
