package rabbitmq

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// Types of queues and exchanges that need special treatment.
const (
	classic = "classic"
	quorum  = "quorum"
	stream  = "stream"

	exchangeDefault = "default"
	exchangeDirect  = "direct"
	exchangeFanout  = "fanout"
	exchangeHeaders = "headers"
)

type options struct {
	kit.Addresses
	Management string          `json:"management"`
	Prometheus []string        `json:"prometheus"`
	Queue      queueOptions    `json:"queue"`
	Exchange   exchangeOptions `json:"exchange"`
	Message    messageOptions  `json:"message"`
	Consumer   consumerOptions `json:"consumer"`
	Policy     map[string]any  `json:"policy"`
	Heartbeat  kit.Duration    `json:"heartbeat"`
	FrameMax   int             `json:"frameMax"`
	Resilience string          `json:"resilience"`
	TLS        *kit.TLS        `json:"tls"`

	CoalesceWrites bool `json:"coalesceWrites"`
}

type queueOptions struct {
	Type           string         `json:"type"`
	Durable        bool           `json:"durable"`
	Arguments      map[string]any `json:"arguments"`
	MaxLength      int64          `json:"maxLength"`
	MaxLengthBytes int64          `json:"maxLengthBytes"`
	Overflow       string         `json:"overflow"`
}

type exchangeOptions struct {
	Type      string         `json:"type"`
	Existing  string         `json:"existing,omitempty"` // for topologies with Existing; "": the default exchange
	Arguments map[string]any `json:"arguments"`
}

type messageOptions struct {
	Priority    uint8          `json:"priority,omitempty"`
	Expiration  kit.Duration   `json:"expiration,omitempty"`
	ContentType string         `json:"contentType,omitempty"`
	Headers     map[string]any `json:"headers,omitempty"`
}

type consumerOptions struct {
	Exclusive bool           `json:"exclusive,omitempty"`
	Arguments map[string]any `json:"arguments,omitempty"`
}

// Check validates what the schema cannot.
func (o *options) Check() error {
	if err := o.Required("amqp://user:password@host:5672/"); err != nil {
		return err
	}
	if _, set := o.Queue.Arguments[amqp.QueueTypeArg]; set {
		return errors.New("queue.arguments: the driver sets x-queue-type: remove it, and give queue.type")
	}
	if _, set := o.Consumer.Arguments[offsetHeader]; set {
		return errors.New("consumer.arguments: the driver sets x-stream-offset: remove it")
	}
	for _, name := range []string{headerQueue, headerBinding, headerChurn} {
		if _, set := o.Message.Headers[name]; set && o.Exchange.Type == exchangeHeaders {
			return fmt.Errorf("message.headers: the bindings of a headers exchange use %q: use another name", name)
		}
	}
	if n := len(o.Message.ContentType); n > maxShortString {
		return fmt.Errorf("message.contentType: %d bytes: give at most %d", n, maxShortString)
	}
	if err := checkTable("message.headers", o.Message.Headers); err != nil {
		return err
	}
	if err := checkTable("consumer.arguments", o.Consumer.Arguments); err != nil {
		return err
	}
	return o.TLS.Check(kit.Encrypted(slices.Concat(o.All(), o.Prometheus, []string{o.Management})...))
}

// durable reports whether queues and exchanges survive a restart of the broker. They do by default, also with transient
// messages: RabbitMQ 4.3 rejects other queues that are not exclusive.
func (o *options) durable() bool {
	return o.Queue.Type != classic || o.Queue.Durable
}

// mirrored reports whether the policy creates mirrored classic queues.
func (o *options) mirrored() bool {
	_, ok := o.Policy["ha-mode"]
	return ok && o.Queue.Type == classic
}

// mirroring describes the policy's mirroring: "ha-mode all", "ha-mode exactly 2".
func (o *options) mirroring() string {
	text := fmt.Sprintf("ha-mode %v", o.Policy["ha-mode"])
	if parameters, given := o.Policy["ha-params"]; given {
		text += fmt.Sprintf(" %v", parameters)
	}
	return text
}

// queueArguments returns the arguments of queue declarations that follow from the options alone. The type is always
// among them: without it, the server uses the default type of the vhost or node, which may not be classic.
func (o *options) queueArguments() amqp.Table {
	t := table(o.Queue.Arguments)
	t[amqp.QueueTypeArg] = o.Queue.Type
	if o.Queue.MaxLength > 0 {
		t[amqp.QueueMaxLenArg] = o.Queue.MaxLength
	}
	if o.Queue.MaxLengthBytes > 0 {
		t[amqp.QueueMaxLenBytesArg] = o.Queue.MaxLengthBytes
	}
	if o.Queue.Overflow != "" {
		t[amqp.QueueOverflowArg] = o.Queue.Overflow
	}
	return t
}

