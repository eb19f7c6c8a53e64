package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"example.org/lockstep/lockstep/pkg/drivers"
	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

// nodeInfo is the description of a node in the management API.
type nodeInfo struct {
	Name    string `json:"name"`
	Running bool   `json:"running"`
	Memory  int64  `json:"mem_limit"`
	Disk    int64  `json:"disk_free_limit"`
	Cores   int    `json:"processors"`
}

// Describe reports the broker's properties from the AMQP connection, and those of the cluster if the management API is
// configured.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	var d drivers.Description
	err := s.administer(ctx, anywhere, func(*amqp.Channel) error {
		d.Settings = s.settings()
		d.Product, _ = s.admin.Properties["product"].(string)
		d.Version, _ = s.admin.Properties["version"].(string)
		d.Settings["heartbeat"] = s.admin.Config.Heartbeat.String()
		d.Settings["frame_max"] = strconv.Itoa(s.admin.Config.FrameSize)
		return nil
	})
	if err == nil && s.api != nil {
		err = s.describeCluster(ctx, &d)
	}
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe RabbitMQ: %w", err)
	}
	return d, nil
}

// settings returns the settings that this session requests.
func (s *session) settings() map[string]string {
	o := &s.options
	settings := map[string]string{"queue_type": o.Queue.Type, "exchange_type": o.Exchange.Type}
	if arguments := o.queueArguments(); len(arguments) > 0 {
		text, _ := json.Marshal(arguments) // json.Marshal sorts the keys
		settings["queue_arguments"] = string(text)
	}
	for name, value := range map[string]any{"message": o.Message, "consumer": o.Consumer} {
		if text, _ := json.Marshal(value); string(text) != "{}" {
			settings[name] = string(text)
		}
	}
	if o.CoalesceWrites {
		settings["coalesce_writes"] = "true"
	}
	if len(o.Policy) > 0 {
		text, _ := json.Marshal(o.Policy)
		settings["policy"] = string(text)
	}
	return settings
}

func (s *session) describeCluster(ctx context.Context, d *drivers.Description) error {
	var overview struct {
		Erlang string `json:"erlang_version"`
	}
	if err := s.api.call(ctx, http.MethodGet, nil, &overview, "overview"); err != nil {
		return err
	}
	d.Settings["erlang"] = overview.Erlang
	nodes, err := s.awaitNodes(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(nodes, func(a, b nodeInfo) int { return strings.Compare(a.Name, b.Name) })
	var memory, disk, cores []string
	for _, n := range nodes {
		if !n.Running {
			continue
		}
		d.Members = append(d.Members, n.Name)
		memory = append(memory, strconv.FormatInt(n.Memory, 10))
		disk = append(disk, strconv.FormatInt(n.Disk, 10))
		cores = append(cores, strconv.Itoa(n.Cores))
	}
	d.Settings["memory_limit"] = joined(memory)
	d.Settings["disk_free_limit"] = joined(disk)
	d.Settings["processors"] = joined(cores)
	return nil
}

// awaitNodes waits until all running nodes report their limits. Right after a start they do not.
func (s *session) awaitNodes(ctx context.Context) (nodes []nodeInfo, err error) {
	err = kit.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		nodes = nil
		if err := s.api.call(ctx, http.MethodGet, nil, &nodes, "nodes"); err != nil {
			return true, err
		}
		if slices.ContainsFunc(nodes, func(n nodeInfo) bool { return n.Running && n.Memory == 0 }) {
			return false, errors.New("a node does not report its limits")
		}
		return true, nil
	})
	return nodes, err
}

// joined returns the nodes' values as a list, or the single value that they all have.
func joined(values []string) string {
	if same := slices.Compact(slices.Clone(values)); len(same) == 1 {
		return same[0]
	}
	return strings.Join(values, ", ")
}
