package amqp10

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"lockstep/pkg/drivers/kit"
)

// The defaults of Options. The schemas of the drivers repeat them.
const (
	defaultTimeout = "3s"
	defaultIdle    = "60s"
)

// Options are the options of all brokers with AMQP 1.0. Drivers embed them in their own options.
type Options struct {
	URL            string   `json:"url"`
	URLs           []string `json:"urls"`
	ConnectTimeout string   `json:"connectTimeout"`
	IdleTimeout    string   `json:"idleTimeout"`
	Resilience     string   `json:"resilience"` // "none", or "vendor": drivers.ByGuide
	TLS            *kit.TLS `json:"tls"`
}

// Endpoints returns the number of addresses in the options.
func (o *Options) Endpoints() int { return len(o.urls()) }

func (o *Options) urls() []string {
	if o.URL != "" {
		return []string{o.URL}
	}
	return o.URLs
}

// settings are the parsed options.
type settings struct {
	endpoints []endpoint
	timeout   time.Duration // maximum time of one attempt to connect
	idle      time.Duration
}

// Check returns an error if the options are invalid. urls are further ones, to which tls applies. It reads no files.
func (o *Options) Check(urls ...string) error {
	if _, err := o.settings(); err != nil {
		return err
	}
	return o.TLS.Check(slices.ContainsFunc(append(urls, o.urls()...), func(url string) bool {
		return strings.HasPrefix(url, "amqps:") || strings.HasPrefix(url, "https:")
	}))
}

func (o *Options) settings() (settings, error) {
	switch {
	case o.URL == "" && len(o.URLs) == 0:
		return settings{},
			errors.New(`give url: "amqp://user:password@host:5672", or urls, one for each broker to fail over to`)
	case o.URL != "" && len(o.URLs) > 0:
		return settings{}, errors.New("give either url or urls, not both")
	}
	var s settings
	var err error
	if s.timeout, err = duration("connectTimeout", o.ConnectTimeout, defaultTimeout); err != nil {
		return settings{}, err
	}
	if s.idle, err = duration("idleTimeout", o.IdleTimeout, defaultIdle); err != nil {
		return settings{}, err
	}
	for i, text := range o.urls() {
		e, err := parseEndpoint(text)
		if err != nil {
			return settings{}, fmt.Errorf("%w (number %d of urls)", err, i)
		}
		s.endpoints = append(s.endpoints, e)
	}
	return s, nil
}

func duration(name, text, standard string) (time.Duration, error) {
	if text == "" {
		text = standard
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 100*time.Millisecond {
		return 0, fmt.Errorf("read %s %q: write it like %q, at least \"100ms\"", name, text, standard)
	}
	return d, nil
}

// endpoint is one address of the broker. Its user and secret must not be shown.
type endpoint struct {
	host, address string
	tls           bool
	user, secret  string
	anonymous     bool
}

// parseEndpoint parses an AMQP URL. Its errors do not contain the text, because a misplaced password could be in it.
func parseEndpoint(text string) (endpoint, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || (u.Scheme != "amqp" && u.Scheme != "amqps") ||
		(u.Path != "" && u.Path != "/") || u.RawQuery != "" {
		return endpoint{},
			errors.New(`read AMQP url: not of the form "amqp://user:password@host:port", or amqps:// for TLS` +
				` (percent-encode special characters in user and password)`)
	}
	e := endpoint{host: u.Hostname(), tls: u.Scheme == "amqps", anonymous: u.User == nil}
	port := u.Port()
	switch {
	case port != "":
	case e.tls:
		port = "5671"
	default:
		port = "5672"
	}
	e.address = net.JoinHostPort(e.host, port)
	if u.User != nil {
		e.user = u.User.Username()
		e.secret, _ = u.User.Password()
	}
	return e, nil
}
