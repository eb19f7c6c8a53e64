package export

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// rowsAtOnce is the number of rows per call of the library. rowsInGroup limits the rows that it has in memory before it
// writes them.
const (
	rowsAtOnce  = 256
	rowsInGroup = 100_000
)

// Parquet writes a table as a Parquet file, compressed with Zstandard. The columns are in alphabetical order and
// nullable.
func Parquet(w io.Writer, t Table) error {
	root := parquet.Group{}
	for _, c := range t.Columns {
		root[c.Name] = parquet.Optional(leaves[c.Kind])
	}
	if len(root) != len(t.Columns) {
		return fmt.Errorf("two columns of the table have the same name")
	}
	schema := parquet.NewSchema("lockstep", root)
	places := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		column, _ := schema.Lookup(c.Name)
		places[i] = column.ColumnIndex
	}
	out := parquet.NewGenericWriter[any](w, schema, parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("lockstep", "1", "0"), parquet.MaxRowsPerRowGroup(rowsInGroup))
	var rows []parquet.Row
	for row, err := range t.Rows {
		if err != nil {
			return err
		}
		values := make(parquet.Row, len(places))
		for i, v := range row {
			if values[places[i]], err = value(t.Columns[i], v, places[i]); err != nil {
				return err
			}
		}
		if rows = append(rows, values); len(rows) == rowsAtOnce {
			if _, err := out.WriteRows(rows); err != nil {
				return fmt.Errorf("write rows: %w", err)
			}
			rows = rows[:0]
		}
	}
	if _, err := out.WriteRows(rows); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return out.Close()
}

// leaves are the types of columns in the schema.
var leaves = map[kind]parquet.Node{text: parquet.String(), whole: parquet.Int(64),
	number: parquet.Leaf(parquet.DoubleType), truth: parquet.Leaf(parquet.BooleanType)}

// value returns one field of a row: definition level 1 for a value, 0 for null.
func value(c Column, v any, place int) (parquet.Value, error) {
	switch x := v.(type) {
	case nil:
		return parquet.NullValue().Level(0, 0, place), nil
	case string:
		if c.Kind == text {
			return parquet.ByteArrayValue([]byte(x)).Level(0, 1, place), nil
		}
	case int64:
		if c.Kind == whole {
			return parquet.Int64Value(x).Level(0, 1, place), nil
		}
	case float64:
		if c.Kind == number {
			return parquet.DoubleValue(x).Level(0, 1, place), nil
		}
	case bool:
		if c.Kind == truth {
			return parquet.BooleanValue(x).Level(0, 1, place), nil
		}
	}
	return parquet.Value{}, wrong(c, v)
}
