package matrix

import (
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
)

// groupAxis is the axis on which tables show the groups of cells. Matrices with groups cannot have an axis with this
// name.
const groupAxis = "group"

// groupName matches valid group names. They are short and consist of letters and digits, because they are part of queue
// names at every broker.
var groupName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,11}$`)

const maxGroupName = 12

// ofGroups are the parts of a cell that each group may override.
var ofGroups = []string{"publishers", "consumers", "topology", "message"}

// sideBySide returns the name of the group for a side-by-side broker.
func sideBySide(broker string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, broker)
	return name[:min(len(name), maxGroupName)]
}

// groupNames are the names of groups that a matrix contains literally.
type groupNames struct {
	names []string
	open  bool // there are computed names, too
}

func (g groupNames) any() bool { return g.open || len(g.names) > 0 }

func (g groupNames) has(name string) bool {
	return slices.Contains(g.names, name) || g.open && groupName.MatchString(name)
}

func (g *groupNames) collect(x ast.Expr) {
	lit, ok := x.(*ast.StructLit)
	if !ok {
		g.open = true
		return
	}
	for _, e := range lit.Elts {
		switch e := e.(type) {
		case *ast.Field:
			if name := labelOf(e); name != "" {
				g.names = appendNew(g.names, name)
			} else {
				g.open = true
			}
		case *ast.Comprehension: // an "if"; labels in a "for" are computed
			g.collect(e.Value)
		case *ast.CommentGroup:
		default:
			g.open = true
		}
	}
}

// collectBrokers collects the names of groups from a list of side-by-side brokers.
func (g *groupNames) collectBrokers(x ast.Expr) {
	list, ok := x.(*ast.ListLit)
	if !ok {
		g.open = true
		return
	}
	for _, e := range list.Elts {
		lit, ok := e.(*ast.BasicLit)
		if !ok {
			g.open = true
			continue
		}
		if broker, err := literal.Unquote(lit.Value); err == nil {
			g.names = appendNew(g.names, sideBySide(broker))
		}
	}
}
