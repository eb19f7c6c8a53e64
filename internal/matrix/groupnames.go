package matrix

import (
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"

	"lockstep/internal/plan"
)

// groupAxis is the axis on which tables show the groups of cells. Matrices with groups cannot have an axis with this
// name.
const groupAxis = "group"

// groupNames are the names of groups that a matrix contains literally.
type groupNames struct {
	names []string
	open  bool // there are computed names, too
}

func (g groupNames) any() bool { return g.open || len(g.names) > 0 }

func (g groupNames) has(name string) bool {
	return slices.Contains(g.names, name) || g.open && groupName.MatchString(name)
}

// readGroups collects the names of groups in the template.
func (l *loader) readGroups() {
	ast.Walk(l.doc.syntax, func(n ast.Node) bool {
		f, ok := n.(*ast.Field)
		switch {
		case ok && slices.Contains([]string{"brokers", "axes", "tables", "labels", "skip"}, labelOf(f)):
			return false // options, axes and labels may have these names
		case ok && labelOf(f) == "groups":
			l.groups.collect(f.Value)
			return false
		case ok && labelOf(f) == "sideBySide":
			l.groups.collectBrokers(f.Value)
			return false
		}
		return true
	}, nil)
	if a := l.space.find(groupAxis); a >= 0 && l.groups.any() {
		l.doc.add(l.space.axes[a].place, join("axes", groupAxis),
			"tables use this name for the groups of the cell; rename the axis")
	}
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

// isValue reports whether tables can show a value with this name, of the cell or of a group.
func (c *tableChecker) isValue(name string) bool {
	group, value := plan.SplitGroup(name)
	return isValue(value) && (group == "" || c.groups.has(group))
}

// noTableValue returns the message for a name that isValue rejects.
func (c *tableChecker) noTableValue(name string) string {
	group, value := plan.SplitGroup(name)
	switch {
	case group == "" || c.groups.has(group):
		return noTableValue(value)
	case !c.groups.any():
		return fmt.Sprintf("%q is a value of a group, and the cell has no groups; use %q", name, value)
	}
	msg := fmt.Sprintf("unknown group %q", group)
	if near := plan.ClosestMatch(group, c.groups.names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near+"/"+value)
	}
	return msg + " (available: " + strings.Join(c.groups.names, ", ") + ")"
}
