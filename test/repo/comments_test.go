package repo

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns limits the lines of comments. A tab counts as four columns.
const maxColumns = 120

// comment is a line of a comment that can be wrapped: no list item, no preformatted text, no directive.
var comment = regexp.MustCompile(`^\t*// [^ ].* `)

func TestCommentsFitTheColumns(t *testing.T) {
	list, err := exec.Command("git", "-C", "../..", "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(list)) {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > maxColumns && comment.MatchString(line) {
				t.Errorf("%s:%d: the comment has %d columns, more than %d: wrap it", name, i+1, columns, maxColumns)
			}
		}
	}
}
