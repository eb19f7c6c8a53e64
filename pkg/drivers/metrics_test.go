package drivers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// A metric that is not in the list could not become a value of a table.
func TestMetricsListsEveryConstant(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "optional.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants []MetricName
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := v.Type.(*ast.Ident); ok && name.Name == "MetricName" {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			constants = append(constants, MetricName(text))
		}
		return true
	})
	if len(constants) < 10 || !slices.Equal(constants, Metrics()) {
		t.Errorf("the constants are %v, the list is %v", constants, Metrics())
	}
}
