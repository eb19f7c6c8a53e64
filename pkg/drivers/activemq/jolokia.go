package activemq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Jolokia provides a broker's MBeans over HTTP. Requests are JSON, and one POST can contain several.

const (
	brokerBean = "org.apache.activemq:type=Broker,brokerName=*"
	askTime    = 5 * time.Second // timeout of one POST
	maxAtOnce  = 100             // maximum number of operations in one POST
	maxAnswers = 32 << 20        // maximum size of one response, in bytes
)

// jolokia sends requests to the first server whose broker is active. It is safe for concurrent use.
type jolokia struct {
	servers []kit.Endpoint
	client  *http.Client

	mu sync.Mutex
	at int // index of the server that answered last
}

func (j *jolokia) close() { j.client.CloseIdleConnections() }

// question is one Jolokia request.
type question struct {
	Type      string   `json:"type"`
	MBean     string   `json:"mbean"`
	Attribute []string `json:"attribute,omitempty"`
	Operation string   `json:"operation,omitempty"`
	Arguments []any    `json:"arguments,omitempty"`
}

// reply is the result of a question.
type reply struct {
	Status int             `json:"status"`
	Error  string          `json:"error"`
	Value  json.RawMessage `json:"value"`
}

func (r reply) read(into any) error {
	if r.Status != http.StatusOK {
		return errors.New(r.Error)
	}
	return json.Unmarshal(r.Value, into)
}

// bean are attributes of a broker's MBean.
type bean struct {
	Name    string `json:"BrokerName"`
	Version string `json:"BrokerVersion"`
	Slave   bool   `json:"Slave"`

	Connections float64  `json:"CurrentConnectionsCount"`
	Opened      *float64 `json:"TotalConnectionsCount"` // since the broker started
	Consumers   float64  `json:"TotalConsumerCount"`
	Persistent  bool     `json:"Persistent"`
	MemoryLimit int64    `json:"MemoryLimit"`
	StoreLimit  int64    `json:"StoreLimit"`
}

var aboutBroker = question{Type: "read", MBean: brokerBean, Attribute: []string{
	"BrokerName", "BrokerVersion", "Slave", "CurrentConnectionsCount", "TotalConnectionsCount", "TotalConsumerCount",
	"Persistent", "MemoryLimit", "StoreLimit",
}}

// ask sends questions to the active broker, and returns that broker and the replies. It tries the other servers after
// an error, so it must not be used for changes: execute sends those to one server only.
func (j *jolokia) ask(ctx context.Context, questions ...question) (bean, []reply, error) {
	f, err := j.find(ctx, questions...)
	return f.broker, f.replies, err
}

// found is the server of the active broker with its answer.
type found struct {
	server  kit.Endpoint
	broker  bean
	replies []reply
}

// find is ask that also returns the server of the active broker.
func (j *jolokia) find(ctx context.Context, questions ...question) (found, error) {
	j.mu.Lock()
	first := j.at
	j.mu.Unlock()
	return kit.InTurn(ctx, len(j.servers), func(ctx context.Context, i int) (found, error) {
		at := (first + i) % len(j.servers)
		f := found{server: j.servers[at]}
		var err error
		if f.broker, f.replies, err = j.askOne(ctx, f.server, questions); err != nil {
			return f, fmt.Errorf("query Jolokia at %s: %w", origin(f.server), err)
		}
		j.mu.Lock()
		j.at = at
		j.mu.Unlock()
		return f, nil
	})
}

// origin returns the scheme and the host of a server.
func origin(s kit.Endpoint) string { return s.URL.Scheme + "://" + s.URL.Host }

func (j *jolokia) askOne(ctx context.Context, s kit.Endpoint, questions []question) (bean, []reply, error) {
	replies, err := j.post(ctx, s, append([]question{aboutBroker}, questions...))
	if err != nil {
		return bean{}, nil, err
	}
	brokers := map[string]bean{}
	if err := replies[0].read(&brokers); err != nil {
		return bean{}, nil, fmt.Errorf("find the broker: %w", err)
	}
	for _, b := range brokers {
		if !b.Slave {
			return b, replies[1:], nil
		}
	}
	return bean{}, nil, errors.New("no active broker there")
}

// execute calls an operation of the active broker once per argument. An error means that some calls may have been
// carried out.
func (j *jolokia) execute(ctx context.Context, operation string, arguments []string) error {
	f, err := j.find(ctx)
	if err != nil {
		return err
	}
	name := strings.Replace(brokerBean, "*", f.broker.Name, 1)
	for len(arguments) > 0 {
		n := min(len(arguments), maxAtOnce)
		questions := make([]question, n)
		for i, a := range arguments[:n] {
			questions[i] = question{Type: "exec", MBean: name, Operation: operation, Arguments: []any{a}}
		}
		replies, err := j.post(ctx, f.server, questions)
		if err != nil {
			return fmt.Errorf("query Jolokia at %s: %w", origin(f.server), err)
		}
		for i, r := range replies {
			if r.Status != http.StatusOK {
				return fmt.Errorf("%s of %s at %s: %s", operation, arguments[i], origin(f.server), r.Error)
			}
		}
		arguments = arguments[n:]
	}
	return nil
}

func (j *jolokia) post(ctx context.Context, s kit.Endpoint, questions []question) ([]reply, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	body, err := json.Marshal(questions)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Base()+"/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Origin", origin(s)) // the broker's console rejects requests without it
	if s.User != "" {
		request.SetBasicAuth(s.User, s.Password)
	}
	response, err := j.client.Do(request)
	if err != nil {
		return nil, kit.Explain(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswers))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s", response.Status)
	}
	var replies []reply
	if err := json.Unmarshal(text, &replies); err != nil {
		return nil, fmt.Errorf("not Jolokia: %w", err)
	}
	if len(replies) != len(questions) {
		return nil, fmt.Errorf("%d answers to %d questions", len(replies), len(questions))
	}
	return replies, nil
}
