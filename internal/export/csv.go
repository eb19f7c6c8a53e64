package export

import (
	"encoding/csv"
	"io"
	"strconv"
)

// CSV writes a table according to RFC 4180. Numbers are unrounded, and a missing value is empty.
func CSV(w io.Writer, t Table) error {
	out := csv.NewWriter(w)
	line := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		line[i] = c.Name
	}
	if err := out.Write(line); err != nil {
		return err
	}
	for row, err := range t.Rows {
		if err != nil {
			return err
		}
		for i, v := range row {
			if line[i], err = plain(t.Columns[i], v); err != nil {
				return err
			}
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func plain(c Column, v any) (string, error) {
	switch x := v.(type) {
	case nil:
		return "", nil
	case string:
		return x, nil
	case int64:
		return strconv.FormatInt(x, 10), nil
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64), nil
	case bool:
		return strconv.FormatBool(x), nil
	}
	return "", wrong(c, v)
}
