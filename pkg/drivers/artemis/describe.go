package artemis

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// settingNames maps attributes of the broker that affect confirms or measurements to the names of settings.
var settingNames = map[string]string{
	"PersistenceEnabled":          "persistence",
	"JournalType":                 "journal_type",
	"JournalSyncNonTransactional": "journal_sync",
	"JournalBufferTimeout":        "journal_buffer_timeout",
	"HAPolicy":                    "ha_policy",
	"ReplicaSync":                 "replica_in_sync",
	"SharedStore":                 "shared_store",
	"GlobalMaxSize":               "global_max_size",
}

// addressSettings maps settings of the task's addresses that affect messages to the names of settings.
var addressSettings = map[string]string{
	"addressFullMessagePolicy": "address_full_policy",
	"maxSizeBytes":             "address_max_size",
	"maxDeliveryAttempts":      "max_delivery_attempts",
	"redeliveryDelay":          "redelivery_delay",
}

// attributes reads the attributes of settingNames. Attributes that the broker does not return are missing.
func (s *session) attributes(ctx context.Context) (map[string]any, error) {
	var calls []call
	for name := range settingNames {
		calls = append(calls, attribute("broker", name))
	}
	answers, err := s.manage(ctx, calls...)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	for i, c := range calls {
		var v any
		if answers[i].value(&v) == nil {
			values[c.attribute] = v
		}
	}
	return values, nil
}

// flags returns the settings that the label assumes and that the server does not honour, by the name of the setting.
func (o *options) flags(values map[string]any) map[string]string {
	const not = ": not honoured by this server: "
	no := func(name string) bool { yes, ok := values[name].(bool); return ok && !yes }
	flags := map[string]string{}
	policy, _ := values["HAPolicy"].(string)
	switch {
	case o.HA == replication && !strings.Contains(policy, "Replication"):
		flags["ha"] = o.HA + not + "its policy is " + policy
	case o.HA == replication && no("ReplicaSync"):
		flags["ha"] = o.HA + not + "no backup is in sync"
	case o.HA == sharedStore && no("SharedStore"):
		flags["ha"] = o.HA + not + "its policy is " + policy
	}
	switch {
	case no("PersistenceEnabled"):
		flags["persistence"] = "true" + not + "persistence-enabled is false"
	case no("JournalSyncNonTransactional"):
		flags["journal_sync"] = "true" + not + "journal-sync-non-transactional is false"
	}
	return flags
}

// Describe reports the broker's AMQP connection properties, and its attributes and address settings from management.
func (s *session) Describe(ctx context.Context) (drivers.Description, error) {
	greeting, err := s.Properties(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe Artemis: %w", err)
	}
	d := drivers.Description{Settings: map[string]string{"routing": s.options.Routing, "ha": s.options.HA}}
	d.Product, _ = greeting["product"].(string)
	d.Version, _ = greeting["version"].(string)
	values, err := s.attributes(ctx)
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe Artemis: %w", err)
	}
	copyKnown(&d, settingNames, values)
	maps.Copy(d.Settings, s.options.flags(values))
	answers, err := s.manage(ctx, operation("broker", "listNetworkTopology"),
		operation("broker", "getAddressSettingsAsJSON", "lockstep"))
	if err != nil {
		return drivers.Description{}, fmt.Errorf("describe Artemis: %w", err)
	}
	d.Members = members(answers[0])
	var list string
	var settings map[string]any
	if answers[1].value(&list) == nil && json.Unmarshal([]byte(list), &settings) == nil {
		copyKnown(&d, addressSettings, settings)
	}
	return d, nil
}

// copyKnown copies the known values in values to the settings of d, under the names in names.
func copyKnown(d *drivers.Description, names map[string]string, values map[string]any) {
	for from, to := range names {
		if v, ok := values[from]; ok && v != nil {
			d.Settings[to] = plain(v)
		}
	}
}

// plain formats a value as text. Whole numbers have no decimal point or exponent.
func plain(v any) string {
	if n, ok := v.(float64); ok && n == float64(int64(n)) {
		return fmt.Sprint(int64(n))
	}
	return fmt.Sprint(v)
}

// members returns the addresses of a pair or cluster, as the broker reports them. A single broker has none.
func members(a answer) []string {
	var list string
	var nodes []map[string]string
	if a.value(&list) != nil || json.Unmarshal([]byte(list), &nodes) != nil {
		return nil
	}
	var all []string
	for _, n := range nodes {
		for _, role := range []string{"primary", "live", "backup"} {
			if at := n[role]; at != "" {
				all = append(all, at)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
