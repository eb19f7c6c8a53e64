package artemis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"example.org/lockstep/lockstep/pkg/drivers/internal/amqp10"
)

// Names in Artemis's management messages.
const (
	managementAddress = "activemq.management"
	resourceName      = "_AMQ_ResourceName"
	operationName     = "_AMQ_OperationName"
	attributeName     = "_AMQ_Attribute"
	succeeded         = "_AMQ_OperationSucceeded"
)

// call is a management operation, or the reading of one attribute.
type call struct {
	resource, operation, attribute string
	arguments                      []any
}

func operation(resource, name string, arguments ...any) call {
	return call{resource: resource, operation: name, arguments: arguments}
}

func attribute(resource, name string) call { return call{resource: resource, attribute: name} }

func (c call) String() string { return c.resource + "." + c.operation + c.attribute }

func (c call) request() amqp10.Request {
	properties := map[string]any{resourceName: c.resource}
	if c.operation != "" {
		properties[operationName] = c.operation
	} else {
		properties[attributeName] = c.attribute
	}
	arguments := c.arguments
	if arguments == nil {
		arguments = []any{}
	}
	return amqp10.Request{Properties: properties, Body: text(arguments)}
}

// text returns v as JSON. v must be a value that can be encoded.
func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// answer is the result of a call: a JSON array with the result, or with the broker's error message.
type answer struct {
	ok   bool
	body string
}

func (a answer) fault() string {
	var reasons []string
	if json.Unmarshal([]byte(a.body), &reasons) == nil && len(reasons) > 0 {
		return reasons[0]
	}
	return a.body
}

func (a answer) err() error {
	if a.ok {
		return nil
	}
	return errors.New(a.fault())
}

// value decodes the result into a variable.
func (a answer) value(into any) error {
	if err := a.err(); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(a.body), &[]any{into}); err != nil {
		return fmt.Errorf("read %.100q: %w", a.body, err)
	}
	return nil
}

// manage makes calls in this order and returns their answers.
func (s *session) manage(ctx context.Context, calls ...call) ([]answer, error) {
	requests := make([]amqp10.Request, len(calls))
	for i, c := range calls {
		requests[i] = c.request()
	}
	replies, err := s.Ask(ctx, managementAddress, requests...)
	if err != nil {
		return nil, fmt.Errorf("%w (the user needs the permissions \"send\" and \"manage\" there)", err)
	}
	answers := make([]answer, len(replies))
	for i, r := range replies {
		ok, _ := r.Properties[succeeded].(bool)
		answers[i] = answer{ok, r.Body}
	}
	return answers, nil
}

// read makes one call and decodes its result.
func (s *session) read(ctx context.Context, c call, into any) error {
	answers, err := s.manage(ctx, c)
	if err == nil {
		err = answers[0].value(into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}
