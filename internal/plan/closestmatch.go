package plan

import (
	"fmt"
	"strings"
)

// ClosestMatch returns the name most similar to s, or "" if none is similar.
func ClosestMatch(s string, names []string) string {
	best, shortest := "", max(1, len(s)/3)+1
	for _, name := range names {
		d := distance(strings.ToLower(s), strings.ToLower(name))
		if name != s && d < shortest {
			best, shortest = name, d
		}
	}
	return best
}

// DidYouMean returns the end of an error about an unknown name: the most similar name, or "" if none is similar.
func DidYouMean(s string, names []string) string {
	if near := ClosestMatch(s, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}

// distance returns the edit distance of two words: insertions, deletions, substitutions and swaps of adjacent letters
// (optimal string alignment).
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
