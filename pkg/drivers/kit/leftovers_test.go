package kit_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func TestLeftovers(t *testing.T) {
	got := kit.Leftovers("queue", "run-", []string{"run-b", "other", "run-a", "my-run-c"})
	if want := []drivers.Leftover{{Kind: "queue", Name: "run-a"}, {Kind: "queue", Name: "run-b"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCleanup(t *testing.T) {
	var removed []string
	remove := map[string]func([]string) error{
		"queue": func(names []string) error {
			removed = append(removed, "queues "+strings.Join(names, " "))
			return nil
		},
		"group": func(names []string) error {
			removed = append(removed, "groups "+strings.Join(names, " "))
			return errors.New("group busy")
		},
	}
	all := []drivers.Leftover{{Kind: "queue", Name: "a"}, {Kind: "group", Name: "c"}, {Kind: "queue", Name: "b"}}
	if err := kit.Cleanup(all, remove); err == nil || err.Error() != "cleanup: group busy" ||
		!reflect.DeepEqual(removed, []string{"groups c", "queues a b"}) {
		t.Errorf("%v; removed %q", err, removed)
	}
	removed = nil
	err := kit.Cleanup(append(all, drivers.Leftover{Kind: "table", Name: "x"}), remove)
	if !errors.Is(err, drivers.ErrUnsupported) || !strings.Contains(err.Error(), `table "x"`) || removed != nil {
		t.Errorf("%v; removed %q with an unknown kind", err, removed)
	}
	if err := kit.Cleanup(nil, remove); err != nil {
		t.Error(err)
	}
}
