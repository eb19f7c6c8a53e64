package mongodb

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	client "go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
	"example.org/lockstep/lockstep/pkg/drivers/requests"
)

type options struct {
	URL            string       `json:"url"`
	Database       string       `json:"database"`
	W              concern      `json:"w"`
	ClaimW         *concern     `json:"claimW"` // nil: as w
	Journal        *bool        `json:"journal"`
	WTimeout       kit.Duration `json:"wtimeout"` // 0: no limit
	Ordered        bool         `json:"ordered"`
	InsertBatch    int          `json:"insertBatch"`
	Inserters      *int         `json:"inserters"` // nil: enough for the messages in flight
	Claimers       *int         `json:"claimers"`  // nil: enough for the prefetch
	Order          string       `json:"order"`
	Visibility     kit.Duration `json:"visibility"`
	PollInterval   kit.Duration `json:"pollInterval"`
	Unacknowledged bool         `json:"unacknowledged"`
	ConfirmTimeout kit.Duration `json:"confirmTimeout"`
	Resilience     string       `json:"resilience"`
	TLS            *kit.TLS     `json:"tls"`
}

// concern is a number of members, or 0 for the majority.
type concern int

func (c *concern) UnmarshalJSON(text []byte) error {
	if string(text) == `"majority"` {
		*c = 0
		return nil
	}
	return json.Unmarshal(text, (*int)(c))
}

func (c concern) String() string {
	if c == 0 {
		return "w:majority"
	}
	return fmt.Sprintf("w:%d", int(c))
}

// orderInsertion makes consumers receive messages in the order of insertion.
const orderInsertion = "insertion"

// Check validates what the schema cannot.
func (o *options) Check() error {
	if o.Order == orderInsertion && o.Claimers != nil && *o.Claimers > 1 {
		return errors.New(`claimers: order "insertion" needs one claim at a time: remove one of the two options`)
	}
	if err := o.TLS.Check(true); err != nil {
		return err
	}
	_, err := o.client()
	return err
}

// repeats reports whether the library repeats failed inserts: servers outside of a replica set do not support it.
func (o *options) repeats() bool {
	c, err := o.client()
	return o.Resilience != "none" && err == nil && c.ReplicaSet != nil
}

func (o *options) retry(c *client.ClientOptions) {
	repeats := o.repeats()
	c.SetRetryWrites(repeats).SetRetryReads(repeats)
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
