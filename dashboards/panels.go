package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units of Grafana.
const (
	perSecond = "cps"
	seconds   = "s"
	count     = "short"
	bytesIEC  = "bytes"
	byteRate  = "binBps"
	cores     = "suffix: cores"
	percent   = "percent"
	none      = "none"
)

// Colours that are distinguishable with colour blindness (Okabe and Ito).
const (
	blue, orange, green, red = "#0072B2", "#E69F00", "#009E73", "#D55E00"
	sky, pink, grey          = "#56B4E9", "#CC79A7", "#999999"
)

// look contains the settings of a panel.
type look struct {
	title, doc    string
	unit          string
	width, height uint32
	query         string
	query2        string            // "": there is none
	legend        string            // name of a series, in Grafana's syntax; "": its field
	colours       map[string]string // by the series' name
	names         [][2]string       // names shown for columns or series, in order
	units         [][2]string       // of columns that differ
	decimals      *float64
	empty         string // text shown without data
}

// panel is the settings that all kinds of panels have.
type panel[P any] interface {
	Title(string) P
	Description(string) P
	Datasource(common.DataSourceRef) P
	Targets([]cog.Builder[variants.Dataquery]) P
	Unit(string) P
	Span(uint32) P
	Height(uint32) P
	NoValue(string) P
	Decimals(float64) P
	DisplayName(string) P
	OverrideByName(string, []dashboard.DynamicConfigValue) P
}

// dressed applies the settings to a panel.
func dressed[P panel[P]](p P, l look) P {
	targets := []cog.Builder[variants.Dataquery]{ask("A", l.query)}
	if l.query2 != "" {
		targets = append(targets, ask("B", l.query2))
	}
	p.Title(l.title)
	p.Description(l.doc)
	p.Datasource(source())
	p.Targets(targets)
	p.Unit(l.unit)
	p.Span(l.width)
	p.Height(l.height)
	p.NoValue(cmp.Or(l.empty, "nothing in this time range"))
	if l.decimals != nil {
		p.Decimals(*l.decimals)
	}
	if l.legend != "" {
		p.DisplayName(l.legend)
	}
	override := func(name, property string, value any) {
		p.OverrideByName(name, []dashboard.DynamicConfigValue{{Id: property, Value: value}})
	}
	for _, name := range slices.Sorted(maps.Keys(l.colours)) {
		override(name, "color", map[string]any{"mode": "fixed", "fixedColor": l.colours[name]})
	}
	for _, u := range l.units {
		override(u[0], "unit", u[1])
	}
	for _, n := range l.names {
		override(n[0], "displayName", n[1])
	}
	return p
}

// lines draws series over time, on an axis from zero. A gap in the data is a gap in the line.
func lines(l look) *timeseries.PanelBuilder {
	return dressed(timeseries.NewPanelBuilder(), l).Min(0).Interval("1s").
		LineInterpolation(common.LineInterpolationLinear).LineWidth(1.5).FillOpacity(0).ShowPoints(common.VisibilityModeAuto).PointSize(4).
		SpanNulls(common.BoolOrFloat64{Float64: new(3000.0)}).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).Placement(common.LegendPlacementBottom).
			ShowLegend(true).Calcs([]string{"lastNotNull", "max"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
}

// bars draws counts per interval.
func bars(l look) *timeseries.PanelBuilder {
	return lines(l).DrawStyle(common.GraphDrawStyleBars).FillOpacity(60).LineWidth(0).BarAlignment(common.BarAlignmentAfter).
		ShowPoints(common.VisibilityModeNever).Decimals(0).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// columns draws one bar per row and numeric column of a table. The column x contains the names.
func columns(l look, x string) *barchart.PanelBuilder {
	return dressed(barchart.NewPanelBuilder(), l).Min(0).XField(x).
		Orientation(common.VizOrientationAuto).ShowValue(common.VisibilityModeAuto).GroupWidth(0.75).BarWidth(0.9).
		XTickLabelRotation(-30).XTickLabelMaxLength(60).FillOpacity(80).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true).Calcs([]string{})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderNone))
}

// grid is a table.
func grid(l look) *table.PanelBuilder {
	return dressed(table.NewPanelBuilder(), l).Filterable(true).CellHeight(common.TableCellHeightSm).
		// which the published schema requires
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
}

// number shows the last value of each series in large type.
func number(l look) *stat.PanelBuilder {
	return dressed(stat.NewPanelBuilder(), l).Interval("1s").
		GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeNone).TextMode(common.BigValueTextModeAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Fields("/.*/").Values(false))
}

// base contains the common settings of dashboards. name is the name of the file.
func base(title, name, doc string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).Uid("lockstep-" + name).Description(doc).Tags([]string{"lockstep"}).
		Timezone("browser").Tooltip(dashboard.DashboardCursorSyncCrosshair).Editable().
		Links([]cog.Builder[dashboard.DashboardLink]{dashboard.NewDashboardLinkBuilder("Lockstep").
			Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"lockstep"}).AsDropdown(true).IncludeVars(true).
			KeepTime(true)})
}

// event is a query whose rows are annotations in all panels.
func event(name, colour, query string) *dashboard.AnnotationQueryBuilder {
	return dashboard.NewAnnotationQueryBuilder().Name(name).Datasource(source()).Enable(true).Hide(false).IconColor(colour).Target(ask("Anno", query))
}

func withAll(d *dashboard.DashboardBuilder, panels ...builder) *dashboard.DashboardBuilder {
	for _, p := range panels {
		d.WithPanel(p)
	}
	return d
}

func orList(column string, values ...string) string {
	var tests []string
	for _, v := range values {
		tests = append(tests, fmt.Sprintf("r.%s == %q", column, v))
	}
	return "(" + strings.Join(tests, " or ") + ")"
}

type builder = cog.Builder[dashboard.Panel]
