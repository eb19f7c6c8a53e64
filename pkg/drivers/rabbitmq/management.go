package rabbitmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// errNotThere is returned for objects that do not exist (HTTP status 404).
var errNotThere = errors.New("not there")

// maxAnswer is the maximum size of a response, in bytes.
const maxAnswer = 32 << 20

// management is a client of the management API. A nil management has no API.
type management struct {
	base, user, secret string
	client             *http.Client
}

// newManagement uses the user and password of e, unless the option's URL has others.
func newManagement(o *options, e endpoint, client *http.Client) (*management, error) {
	if o.Management == "" {
		return nil, nil
	}
	all, err := kit.Endpoints("management url", "http://user:password@host:15672", kit.Web, o.Management)
	if err != nil {
		return nil, err
	}
	m := &management{base: all[0].Base(), user: e.user, secret: e.secret, client: client}
	if all[0].URL.User != nil {
		m.user, m.secret = all[0].User, all[0].Password
	}
	return m, nil
}

// columns limits a response to some fields.
func columns(names string) url.Values { return url.Values{"columns": {names}} }

// get reads one resource. query may be nil.
func (m *management) get(ctx context.Context, query url.Values, answer any, segments ...string) error {
	return m.call(ctx, http.MethodGet, query, nil, answer, segments...)
}

// call sends body as JSON and decodes the response into answer. query, body and answer may be nil. It escapes the
// segments of the path.
func (m *management) call(ctx context.Context, method string, query url.Values, body, answer any,
	segments ...string) error {
	if m == nil {
		return errors.New("query the management API: the options have no management url")
	}
	address := m.base + "/api"
	for _, segment := range segments {
		address += "/" + url.PathEscape(segment)
	}
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("write management request: %w", err)
		}
		payload = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, address, payload)
	if err != nil {
		return fmt.Errorf("make management request: %w", err)
	}
	request.SetBasicAuth(m.user, m.secret)
	request.Header.Set("Content-Type", "application/json")
	response, err := m.client.Do(request)
	if err != nil {
		return fmt.Errorf("query the management API: %w", kit.Explain(err))
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the management API's answer: %w", err)
	}
	switch {
	case len(text) > maxAnswer:
		return fmt.Errorf("read the answer to %s %s: it has more than %d bytes", method, address, maxAnswer)
	case response.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s %s: %w", method, address, errNotThere)
	case response.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %.300s", method, address, response.Status, text)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer to %s %s: %w", method, address, err)
	}
	return nil
}
