package sink

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// longestAnswer is the most that is read of an answer, in bytes: more than an error needs.
const longestAnswer = 64 << 10

// errOther is wrapped by the error of a server that takes points as only others than InfluxDB do.
var errOther = errors.New("that is not InfluxDB")

func httpClient(tune Tuning) *http.Client {
	return &http.Client{
		// A redirected POST becomes a GET, which succeeds and writes nothing.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: strict{&http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: tune.Request}).DialContext,
			TLSHandshakeTimeout: tune.Request,
			IdleConnTimeout:     time.Minute,
			MaxConnsPerHost:     2,
		}},
	}
}

// strict takes 204 alone for a success, and no endless answer.
type strict struct{ *http.Transport }

func (s strict) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if ok := answer.StatusCode / 100; ok == 2 && answer.StatusCode != http.StatusNoContent {
		answer.Body.Close()
		return nil, fmt.Errorf("%w: it answers a write with %s instead of 204", errOther, answer.Status)
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, longestAnswer), answer.Body}
	return answer, nil
}
