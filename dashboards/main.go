// Command dashboards writes the Grafana dashboards of Lockstep into its own folder. It is a separate Go module, so that
// Lockstep does not depend on its libraries.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

//go:generate go run .

// folder contains the dashboards in Grafana. Titles must be unique within a folder.
const folder = "Lockstep"

// board is one dashboard and the name of its file.
type board struct {
	file  string
	build func() *dashboard.DashboardBuilder
}

var boards = []board{
	{"live", live}, {"run", summary}, {"broker", axes}, {"compare", comparison}, {"trend", trend},
}

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(dir string) error {
	for _, b := range boards {
		text, err := render(b)
		if err != nil {
			return fmt.Errorf("make the dashboard %s: %w", b.file, err)
		}
		if err := os.WriteFile(filepath.Join(dir, b.file+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func render(b board) ([]byte, error) {
	d, err := b.build().Build()
	if err != nil {
		return nil, err
	}
	number := uint32(0)
	for _, p := range d.Panels {
		number++
		if p.Panel != nil {
			p.Panel.Id = new(number)
		} else {
			p.RowPanel.Id = number
		}
	}
	for i := range d.Links {
		d.Links[i].Placement = nil // visible
	}
	for i := range d.Annotations.List {
		d.Annotations.List[i].Placement = nil
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}
