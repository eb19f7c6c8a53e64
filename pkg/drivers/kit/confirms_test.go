package kit_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"example.org/lockstep/lockstep/pkg/drivers/kit"
)

func TestConfirmsJoinsEqualResults(t *testing.T) {
	type call struct {
		tokens []uint64
		err    error
	}
	var calls []call
	c := kit.Confirms{OnConfirms: func(tokens []uint64, err error) {
		calls = append(calls, call{slices.Clone(tokens), err})
	}}
	rejected := errors.New("rejected")
	for token, err := range []error{nil, nil, rejected, rejected, nil} {
		c.Add(uint64(token), err)
	}
	c.Report()
	c.Report()
	c.Add(5, nil)
	c.Report()
	want := []call{{[]uint64{0, 1}, nil}, {[]uint64{2, 3}, rejected}, {[]uint64{4}, nil}, {[]uint64{5}, nil}}
	if !reflect.DeepEqual(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
}
