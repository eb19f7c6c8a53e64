package drivertest

import (
	"reflect"
	"strings"

	"example.org/lockstep/lockstep/pkg/drivers"
)

// optional returns the optional interfaces of sessions.
func optional() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[drivers.Describer](), reflect.TypeFor[drivers.Prober](), reflect.TypeFor[drivers.Binder](),
		reflect.TypeFor[drivers.Cleaner](), reflect.TypeFor[drivers.Verifier](), reflect.TypeFor[drivers.ClientProcesses](),
	}
}

// checkOptional logs the optional interfaces of a session, and proves that it implements each one whole or not at all.
func checkOptional(c *check) {
	inner, _ := drivers.As[any](c.session())
	session := reflect.TypeOf(inner)
	var found, missing []string
	for _, x := range optional() {
		if session.Implements(x) {
			found = append(found, x.Name())
			continue
		}
		missing = append(missing, x.Name())
		for i := range x.NumMethod() {
			if _, has := session.MethodByName(x.Method(i).Name); has {
				c.errorf("the session has a method %s, but does not implement %v", x.Method(i).Name, x)
			}
		}
	}
	c.logf("optional interfaces: %s; not implemented: %s", strings.Join(found, ", "), strings.Join(missing, ", "))
}
