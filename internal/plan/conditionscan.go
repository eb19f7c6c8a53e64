package plan

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenConstant
	tokenSign
)

type token struct {
	kind   tokenKind
	text   string
	column int
}

func (t token) String() string {
	if t.kind == tokenEnd {
		return "the end"
	}
	return fmt.Sprintf("%q", t.text)
}

// signs are the operators; longer ones come before their prefixes.
var signs = []string{"&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "(", ")"}

var meant = map[string]string{"=": "==", "&": "&&", "|": "||", "≤": "<=", "≥": ">=", "≠": "!=", "and": "&&",
	"AND": "&&", "or": "||", "OR": "||", "not": "!", "NOT": "!"}

// scan splits the text into tokens. A common wrong operator (meant) is reported, and replaced so that the rest can be
// checked.
func (p *conditionParser) scan(text string) []token {
	var out []token
	column := 1
	for text != "" {
		r, size := utf8.DecodeRuneInString(text)
		t := token{kind: tokenSign, text: text[:size], column: column}
		switch {
		case unicode.IsSpace(r):
			t.kind = tokenEnd
		case unicode.IsLetter(r):
			t.kind, t.text = tokenWord, leading(text, "._-")
		case unicode.IsDigit(r):
			t.kind, t.text = tokenConstant, leading(text, "._/")
		default:
			if i := slices.IndexFunc(signs, func(s string) bool { return strings.HasPrefix(text, s) }); i >= 0 {
				t.text = signs[i]
			} else if meant[t.text] == "" {
				p.report(t, "%s is not valid here%s", t, hint(t.text))
				t.kind = tokenEnd
			}
		}
		text, column = text[len(t.text):], column+utf8.RuneCountInString(t.text)
		if t.kind == tokenEnd {
			continue
		}
		if better := meant[t.text]; better != "" {
			p.report(t, "write %s instead of %s", better, t.text)
			t.kind, t.text = tokenSign, better
		}
		out = append(out, t)
	}
	p.end = column
	return out
}

func hint(sign string) string {
	if sign == "," {
		return "; write thousands as 20_000"
	}
	return ""
}

// leading returns the longest prefix of text that consists of letters, digits and the characters in others.
func leading(text, others string) string {
	end := strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(others, r)
	})
	if end < 0 {
		return text
	}
	return text[:end]
}
