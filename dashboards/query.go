package main

import (
	"errors"
	"reflect"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
)

// The type of the data source, and its name in the provisioning files.
const (
	sourceType = "influxdb"
	sourceUID  = "lockstep"
)

// flux is a query in Flux, which the dashboard library does not support.
type flux struct {
	RefID      string               `json:"refId"`
	Datasource common.DataSourceRef `json:"datasource"`
	Query      string               `json:"query"`
}

func (flux) ImplementsDataqueryVariant() {}

func (flux) DataqueryType() string { return sourceType }

func (q flux) Equals(other variants.Dataquery) bool {
	return reflect.DeepEqual(&q, other) || reflect.DeepEqual(q, other)
}

// Validate checks that a query has the fields that Grafana requires.
func (q flux) Validate() error {
	switch {
	case q.RefID == "":
		return errors.New("a query needs a refId")
	case strings.TrimSpace(q.Query) == "":
		return errors.New("a query is empty")
	case q.Datasource.Uid == nil || *q.Datasource.Uid != sourceUID || q.Datasource.Type == nil ||
		*q.Datasource.Type != sourceType:
		return errors.New("a query uses another data source")
	}
	return nil
}

// Build implements the library's interface for builders.
func (q flux) Build() (variants.Dataquery, error) { return q, q.Validate() }

func ask(ref, query string) flux {
	return flux{RefID: ref, Datasource: source(), Query: strings.TrimSpace(query) + "\n"}
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new(sourceType), Uid: new(sourceUID)}
}
