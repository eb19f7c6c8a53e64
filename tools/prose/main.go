// Command prose writes the texts in the string literals of Go files as HTML, for vale.
// Line N of OUT/FILE.html contains the texts in line N of FILE: the help of flags as <h6>, all others as <p>.
package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	prose  = regexp.MustCompile(`[A-Za-z][a-z'-]*[,:]? [A-Za-z][a-z'-]*[,:]? [A-Za-z]`) // three words
	source = regexp.MustCompile(`^#!|</|/>|\{\{|:=|=>|^\^|\\[bdsw(]`)                   // scripts, markup, code, patterns
	code   = regexp.MustCompile("`([^`\n]*)`")
	verb   = regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z]`) // of fmt
	flags  = regexp.MustCompile(`^(String|Bool|Int|Uint|Float|Duration|Count|Var)[A-Za-z0-9]*$`)
)

// page contains the HTML of each line.
type page map[int]string

// add adds the paragraphs of a text that begins in the given line. An indented line is an example. A line of a list is
// a paragraph, and so are the parts of a message: what failed, and after "; " the fix.
func (p page) add(line int, text, element string, raw bool) {
	text = verb.ReplaceAllString(strings.ReplaceAll(text, "%%", " percent"), "X")
	if !prose.MatchString(text) || source.MatchString(text) {
		return
	}
	if element == "p" && !raw {
		text = strings.ReplaceAll(text, "; ", "\n")
	}
	end := ""
	for i, row := range strings.Split(text, "\n") {
		isText := strings.Trim(row, " \tX") != "" && !strings.HasPrefix(row, "\t") && !strings.HasPrefix(row, "  ")
		if !isText || !raw || strings.HasPrefix(row, "- ") {
			p[line] += end
			end = ""
		}
		if i > 0 && raw {
			line++
		}
		if isText && end == "" {
			p[line] += "<" + element + ">"
			end = "</" + element + ">"
		}
		if isText {
			p[line] += code.ReplaceAllString(html.EscapeString(row), "<code>$1</code>")
		}
	}
	p[line] += end
}

// join returns the text of a string expression, and its operands that are no literals, for which the text has an X.
func join(e ast.Expr) (text string, others []ast.Expr) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
			return text, nil
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, x := join(e.X)
			right, y := join(e.Y)
			return left + right, append(x, y...)
		}
	}
	return "X", []ast.Expr{e}
}

// extract returns the texts of a file.
func extract(set *token.FileSet, file ast.Node) page {
	p := page{}
	element := map[ast.Expr]string{} // of the help of flags
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field: // without its tag
			ast.Inspect(n.Type, visit)
			return false
		case *ast.CallExpr:
			if f, is := n.Fun.(*ast.SelectorExpr); is && len(n.Args) > 2 && flags.MatchString(f.Sel.Name) {
				element[n.Args[len(n.Args)-1]] = "h6"
			}
		case ast.Expr:
			text, others := join(n)
			if strings.Trim(text, "X") == "" {
				return true
			}
			literal, is := n.(*ast.BasicLit)
			p.add(set.Position(n.Pos()).Line, text, cmp.Or(element[n], "p"), is && literal.Value[0] == '`')
			for _, e := range others {
				ast.Inspect(e, visit)
			}
			return false
		}
		return true
	}
	ast.Inspect(file, visit)
	return p
}

func main() {
	log.SetFlags(0)
	for _, name := range os.Args[2:] {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			log.Fatal(err)
		}
		p := extract(set, file)
		var b strings.Builder
		for line := 1; line <= set.Position(file.End()).Line; line++ {
			b.WriteString(p[line] + "\n")
		}
		to := filepath.Join(os.Args[1], name+".html")
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(b.String()), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
