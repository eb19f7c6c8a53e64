package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// kinds are the objects that Setup creates, sorted, and their paths in the management API.
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
		if err := s.api.get(ctx, columns("name"), &items, k.path, s.endpoints[0].vhost); err != nil {
			return nil, fmt.Errorf("list %s: %w", k.path, err)
		}
		names := make([]string, len(items))
		for i := range items {
			names[i] = items[i].Name
		}
		all = append(all, kit.Leftovers(k.kind, prefix, names)...)
	}
	return all, nil
}

// Cleanup deletes the objects by name. An object that does not exist is not an error.
func (s *session) Cleanup(ctx context.Context, these []drivers.Leftover) error {
	remove := map[string]func([]string) error{}
	for _, k := range kinds {
		remove[k.kind] = func(names []string) error {
			var errs []error
			for _, name := range names {
				err := s.api.call(ctx, http.MethodDelete, nil, nil, nil, k.path, s.endpoints[0].vhost, name)
				if err != nil && !errors.Is(err, errNotThere) {
					errs = append(errs, fmt.Errorf("%s %q: %w", k.kind, name, err))
				}
			}
			return errors.Join(errs...)
		}
	}
	return kit.Cleanup(these, remove)
}
