package report

import (
	"encoding/xml"
	"fmt"
	"slices"

	"example.org/lockstep/lockstep/internal/plan"
)

// The elements of JUnit's XML that CI systems read, as described at https://github.com/testmoapp/junitxml.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		At       string      `xml:"timestamp,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		Time    string       `xml:"time,attr"`
		Failure *junitReason `xml:"failure"`
		Error   *junitReason `xml:"error"`
		Skipped *junitReason `xml:"skipped"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
	}
)

// writeJUnit returns a run as JUnit XML. Each cell has a test "valid" and a test per rule. A cell that is not valid is
// an error. A violated rule is a failure. An inconclusive rule is an error, or skipped if the rule accepts that.
func writeJUnit(run plan.Run, outcomes []plan.Outcome) ([]byte, error) {
	suite := junitSuite{Name: run.Name, At: run.Started.UTC().Format("2006-01-02T15:04:05"), Time: "0"}
	rulings := Rulings(run, outcomes)
	var last float64
	for _, c := range newBuilder(run, outcomes).cells {
		took := 0.0
		for _, o := range c.outcomes {
			took += o.Ended.Sub(o.Started).Seconds()
			last = max(last, o.Ended.Sub(run.Started).Seconds())
		}
		valid := junitCase{Name: "valid", Class: c.name(), Time: seconds(took)}
		if why := c.unsound(run.Strict); why != "" {
			valid.Error = &junitReason{why}
			suite.Errors++
		}
		suite.Cases = append(suite.Cases, valid)
		for _, r := range rulings {
			if r.ID != c.cell.ID {
				continue
			}
			one := junitCase{Name: r.Rule, Class: r.Cell, Time: "0"}
			switch {
			case r.Result == Violated:
				one.Failure = &junitReason{r.Why}
				suite.Failures++
			case r.Failed():
				one.Error = &junitReason{r.Why}
				suite.Errors++
			case r.Result == Inconclusive:
				one.Skipped = &junitReason{r.Why}
				suite.Skipped++
			}
			suite.Cases = append(suite.Cases, one)
		}
	}
	suite.Tests, suite.Time = len(suite.Cases), seconds(last)
	text, err := xml.MarshalIndent(suite, "", "  ")
	return slices.Concat([]byte(xml.Header), text, []byte("\n")), err
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
