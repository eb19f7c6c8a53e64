package kit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// handshakeTimeout is the maximum time of a TLS handshake.
const handshakeTimeout = 10 * time.Second

// TLS is the value of the option tls, as #TLS describes it. It is nil if the option is not given.
type TLS struct {
	CA         string `json:"ca"`
	Cert       string `json:"cert"`
	Key        string `json:"key"`
	ServerName string `json:"serverName"`
	Insecure   bool   `json:"insecure"`
}

// Check returns an error if the option is invalid. encrypted reports whether connections use TLS. It reads no files.
func (t *TLS) Check(encrypted bool) error {
	switch {
	case t == nil:
		return nil
	case (t.Cert == "") != (t.Key == ""):
		return errors.New("tls.cert and tls.key: give both, or none")
	case !encrypted:
		return errors.New("tls is given, but no url uses TLS: change the scheme of the url, or remove tls")
	}
	return nil
}

// Encrypted reports whether one of the URLs uses TLS, by the last letter of its scheme: amqps, https.
func Encrypted(urls ...string) bool {
	return slices.ContainsFunc(urls, func(url string) bool {
		scheme, _, _ := strings.Cut(url, ":")
		return strings.HasSuffix(scheme, "s")
	})
}

// Config reads the files, and returns the configuration of all connections. It has a server name only if the option has
// one: the user must set it, which client libraries do. It is also valid for a nil TLS.
func (t *TLS) Config(access drivers.Access) (*tls.Config, error) {
	if t == nil {
		return &tls.Config{}, nil
	}
	c := &tls.Config{ServerName: t.ServerName, InsecureSkipVerify: t.Insecure}
	return c, access.LoadTLS(c, t.CA, t.Cert, t.Key)
}

// DialFunc is the type of Env.Dial.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dial returns a function that connects by dial, and makes the TLS handshake. It returns dial if config is nil.
func Dial(dial DialFunc, config *tls.Config) DialFunc {
	if config == nil {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		encrypted, err := Handshake(ctx, raw, config, address)
		if err != nil {
			_ = raw.Close()
		}
		return encrypted, err
	}
}

// Handshake makes the TLS handshake with the server at address. The caller closes raw after an error.
func Handshake(ctx context.Context, raw net.Conn, config *tls.Config, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	encrypted := tls.Client(raw, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("make TLS handshake with %s: %w", address, Explain(err))
	}
	return encrypted, nil
}

// HTTP returns a client that connects only by dial.
func HTTP(dial DialFunc, config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dial, DialTLSContext: Dial(dial, config)}}
}

// explained is an error with its fix.
type explained struct {
	error
	fix string
}

func (e explained) Error() string { return e.error.Error() + ": " + e.fix }
func (e explained) Unwrap() error { return e.error }

// Explain adds the fix to an error of a TLS handshake. It returns other errors, and nil, unchanged.
func Explain(err error) error {
	switch {
	case errors.As(err, new(explained)):
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return explained{err, "set tls.ca to the CA that signed the broker's certificate"}
	case errors.As(err, new(x509.HostnameError)):
		return explained{err, "use a host name of the broker's certificate, or set tls.serverName to one"}
	case errors.As(err, new(tls.RecordHeaderError)):
		return explained{err, "use the broker's port for TLS, or connect without TLS"}
	case err != nil && strings.Contains(err.Error(), "remote error: tls:"): // an alert; libraries keep only its text
		return explained{err, "set tls.cert and tls.key to a client certificate that the broker accepts"}
	}
	return err
}
