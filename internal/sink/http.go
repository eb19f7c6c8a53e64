package sink

import (
	"io"
	"net"
	"net/http"
	"time"
)

// maxAnswer is the maximum number of bytes of an answer that are read: more than an error needs.
const maxAnswer = 64 << 10

// otherError is the error of a server that answers a write with a success other than 204, and so is not InfluxDB.
type otherError struct {
	status int
	answer string // status line
}

func (e otherError) Error() string {
	return "the server is not InfluxDB: it responds to a write with " + e.answer + " instead of 204"
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
		// A redirected POST becomes a GET, which would succeed and write nothing.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     strict{transport},
	}
}

// strict accepts only 204 as a success, and limits the length of an answer.
type strict struct{ base http.RoundTripper }

// CloseIdleConnections is called by http.Client.
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