// properties returns what all messages have in common, without the headers of their routes.
func (o *options) properties(persistent bool) amqp.Publishing {
	m := amqp.Publishing{DeliveryMode: amqp.Transient, Priority: o.Message.Priority, ContentType: o.Message.ContentType}
	if persistent {
		m.DeliveryMode = amqp.Persistent
	}
	if o.Message.Expiration > 0 {
		m.Expiration = strconv.FormatInt(o.Message.Expiration.Std().Milliseconds(), 10)
	}
	return m
}

// headers returns the headers of messages with a route.
func (o *options) headers(r route) amqp.Table {
	if len(o.Message.Headers) == 0 {
		return r.headers
	}
	t := table(o.Message.Headers)
	maps.Copy(t, r.headers)
	return t
}

const deliveryLimit = "x-delivery-limit"

// unlimited is a number of deliveries that no message reaches.
const unlimited = math.MaxInt64

// deliveryLimit returns how often a message of a quorum queue is delivered again at a server of this release, before
// the server drops it: by default 20 times since release 4. A queue argument and a policy both apply. Since release
// 4.3, rejections do not count, so that the limit 0 drops no message because of them.
func (o *options) deliveryLimit(major, minor int) int64 {
	if o.Queue.Type != quorum {
		return unlimited
	}
	limit := int64(unlimited)
	if major >= 4 {
		limit = 20
	}
	set := table(map[string]any{deliveryLimit: o.Queue.Arguments[deliveryLimit], "policy": o.Policy["delivery-limit"]})
	argument, here := set[deliveryLimit].(int64)
	policy, byPolicy := set["policy"].(int64)
	switch {
	case here && byPolicy:
		limit = min(argument, policy)
	case here:
		limit = argument
	case byPolicy:
		limit = policy
	}
	if limit < 0 || limit == 0 && (major > 4 || major == 4 && minor >= 3) {
		return unlimited
	}
	return limit
}

// maxShortString is the largest size of AMQP's short strings, in bytes.
const maxShortString = 255

// checkTable returns an error if AMQP cannot express the names or values of a table. name is that of its option.
func checkTable(name string, from map[string]any) error {
	for key := range from {
		if n := len(key); n > maxShortString {
			return fmt.Errorf("%s: a name has %d bytes (%q…): give at most %d", name, n, key[:20], maxShortString)
		}
	}
	if err := table(from).Validate(); err != nil {
		return fmt.Errorf("%s: %w: give strings, booleans, or numbers in the range of float64", name, err)
	}
	return nil
}

// table converts JSON values to an AMQP table. Whole numbers become int64, others float64.
func table(from map[string]any) amqp.Table {
	t := make(amqp.Table, len(from)+2)
	for name, value := range from {
		if n, ok := value.(json.Number); ok {
			if whole, err := n.Int64(); err == nil {
				value = whole
			} else if broken, err := n.Float64(); err == nil {
				value = broken
			}
		}
		t[name] = value
	}
	return t
}

// endpoint is one address of the broker. url and secret must not be shown; address may be.
type endpoint struct {
	url       string // always amqp: the driver makes the TLS handshake
	encrypted bool
	address   string
	vhost     string
	user      string
	secret    string
}

// parseEndpoint parses an AMQP URL. Its errors do not contain the text, because a misplaced password could be in it.
func parseEndpoint(text string) (endpoint, error) {
	uri, err := amqp.ParseURI(text)
	if err != nil {
		return endpoint{}, errors.New(`read AMQP url: not of the form "amqp://user:password@host:port/vhost"` +
			` (percent-encode special characters in user, password and vhost)`)
	}
	if uri.CACertFile != "" || uri.CertFile != "" || uri.KeyFile != "" || uri.ServerName != "" {
		return endpoint{}, errors.New("read AMQP url: cacertfile, certfile, keyfile and server_name_indication: give tls: {ca, cert, key, serverName} instead")
	}
	_, afterScheme, _ := strings.Cut(text, ":")
	return endpoint{
		url:       "amqp:" + afterScheme,
		encrypted: uri.Scheme == "amqps",
		address:   net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)),
		vhost:     uri.Vhost,
		user:      uri.Username,
		secret:    uri.Password,
	}, nil
}

func (o *options) endpoints() ([]endpoint, error) {
	var all []endpoint
	for i, text := range o.All() {
		e, err := parseEndpoint(text)
		if err != nil {
			return nil, fmt.Errorf("%w (number %d of urls)", err, i)
		}
		if i > 0 && e.vhost != all[0].vhost {
			return nil,
				fmt.Errorf("read AMQP urls: number %d has vhost %q, number 0 has %q; a cluster's must be the same",
					i, e.vhost, all[0].vhost)
		}
		all = append(all, e)
	}
	return all, nil
}
