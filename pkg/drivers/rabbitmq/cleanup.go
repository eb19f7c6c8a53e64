package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"lockstep/pkg/drivers"
)

// kinds are the objects that Setup creates, and their paths in the management API.
var kinds = []struct{ kind, path string }{{"exchange", "exchanges"}, {"policy", "policies"}, {"queue", "queues"}}

// Leftovers lists exchanges, policies and queues of the options' vhost. It needs the management API.
func (s *session) Leftovers(ctx context.Context, prefix string) ([]drivers.Leftover, error) {
	if s.api == nil {
		return nil, fmt.Errorf("list what RabbitMQ has: %w: give management", drivers.ErrUnsupported)
	}
	var all []drivers.Leftover
	for _, k := range kinds {
		var items []struct {
			Name string `json:"name"`
		}
		if err := s.api.query(ctx, columns("name"), &items, k.path, s.endpoints[0].vhost); err != nil {
			return nil, fmt.Errorf("list %s: %w", k.path, err)
		}
		for _, i := range items {
			if strings.HasPrefix(i.Name, prefix) {
				all = append(all, drivers.Leftover{Kind: k.kind, Name: i.Name})
			}
		}
	}
	slices.SortFunc(all, func(a, b drivers.Leftover) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// Cleanup deletes the objects by name. An object that does not exist is not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	var errs []error
	for _, x := range these {
		at := slices.IndexFunc(kinds, func(k struct{ kind, path string }) bool { return k.kind == x.Kind })
		if at < 0 {
			errs = append(errs, fmt.Errorf("cleanup %s %q: RabbitMQ has no such kind", x.Kind, x.Name))
			continue
		}
		err := s.api.call(ctx, http.MethodDelete, nil, nil, kinds[at].path, s.endpoints[0].vhost, x.Name)
		if err != nil && !errors.Is(err, errNotThere) {
			errs = append(errs, fmt.Errorf("cleanup %s %q: %w", x.Kind, x.Name, err))
		}
	}
	return errors.Join(errs...)
}
