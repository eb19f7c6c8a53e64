package sink

import (
	"io"
	"net"
	"net/http"
	"time"
)

// maxAnswer is how much of an answer is read, in bytes: more than an error needs.
const maxAnswer = 64 << 10

// otherError is of a server that takes points as only others than InfluxDB do.
type otherError struct {
	status int
	words  string // with the status
}

func (e otherError) Error() string {
	return "that is not InfluxDB: it answers a write with " + e.words + " instead of 204"
}

func httpClient(tune Tuning) *http.Client {
	transport := tune.Transport
	if transport == nil {
		transport = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: tune.Request}).DialContext,
			TLSHandshakeTimeout: tune.Request,
			IdleConnTimeout:     time.Minute,
			MaxConnsPerHost:     2,
		}
	}
	return &http.Client{
		// A redirected POST becomes a GET, which succeeds and writes nothing.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     strict{transport},
	}
}

// strict accepts only 204 as a success, and limits the length of an answer.
type strict struct{ base http.RoundTripper }

// CloseIdleConnections is for http.Client, which looks for it.
func (s strict) CloseIdleConnections() {
	if c, ok := s.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (s strict) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if ok := answer.StatusCode / 100; ok == 2 && answer.StatusCode != http.StatusNoContent {
		answer.Body.Close()
		return nil, otherError{answer.StatusCode, answer.Status}
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	return answer, nil
}
