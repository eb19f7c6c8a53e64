package kit

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// Addresses are the options url and urls, of which one is required.
type Addresses struct {
	URL  string   `json:"url"`
	URLs []string `json:"urls"`
}

// Required returns an error unless exactly one of the options is given. example is a URL.
func (a *Addresses) Required(example string) error {
	switch {
	case a.URL != "" && len(a.URLs) > 0:
		return errors.New("give either url or urls, not both")
	case len(a.All()) == 0:
		return fmt.Errorf("give url: %q, or urls for several nodes", example)
	}
	return nil
}

// All returns the URLs of both options.
func (a *Addresses) All() []string {
	if a.URL != "" {
		return append([]string{a.URL}, a.URLs...)
	}
	return a.URLs
}

// Endpoint is one address of a broker. Its URL and password must not be shown.
type Endpoint struct {
	URL            *url.URL
	Address        string // host:port
	TLS            bool
	User, Password string // "" without user information in the URL
}

// Scheme is the meaning of a URL's scheme.
type Scheme struct {
	Port string // the default
	TLS  bool
}

// Web are the schemes of HTTP.
var Web = map[string]Scheme{"http": {Port: "80"}, "https": {Port: "443", TLS: true}}

// Endpoints parses URLs. what is their name in errors, which show example instead of a URL: a misplaced password could
// be anywhere in it.
func Endpoints(what, example string, schemes map[string]Scheme, urls ...string) ([]Endpoint, error) {
	var all []Endpoint
	for i, text := range urls {
		u, err := url.Parse(text)
		var scheme Scheme
		known := false
		if err == nil {
			scheme, known = schemes[u.Scheme]
		}
		if !known || u.Hostname() == "" {
			return nil, fmt.Errorf("%s number %d is not of the form %q (percent-encode special characters in user and"+
				" password)", what, i, example)
		}
		e := Endpoint{URL: u, TLS: scheme.TLS, User: u.User.Username()}
		e.Password, _ = u.User.Password()
		port := u.Port()
		if port == "" {
			port = scheme.Port
		}
		e.Address = net.JoinHostPort(u.Hostname(), port)
		all = append(all, e)
	}
	return all, nil
}

// Base returns the URL without user information, and without a slash at its end. It may be shown.
func (e Endpoint) Base() string {
	u := *e.URL
	u.User = nil
	return strings.TrimSuffix(u.String(), "/")
}

// RejectedNodes returns why nodes of a use do not exist: the options have n addresses, which are called what ("urls").
func RejectedNodes(what string, n int, use drivers.Use) (reasons []string) {
	for _, node := range []drivers.Node{use.PublisherNode, use.ConsumerNode, use.QueueNode} {
		if i, err := strconv.Atoi(string(node)); err == nil && (i < 0 || i >= n) {
			reasons = append(reasons, fmt.Sprintf("node %d: options have %d %s, counted from 0", i, n, what))
		}
	}
	if use.QueueNode.OfQueue() {
		reasons = append(reasons, fmt.Sprintf("a queue cannot be placed on its own %s: give an index", use.QueueNode))
	}
	return reasons
}
